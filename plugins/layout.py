"""Packs weights into panels of 32 columns, the layout the CPU kernels stream; knows no model."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from plugins.spec import PANEL


def pack_panels(weight: Tensor, parts: int = 1) -> Tensor:
    """`[..., O, K]` to `[..., panels, K, 32]`; each of `parts` equal parts of O fills whole panels.

    Rows past O are zero. bfloat16 keeps neighbours along K together, as its dot product takes them
    in pairs, so K must be even. Gate and up matrices stacked along O are two parts.
    """
    *lead, rows, depth = weight.shape
    if rows % parts:
        raise ValueError(f"weight has {rows} rows; they must be a multiple of parts = {parts}")
    group = _group(weight, depth)
    split = weight.reshape(*lead, parts, rows // parts, depth)
    padded = pad(split, (0, 0, 0, -(rows // parts) % PANEL))
    panels = parts * padded.shape[-2] // PANEL
    pairs = padded.reshape(*lead, panels, PANEL, depth // group, group)
    return pairs.transpose(-3, -2).reshape(*lead, panels, depth, PANEL).contiguous()


def unpack_panels(packed: Tensor, out_features: int, parts: int = 1) -> Tensor:
    """The inverse of `pack_panels`, given O."""
    *lead, panels, depth, _ = packed.shape
    group = _group(packed, depth)
    pairs = packed.reshape(*lead, panels, depth // group, PANEL, group)
    padded = pairs.transpose(-3, -2).reshape(*lead, parts, panels // parts * PANEL, depth)
    return padded[..., : out_features // parts, :].reshape(*lead, out_features, depth)


def _group(weight: Tensor, depth: int) -> int:
    if weight.dtype != torch.bfloat16:
        return 1
    if depth % 2:
        raise ValueError(f"weight has depth {depth}; a packed bfloat16 weight needs an even one")
    return 2
