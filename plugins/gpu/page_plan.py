"""How the page write is launched; imports no torch and no triton."""

from dataclasses import dataclass

from plugins.gpu.device import power_of_two

_MOST_ELEMENTS = 4096


@dataclass(frozen=True)
class PagePlan:
    """A program per row of `elements` = Hkv * D numbers, copied `block` at a time."""

    elements: int
    page: int
    block: int
    warps: int = 4
    stages: int = 1

    def grid(self, rows: int) -> tuple[int]:
        return (rows,)


def plan_page_write(kv_heads: int, width: int, page: int) -> PagePlan:
    elements = kv_heads * width
    return PagePlan(elements, page, min(power_of_two(elements), _MOST_ELEMENTS))
