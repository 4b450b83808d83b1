"""How large one request may be here: what the engine, the step budget and the pool allow."""

from __future__ import annotations

from dataclasses import dataclass

from build_engine.contract import EngineContract
from triton_backend.fusion import StepLimits
from triton_backend.kv_cache import KvShape


@dataclass(frozen=True)
class RequestLimits:
    """Largest sizes of one request; a request within them can always be served."""

    vocab_size: int
    max_context: int
    max_canvas: int
    max_slots: int
    max_labels: int
    kv: KvShape
    bos_id: int
    stop_ids: frozenset[int]
    canvas_length: int

    @property
    def max_text_bytes(self) -> int:
        """Bytes of text worth tokenising: far over what any prompt of `max_context` tokens has."""
        return 64 * self.max_context


def step_limits(contract: EngineContract, max_step_tokens: int) -> StepLimits:
    """Limits of one execution; `max_step_tokens` 0 takes all that the engine was built for."""
    limits = contract.limits
    return StepLimits(
        max_tokens=max_step_tokens or limits.max_step_tokens,
        max_segments=limits.max_segments,
        max_output_rows=limits.max_output_rows,
        max_context=limits.max_context,
    )


def request_limits(contract: EngineContract, step: StepLimits, kv: KvShape) -> RequestLimits:
    """Limits of one request; a canvas is indivisible, so the step budget bounds it too."""
    return RequestLimits(
        vocab_size=contract.geometry.vocab_size,
        max_context=contract.limits.max_context,
        max_canvas=min(contract.limits.max_canvas, step.max_tokens),
        max_slots=step.max_output_rows,
        max_labels=contract.limits.max_labels,
        kv=kv,
        bos_id=contract.bos_id,
        stop_ids=frozenset(contract.stop_ids),
        canvas_length=contract.geometry.canvas_length,
    )
