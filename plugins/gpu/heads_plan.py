"""How both heads walk the vocabulary: tiles, spans and chunks; imports no torch and no triton.

Spans and chunks follow from the vocabulary alone, so the order of a row's sums never depends on
other rows.
"""

from dataclasses import dataclass, replace

from plugins.gpu.device import ELEMENT_BYTES, Gpu, power_of_two, tiles_of

_MOST_SPANS = 256
_CHUNK_TILES = 256
_MOST_SPLITS = 4


@dataclass(frozen=True)
class HeadPlan:
    """Logits of `rows` hidden rows and `ids` ids at a time, over `step` columns of both."""

    hidden: int
    vocabulary: int
    softcap: float
    rows: int
    ids: int
    step: int
    warps: int
    stages: int

    @property
    def tiles(self) -> int:
        return tiles_of(self.vocabulary, self.ids)

    def blocks(self, rows: int) -> int:
        return tiles_of(rows, self.rows)


@dataclass(frozen=True)
class LabelPlan(HeadPlan):
    """A program folds a span of tiles; a second kernel merges the spans."""

    labels: int = 16  # label ids compared at a time

    @property
    def span(self) -> int:
        """Tiles of a span."""
        return tiles_of(self.tiles, min(self.tiles, _MOST_SPANS))

    @property
    def spans(self) -> int:
        return tiles_of(self.tiles, self.span)

    @property
    def span_slots(self) -> int:
        return power_of_two(self.spans)

    def grid(self, rows: int) -> tuple[int, int]:
        """(blocks, spans): blocks that read the same ids follow each other."""
        return self.blocks(rows), self.spans


@dataclass(frozen=True)
class DenoisePlan(HeadPlan):
    """A program folds one tile; tiles are merged, and added to the soft embedding, by chunks.

    A chunk's powers [rows, chunk * ids] are all that is ever held of a row's logits.
    """

    scale: float = 1.0
    chunk: int = _CHUNK_TILES  # tiles
    columns: int = 128  # of the embedding, that a program of the soft embedding owns

    @property
    def chunks(self) -> int:
        return tiles_of(self.tiles, self.chunk)

    @property
    def splits(self) -> int:
        """Parts of every chunk that are summed apart from each other."""
        return min(_MOST_SPLITS, self.chunk)

    @property
    def part(self) -> int:
        """Tiles of a split."""
        return tiles_of(self.chunk, self.splits)

    @property
    def chunk_slots(self) -> int:
        return power_of_two(self.chunk)

    @property
    def width(self) -> int:
        """Ids of a chunk, and the row length of its powers."""
        return self.chunk * self.ids

    def tiles_in(self, chunk: int) -> int:
        return min(self.chunk, self.tiles - chunk * self.chunk)

    def soft_grid(self, rows: int) -> tuple[int, int, int]:
        return self.blocks(rows), tiles_of(self.hidden, self.columns), self.splits


def plan_label_head(
    hidden: int, vocabulary: int, softcap: float, dtype: str, rows: int, gpu: Gpu
) -> LabelPlan:
    return LabelPlan(hidden, vocabulary, softcap, *_tile(dtype, rows, gpu))


def plan_denoise_head(
    sizes: tuple[int, int], softcap: float, scale: float, dtype: str, rows: int, gpu: Gpu
) -> DenoisePlan:
    """`sizes` are those of the hidden row and of the vocabulary."""
    tile = _tile(dtype, rows, gpu)
    columns = 64 if ELEMENT_BYTES[dtype] == 4 else 128
    plan = DenoisePlan(*sizes, softcap, *tile, scale=scale, columns=columns)
    return replace(plan, chunk=min(_CHUNK_TILES, plan.tiles))


def _tile(dtype: str, rows: int, gpu: Gpu) -> tuple[int, int, int, int, int]:
    """(rows, ids, step, warps, stages): noise and powers take registers beside the logits."""
    if ELEMENT_BYTES[dtype] == 4:
        return 32, 64, 32, 4, 2
    stages = 3 if gpu.shared_bytes > 128 * 1024 else 2
    return (16, 128, 64, 4, stages) if rows <= 16 else (64, 128, 64, 8, stages)
