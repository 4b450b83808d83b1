"""Both heads on a GPU against the reference: tiles of rows and of ids, ties, padding, whole tables.

Statistics of a row are sums of many powers at a temperature down to 0.4, which makes errors of
logits 2.5 times as large: in fp32 they are within 1e-3. Ids are compared by their logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks import gpu_peers
from benchmarks.gpu_cases import Finding
from benchmarks.gpu_compare import LOGIT, bound_of, distance, shortfall
from benchmarks.gpu_context import Context
from plugins import reference
from plugins.gpu.heads_op import denoise_head, label_head
from plugins.spec import NO_LABEL
from tests.plugins.denoise_cases import SOFTCAP, Case, make_case

STATISTICS = 1e-3
_NAMES = ("entropy", "log probability", "candidate's log probability")


def _statistic(what: str, found: Tensor, truth: Tensor, dtype: torch.dtype) -> Finding:
    bound = STATISTICS if dtype == torch.float32 else bound_of(dtype)
    return Finding(what, distance(found, truth), bound)


def _label(context: Context, what: str, case: Case) -> Iterator[Finding]:
    """The read head at the case's rows, with padding and repeats among the labels."""
    vocabulary = len(case.embedding)
    labels = torch.arange(5 * len(case.hidden), dtype=torch.int32).reshape(-1, 5) % vocabulary
    labels[:, 4] = NO_LABEL
    hidden, embedding, asked = (x.to(context.device) for x in (case.hidden, case.embedding, labels))
    logits, lse, entropy, argmax = label_head(hidden, embedding, asked, SOFTCAP)
    truth = reference.label_head(case.hidden.float(), case.embedding.float(), labels, SOFTCAP)
    dtype = case.hidden.dtype
    yield _statistic(f"labels, {what}", logits, truth[0], dtype)
    yield _statistic(f"log-sum-exp, {what}", lse, truth[1], dtype)
    yield _statistic(f"entropy, {what}", entropy, truth[2], dtype)
    yield Finding(f"argmax, {what}", shortfall(case.logits(), argmax.cpu()), LOGIT)


def _run(context: Context, case: Case) -> tuple[Tensor, ...]:
    """The denoise head on the device."""
    tensors = (case.hidden, case.embedding, case.temperature, case.draws)
    hidden, embedding, temperature, draws = (x.to(context.device) for x in tensors)
    return denoise_head(hidden, embedding, temperature, draws, case.softcap, case.scale)


def _denoise(context: Context, what: str, case: Case) -> Iterator[Finding]:
    """The denoise head at the case's rows; a candidate must win by its noise, or nearly."""
    found = [x.cpu() for x in _run(context, case)]
    exact = replace(case, hidden=case.hidden.float(), embedding=case.embedding.float())
    truth = exact.expected()
    argmax, candidate, *numbers, soft = found
    dtype = case.hidden.dtype
    log_probs = exact.log_probs()
    noisy = log_probs + reference.gumbel(case.draws, len(case.embedding))
    drawn = log_probs.gather(1, candidate.long()[:, None])[:, 0]
    for name, ours, theirs in zip(_NAMES, numbers, (*truth[2:4], drawn), strict=True):
        yield _statistic(f"{name}, {what}", ours, theirs, dtype)
    yield Finding(f"argmax, {what}", shortfall(exact.logits(), argmax), LOGIT)
    yield Finding(f"candidate, {what}", shortfall(noisy, candidate), 5 * LOGIT)
    bound = STATISTICS if dtype == torch.float32 else bound_of(dtype, context.interpreted)
    yield Finding(f"soft embedding, {what}", distance(soft, truth[5]), bound)


def sizes(
    context: Context, dtype: str, shapes: Sequence[Sequence[int]], hidden: int = 64
) -> Iterator[Finding]:
    """Every (rows, vocabulary) through both heads."""
    for rows, vocabulary in shapes[-1 if context.interpreted else 0 :]:
        case = make_case(rows, vocabulary, hidden, dtype=getattr(torch, dtype))
        what = f"{rows} rows, {vocabulary} ids of {hidden}, {dtype}"
        yield from _label(context, what, case)
        yield from _denoise(context, what, case)


def ties(context: Context) -> Iterator[Finding]:
    """The lowest id wins, within a tile and across tiles; no rows give no results."""
    for ids in ([5, 9], [63, 64], [70, 71, 290]):
        case = make_case(2, 300)
        case.hidden[1] = case.hidden[0]
        case.embedding[:] = 0
        case.embedding[ids] = case.hidden[0]
        argmax = _run(context, case)[0]
        yield Finding(f"tie of {ids}", float((argmax != ids[0]).sum()), 0.0)
    nothing = _run(context, make_case(0, 100))
    yield Finding("no rows", float(sum(x.numel() for x in nothing)), 0.0)


def released(context: Context, rows: int) -> Iterator[Finding]:
    """The released checkpoint's token table, against torch's fp32 products on the device."""
    geometry = context.sizes.geometry
    hidden_size, vocabulary = geometry.hidden_size, geometry.vocab_size
    hidden = context.normal(rows, hidden_size)
    embedding = context.normal(vocabulary, hidden_size, std=3 * hidden_size**-0.5)
    last = torch.tensor([0, 1, vocabulary - 1], device=context.device, dtype=torch.int32)
    labels = last.repeat(rows, 1)
    temperature = 0.4 + 0.4 * context.uniform(rows)
    draws = torch.arange(3 * rows, device=context.device).reshape(rows, 3)
    exact = gpu_peers.capped(hidden.float(), embedding.float(), geometry.softcap)
    picked, lse, entropy, argmax = label_head(hidden, embedding, labels, geometry.softcap)
    yield _statistic("labels", picked, exact.gather(1, labels.long()), context.dtype)
    yield _statistic("log-sum-exp", lse, exact.logsumexp(-1), context.dtype)
    yield Finding("argmax", shortfall(exact, argmax), LOGIT)
    log_probs = torch.log_softmax(exact, -1)
    truth = -(log_probs.exp() * log_probs).sum(-1)
    yield _statistic("entropy", entropy, truth, context.dtype)
    colder = torch.log_softmax(exact / temperature[:, None], -1)
    scale = hidden_size**0.5
    found = denoise_head(hidden, embedding, temperature, draws, geometry.softcap, scale)
    yield Finding("argmax of denoising", shortfall(exact, found[0]), LOGIT)
    noisy = colder.cpu() + reference.gumbel(draws.cpu(), vocabulary)
    yield Finding("candidate", shortfall(noisy, found[1]), 5 * LOGIT)
    powers = colder.exp()
    truth = -(powers * colder).sum(-1)
    yield _statistic("entropy of denoising", found[2], truth, context.dtype)
    soft = scale * (powers @ embedding.float())
    bound = bound_of(context.dtype, context.interpreted)
    yield Finding("soft embedding", distance(found[5], soft), bound)
