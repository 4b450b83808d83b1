"""How this server was told to serve: the parameters of config.pbtxt, read at one door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from triton_backend.policy import Policy, Prefill


class ConfigError(ValueError):
    """A parameter of config.pbtxt is wrong; one sentence naming it and what would be right."""


@dataclass(frozen=True)
class ServeConfig:
    """Parameters of the model `diffusion_gemma`; a size of 0 leaves the choice to the server.

    `kv_cache_pages` (of the full-attention layers) and `kv_cache_bytes` (of both groups) size the
    KV cache, so at most one is given; `kv_sliding_pages` are those of the sliding layers;
    `prefix_cache` keeps the keys and values of earlier prompts for later ones; `host_kv_bytes` of
    host memory keep those of preempted requests, which otherwise are computed again;
    `max_step_tokens` is the rows of one execution, within what the engine was built for;
    `prefill` to `check_invariants` are those of `triton_backend.policy`; `step_seconds` instead of
    `token_budget` takes the budget whose executions last no longer, by the engine's profile;
    `max_queue_size` requests may wait for their first execution; `threads` 0 keeps the default;
    `kernel_cache` is a directory where TensorRT-RTX keeps the kernels it compiles here;
    `cuda_graphs` lets TensorRT engines replay executions that recur.
    """

    engine_dir: str
    kv_cache_pages: int = 0
    kv_cache_bytes: int = 0
    kv_sliding_pages: int = 0
    prefix_cache: bool = True
    host_kv_bytes: int = 0
    max_step_tokens: int = 0
    fusion: bool = True
    prefill: str = "chunked"
    token_budget: int = 0
    step_seconds: float = 0.0
    ageing_seconds: float = 30.0
    queue_timeout: float = 0.0
    fairness: bool = False
    strict_order: bool = True
    slo_seconds: float = 0.0
    check_invariants: bool = False
    max_queue_size: int = 1024
    threads: int = 0
    kernel_cache: str = ""
    cuda_graphs: bool = True

    @property
    def policy(self) -> Policy:
        """How the scheduler chooses."""
        return Policy(
            fusion=self.fusion,
            prefill=Prefill(self.prefill),
            token_budget=self.token_budget,
            ageing_seconds=self.ageing_seconds,
            queue_timeout=self.queue_timeout,
            fair=self.fairness,
            strict=self.strict_order,
            slo_seconds=self.slo_seconds,
            check=self.check_invariants,
        )


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
    if config.token_budget and config.step_seconds:
        raise ConfigError("Parameters token_budget and step_seconds are both set; give one.")
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


def _read_seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"Parameter {name} is {text!r}, seconds are needed.") from None
    if not 0 <= value < float("inf"):
        raise ConfigError(f"Parameter {name} is {text}, seconds from 0 on are needed.")
    return value


def _read_prefill(name: str, text: str) -> str:
    known = [prefill.value for prefill in Prefill]
    if text not in known:
        raise ConfigError(f"Parameter {name} is {text!r}, one of {', '.join(known)} is needed.")
    return text


def _read_least_one(name: str, text: str) -> int:
    return _read_count(name, text, least=1)


_READERS: dict[str, Callable[[str, str], Any]] = {
    "engine_dir": lambda _, text: text,
    "kv_cache_pages": _read_count,
    "kv_cache_bytes": _read_count,
    "kv_sliding_pages": _read_count,
    "prefix_cache": _read_switch,
    "host_kv_bytes": _read_count,
    "max_step_tokens": _read_count,
    "fusion": _read_switch,
    "prefill": _read_prefill,
    "token_budget": _read_count,
    "step_seconds": _read_seconds,
    "ageing_seconds": _read_seconds,
    "queue_timeout": _read_seconds,
    "fairness": _read_switch,
    "strict_order": _read_switch,
    "slo_seconds": _read_seconds,
    "check_invariants": _read_switch,
    "max_queue_size": _read_least_one,
    "threads": _read_count,
    "kernel_cache": lambda _, text: text,
    "cuda_graphs": _read_switch,
}
