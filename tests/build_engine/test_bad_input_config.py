"""Every kind of config.json that no engine can be built from: one sentence, and nothing left."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from build_engine.config import load_config
from build_engine.errors import EngineError
from tests.build_engine.refusals import Change, Refusal, edit_json

FULL, SLIDING = "full_attention", "sliding_attention"
SHAPE = {"head_dim": 32, "num_key_value_heads": 1}


def top(**values: Any) -> Change:
    return lambda config: config.update(values)


def text(**values: Any) -> Change:
    return lambda config: config["text_config"].update(values)


def rope(layer_type: str, **values: Any) -> Change:
    return lambda config: config["text_config"]["rope_parameters"][layer_type].update(values)


def text_alone(config: dict[str, Any]) -> None:
    """What a saved text part has: its fields at top level, and no text_config."""
    inner = config.pop("text_config")
    config.clear()
    config.update(inner)


def text_alone_under_the_whole_name(config: dict[str, Any]) -> None:
    found = config["architectures"]
    text_alone(config)
    config["architectures"] = found


KINDS: dict[str, tuple[Change, str]] = {
    "architecture_of_another_model": (
        top(architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4"),
        "'Gemma4ForConditionalGeneration'.*supported: DiffusionGemmaForBlockDiffusion",
    ),
    "architecture_missing": (lambda c: c.pop("architectures"), "architecture None"),
    "architecture_no_list": (top(architectures={"a": 1}), "architecture"),
    "architectures_empty": (top(architectures=[]), r"architecture \[\]"),
    "text_part_alone": (text_alone, "model_type 'diffusion_gemma_text'.*supported: Diff"),
    "text_part_as_whole": (text_alone_under_the_whole_name, "text_config is missing"),
    "text_part_null": (top(text_config=None), "text_config is missing"),
    "text_part_a_list": (top(text_config=[1]), r"text_config is \[1\]"),
    "model_type_of_another_model": (top(model_type="gemma4"), "model_type is 'gemma4'"),
    "text_type_of_another_model": (text(model_type="gemma4_text"), "model_type is 'gemma4_text'"),
    "quantised": (top(quantization_config={"quant_method": "fp8"}), "quantization_config.*bf16"),
    "quantised_empty": (top(quantization_config={}), "quantization_config"),
    "quantised_text": (text(quantization_config={"bits": 4}), "quantization_config"),
    "compressed": (top(compression_config={"format": "int4"}), "compression_config"),
    "values_apart_from_keys": (text(attention_k_eq_v=False), "attention_k_eq_v is False"),
    "shared_kv_layers": (text(num_kv_shared_layers=2), "num_kv_shared_layers is 2"),
    "attention_softcap": (text(attn_logit_softcapping=50.0), "attn_logit_softcapping is 50"),
    "old_rope_scaling": (text(rope_scaling={"type": "linear", "factor": 8}), "rope_scaling"),
    "activation": (text(hidden_activation=["gelu"]), r"hidden_activation is \['gelu'\]"),
    "all_bidirectional": (text(use_bidirectional_attention="all"), "use_bidirectional_attention"),
    "untied": (top(tie_word_embeddings=False), "tie_word_embeddings.*lm_head.weight is missing"),
    "untied_text": (text(tie_word_embeddings=False), "tie_word_embeddings"),
    "tie_flag_a_word": (top(tie_word_embeddings="false"), "tie_word_embeddings is 'false'"),
}
SIZES: dict[str, tuple[Change, str]] = {
    "missing": (lambda c: c["text_config"].pop("hidden_size"), "hidden_size is missing"),
    "a_word": (text(vocab_size="512"), "vocab_size is '512', .* whole number from"),
    "true": (text(vocab_size=True), "vocab_size is True"),
    "zero": (text(vocab_size=0), "vocab_size is 0"),
    "negative": (text(hidden_size=-64), "hidden_size is -64"),
    "a_fraction": (text(vocab_size=512.5), "vocab_size is 512.5"),
    "null": (text(num_experts=None), "num_experts is None"),
    "a_list": (text(vocab_size=[512]), r"vocab_size is \[512\]"),
    "huge": (text(vocab_size=10**30), "vocab_size is 10+, .* to 2147483647"),
    "layers_beyond_memory": (
        text(num_hidden_layers=10**9, layer_types=None),
        "num_hidden_layers is 1000000000",
    ),
    "no_layers": (text(num_hidden_layers=0), "num_hidden_layers is 0"),
    "more_chosen_than_experts": (text(top_k_experts=5), "top_k_experts is 5.*from 1 to 4"),
    "kv_heads_that_do_not_divide": (text(num_key_value_heads=3), "4 attention heads.*3 KV heads"),
    "odd_head": (text(head_dim=15), "width 15"),
    "no_window": (text(sliding_window=None), "sliding_window is None"),
    "window_zero": (text(sliding_window=0), "sliding_window is 0"),
    "no_softcap": (text(final_logit_softcapping=None), "final_logit_softcapping is None"),
    "softcap_zero": (text(final_logit_softcapping=0), "final_logit_softcapping is 0"),
    "softcap_a_word": (text(final_logit_softcapping="30"), "final_logit_softcapping is '30'"),
    "eps_a_word": (text(rms_norm_eps="tiny"), "rms_norm_eps is 'tiny'"),
    "eps_negative": (text(rms_norm_eps=-1e-6), "rms_norm_eps is -1e-06"),
    "canvas_null": (top(canvas_length=None), "canvas_length is None"),
    "canvas_zero": (top(canvas_length=0), "canvas_length is 0"),
    "one_position": (text(max_position_embeddings=1), "max_position_embeddings is 1"),
    "pad_beyond_the_table": (text(pad_token_id=512), "pad_token_id is 512.*from 0 to 511"),
    "bos_a_list": (text(bos_token_id=[2]), r"bos_token_id is \[2\]"),
}
LAYERS: dict[str, tuple[Change, str]] = {
    "a_word": (text(layer_types=FULL), f"layer_types is '{FULL}'"),
    "numbers": (text(layer_types=[1, "a", None, 1, 1, 1]), "layer_types is "),
    "none": (text(layer_types=[]), r"layer_types is \[\]"),
    "too_few": (text(layer_types=[SLIDING] * 5), "a list of 6 of"),
    "unknown": (text(layer_types=["chunked_attention"] * 6), "layer_types is .*chunked"),
    "shapes_a_list": (text(per_layer_config=[1]), r"per_layer_config is \[1\]"),
    "shapes_by_name": (text(per_layer_config={"x": SHAPE}), "per_layer_config names layer 'x'"),
    "shape_a_number": (text(per_layer_config={"5": 3}), "5 is 3"),
    "shape_of_no_layer": (text(per_layer_config={"5": SHAPE, "9": {}}), "names layer '9'"),
    "shape_of_a_window": (
        text(per_layer_config={"5": {**SHAPE, "sliding_window": 4}}),
        "sliding_window is not supported for one layer",
    ),
    "rope_unknown": (rope(FULL, rope_type="yarn"), "rope_type 'yarn'.*supported: default"),
    "rope_unknown_sliding": (rope(SLIDING, rope_type="longrope"), "rope_type 'longrope'"),
    "rope_type_a_list": (rope(FULL, rope_type=["default"]), "rope_type"),
    "rope_scaled": (rope(FULL, factor=8.0), "factor is 8.0, it must be 1"),
    "rope_of_other_fields": (rope(SLIDING, attention_factor=0.5), "attention_factor is not known"),
    "rope_base_zero": (rope(FULL, rope_theta=0), "rope_theta is 0"),
    "rope_base_a_word": (rope(FULL, rope_theta="1e6"), "rope_theta is '1e6'"),
    "rope_base_missing": (
        lambda c: c["text_config"]["rope_parameters"][FULL].pop("rope_theta"),
        "rope_theta is missing",
    ),
    "rope_of_more_than_the_head": (rope(FULL, partial_rotary_factor=2), "factor is 2, .* most 1"),
    "rope_of_less_than_nothing": (rope(FULL, partial_rotary_factor=-1), "factor is -1"),
    "rope_partial_by_default": (
        rope(SLIDING, partial_rotary_factor=0.5),
        "partial_rotary_factor is 0.5, it must be 1 for rope_type default",
    ),
    "rope_a_list": (text(rope_parameters=[1]), r"rope_parameters is \[1\]"),
    "rope_of_one_kind": (
        text(rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
        "no entry for 'sliding_attention'",
    ),
}


def cases(table: dict[str, tuple[Change, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("change", "said"), table.values(), ids=table.keys())


@cases(KINDS)
def test_a_checkpoint_of_another_kind_is_refused_by_its_field(
    copy_of: Callable[[], Path], refused: Refusal, change: Change, said: str
) -> None:
    check(copy_of(), refused, change, said)


@cases(SIZES)
def test_a_size_that_cannot_be_is_refused_with_what_it_may_be(
    copy_of: Callable[[], Path], refused: Refusal, change: Change, said: str
) -> None:
    check(copy_of(), refused, change, said)


@cases(LAYERS)
def test_a_layer_that_cannot_be_is_refused_by_its_field(
    copy_of: Callable[[], Path], refused: Refusal, change: Change, said: str
) -> None:
    check(copy_of(), refused, change, said)


def check(directory: Path, refused: Refusal, change: Change, said: str) -> None:
    edit_json(directory / "config.json", change)
    assert re.search(said, refused(directory))


@pytest.mark.parametrize("target", ["cpu", "onnx", "tensorrt-rtx"])
def test_every_target_refuses_alike(
    copy_of: Callable[[], Path], refused: Refusal, target: str
) -> None:
    directory = copy_of()
    edit_json(directory / "config.json", text(vocab_size="512"))
    assert "vocab_size is '512'" in refused(directory, "--target", target)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", "not valid JSON"),
        (b'\xef\xbb\xbf{"a": 1}', "not valid JSON"),
        (b'{"vocab_size": 1, "vocab_size": 2}', "key 'vocab_size' is given twice"),
        (b'{"eps": NaN}', "NaN is no JSON number"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
    ids=["empty", "cut", "list", "utf16", "marked", "twice", "nan", "deep", "long_number"],
)
def test_a_file_that_is_no_json_object_is_refused_by_name(
    copy_of: Callable[[], Path], refused: Refusal, content: bytes, said: str
) -> None:
    directory = copy_of()
    (directory / "config.json").write_bytes(content)
    message = refused(directory)
    assert said in message
    assert "config.json" in message


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([1, 600], "eos_token_id is \\[1, 600\\], .* from 0 to 511"),
        ("1", "eos_token_id is '1'"),
        ([1.0], "eos_token_id"),
        ([True], "eos_token_id"),
        (-1, "eos_token_id is -1"),
    ],
)
def test_stop_ids_that_are_no_tokens_are_refused(
    copy_of: Callable[[], Path], refused: Refusal, ids: Any, said: str
) -> None:
    directory = copy_of()
    edit_json(directory / "generation_config.json", lambda g: g.update(eos_token_id=ids))
    with pytest.raises(EngineError, match=said):
        load_config(directory)
    assert "generation_config.json" in refused(directory)


@pytest.mark.parametrize("gone", ["null", "missing"])
def test_stop_ids_come_from_the_config_where_generation_has_none(
    copy_of: Callable[[], Path], gone: str
) -> None:
    directory = copy_of()
    if gone == "null":
        edit_json(directory / "generation_config.json", lambda g: g.update(eos_token_id=None))
    else:
        (directory / "generation_config.json").unlink()
    assert load_config(directory).stop_ids == (1, 106, 50)


def test_a_checkpoint_whose_answers_would_never_end_is_refused(
    copy_of: Callable[[], Path], refused: Refusal
) -> None:
    directory = copy_of()
    (directory / "generation_config.json").unlink()
    edit_json(directory / "config.json", text(eos_token_id=None))
    assert "no eos_token_id" in refused(directory)


def test_a_last_sliding_layer_is_read_as_full_as_transformers_does(
    copy_of: Callable[[], Path], caplog: pytest.LogCaptureFixture
) -> None:
    directory = copy_of()
    expected = load_config(directory)
    edit_json(directory / "config.json", text(layer_types=[SLIDING] * 6))
    assert load_config(directory) == expected
    assert "the last layer is sliding_attention" in caplog.text


def test_no_directory_is_told_apart_from_no_config(tmp_path: Path, refused: Refusal) -> None:
    assert "is not a directory" in refused(tmp_path / "google/diffusiongemma-26B-A4B-it")
    (tmp_path / "empty").mkdir()
    assert "config.json not found" in refused(tmp_path / "empty")
