"""Parameters of config.pbtxt are read at one door, and a wrong one says what would be right."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from triton_backend.config import (
    ConfigError,
    ReadConfig,
    ServeConfig,
    model_parameters,
    parse_config,
    parse_read_config,
)

MODEL_REPO = Path(__file__).parents[2] / "model_repo"


def test_texts_become_a_config():
    config = parse_config({"engine_dir": "/e", "fusion": "off", "kv_cache_pages": "12"})
    assert config == ServeConfig("/e", kv_cache_pages=12, fusion=False)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "engine_dir is empty"),
        (
            {"engine_dir": "e", "pages": "3", "x": ""},
            "Unknown parameter pages, x; known are .*fusion",
        ),
        ({"engine_dir": "e", "fusion": "yes"}, "fusion is 'yes', 'on' or 'off' is needed"),
        ({"engine_dir": "e", "threads": "two"}, "threads is 'two', a whole number is needed"),
        ({"engine_dir": "e", "threads": "-1"}, "threads is -1, at least 0 is needed"),
        ({"engine_dir": "e", "max_queue_size": "0"}, "max_queue_size is 0, at least 1 is needed"),
        ({"engine_dir": "e", "kv_cache_pages": "1", "kv_cache_bytes": "1"}, "both set; give one"),
    ],
)
def test_a_wrong_parameter_is_refused_in_one_sentence(parameters, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(parameters)


def test_the_plain_model_has_a_door_of_its_own():
    assert parse_read_config({"max_in_flight": "3"}) == ReadConfig(3)
    with pytest.raises(ConfigError, match="Unknown parameter fusion"):
        parse_read_config({"fusion": "on"})


def test_parameters_come_out_of_tritons_json():
    model = json.loads('{"parameters": {"engine_dir": {"string_value": "/e"}}}')
    assert model_parameters(model) == {"engine_dir": "/e"}
    assert model_parameters({}) == {}


@pytest.mark.parametrize(
    ("model", "config"), [("diffusion_gemma", ServeConfig), ("structured_read", ReadConfig)]
)
def test_the_model_repository_declares_every_parameter_with_its_default(model, config):
    text = (MODEL_REPO / model / "config.pbtxt").read_text(encoding="utf-8")
    declared = dict(re.findall(r'key: "(\w+)" value \{ string_value: "(.*?)" \}', text))
    assert set(declared) == {field.name for field in dataclasses.fields(config)}
    parse = {ServeConfig: parse_config, ReadConfig: parse_read_config}[config]
    given = {**declared, "engine_dir": "e"} if config is ServeConfig else declared
    assert parse(given) == (ServeConfig("e") if config is ServeConfig else ReadConfig())


def test_both_models_take_and_give_the_same_tensors():
    texts = [
        (MODEL_REPO / model / "config.pbtxt").read_text(encoding="utf-8")
        for model in ("diffusion_gemma", "structured_read")
    ]
    tensors = [re.findall(r"\{ name: .* \}", text) for text in texts]
    assert tensors[0] == tensors[1]
    assert len(tensors[0]) == 18
