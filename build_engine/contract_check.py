"""Checks the values of an engine's `config.json`, so that nothing later meets an impossible one."""

from __future__ import annotations

from typing import Any

from build_engine.config_fields import Fields

_REMEDY = "rebuild the engine"
_KINDS = {"sliding_attention", "full_attention"}
_DTYPES = ("float32", "bfloat16")
_HEX = set("0123456789abcdef")


def check_values(values: dict[str, Any], where: str) -> None:
    """Whether all values of a contract, whose keys are known to be there, can be.

    Raises:
        EngineError: naming the field and its value.
    """
    contract = Fields(values, where, _REMEDY)
    geometry = contract.inner("geometry")
    _check_geometry(geometry)
    _check_limits(contract.inner("limits"))
    page = contract.whole("page_size")
    if page & (page - 1):
        raise contract.refuse("page_size", "a power of two")
    if contract.get("dtype") not in _DTYPES:
        raise contract.refuse("dtype", " or ".join(_DTYPES))
    if not isinstance(contract.get("target"), str):
        raise contract.refuse("target", "a name")
    rows = geometry.whole("vocab_size")
    contract.token_ids("stop_ids", rows)
    for name in ("pad_id", "bos_id"):
        contract.whole(name, 0, rows - 1)
    for name in ("builder", "checkpoint"):
        contract.inner(name)
    _check_files(contract)


def _check_limits(limits: Fields) -> None:
    for name, _ in limits.items():
        limits.whole(name)
    for most in ("max_context", "max_step_tokens"):
        limits.whole("max_canvas", 1, limits.whole(most))


def _check_geometry(geometry: Fields) -> None:
    for name, _ in geometry.items():
        if name not in ("softcap", "layer_types"):
            geometry.whole(name)
    geometry.positive("softcap")
    kinds, count = geometry.get("layer_types"), geometry.whole("num_layers", 1, 4096)
    if not isinstance(kinds, list) or len(kinds) != count or set(map(str, kinds)) - _KINDS:
        raise geometry.refuse("layer_types", f"a list of {count} of {' and '.join(sorted(_KINDS))}")
    heads = geometry.whole("num_heads")
    for name in ("sliding_kv_heads", "full_kv_heads"):
        if heads % geometry.whole(name):
            raise geometry.refuse(name, f"a divisor of num_heads, {heads}")
    geometry.whole("top_k_experts", 1, geometry.whole("num_experts"))


def _check_files(contract: Fields) -> None:
    files = contract.inner("files")
    if not files.items():
        raise contract.refuse("files", "the files of an engine")
    for name, digest in files.items():
        if set(name) & set("/\\\0") or name in ("", ".", ".."):
            raise files.refuse(name, "a file of the engine's own directory")
        if not isinstance(digest, str) or len(digest) != 64 or set(digest) - _HEX:
            raise files.refuse(name, "a SHA-256 in hex")
