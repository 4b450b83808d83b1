"""The same work as the kernels' by torch's own operations alone: peers, and truths in fp32."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def sorted_pairs(ids: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """(pairs in order of their expert, int32 ends of the experts' runs) of ids [N, K]."""
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    bounds = torch.arange(1, experts + 1, dtype=flat.dtype, device=flat.device)
    return order, torch.searchsorted(flat[order], bounds).int()


def experts_grouped(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor
) -> Tensor:
    """Routed experts by torch's grouped product; nothing is read back, so it can be captured."""
    order, ends = sorted_pairs(ids, len(gate_up))
    both = F.grouped_mm(x[order // ids.shape[1]], gate_up.transpose(-2, -1), offs=ends)
    gate, up = both.chunk(2, -1)
    inner = F.gelu(gate, approximate="tanh") * up
    produced = F.grouped_mm(inner, down.transpose(-2, -1), offs=ends)
    places = torch.empty_like(order).scatter_(
        0, order, torch.arange(len(order), device=order.device)
    )
    by_row = produced[places].unflatten(0, ids.shape).float()
    summed: Tensor = (by_row * weights[..., None]).sum(1)
    return summed.to(x.dtype)


def experts_loop(x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Routed experts in fp32, expert by expert."""
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert in ids.unique().tolist():
        rows, choice = (ids == expert).nonzero(as_tuple=True)
        gate, up = (x[rows].float() @ gate_up[expert].float().T).chunk(2, -1)
        inner = F.gelu(gate, approximate="tanh") * up
        produced = inner @ down[expert].float().T
        out.index_add_(0, rows, produced * weights[rows, choice, None])
    return out


def capped(hidden: Tensor, embedding: Tensor, softcap: float) -> Tensor:
    """Soft-capped fp32 logits [R, V] of a product in the inputs' type."""
    return softcap * torch.tanh((hidden @ embedding.T).float() / softcap)


def label_head(
    hidden: Tensor, embedding: Tensor, labels: Tensor, softcap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(label logits, log-sum-exp, entropy, argmax); labels without padding."""
    logits = capped(hidden, embedding, softcap)
    lse = logits.logsumexp(-1)
    entropy = lse - (torch.softmax(logits, -1) * logits).sum(-1)
    return logits.gather(1, labels.long()), lse, entropy, logits.argmax(-1)


def denoise_head(
    hidden: Tensor, embedding: Tensor, temperature: Tensor, softcap: float, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(argmax, candidate, entropy, log_prob, candidate_log_prob, soft), drawn by torch."""
    logits = capped(hidden, embedding, softcap)
    argmax = logits.argmax(-1)
    log_prob = logits.gather(1, argmax[:, None])[:, 0] - logits.logsumexp(-1)
    log_probs = torch.log_softmax(logits / temperature[:, None], -1)
    powers = log_probs.exp()
    candidate = torch.multinomial(powers, 1)
    entropy = -(powers * log_probs).sum(-1)
    soft = scale * (powers.to(embedding.dtype) @ embedding)
    drawn = log_probs.gather(1, candidate)[:, 0]
    return argmax, candidate[:, 0], entropy, log_prob, drawn, soft


def attention_truth(q: Tensor, keys: Tensor, values: Tensor, causal: bool) -> Tensor:
    """fp32 attention without a scale: q [B, Hq, R, D], keys and values [B, Hkv, S, D]."""
    group = q.shape[1] // keys.shape[1]
    keys, values = (x.float().repeat_interleave(group, 1) for x in (keys, values))
    scores = q.float() @ keys.transpose(-2, -1)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1) @ values
