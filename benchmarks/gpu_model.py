"""The released checkpoint's model with random weights on the device, and one read's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.gpu_cases import NotHereError
from benchmarks.gpu_context import Context
from benchmarks.gpu_executor import EagerExecutor, contract_of, random_weights
from benchmarks.gpu_sizes import Sizes, layers_that_fit, with_layers
from build_engine.contract import EngineContract, Limits
from build_engine.model import StepInputs
from plugins.spec import Phase
from triton_backend.core import PROMPT, Segment, Step
from triton_backend.kv_cache import Pages
from triton_backend.pack import LEAST, PackedStep, pack


@dataclass
class BenchModel:
    """The modules, and how many of the released layers they are."""

    sizes: Sizes
    executor: EagerExecutor
    contract: EngineContract

    @property
    def layers(self) -> int:
        return self.sizes.geometry.num_layers

    def pools(self, pages: int) -> list[Tensor]:
        """Zeroed KV pools, one a layer."""
        geometry, weights = self.sizes.geometry, self.executor.embedding
        shapes = [(geometry.kv_heads(n), geometry.head_dim(n)) for n in range(self.layers)]
        return [weights.new_zeros((pages, 2, self.sizes.page, *shape)) for shape in shapes]

    def inputs(self, packed: PackedStep, pools: list[Tensor]) -> StepInputs:
        """A packed step on the device, with soft vectors of zeros."""
        weights = self.executor.embedding
        fields = [name for name in StepInputs._fields if hasattr(packed, name)]
        arrays = {n: torch.from_numpy(getattr(packed, n)).to(weights.device) for n in fields}
        soft = weights.new_zeros((LEAST, self.sizes.geometry.hidden_size))
        return StepInputs(**arrays, soft=soft, kv_pools=pools)


def make_model(context: Context) -> BenchModel:
    """All layers, or as many whole patterns of them as the device's memory holds.

    Raises:
        NotHereError: not even the first pattern fits.
    """
    sizes = context.sizes
    layers = layers_that_fit(sizes.geometry, context.free_gib())
    if not layers:
        raise NotHereError(
            f"{context.free_gib():.1f} GiB of device memory are free, too few for six layers of "
            "the released model; use a GPU of at least 16 GiB."
        )
    sizes = with_layers(sizes, layers)
    weights = dict(random_weights(sizes.config, context.dtype, context.device))
    width = sizes.geometry.canvas_length
    limits = Limits(
        max_step_tokens=16 * (sizes.prompt + width),
        max_segments=64,
        max_context=8 * sizes.prompt,
        max_canvas=width,
        max_output_rows=1024,
        max_labels=sizes.labels,
    )
    if not context.interpreted:
        # Others may run the model on a stream of their own.
        torch.cuda.synchronize(context.device)
    contract = contract_of(sizes.config, "bfloat16", sizes.page, limits)
    return BenchModel(sizes, EagerExecutor(sizes.config, weights), contract)


def tokens(sizes: Sizes, count: int, seed: int) -> tuple[int, ...]:
    """Random token ids."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, sizes.geometry.vocab_size, (count,), generator=generator)
    return tuple(ids.tolist())


def read_segments(
    sizes: Sizes, reads: int, prompt: int, phases: Sequence[Phase]
) -> tuple[tuple[Segment, ...], int]:
    """(segments of `reads` reads, pages they take): their prompts, their canvases, or both."""
    width, page = sizes.geometry.canvas_length, sizes.page
    committed = -(-prompt // page)
    each = committed + -(-width // page)
    labels = tuple(range(5, 5 + sizes.labels))
    made = []
    for read in range(reads):
        pages = tuple(range(read * each, (read + 1) * each))
        if Phase.PREFILL in phases:
            ids = tokens(sizes, prompt, read)
            own = Pages(pages[:committed], pages[:committed])
            made.append(Segment(read, PROMPT, Phase.PREFILL, ids, 0, own))
        if Phase.DENOISE in phases:
            ids = tokens(sizes, width, 1000 + read)
            slots = tuple(range(0, width, max(1, width // sizes.slots)))[: sizes.slots]
            asked = (slots, (labels,) * len(slots), sizes.labels)
            both = Pages(pages, pages)
            made.append(Segment(read, 0, Phase.DENOISE, ids, prompt, both, *asked))
    return tuple(made), reads * each


def packed_read(
    sizes: Sizes, reads: int, prompt: int, phases: Sequence[Phase]
) -> tuple[PackedStep, int]:
    """(one execution of `read_segments`, its pages)."""
    segments, pages = read_segments(sizes, reads, prompt, phases)
    return pack(Step(segments), sizes.page), pages
