"""Engine directories that were damaged, tampered with or made elsewhere: refused at load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from build_engine.contract import CONTRACT_FILE, FORMAT_VERSION, load_contract
from build_engine.errors import EngineError
from tests.build_engine.refusals import Change, edit_json
from tests.build_engine.test_contract import write

DIGEST = "0" * 64


def top(**values: Any) -> Change:
    return lambda contract: contract.update(values)


def geometry(**values: Any) -> Change:
    return lambda contract: contract["geometry"].update(values)


def limits(**values: Any) -> Change:
    return lambda contract: contract["limits"].update(values)


TAMPERED: dict[str, tuple[Change, str]] = {
    "newer_format": (top(format_version=FORMAT_VERSION + 1, novelty=1), "engine format"),
    "older_format": (top(format_version=FORMAT_VERSION - 1), "engine format"),
    "format_a_word": (top(format_version=str(FORMAT_VERSION)), "engine format"),
    "format_missing": (lambda c: c.pop("format_version"), "engine format None"),
    "a_checkpoints_config": (lambda c: (c.clear(), c.update(model_type="x")), "engine format"),
    "key_unknown": (top(novelty=1), r"unknown keys \['novelty'\]"),
    "key_missing": (lambda c: c.pop("page_size"), r"missing keys \['page_size'\]"),
    "limit_missing": (lambda c: c["limits"].pop("max_labels"), r"missing keys \['max_labels'\]"),
    "geometry_null": (top(geometry=None), "geometry is None, it must be a JSON object"),
    "geometry_a_word": (top(geometry="large"), "geometry is 'large'"),
    "limits_a_list": (top(limits=[1]), r"limits is \[1\]"),
    "limit_negative": (limits(max_context=-1), "max_context is -1"),
    "limit_zero": (limits(max_segments=0), "max_segments is 0"),
    "limit_a_word": (limits(max_labels="32"), "max_labels is '32'"),
    "limit_true": (limits(max_output_rows=True), "max_output_rows is True"),
    "limit_null": (limits(max_step_tokens=None), "max_step_tokens is None"),
    "limit_huge": (limits(max_context=10**30), "max_context is 10+, "),
    "canvas_beyond_context": (limits(max_canvas=129), "max_canvas is 129, .* from 1 to 128"),
    "page_no_power": (top(page_size=12), "page_size is 12, it must be a power of two"),
    "page_a_fraction": (top(page_size=8.0), "page_size is 8.0"),
    "dtype_unknown": (top(dtype="float16"), "dtype is 'float16', it must be float32 or bfloat16"),
    "dtype_a_list": (top(dtype=["float32"]), "dtype is"),
    "target_a_number": (top(target=1), "target is 1"),
    "stop_id_beyond_the_table": (top(stop_ids=[1, 512]), "stop_ids is .* from 0 to 511"),
    "stop_id_a_word": (top(stop_ids=["<eos>"]), "stop_ids is"),
    "pad_null": (top(pad_id=None), "pad_id is None"),
    "bos_beyond_the_table": (top(bos_id=512), "bos_id is 512"),
    "no_hidden_size": (geometry(hidden_size=0), "hidden_size is 0"),
    "heads_that_do_not_divide": (geometry(full_kv_heads=3), "full_kv_heads is 3, .* divisor"),
    "layers_of_another_count": (geometry(num_layers=3), "layer_types is"),
    "layer_unknown": (geometry(layer_types=["a", "full_attention"]), "layer_types is"),
    "more_chosen_than_experts": (geometry(top_k_experts=9), "top_k_experts is 9"),
    "softcap_null": (geometry(softcap=None), "softcap is None"),
    "files_null": (top(files=None), "files is None"),
    "files_a_list": (top(files=["step.pt2"]), "files is"),
    "file_elsewhere": (top(files={"../step.pt2": DIGEST}), "a file of the engine's own directory"),
    "file_anywhere": (top(files={"/dev/zero": DIGEST}), "a file of the engine's own directory"),
    "hash_cut": (top(files={"step.pt2": "12ab"}), "step.pt2 is '12ab', .* SHA-256"),
    "hash_null": (top(files={"step.pt2": None}), "step.pt2 is None"),
    "hash_of_another_file": (top(files={"step.pt2": DIGEST}), "step.pt2 has SHA-256"),
    "no_files": (top(files={}), "files is {}"),
    "builder_a_list": (top(builder=[]), r"builder is \[\]"),
}


@pytest.mark.parametrize(("change", "said"), TAMPERED.values(), ids=TAMPERED.keys())
def test_a_contract_that_cannot_be_is_refused_by_its_field(
    tmp_path: Path, change: Change, said: str
) -> None:
    write(tmp_path)
    edit_json(tmp_path / CONTRACT_FILE, change)
    with pytest.raises(EngineError, match=said) as caught:
        load_contract(tmp_path)
    message = str(caught.value)
    assert "rebuild" in message
    assert message.count("\n") == 0


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "changed": (lambda e: (e / "step.pt2").write_bytes(b"cod3"), "has SHA-256"),
    "cut": (lambda e: (e / "step.pt2").write_bytes(b"cod"), "has SHA-256"),
    "empty": (lambda e: (e / "step.pt2").write_bytes(b""), "has SHA-256"),
    "missing": (lambda e: (e / "step.pt2").unlink(), "is missing"),
    "a_directory": (
        lambda e: ((e / "step.pt2").unlink(), (e / "step.pt2").mkdir()),
        "is missing",
    ),
    "a_link_to_nowhere": (
        lambda e: ((e / "step.pt2").unlink(), (e / "step.pt2").symlink_to("gone")),
        "is missing",
    ),
    "contract_deep": (
        lambda e: (e / CONTRACT_FILE).write_text("[" * 100_000),
        "is not JSON",
    ),
    "contract_cut": (
        lambda e: (e / CONTRACT_FILE).write_bytes((e / CONTRACT_FILE).read_bytes()[:100]),
        "is not JSON",
    ),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_refused_by_name(
    tmp_path: Path, damage: Callable[[Path], object], said: str
) -> None:
    write(tmp_path)
    damage(tmp_path)
    with pytest.raises(EngineError, match=said) as caught:
        load_contract(tmp_path)
    assert "rebuild" in str(caught.value)


def test_files_that_the_contract_does_not_name_are_not_read(tmp_path: Path) -> None:
    contract = write(tmp_path)
    (tmp_path / "head.pt2").write_bytes(b"of another build")
    assert load_contract(tmp_path) == contract


def test_every_value_that_a_build_writes_is_allowed(tmp_path: Path) -> None:
    contract = write(tmp_path)
    assert json.loads((tmp_path / CONTRACT_FILE).read_text())
    assert load_contract(tmp_path) == contract
