"""Builds one call of the denoise head, and the exact distributions it must agree with."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plugins import reference

SOFTCAP = 30.0


@dataclass(frozen=True)
class Case:
    hidden: Tensor
    embedding: Tensor
    temperature: Tensor
    draws: Tensor
    softcap: float
    scale: float

    def run(self) -> tuple[Tensor, ...]:
        return torch.ops.dg.denoise_head(*vars(self).values())

    def expected(self) -> tuple[Tensor, ...]:
        return reference.denoise_head(*vars(self).values())

    def rows(self, rows: slice | list[int]) -> "Case":
        names = ("hidden", "temperature", "draws")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def logits(self) -> Tensor:
        """In fp64, of the stored values."""
        product = self.hidden.double() @ self.embedding.double().T
        return self.softcap * torch.tanh(product / self.softcap)

    def log_probs(self) -> Tensor:
        return torch.log_softmax(self.logits() / self.temperature[:, None].double(), -1)


def make_case(
    rows: int,
    vocabulary: int,
    hidden: int = 64,
    scale: float = 3.0,
    temperatures: tuple[float, float] = (0.4, 0.8),
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Logits of deviation about `scale`; every row has its own temperature, seed and counter."""
    generator = torch.Generator().manual_seed(rows + vocabulary)
    table = torch.randn(vocabulary, hidden, generator=generator) * scale * hidden**-0.5
    low, high = temperatures
    draws = torch.randint(0, 1 << 32, (rows, 3), generator=generator)
    draws[:, 0] = torch.randint(-(1 << 63), (1 << 63) - 1, (rows,), generator=generator)
    return Case(
        torch.randn(rows, hidden, generator=generator).to(dtype),
        table.to(dtype),
        low + (high - low) * torch.rand(rows, generator=generator),
        draws,
        SOFTCAP,
        hidden**0.5,
    )
