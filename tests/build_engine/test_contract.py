"""The contract survives its file, and every kind of tampering is named at load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from build_engine.contract import (
    CONTRACT_FILE,
    EngineContract,
    Geometry,
    Limits,
    file_sha256,
    load_contract,
)
from build_engine.errors import EngineError

GEOMETRY = Geometry(
    vocab_size=512,
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    layer_types=("sliding_attention", "full_attention"),
    sliding_window=16,
    sliding_kv_heads=2,
    sliding_head_dim=16,
    full_kv_heads=1,
    full_head_dim=32,
    intermediate_size=96,
    num_experts=4,
    top_k_experts=2,
    moe_intermediate_size=40,
    canvas_length=16,
    softcap=30.0,
)
LIMITS = Limits(256, 32, 128, 16, 64, 32)


def write(directory: Path) -> EngineContract:
    """An engine directory of one file."""
    (directory / "step.pt2").write_bytes(b"code")
    contract = EngineContract(
        target="cpu",
        dtype="float32",
        page_size=8,
        geometry=GEOMETRY,
        limits=LIMITS,
        stop_ids=(1, 106),
        pad_id=0,
        bos_id=2,
        files={"step.pt2": file_sha256(directory / "step.pt2")},
    )
    (directory / CONTRACT_FILE).write_text(contract.to_json())
    return contract


def change(directory: Path, **values: Any) -> None:
    path = directory / CONTRACT_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_contract_survives_its_file(tmp_path: Path) -> None:
    contract = write(tmp_path)
    assert load_contract(tmp_path) == contract


def test_page_bytes_count_keys_and_values_of_every_layer(tmp_path: Path) -> None:
    assert write(tmp_path).kv_page_bytes == 2 * 8 * (2 * 16 + 1 * 32) * 4
    assert write(tmp_path).pool_bytes(3, 3) == 3 * write(tmp_path).kv_page_bytes
    assert write(tmp_path).pool_bytes(1, 2) < write(tmp_path).pool_bytes(2, 2)


def test_no_engine_says_how_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="python -m build_engine"):
        load_contract(tmp_path / "nowhere")


def test_another_format_is_refused_before_its_keys_are_read(tmp_path: Path) -> None:
    write(tmp_path)
    change(tmp_path, format_version=99, novelty=1)
    with pytest.raises(EngineError, match="format 99"):
        load_contract(tmp_path)


def test_an_engine_from_before_the_denoise_head_is_refused_by_its_format(tmp_path: Path) -> None:
    write(tmp_path)
    change(tmp_path, format_version=1)
    with pytest.raises(EngineError, match="engine format 1"):
        load_contract(tmp_path)


def test_an_unknown_key_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path)
    change(tmp_path, novelty=1)
    with pytest.raises(EngineError, match="novelty"):
        load_contract(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_contract_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    write(tmp_path)
    (tmp_path / CONTRACT_FILE).write_bytes(content)
    with pytest.raises(EngineError, match=r"config\.json"):
        load_contract(tmp_path)


def test_a_changed_file_is_refused_by_hash(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "step.pt2").write_bytes(b"cod3")
    with pytest.raises(EngineError, match=r"step\.pt2 has SHA-256"):
        load_contract(tmp_path)
    assert load_contract(tmp_path, verify=False)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "step.pt2").unlink()
    with pytest.raises(EngineError, match=r"step\.pt2 is missing"):
        load_contract(tmp_path)
