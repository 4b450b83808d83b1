"""A runner that hashes instead of computing, the lone answer it must give, and small helpers.

Its pools keep one number a position: the hash of the prefix up to there, taken through the block
table like keys and values. So a wrong slot, page, position, mask or row shows in the answer.
"""

from __future__ import annotations

import numpy as np

from build_engine.contract import EngineContract, Geometry, Limits
from plugins.spec import COMMITTED, FIRST_ROW, PHASE, ROW_COUNT, TABLE_ROW, Phase
from tests.triton_backend.hashing import VOCAB, canvas_state, mix, prefix_hashes, row_outputs
from triton_backend.accept import EntropyBound
from triton_backend.core import Canvas, Generation, Request
from triton_backend.counters import Counters
from triton_backend.denoise import Denoising
from triton_backend.fusion import StepLimits
from triton_backend.host_store import HostStore
from triton_backend.kv_cache import KvCache, KvShape, Need
from triton_backend.needs import least_need
from triton_backend.pack import LEAST
from triton_backend.paging import Swapping
from triton_backend.policy import Policy
from triton_backend.reading import Reading
from triton_backend.runner import DenoiseOutput, HeadOutput, StepOutput
from triton_backend.scheduler import Scheduler
from triton_backend.writing import Writing

PAGE = 4
WINDOW = 8


def make_contract(**limits) -> EngineContract:
    sizes = {
        "max_step_tokens": 64,
        "max_segments": 16,
        "max_context": 128,
        "max_canvas": 16,
        "max_output_rows": 32,
        "max_labels": 8,
    }
    geometry = Geometry(
        vocab_size=VOCAB, hidden_size=8, num_layers=2, num_heads=1,
        layer_types=("sliding_attention", "full_attention"), sliding_window=WINDOW,
        sliding_kv_heads=1, sliding_head_dim=8, full_kv_heads=1, full_head_dim=8,
        intermediate_size=8, num_experts=2,
        top_k_experts=1, moe_intermediate_size=8, canvas_length=16, softcap=30.0,
    )  # fmt: skip
    return EngineContract(
        target="fake", dtype="float32", page_size=PAGE, geometry=geometry,
        limits=Limits(**{**sizes, **limits}), stop_ids=(1,), pad_id=0, bos_id=2,
    )  # fmt: skip


def make_limits(tokens=64, segments=16, output_rows=32, context=128) -> StepLimits:
    return StepLimits(tokens, segments, output_rows, context)


def make_shape(pages=64, sliding=None, window=WINDOW) -> KvShape:
    return KvShape(PAGE, window, pages, pages if sliding is None else sliding)


def make_scheduler(
    limits=None, pages=64, sliding=None, reuse=False, window=WINDOW, host=0, **policy
) -> Scheduler:
    limits = limits or make_limits()
    kv = KvCache(make_shape(pages, sliding, window), reuse)

    def make_work(request):
        if request.generation is None:
            return Reading(request)
        return Writing(request, decode, VOCAB, limits.max_context)

    swapping = Swapping(HostStore(host, host))
    policy = Policy(check=True, **policy)
    return Scheduler(limits, kv, policy, Counters(), make_work, swapping)


def fitting_need(requests) -> Need:
    """Pages of each group with which every one of the requests can run, one at a time."""
    return Need(*map(max, zip(*(least_need(one, make_shape()) for one in requests), strict=True)))


def fitting_pages(requests) -> int:
    return max(fitting_need(requests))


def pool_sizes(scheduler) -> tuple[int, int]:
    return scheduler.kv.full.total, scheduler.kv.sliding.total


def decode(ids, more=False) -> str:
    """Every token is a letter of its own."""
    return "".join(chr(ord("!") + token) for token in ids)


def make_denoising(seed=0, steps=4, **changes) -> Denoising:
    """The stop rule is met by a third of all steps' entropies, see `row_outputs`."""
    settings = {
        "seed": seed, "max_steps": steps, "t_min": 0.4, "t_max": 0.8, "rule": EntropyBound(2.0),
        "stability_threshold": 0, "confidence_threshold": 3.0,
    }  # fmt: skip
    return Denoising(**{**settings, **changes})


def make_generation(key, prompt=8, max_tokens=10, canvas=4, steps=4, **changes) -> Request:
    prompt_ids = tuple((key * 13 + i * 5) % VOCAB for i in range(prompt))
    settings = {
        "max_tokens": max_tokens, "canvas_length": canvas,
        "denoising": make_denoising(seed=key, steps=steps), "stop_ids": frozenset(),
    }  # fmt: skip
    return Request(key, prompt_ids, generation=Generation(**{**settings, **changes}))


def make_canvas(width=4, slots=(0,), labels=((1, 2),), seed=0) -> Canvas:
    ids = tuple((seed * 31 + i * 7) % VOCAB for i in range(width))
    return Canvas(ids, tuple(slots), tuple(labels), max(len(row) for row in labels))


def make_request(key, prompt=8, width=4, canvases=1) -> Request:
    prompt_ids = tuple((key * 13 + i * 5) % VOCAB for i in range(prompt))
    return Request(
        key, prompt_ids, tuple(make_canvas(width, seed=key + n) for n in range(canvases))
    )


def lone_log_probs(request: Request, canvas: int = 0) -> np.ndarray:
    """The answer this request must get whoever else is served: real labels only, rows in order."""
    asked = request.canvases[canvas]
    prefix = prefix_hashes(request.prompt_ids + asked.prompt_ids)
    rows = []
    for slot, labels in zip(asked.slots, asked.label_ids, strict=True):
        logits, lse, _, _ = row_outputs(canvas_state(prefix, asked.ids, slot), labels)
        rows += [logit - lse for logit in logits]
    return np.array(rows, np.float32)


def given_log_probs(request: Request, read, canvas: int = 0) -> np.ndarray:
    counts = [len(labels) for labels in request.canvases[canvas].label_ids]
    return np.concatenate([row[:n] for row, n in zip(read.log_probs, counts, strict=True)])


class FakeRunner:
    """Obeys PackedStep alone. `poison` makes every canvas holding that token come out as NaN."""

    def __init__(self, contract=None, poison=None) -> None:
        self.contract = contract or make_contract()
        self.poison = poison
        self.steps = []
        self._pools, self._host, self.moves = {}, {}, 0

    def create_pools(self, full_pages: int, sliding_pages: int) -> None:
        counts = {"full": full_pages, "sliding": sliding_pages}
        self._pools = {
            name: np.zeros(count * self.contract.page_size, np.int64)
            for name, count in counts.items()
        }

    def create_host_pools(self, full_pages: int, sliding_pages: int) -> None:
        counts = {"full": full_pages, "sliding": sliding_pages}
        self._host = {name: np.zeros((count, PAGE), np.int64) for name, count in counts.items()}

    def move(self, saves, loads) -> None:
        self.moves += len(saves) + len(loads)
        # In what order a device copies is nobody's to say.
        assert len({(m.sliding, m.slot) for m in saves}) == len(saves), "a slot is written twice"
        assert len({(m.sliding, m.page) for m in loads}) == len(loads), "a page is written twice"
        for moves, back in ((saves, False), (loads, True)):
            for sliding, page, slot in moves:
                group = "sliding" if sliding else "full"
                pool, host = self._pools[group].reshape(-1, PAGE), self._host[group]
                if back:
                    pool[page] = host[slot]
                else:
                    host[slot] = pool[page]

    def run(self, packed) -> StepOutput:
        self.steps.append(packed)
        _check_shapes(packed)
        soft = np.concatenate([np.zeros(LEAST, np.int64), *packed.soft_parts])[packed.soft_index]
        states = self._states(packed, soft)
        reads = len(packed.label_ids)
        output = StepOutput(
            self._read(packed, states[packed.output_rows[:reads]]) if reads else None,
            self._denoise(packed, states[packed.output_rows[reads:]]),
        )
        self._poison(packed, output)
        return output

    def _read(self, packed, states) -> HeadOutput:
        rows = [
            row_outputs(int(state), labels.tolist())
            for state, labels in zip(states, packed.label_ids, strict=True)
        ]
        return HeadOutput(
            np.array([row[0] for row in rows], np.float32),
            *(np.array([row[n] for row in rows], np.float32) for n in (1, 2)),
            np.array([row[3] for row in rows], np.int32),
        )

    def _denoise(self, packed, states) -> DenoiseOutput | None:
        """Candidates depend on the random key and the temperature too, as a draw does."""
        if not len(packed.temperature):
            return None
        keys = zip(states, packed.temperature, packed.draws, strict=True)
        drawn = [mix(state, int(t * 1e6), *draw) for state, t, draw in keys]
        entropy = np.array([row_outputs(int(state), ())[2] for state in states], np.float32)
        return DenoiseOutput(
            argmax=np.array([state % VOCAB for state in states], np.int32),
            candidate=np.array([state % VOCAB for state in drawn], np.int32),
            entropy=entropy,
            log_prob=-entropy,
            candidate_log_prob=-2 * entropy,
            soft=np.array([mix(state, 5) for state in drawn], np.int64),
        )

    def _states(self, packed, soft):
        states = np.zeros(len(packed.token_ids), np.int64)
        # Prompts before canvases, shorter contexts first: a branch sees rows of the same execution.
        order = sorted(packed.segments.tolist(), key=lambda s: (s[PHASE] == 1, s[COMMITTED]))
        for segment in order:
            rows = range(segment[FIRST_ROW], segment[FIRST_ROW] + segment[ROW_COUNT])
            if not rows:
                continue
            committed = segment[COMMITTED]
            history = [self._at("full", packed, segment, p) for p in range(committed)]
            for position in range(max(committed - WINDOW + 1, 0), committed):
                found = self._at("sliding", packed, segment, position)
                assert found == history[position], "the page groups hold different things"
            for i, row in enumerate(rows):
                assert packed.positions[row] == committed + i
            tokens = packed.token_ids[rows.start : rows.stop].tolist()
            if segment[PHASE] == Phase.DENOISE:
                self._write(packed, rows, tokens)
                seen = self._canvas(packed, segment, rows)
                seen += [value for value in soft[rows.start : rows.stop] if value]
                for i, row in enumerate(rows):
                    states[row] = canvas_state(history, seen, i)
                continue
            state = history[-1] if history else 0
            for row, token in zip(rows, tokens, strict=True):
                states[row] = state = mix(state, token, packed.positions[row])
            self._write(packed, rows, states[rows.start : rows.stop])
        return states

    def _canvas(self, packed, segment, rows) -> list[int]:
        start = -(-segment[COMMITTED] // PAGE) * PAGE
        places = range(start, start + len(rows))
        seen = [self._at("full", packed, segment, place) for place in places]
        assert seen == [self._at("sliding", packed, segment, place) for place in places]
        return seen

    def _write(self, packed, rows, values) -> None:
        for group, pool in self._pools.items():
            pool[getattr(packed, f"slots_{group}")[rows.start : rows.stop]] = values

    def _at(self, group, packed, segment, position: int) -> int:
        page = getattr(packed, f"table_{group}")[segment[TABLE_ROW]][position // PAGE]
        assert page >= 0, "a page that the row does not hold is read"
        return int(self._pools[group][page * PAGE + position % PAGE])

    def _poison(self, packed, output: StepOutput) -> None:
        reads = len(packed.label_ids)
        for first, count, phase, _, _ in packed.segments.tolist():
            if phase == Phase.DENOISE and self.poison in packed.token_ids[first : first + count]:
                hit = (packed.output_rows >= first) & (packed.output_rows < first + count)
                if output.read is not None:
                    output.read.lse[hit[:reads]] = np.nan
                if output.denoise is not None:
                    output.denoise.entropy[hit[reads:]] = np.nan


def _check_shapes(packed) -> None:
    rows = len(packed.token_ids)
    per_row = (packed.positions, packed.phases, packed.slots_sliding, packed.slots_full)
    assert all(len(array) == rows for array in per_row)
    for array in (packed.token_ids, packed.segments, packed.output_rows):
        assert len(array) >= 2
    for table in (packed.table_sliding, packed.table_full):
        assert min(table.shape) >= 2
    for head in (packed.label_ids, packed.temperature):
        assert len(head) != 1
