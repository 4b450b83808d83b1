"""The peer: transformers' own two-pass read, with the fastest of its experts implementations."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from transformers import DiffusionGemmaForBlockDiffusion, DynamicCache

EXPERTS = ("grouped_mm", "batched_mm", "eager")
# batched_mm gathers every row its own copy of its experts: beyond this it only eats memory.
MAX_BATCHED_ROWS = 256


class HfPeer:
    """Holds the model; a read encodes the prompt, then denoises the canvas once."""

    def __init__(self, checkpoint: Path, dtype: torch.dtype) -> None:
        model = DiffusionGemmaForBlockDiffusion.from_pretrained(checkpoint, dtype=dtype)
        self.model = model.eval()
        self.experts = "eager"

    @torch.no_grad()
    def generate(
        self, prompts: torch.Tensor, canvases: int, steps: int, **cache: str
    ) -> torch.Tensor:
        """Sequences [B, P + canvases * W] after exactly `steps` denoising steps a canvas."""
        result = self.model.generate(
            prompts,
            max_new_tokens=canvases * self.model.config.canvas_length,
            max_denoising_steps=steps,
            stability_threshold=64,
            confidence_threshold=1e-9,
            eos_token_id=None,
            disable_compile=not cache,
            **cache,
        )
        return result.sequences

    def try_compiled(self, prompt: int, canvases: int, steps: int) -> str:
        """What transformers' own compiled path does at one request, in words."""
        prompts = torch.zeros(1, prompt, dtype=torch.int64)
        try:
            for _ in range(2):
                self.generate(prompts, canvases, steps, cache_implementation="static")
            start = time.perf_counter()
            self.generate(prompts, canvases, steps, cache_implementation="static")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            return f"does not run here ({type(error).__name__}: {str(error).splitlines()[0][:120]})"
        return f"{time.perf_counter() - start:.3f} s at one request"

    @torch.inference_mode()
    def read(self, prompts: torch.Tensor, canvases: torch.Tensor) -> torch.Tensor:
        """Logits [B, C, V] of prompts [B, P] and canvases [B, C]."""
        cache = DynamicCache(config=self.model.config.text_config)
        self.model.model.encoder(input_ids=prompts, past_key_values=cache)
        logits: torch.Tensor = self.model(past_key_values=cache, decoder_input_ids=canvases).logits
        return logits

    def choose_experts(self, prompts: torch.Tensor, canvases: torch.Tensor) -> dict[str, float]:
        """Switch to the fastest experts implementation for these inputs; seconds of each."""
        seconds: dict[str, float] = {}
        candidates = EXPERTS if prompts.numel() <= MAX_BATCHED_ROWS else ("grouped_mm", "eager")
        for name in candidates:
            try:
                self.model.set_experts_implementation(name)
                self.read(prompts, canvases)
                times = []
                for _ in range(3):
                    start = time.perf_counter()
                    self.read(prompts, canvases)
                    times.append(time.perf_counter() - start)
                seconds[name] = sorted(times)[1]
            except (RuntimeError, NotImplementedError, ValueError):
                continue
        self.experts = min(seconds, key=lambda name: seconds[name])
        self.model.set_experts_implementation(self.experts)
        return seconds
