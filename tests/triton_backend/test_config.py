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
from triton_backend.parse import INPUTS

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


def tensors(model):
    """Inputs and outputs that a model declares, one line each."""
    text = (MODEL_REPO / model / "config.pbtxt").read_text(encoding="utf-8")
    inputs, outputs = text.split("\noutput [")
    return [re.findall(r"\{ name: .* \}", part) for part in (inputs, outputs)]


@pytest.mark.parametrize("model", ["structured_read", "ensemble"])
def test_what_forwards_to_the_engine_takes_and_gives_only_what_the_engine_does(model):
    for mine, engines in zip(tensors(model), tensors("diffusion_gemma"), strict=True):
        assert set(mine) <= set(engines)


def test_the_engine_declares_every_input_that_is_parsed():
    declared = [re.search(r'name: "(\w+)"', line)[1] for line in tensors("diffusion_gemma")[0]]
    assert sorted(declared) == sorted(INPUTS)
