"""How the routed experts are launched; imports no torch and no triton."""

from dataclasses import dataclass

from plugins.gpu.device import ELEMENT_BYTES, Gpu, power_of_two, tiles_of

_SCANNED = 1024


@dataclass(frozen=True)
class ExpertShape:
    """What an engine fixes: experts, choices of a row, sizes of a row and of an expert's inside."""

    experts: int
    choices: int
    hidden: int
    inner: int


@dataclass(frozen=True)
class ExpertPlan:
    """Products of `rows` pairs of an expert and `columns` of its weights, `step` deep at a time."""

    shape: ExpertShape
    rows: int
    columns: int
    step: int
    warps: int
    stages: int
    scan: int = _SCANNED  # expert ids looked through at a time

    @property
    def expert_slots(self) -> int:
        return power_of_two(self.shape.experts)

    @property
    def combined(self) -> int:
        """Columns of the output that one program combines."""
        return min(power_of_two(self.shape.hidden), 1024)

    def grid(self, pairs: int, columns: int) -> tuple[int, int]:
        """(blocks of pairs, blocks of columns): every expert may end in a partial block.

        Blocks of one expert follow each other, so its weights are read from memory once.
        """
        blocks = tiles_of(pairs, self.rows) + min(self.shape.experts, pairs)
        return blocks, tiles_of(columns, self.columns)

    def combine_grid(self, rows: int) -> tuple[int, int]:
        return rows, tiles_of(self.shape.hidden, self.combined)


def plan_experts(shape: ExpertShape, dtype: str, rows: int, gpu: Gpu) -> ExpertPlan:
    """`rows` of the batch choose the height of a block: twice what an expert gets on average."""
    if ELEMENT_BYTES[dtype] == 4:
        return ExpertPlan(shape, 16, 64, 32, 4, 2)
    average = tiles_of(rows * shape.choices, shape.experts)
    height = min(power_of_two(2 * average, 16), 64)
    return ExpertPlan(shape, height, 64, 64, 4, 4 if gpu.shared_bytes > 128 * 1024 else 3)
