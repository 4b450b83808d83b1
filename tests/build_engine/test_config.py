"""Configurations that must load alike, and those that must be refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from build_engine.config import load_config
from build_engine.errors import EngineError


def edit(directory: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    path = directory / "config.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    return directory


def test_geometry_equals_what_was_saved(tiny: Path) -> None:
    config = load_config(tiny)
    geometry = config.geometry
    assert (geometry.sliding_kv_heads, geometry.sliding_head_dim) == (2, 16)
    assert (geometry.full_kv_heads, geometry.full_head_dim) == (1, 32)
    assert geometry.layer_types.count("full_attention") == 1
    assert config.stop_ids == (1, 106, 50)


def test_both_spellings_of_the_full_layers_read_alike(copy_of: Callable[[], Path]) -> None:
    """The released checkpoint names the full layers' shape globally; newer saves per layer."""
    directory = copy_of()
    expected = load_config(directory)

    def respell(values: dict[str, Any]) -> None:
        del values["text_config"]["per_layer_config"]
        values["text_config"]["global_head_dim"] = 32
        values["text_config"]["num_global_key_value_heads"] = 1

    assert load_config(edit(directory, respell)) == expected


def test_layer_keys_may_be_zero_padded(copy_of: Callable[[], Path]) -> None:
    """With ten layers or more, transformers saves the per-layer keys as "05" and "11"."""
    directory = copy_of()
    expected = load_config(directory)

    def pad(values: dict[str, Any]) -> None:
        text = values["text_config"]
        text["per_layer_config"] = {f"{n:0>2}": v for n, v in text["per_layer_config"].items()}

    assert load_config(edit(directory, pad)) == expected


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda v: v.update(architectures=["LlamaForCausalLM"]), "LlamaForCausalLM"),
        (lambda v: v.pop("architectures"), "DiffusionGemmaForBlockDiffusion"),
        (lambda v: v.update(quantization_config={"quant_method": "fp8"}), "quantization_config"),
        (lambda v: v["text_config"].update(attention_bias=True), "attention_bias"),
        (lambda v: v["text_config"].update(use_bidirectional_attention="all"), "bidirectional"),
        (lambda v: v["text_config"].pop("sliding_window"), "sliding_window"),
        (lambda v: v["text_config"].update(layer_types=["odd_attention"] * 6), "odd_attention"),
        (
            lambda v: v["text_config"]["per_layer_config"].update({"0": {"head_dim": 8}}),
            "per_layer",
        ),
    ],
)
def test_an_unsupported_config_is_refused_naming_the_value(
    copy_of: Callable[[], Path], change: Callable[[dict[str, Any]], None], named: str
) -> None:
    with pytest.raises(EngineError, match=named):
        load_config(edit(copy_of(), change))


@pytest.mark.parametrize("content", ["", "{", "[]", "\xff"])
def test_a_config_that_is_not_a_json_object_is_refused(
    copy_of: Callable[[], Path], content: str
) -> None:
    directory = copy_of()
    (directory / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(EngineError, match=r"config\.json"):
        load_config(directory)
