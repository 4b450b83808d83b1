"""The ops' schemas, for machines where the C++ library that defines them too is not loaded.

That library cannot be loaded beside these definitions, so `loader` withdraws them first.
"""

import torch
from torch.library import Library

SCHEMAS = {
    "linear": "(Tensor x, Tensor weight, int out_features) -> Tensor",
    "routed_experts": (
        "(Tensor x, Tensor expert_ids, Tensor expert_weights, Tensor gate_up, Tensor down)"
        " -> Tensor"
    ),
    "label_head": (
        "(Tensor hidden, Tensor embedding, Tensor label_ids, float softcap)"
        " -> (Tensor label_logits, Tensor lse, Tensor entropy, Tensor argmax)"
    ),
    "denoise_head": (
        "(Tensor hidden, Tensor embedding, Tensor temperature, Tensor draws, float softcap,"
        " float scale) -> (Tensor argmax, Tensor candidate, Tensor entropy, Tensor log_prob,"
        " Tensor candidate_log_prob, Tensor soft)"
    ),
    "mixed_mask_paged_attention": (
        "(Tensor q, Tensor k, Tensor v, Tensor(a!) kv_pool, Tensor slots, Tensor segments,"
        " Tensor block_table, int window) -> Tensor"
    ),
}
"""As plugins/csrc/ops.cpp has them; a test holds both together."""

_made: list[Library] = []


def define() -> None:
    """Defines every op, unless the library or an earlier call has."""
    if defined():
        return
    library = Library("dg", "FRAGMENT")
    for name, schema in SCHEMAS.items():
        library.define(name + schema)
    _made.append(library)


def defined() -> bool:
    """Whether the ops can be called by name."""
    return hasattr(torch.ops.dg, "linear")


def withdraw() -> None:
    """Takes back what `define` made; implementations and fakes stay registered."""
    while _made:
        _made.pop()._destroy()
