"""While it is entered, calls of `dg::` ops are traced as kernel launches for one GPU."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from plugins.gpu.register import linear
from plugins.gpu.tiers import Build
from plugins.gpu.traced_attention import mixed_mask_paged_attention
from plugins.gpu.traced_experts import routed_experts
from plugins.gpu.traced_heads import denoise_head, label_head

_OPS: dict[str, Callable[..., Any]] = {
    "mixed_mask_paged_attention": mixed_mask_paged_attention,
    "routed_experts": routed_experts,
    "label_head": label_head,
    "denoise_head": denoise_head,
}


class Lowering(TorchFunctionMode):
    """Use around an export: `with Lowering(build): torch.export.export(...)`.

    Only within an export: launches are written down, and nothing is computed.
    """

    def __init__(self, build: Build) -> None:
        super().__init__()
        self._build = build

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        named: dict[str, Any] | None = None,
    ) -> Any:
        name = _name_of(function)
        if name == "linear":
            return linear(*arguments)
        if name in _OPS:
            return _OPS[name](self._build, *arguments)
        return function(*arguments, **(named or {}))


def _name_of(function: Callable[..., Any]) -> str:
    """What is called, if it is one of our ops."""
    op = getattr(function, "overloadpacket", function)
    ours = isinstance(op, torch._ops.OpOverloadPacket) and op._qualified_op_name[:4] == "dg::"
    return op.__name__ if ours else ""
