"""Every kind of weight file that no engine can be built from, and the odd ones that build."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from build_engine.checkpoint import INDEX, SINGLE, Checkpoint
from build_engine.config import load_config
from build_engine.weights import DECODER, EMBEDDING, ENCODER, LM_HEAD, read_weights
from tests.build_engine.refusals import Refusal, edit_json, edit_weights
from tests.build_engine.test_checkpoint import shard

Tensors = dict[str, Tensor]
NORM = f"{DECODER}norm.weight"
SCALAR = f"{ENCODER}layers.2.layer_scalar"
V_PROJ = "self_attn.v_proj.weight"


def weights(directory: Path, dtype: torch.dtype = torch.float32) -> Tensors:
    checkpoint, config = Checkpoint(directory), load_config(directory)
    return {weight.name: value for weight, value in read_weights(checkpoint, config, dtype)}


def with_value(name: str, value: float) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name].view(-1)[-1] = value

    return change


TENSORS: dict[str, tuple[Callable[[Tensors], object], tuple[str, ...]]] = {
    "missing": (lambda t: t.pop(NORM), ("missing tensors", NORM)),
    "encoder_scalars_missing": (lambda t: t.pop(SCALAR), ("missing tensors", SCALAR)),
    "unknown": (lambda t: t.update(lora=torch.ones(1)), ("unknown tensors: lora",)),
    "a_thousand_unknown": (
        lambda t: t.update({f"extra.{n}": torch.ones(1) for n in range(1000)}),
        ("unknown tensors: extra.0", "and 988 more"),
    ),
    "quantised_scales": (
        lambda t: t.update({f"{DECODER}layers.0.mlp.up_proj.weight_scale": torch.ones(1)}),
        ("quantised", "use the bf16 checkpoint"),
    ),
    "quantised_values": (
        lambda t: t.update({NORM: t[NORM].to(torch.int8)}),
        (f"wrong dtypes: {NORM} is I8", "supported: F16, BF16, F32, F64"),
    ),
    "float8": (
        lambda t: t.update({NORM: t[NORM].to(torch.float8_e4m3fn)}),
        (f"{NORM} is F8_E4M3",),
    ),
    "values_of_a_full_layer": (
        lambda t: t.update({f"{DECODER}layers.5.{V_PROJ}": torch.ones(32, 64)}),
        (f"layers.5.{V_PROJ}", "their values are their keys"),
    ),
    "no_values_of_a_sliding_layer": (
        lambda t: t.pop(f"{DECODER}layers.1.{V_PROJ}"),
        ("missing tensors", f"layers.1.{V_PROJ}"),
    ),
    "transposed": (
        lambda t: t.update({f"{DECODER}layers.0.mlp.up_proj.weight": torch.ones(64, 96)}),
        ("wrong shapes", "has [64, 96], config.json says [96, 64]"),
    ),
    "padded_vocabulary": (
        lambda t: t.update({DECODER + EMBEDDING: torch.ones(576, 64)}),
        ("embed_tokens.weight has [576, 64], config.json says [512, 64]",),
    ),
    "scalar_without_a_dimension": (
        lambda t: t.update({SCALAR: torch.ones(())}),
        (f"{SCALAR} has [], config.json says [1]",),
    ),
    "another_head": (
        lambda t: t.update({LM_HEAD: t[DECODER + EMBEDDING] + 1}),
        ("lm_head.weight should be tied but hold different values",),
    ),
    "a_head_of_another_dtype": (
        lambda t: t.update({LM_HEAD: t[DECODER + EMBEDDING].bfloat16()}),
        ("lm_head.weight should be tied",),
    ),
    "another_encoder": (
        lambda t: t.update({f"{ENCODER}norm.weight": t[NORM] + 1}),
        ("norm.weight should be tied",),
    ),
    "nan": (with_value(NORM, float("nan")), (f"{NORM} holds NaN or infinity",)),
    "infinity": (with_value(NORM, float("inf")), (f"{NORM} holds NaN or infinity",)),
    "both_infinities": (
        lambda t: t.update({NORM: torch.tensor([1e38, float("inf"), float("-inf")] + [1.0] * 61)}),
        (f"{NORM} holds NaN or infinity",),
    ),
    "beyond_the_dtype": (
        lambda t: t.update({NORM: t[NORM].double() * 1e200}),
        (f"{NORM} holds NaN or infinity as torch.float32",),
    ),
}


@pytest.mark.parametrize(("change", "said"), TENSORS.values(), ids=TENSORS.keys())
def test_tensors_that_are_not_the_models_are_refused_by_name(
    copy_of: Callable[[], Path],
    refused: Refusal,
    change: Callable[[Tensors], object],
    said: tuple[str, ...],
) -> None:
    directory = copy_of()
    edit_weights(directory, change)
    message = refused(directory)
    assert all(part in message for part in said), message


def test_the_largest_finite_weights_are_no_fault(copy_of: Callable[[], Path]) -> None:
    """Their fp32 sum would be infinite."""
    directory = copy_of()
    edit_weights(directory, lambda t: t.update({NORM: torch.full((64,), 3e38)}))
    assert weights(directory)["norm.weight"].eq(3e38).all()


def test_dtypes_may_differ_from_tensor_to_tensor(copy_of: Callable[[], Path], tiny: Path) -> None:
    """Each is cast alone, so nothing of two types ever meets in a graph."""
    directory = copy_of()
    kinds = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

    def mix(tensors: Tensors) -> None:
        for n, name in enumerate(sorted(tensors)):
            tensors[name] = tensors[name].to(kinds[n % 4])

    edit_weights(directory, mix)
    for dtype in (torch.float32, torch.bfloat16):
        found, expected = weights(directory, dtype), weights(tiny, dtype)
        assert {value.dtype for value in found.values()} == {dtype}
        for name, value in found.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-2, atol=1e-2)


def test_an_equal_head_and_an_equal_encoder_are_no_fault(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()

    def both(tensors: Tensors) -> None:
        tensors[LM_HEAD] = tensors[DECODER + EMBEDDING].clone()
        tensors[f"{ENCODER}norm.weight"] = tensors[NORM].clone()

    edit_weights(directory, both)
    assert weights(directory)


def test_an_untied_model_is_refused_with_its_head_and_without(
    copy_of: Callable[[], Path], refused: Refusal
) -> None:
    directory = copy_of()
    edit_json(directory / "config.json", lambda c: c.update(tie_word_embeddings=False))
    assert "lm_head.weight is missing" in refused(directory)
    edit_weights(directory, lambda t: t.update({LM_HEAD: t[DECODER + EMBEDDING]}))
    assert "lm_head.weight is there" in refused(directory)


def rewrite_header(path: Path, change: Callable[[dict], object]) -> None:
    """Change the header of a safetensors file and leave its body."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


FILES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "header_cut": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "body_cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "body_too_long": lambda path: path.write_bytes(path.read_bytes() + b"\0" * 8),
    "header_beyond_the_file": lambda path: path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:]),
    "header_no_json": lambda path: path.write_bytes(struct.pack("<Q", 8) + b"not json"),
    "offsets_swapped": lambda path: rewrite_header(
        path, lambda h: h[NORM]["data_offsets"].reverse()
    ),
    "offsets_overlapping": lambda path: rewrite_header(
        path, lambda h: h[NORM].update(data_offsets=h[SCALAR]["data_offsets"])
    ),
    "shape_larger_than_its_bytes": lambda path: rewrite_header(
        path, lambda h: h[NORM].update(shape=[65])
    ),
    "a_web_page": lambda path: path.write_text("<!DOCTYPE html><html>404</html>"),
    "a_git_pointer": lambda path: path.write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 52000000000\n"
    ),
}


@pytest.mark.parametrize("damage", FILES.values(), ids=FILES.keys())
def test_a_damaged_file_is_refused_by_name(
    copy_of: Callable[[], Path], refused: Refusal, damage: Callable[[Path], object]
) -> None:
    directory = copy_of()
    damage(directory / SINGLE)
    assert f"{SINGLE} is not a readable safetensors file" in refused(directory)


def point_all(directory: Path, name: object) -> None:
    files = dict.fromkeys(load_file(str(directory / SINGLE)), name)
    (directory / INDEX).write_text(json.dumps({"weight_map": files}))


@pytest.mark.parametrize(
    "name",
    ["../other.safetensors", "/etc/passwd", "a\\b.safetensors", ".safetensors", "model.bin", 7],
)
def test_an_index_names_files_of_its_directory_only(
    copy_of: Callable[[], Path], refused: Refusal, name: object
) -> None:
    directory = copy_of()
    point_all(directory, name)
    assert "is not a safetensors file name in this directory" in refused(directory)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {}}', "[]", "{"])
def test_an_index_without_a_map_is_refused(
    copy_of: Callable[[], Path], refused: Refusal, content: str
) -> None:
    directory = copy_of()
    (directory / INDEX).write_text(content)
    assert INDEX in refused(directory)


def test_an_old_index_beside_a_whole_file_says_what_to_do(
    copy_of: Callable[[], Path], refused: Refusal
) -> None:
    directory = copy_of()
    point_all(directory, "model-00001-of-00030.safetensors")
    message = refused(directory)
    assert "the index is stale" in message
    assert "model-00001-of-00030.safetensors" in message
    assert f"remove {INDEX}" in message
    (directory / INDEX).unlink()
    assert weights(directory)


def test_a_tensor_in_two_shards_of_another_dtype_is_refused(
    copy_of: Callable[[], Path], refused: Refusal
) -> None:
    directory = copy_of()
    files = shard(directory)
    name = sorted(files)[0]
    other = directory / next(f for f in files.values() if f != files[name])
    value = load_file(str(directory / files[name]))[name].to(torch.bfloat16)
    save_file({**load_file(str(other)), name: value}, str(other))
    assert f"{name} is in" in refused(directory)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model-Q4_K_M.gguf"])
def test_pickled_weights_are_never_read(
    copy_of: Callable[[], Path], refused: Refusal, name: str
) -> None:
    directory = copy_of()
    (directory / SINGLE).rename(directory / name)
    assert f"{name} is never read" in refused(directory)


def test_what_the_index_does_not_name_is_ignored_with_a_warning(
    copy_of: Callable[[], Path], tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = copy_of()
    for name in ("consolidated.safetensors", "pytorch_model.bin", "model.safetensors.bak"):
        (directory / name).write_bytes(b"other values")
    assert all(
        torch.equal(value, weights(tiny)[name]) for name, value in weights(directory).items()
    )
    assert "consolidated.safetensors, pytorch_model.bin" in caplog.text


def test_files_may_be_links_as_in_a_download_cache(copy_of: Callable[[], Path], tiny: Path) -> None:
    directory = copy_of()
    blob = directory.parent / "blob"
    (directory / SINGLE).rename(blob)
    (directory / SINGLE).symlink_to(blob)
    assert weights(directory).keys() == weights(tiny).keys()


def test_a_link_to_nowhere_is_a_missing_file(copy_of: Callable[[], Path], refused: Refusal) -> None:
    directory = copy_of()
    (directory / SINGLE).unlink()
    (directory / SINGLE).symlink_to(directory / "gone")
    assert "no safetensors weights found" in refused(directory)
