"""The execution that is being put together: its segments, its room, its scratch pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from triton_backend.core import Segment, SplitReason, Step, Transfer
from triton_backend.fusion import Room
from triton_backend.kv_cache import Pages
from triton_backend.progress import Progress


@dataclass
class StepBuilder:
    """`keys` are the requests that are in it: their pages may not be taken any more. `loaded` are
    those whose contexts come back from host memory with it."""

    room: Room
    segments: list[Segment] = field(default_factory=list)
    splits: list[tuple[int, SplitReason]] = field(default_factory=list)
    scratch: list[Pages] = field(default_factory=list)
    keys: set[int] = field(default_factory=set)
    canvases: set[tuple[int, int]] = field(default_factory=set)
    saves: list[Transfer] = field(default_factory=list)
    loads: list[Transfer] = field(default_factory=list)
    loaded: list[Progress] = field(default_factory=list)

    def add(self, segment: Segment, scratch: Pages | None = None) -> None:
        """Takes a segment in; ask the room first."""
        self.room.take(len(segment.token_ids), len(segment.slots))
        self.segments.append(segment)
        self.keys.add(segment.key)
        if scratch is not None:
            self.scratch.append(scratch)
            self.canvases.add((segment.key, segment.canvas))

    def load(self, progress: Progress, moves: Iterable[Transfer]) -> None:
        """Takes in what brings a request's context back: its pages are the step's from now on."""
        self.loads += moves
        self.loaded.append(progress)
        self.keys.add(progress.request.key)

    def without(self, key: int, canvases: Iterable[int]) -> Iterator[int]:
        """Those of a request's canvases that are not in it yet."""
        return (canvas for canvas in canvases if (key, canvas) not in self.canvases)

    @property
    def tokens(self) -> int:
        """Rows taken so far."""
        return sum(len(segment.token_ids) for segment in self.segments)

    def step(self) -> Step:
        return Step(tuple(self.segments), tuple(self.splits), tuple(self.saves), tuple(self.loads))
