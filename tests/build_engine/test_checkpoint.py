"""Which files a checkpoint's tensors come from, and every way the files can disagree."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from build_engine.checkpoint import INDEX, SINGLE, Checkpoint
from build_engine.config import load_config
from build_engine.errors import EngineError
from build_engine.weights import DECODER, EMBEDDING, ENCODER, LM_HEAD, read_weights


def shard(directory: Path, index: bool = True) -> dict[str, str]:
    """Split the single file in two shards, with an index."""
    tensors = load_file(str(directory / SINGLE))
    (directory / SINGLE).unlink()
    names = sorted(tensors)
    files = {n: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, n in enumerate(names)}
    for file in set(files.values()):
        save_file({n: tensors[n] for n in names if files[n] == file}, str(directory / file))
    if index:
        (directory / INDEX).write_text(json.dumps({"weight_map": files}))
    return files


def all_weights(directory: Path) -> dict[str, torch.Tensor]:
    checkpoint, config = Checkpoint(directory), load_config(directory)
    return {w.name: t for w, t in read_weights(checkpoint, config, torch.float32)}


def resave(directory: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(str(directory / SINGLE))
    change(tensors)
    save_file({n: t.clone() for n, t in tensors.items()}, str(directory / SINGLE))


def test_sharded_and_single_file_read_alike(copy_of: Callable[[], Path], tiny: Path) -> None:
    directory = copy_of()
    shard(directory)
    single, sharded = all_weights(tiny), all_weights(directory)
    assert single.keys() == sharded.keys()
    assert all(torch.equal(single[n], sharded[n]) for n in single)


def test_shards_without_an_index_are_refused(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    shard(directory, index=False)
    with pytest.raises(EngineError, match="index"):
        Checkpoint(directory)


def test_an_index_naming_absent_shards_is_called_stale(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    files = shard(directory)
    files["model.extra"] = "model-00003-of-00002.safetensors"
    (directory / INDEX).write_text(json.dumps({"weight_map": files}))
    with pytest.raises(EngineError, match="stale.*model-00003"):
        Checkpoint(directory)


def test_an_index_that_omits_a_tensor_is_called_incomplete(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    files = shard(directory)
    gone = sorted(files)[0]
    del files[gone]
    (directory / INDEX).write_text(json.dumps({"weight_map": files}))
    with pytest.raises(EngineError, match=f"omits {gone}"):
        Checkpoint(directory)


def test_an_index_may_not_reach_outside_the_directory(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    (directory / INDEX).write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))
    with pytest.raises(EngineError, match="not a safetensors file name"):
        Checkpoint(directory)


def test_files_outside_the_index_are_ignored_with_a_warning(
    copy_of: Callable[[], Path], caplog: pytest.LogCaptureFixture
) -> None:
    directory = copy_of()
    shard(directory)
    save_file({"stray": torch.ones(2)}, str(directory / "consolidated.safetensors"))
    with caplog.at_level(logging.WARNING):
        assert "stray" not in Checkpoint(directory)
    assert "consolidated.safetensors" in caplog.text


def test_one_tensor_in_two_shards_with_other_values_is_refused(
    copy_of: Callable[[], Path],
) -> None:
    directory = copy_of()
    files = shard(directory)
    name = sorted(files)[0]
    other = next(f for f in files.values() if f != files[name])
    tensors = load_file(str(directory / other))
    original = load_file(str(directory / files[name]))[name]
    save_file({**tensors, name: original + 1}, str(directory / other))
    with pytest.raises(EngineError, match="different values"):
        Checkpoint(directory)


def test_a_truncated_file_is_named(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()
    path = directory / SINGLE
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(EngineError, match=r"model\.safetensors is not a readable"):
        Checkpoint(directory)


def test_unknown_and_missing_tensors_are_listed_all_at_once(copy_of: Callable[[], Path]) -> None:
    directory = copy_of()

    def change(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[f"{DECODER}norm.weight"]
        del tensors[f"{ENCODER}layers.2.layer_scalar"]
        tensors["model.decoder.layers.0.lora"] = torch.ones(1)
        tensors[f"{DECODER}layers.1.router.scale"] = torch.ones(3)

    resave(directory, change)
    with pytest.raises(EngineError) as caught:
        all_weights(directory)
    message = str(caught.value)
    for part in ("norm.weight", "layers.2.layer_scalar", "layers.0.lora", "layers.1.router.scale"):
        assert part in message


def test_the_shared_stack_may_sit_under_encoder_names(
    copy_of: Callable[[], Path], tiny: Path
) -> None:
    directory = copy_of()

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in [n for n in tensors if n.startswith(DECODER)]:
            if "layer_scalar" not in name and "self_conditioning" not in name:
                tensors[ENCODER + name.removeprefix(DECODER)] = tensors.pop(name)

    resave(directory, change)
    expected, found = all_weights(tiny), all_weights(directory)
    assert all(torch.equal(expected[n], found[n]) for n in expected)


@pytest.mark.parametrize(("delta", "accepted"), [(0.0, True), (1.0, False)])
def test_a_saved_head_must_equal_the_embedding(
    copy_of: Callable[[], Path], delta: float, accepted: bool
) -> None:
    directory = copy_of()
    resave(directory, lambda t: t.update({LM_HEAD: t[DECODER + EMBEDDING] + delta}))
    if accepted:
        assert all_weights(directory)
    else:
        with pytest.raises(EngineError, match=r"lm_head\.weight should be tied"):
            all_weights(directory)
