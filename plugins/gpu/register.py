"""Makes the kernels what the `dg::` ops run on CUDA devices; does nothing until it is asked to."""

from collections.abc import Callable

from torch import Tensor, library
from torch.nn.functional import linear as torch_linear

from plugins import definitions, fakes
from plugins.gpu.attention_op import mixed_mask_paged_attention
from plugins.gpu.experts_op import routed_experts
from plugins.gpu.heads_op import denoise_head, label_head


def register() -> None:
    """Defines the ops, if nothing else has, and implements them; safe to call again.

    It needs torch and triton alone. The C++ library, with the CPU's kernels, may be loaded before
    or after.
    """
    definitions.define()
    fakes.register()
    if not _registered:
        for name, function in _IMPLEMENTATIONS.items():
            library.impl(f"dg::{name}", "cuda", function)
        _registered.append(True)


def linear(x: Tensor, weight: Tensor, out_features: int) -> Tensor:
    """A projection by row-major weights; packed panels are the CPU's."""
    if weight.ndim != 2 or len(weight) != out_features:
        raise ValueError(
            f"weight has shape {list(weight.shape)}; on a GPU it must be [{out_features}, K]"
        )
    return torch_linear(x, weight)


_IMPLEMENTATIONS: dict[str, Callable[..., object]] = {
    "linear": linear,
    "routed_experts": routed_experts,
    "label_head": label_head,
    "denoise_head": denoise_head,
    "mixed_mask_paged_attention": mixed_mask_paged_attention,
}

_registered: list[bool] = []
