"""Every op as the plainest torch: loops and explicit masks in fp32; knows no kernel or layout."""

import numpy as np
import torch
from torch import Tensor

from plugins.philox import key_of, philox4x32, uniform
from plugins.spec import COMMITTED, FIRST_ROW, PHASE, ROW_COUNT, TABLE_ROW, Phase, Stream


def linear(x: Tensor, weight: Tensor) -> Tensor:
    return (x.float() @ weight.float().T).to(x.dtype)


def routed_experts(
    x: Tensor, expert_ids: Tensor, expert_weights: Tensor, gate_up: Tensor, down: Tensor
) -> Tensor:
    out = torch.zeros(x.shape, dtype=torch.float32)
    for row, (ids, weights) in enumerate(zip(expert_ids.tolist(), expert_weights, strict=True)):
        for expert, weight in zip(ids, weights, strict=True):
            gate, up = (gate_up[expert].float() @ x[row].float()).chunk(2)
            inner = torch.nn.functional.gelu(gate, approximate="tanh") * up
            out[row] += weight * (down[expert].float() @ inner.to(x.dtype).float())
    return out.to(x.dtype)


def label_head(
    hidden: Tensor, embedding: Tensor, label_ids: Tensor, softcap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits = softcap * torch.tanh(hidden.float() @ embedding.float().T / softcap)
    log_probs = torch.log_softmax(logits, dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    picked = logits.gather(1, label_ids.clamp(min=0).long())
    label_logits = picked.masked_fill(label_ids < 0, -torch.inf)
    return label_logits, logits.logsumexp(-1), entropy, logits.argmax(-1).int()


def denoise_head(
    hidden: Tensor,
    embedding: Tensor,
    temperature: Tensor,
    draws: Tensor,
    softcap: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    logits = softcap * torch.tanh(hidden.float() @ embedding.float().T / softcap)
    processed = logits / temperature[:, None]
    log_probs = torch.log_softmax(processed, dim=-1)
    argmax = logits.argmax(-1)
    candidate = (log_probs + gumbel(draws, len(embedding))).argmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    log_prob = torch.log_softmax(logits, dim=-1).gather(1, argmax[:, None])[:, 0]
    candidate_log_prob = log_probs.gather(1, candidate[:, None])[:, 0]
    soft = (scale * (log_probs.exp() @ embedding.float())).to(hidden.dtype)
    return argmax.int(), candidate.int(), entropy, log_prob, candidate_log_prob, soft


def gumbel(draws: Tensor, vocabulary: int) -> Tensor:
    """A Gumbel variate [R, V] in fp64 of every id; four neighbouring ids share a counter."""
    seed, position, step = draws.numpy().T[..., None]
    block = np.arange(-(-vocabulary // 4))
    counter = np.broadcast_arrays(block, position, step, np.int64(Stream.CANDIDATE))
    words = philox4x32(key_of(seed), np.stack(counter, axis=-1))
    variates = -np.log(-np.log(uniform(words)))
    return torch.from_numpy(variates.reshape(len(draws), -1)[:, :vocabulary])


def mixed_mask_paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kv_pool: Tensor,
    slots: Tensor,
    segments: Tensor,
    block_table: Tensor,
    window: int,
) -> Tensor:
    """Writes k and v into `kv_pool`, then attends by segment; rows in no segment stay zero."""
    _write(kv_pool, k, v, slots)
    out = torch.zeros_like(q)
    for segment in segments.tolist():
        first, count = segment[FIRST_ROW], segment[ROW_COUNT]
        if count == 0:
            continue
        table = block_table[segment[TABLE_ROW]].tolist()
        places, mask = _visible(segment, kv_pool.shape[2], window)
        stored = torch.stack([kv_pool[table[page], :, offset] for page, offset in places])
        keys, values = stored.float().unbind(1)  # [seen, Hkv, D]
        out[first : first + count] = _attend(q[first : first + count], keys, values, mask)
    return out


def _write(kv_pool: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            page, offset = divmod(slot, kv_pool.shape[2])
            kv_pool[page, 0, offset] = k[row]
            kv_pool[page, 1, offset] = v[row]


def _visible(segment: list[int], page_size: int, window: int) -> tuple[list, Tensor]:
    """(table column, offset) of every position a segment reads, and which row sees which."""
    count, committed = segment[ROW_COUNT], segment[COMMITTED]
    if segment[PHASE] == Phase.DENOISE:
        history = range(max(0, committed - (window - 1)) if window else 0, committed)
        scratch = -(-committed // page_size) * page_size
        seen = [*history, *range(scratch, scratch + count)]
        mask = torch.ones(count, len(seen), dtype=torch.bool)
    else:
        position = committed + torch.arange(count)[:, None]
        first = max(0, committed - window + 1) if window else 0
        seen = list(range(first, committed + count))
        key = torch.tensor(seen)[None, :]
        mask = key <= position
        if window:
            mask &= key > position - window
    return [divmod(p, page_size) for p in seen], mask


def _attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    group = q.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = torch.einsum("rhd,khd->hrk", q.float(), keys).masked_fill(~mask, -torch.inf)
    return torch.einsum("hrk,khd->rhd", scores.softmax(-1), values).to(q.dtype)
