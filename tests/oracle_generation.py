"""transformers' own `generate`, with this project's random draws put in place of torch's.

Each step is recorded with its margin: how far the nearest of its decisions was from falling the
other way. Where that is within rounding, two exact implementations may part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from transformers import DiffusionGemmaForBlockDiffusion
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    EntropyBoundSampler,
    EntropyBoundSamplerConfig,
)

from plugins.philox import key_of, philox4x32, uniform
from plugins.spec import Stream
from triton_backend.accept import EntropyBound
from triton_backend.core import Request
from triton_backend.denoise import Denoising
from triton_backend.noise import uniform_ids


@dataclass
class OracleStep:
    """One denoising step: its argmax canvas, what it accepted, and the canvas it left."""

    canvas: int
    argmax: list[int]
    accepted: list[bool]
    next_ids: list[int]
    margin: float


def gumbel_scores(probabilities: Tensor, seed: int, positions: np.ndarray, step: int) -> Tensor:
    """log p + Gumbel noise [W, V], by the counter-based draws of `dg::denoise_head`."""
    width, vocab = probabilities.shape
    ids = np.arange(vocab)
    counter = np.zeros((width, vocab, 4), np.uint32)
    counter[..., 0] = ids >> 2
    counter[..., 1] = positions[:, None]
    counter[..., 2] = step
    counter[..., 3] = Stream.CANDIDATE
    key = key_of(np.array(seed, np.uint64).astype(np.int64))
    words = philox4x32(key, counter.reshape(-1, 4)).reshape(width, vocab, 4)
    drawn = uniform(np.take_along_axis(words, (ids & 3)[None, :, None], 2)[..., 0])
    return probabilities.log() - torch.from_numpy(np.log(-np.log(drawn.astype(np.float64))))


class _Draws:
    """Knows by the order of calls which canvas and step draws, and records every step."""

    def __init__(self, denoising: Denoising, prompt: int, width: int, vocab: int) -> None:
        self.denoising, self.prompt, self.width, self.vocab = denoising, prompt, width, vocab
        self.canvas, self.step, self.renoises = -1, 0, False
        self.steps: list[OracleStep] = []

    @property
    def positions(self) -> np.ndarray:
        return self.prompt + self.canvas * self.width + np.arange(self.width)

    def noise(self, sampler: EntropyBoundSampler, batch: int, device: object) -> Tensor:
        """Stands for `initialize_canvas`: a new canvas's noise, or that of rejected positions."""
        stream, step = Stream.RENOISE, self.step
        if not self.renoises:
            self.canvas, self.step = self.canvas + 1, 0
            stream, step = Stream.CANVAS, 0
        ids = uniform_ids(self.denoising.seed, stream, self.positions, step, self.vocab)
        return torch.from_numpy(ids)[None]

    def candidates(self, probabilities: Tensor, num_samples: int) -> Tensor:
        """Stands for `torch.multinomial`."""
        scores = gumbel_scores(probabilities, self.denoising.seed, self.positions, self.step)
        best = scores.topk(2).values
        likely = probabilities.log().topk(2).values
        self.margin = min(_gap(best), _gap(likely))
        self.argmax = probabilities.argmax(-1).tolist()
        return scores.argmax(-1, keepdim=True)

    def accepted(self, sampler: EntropyBoundSampler, logits: Tensor) -> None:
        entropy = torch.distributions.Categorical(logits=logits).entropy()[0]
        before = (entropy.sort().values.cumsum(0) - entropy.sort().values) - sampler.entropy_bound
        confidence = (entropy.mean() - self.denoising.confidence_threshold).abs()
        self.margin = min(self.margin, float(before.abs().min()), float(confidence))

    def renoised(self, sampler: EntropyBoundSampler, canvas: Tensor) -> None:
        mask = sampler.accepted_token_mask
        assert mask is not None
        self.steps.append(
            OracleStep(self.canvas, self.argmax, mask[0].tolist(), canvas[0].tolist(), self.margin)
        )
        self.step += 1


def _gap(top_two: Tensor) -> float:
    return float((top_two[:, 0] - top_two[:, 1]).min())


@contextmanager
def _injected(draws: _Draws) -> Iterator[None]:
    accept, renoise = EntropyBoundSampler.accept_canvas, EntropyBoundSampler.renoise_canvas

    def accept_canvas(self, canvas, candidates, logits, step):  # type: ignore[no-untyped-def]
        result = accept(self, canvas, candidates, logits, step)
        draws.accepted(self, logits)
        return result

    def renoise_canvas(self, canvas, step):  # type: ignore[no-untyped-def]
        draws.renoises = True
        result = renoise(self, canvas, step)
        draws.renoises = False
        draws.renoised(self, result)
        return result

    def initialize_canvas(self, batch_size, device):  # type: ignore[no-untyped-def]
        return draws.noise(self, batch_size, device)

    with (
        mock.patch.object(EntropyBoundSampler, "accept_canvas", accept_canvas),
        mock.patch.object(EntropyBoundSampler, "renoise_canvas", renoise_canvas),
        mock.patch.object(EntropyBoundSampler, "initialize_canvas", initialize_canvas),
        mock.patch.object(torch, "multinomial", draws.candidates),
    ):
        yield


@torch.no_grad()
def generate(
    model: DiffusionGemmaForBlockDiffusion, request: Request
) -> tuple[list[int], list[OracleStep]]:
    """Token ids of whole canvases as the oracle writes them, and every step of the way."""
    asked = request.generation
    assert asked is not None
    denoising = asked.denoising
    assert isinstance(denoising.rule, EntropyBound)
    config = model.config
    assert asked.canvas_length == config.canvas_length
    draws = _Draws(
        denoising, len(request.prompt_ids), asked.canvas_length, config.text_config.vocab_size
    )
    with _injected(draws):
        result = model.generate(
            torch.tensor([request.prompt_ids]),
            max_new_tokens=asked.max_tokens,
            max_denoising_steps=denoising.max_steps,
            sampler_config=EntropyBoundSamplerConfig(denoising.rule.bound),
            t_min=denoising.t_min,
            t_max=denoising.t_max,
            stability_threshold=denoising.stability_threshold,
            confidence_threshold=denoising.confidence_threshold,
            eos_token_id=sorted(asked.stop_ids) or None,
            disable_compile=True,
        )
    return result.sequences[0, len(request.prompt_ids) :].tolist(), draws.steps
