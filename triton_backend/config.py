"""How this server was told to serve: the parameters of config.pbtxt, read at one door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any


class ConfigError(ValueError):
    """A parameter of config.pbtxt is wrong; one sentence naming it and what would be right."""


@dataclass(frozen=True)
class ServeConfig:
    """Parameters of the model `diffusion_gemma`; a size of 0 leaves the choice to the server.

    `kv_cache_pages` and `kv_cache_bytes` both size the page pool, so at most one is given;
    `max_step_tokens` is the rows of one execution, within what the engine was built for;
    `max_queue_size` requests may wait for their first execution; `threads` 0 keeps the default.
    """

    engine_dir: str
    kv_cache_pages: int = 0
    kv_cache_bytes: int = 0
    max_step_tokens: int = 0
    fusion: bool = True
    max_queue_size: int = 1024
    threads: int = 0


@dataclass(frozen=True)
class ReadConfig:
    """Parameters of the model `structured_read`: requests that may wait for the engine at once."""

    max_in_flight: int = 64


def parse_config(parameters: Mapping[str, str]) -> ServeConfig:
    """ServeConfig from parameter texts.

    Raises:
        ConfigError: an unknown parameter, a missing engine_dir, or a value out of range.
    """
    _check_known(parameters, ServeConfig)
    if not parameters.get("engine_dir", "").strip():
        raise ConfigError("Parameter engine_dir is empty; it names the engine directory to serve.")
    config = ServeConfig(**{name: _READERS[name](name, text) for name, text in parameters.items()})
    if config.kv_cache_pages and config.kv_cache_bytes:
        raise ConfigError("Parameters kv_cache_pages and kv_cache_bytes are both set; give one.")
    return config


def parse_read_config(parameters: Mapping[str, str]) -> ReadConfig:
    """ReadConfig from parameter texts.

    Raises:
        ConfigError: an unknown parameter or a value out of range.
    """
    _check_known(parameters, ReadConfig)
    return ReadConfig(**{name: _read_least_one(name, text) for name, text in parameters.items()})


def model_parameters(model_config: Mapping[str, Any]) -> dict[str, str]:
    """Parameter texts of a Triton model configuration as its JSON has them."""
    return {
        name: str(entry["string_value"])
        for name, entry in model_config.get("parameters", {}).items()
    }


def _check_known(parameters: Mapping[str, str], config: type) -> None:
    known = [field.name for field in fields(config)]
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise ConfigError(f"Unknown parameter {', '.join(unknown)}; known are {', '.join(known)}.")


def _read_count(name: str, text: str, least: int = 0) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"Parameter {name} is {text!r}, a whole number is needed.") from None
    if value < least:
        raise ConfigError(f"Parameter {name} is {value}, at least {least} is needed.")
    return value


def _read_switch(name: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise ConfigError(f"Parameter {name} is {text!r}, 'on' or 'off' is needed.")
    return text == "on"


def _read_least_one(name: str, text: str) -> int:
    return _read_count(name, text, least=1)


_READERS: dict[str, Callable[[str, str], Any]] = {
    "engine_dir": lambda _, text: text,
    "kv_cache_pages": _read_count,
    "kv_cache_bytes": _read_count,
    "max_step_tokens": _read_count,
    "fusion": _read_switch,
    "max_queue_size": _read_least_one,
    "threads": _read_count,
}
