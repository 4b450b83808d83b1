"""Opens an engine directory for serving: checks first, then loads, then proves it with a read.

Whatever could fail on the first request fails here instead, as one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from build_engine.contract import EngineContract, load_contract
from build_engine.errors import EngineError
from triton_backend.config import ServeConfig
from triton_backend.core import Request, Step, StepResult
from triton_backend.counters import Counters
from triton_backend.execute import run
from triton_backend.fusion import StepLimits
from triton_backend.generation_defaults import load_defaults
from triton_backend.limits import request_limits, step_limits
from triton_backend.loop import EngineLoop
from triton_backend.memory import available_bytes
from triton_backend.metrics import Family, Metric, Publisher, values
from triton_backend.outbox import Outbox
from triton_backend.page_pool import PagePool, pages_for
from triton_backend.parse import Parser
from triton_backend.reading import Reading
from triton_backend.runner import Runner
from triton_backend.runners import open_runner
from triton_backend.scheduler import MakeWork, Scheduler
from triton_backend.tokenizer import Tokenizer
from triton_backend.warm_up import warm_up
from triton_backend.watch import Watch
from triton_backend.work import Work
from triton_backend.writing import Writing

MakeMetric = Callable[[Family, str], Metric]
PATIENCE = 20.0
"""Seconds that requests in flight have to finish when the server stops."""


@dataclass(frozen=True)
class Service:
    """A running engine: `parser` makes requests, `loop` takes them."""

    parser: Parser
    loop: EngineLoop
    outbox: Outbox
    watch: Watch

    def close(self) -> None:
        """Finishes what is in flight, answers everybody, ends every thread."""
        self.loop.stop(PATIENCE)
        self.watch.close()
        self.outbox.close()


def open_service(config: ServeConfig, make_metric: MakeMetric) -> Service:
    """A service that has answered its first read.

    Raises:
        EngineError, TokenizerError, ConfigError: why it cannot serve, in one sentence.
    """
    directory = Path(config.engine_dir)
    contract = load_contract(directory)
    limits = step_limits(contract, config.max_step_tokens)
    _check_budget(contract, limits)
    pages = choose_pages(config, contract, limits)
    check_memory(contract, pages, available_bytes())
    tokenizer = Tokenizer.load(directory)
    check_vocabulary(directory, contract, tokenizer.vocab_size)
    runner = open_runner(directory, contract, config.threads)
    runner.create_pools(pages)
    defaults = load_defaults(directory)
    parser = Parser(request_limits(contract, limits, pages), tokenizer, defaults)
    outbox = Outbox()
    make_work = work_maker(tokenizer, contract)
    loop = _start_loop(config, runner, limits, pages, outbox, make_metric, make_work)
    return Service(parser, loop, outbox, Watch(loop))


def _start_loop(
    config: ServeConfig,
    runner: Runner,
    limits: StepLimits,
    pages: int,
    outbox: Outbox,
    make_metric: MakeMetric,
    make_work: MakeWork,
) -> EngineLoop:
    page_size = runner.contract.page_size

    def scheduler() -> Scheduler:
        pool = PagePool(pages)
        return Scheduler(limits, pool, page_size, config.fusion, Counters(), make_work)

    def execute(step: Step) -> StepResult:
        return run(runner, step)

    def publish() -> None:
        publisher(serving.counters.step_seconds)

    serving = scheduler()
    loop = EngineLoop(serving, execute, outbox, publish, config.max_queue_size)
    publisher = Publisher(
        make_metric, lambda: values(serving, loop.ready, limits.max_segments, page_size)
    )
    loop.start(lambda: warm_up(scheduler(), execute, runner.contract))
    return loop


def work_maker(tokenizer: Tokenizer, contract: EngineContract) -> MakeWork:
    """What makes a request's work, with what its text and its noise need."""

    def make_work(request: Request) -> Work:
        if request.generation is None:
            return Reading(request)
        vocab_size, context = contract.geometry.vocab_size, contract.limits.max_context
        return Writing(request, tokenizer.decode_answer, vocab_size, context)

    return make_work


def choose_pages(config: ServeConfig, contract: EngineContract, limits: StepLimits) -> int:
    """Pages of the KV pool: as configured, else one longest request and one full execution.

    Raises:
        EngineError: too few for a single canvas.
    """
    size, longest = contract.page_size, contract.limits.max_context + contract.limits.max_canvas
    pages = config.kv_cache_pages or config.kv_cache_bytes // contract.kv_page_bytes
    if not (config.kv_cache_pages or config.kv_cache_bytes):
        pages = pages_for(longest, size) + pages_for(limits.max_tokens, size)
    least = pages_for(min(contract.limits.max_canvas, limits.max_tokens), size) + 1
    if pages < least:
        raise EngineError(
            f"the KV pool has {pages} pages ({contract.pool_bytes(pages)} bytes), a read may need "
            f"{least} ({contract.pool_bytes(least)} bytes); raise kv_cache_pages or kv_cache_bytes."
        )
    return pages


def check_memory(contract: EngineContract, pages: int, available: int | None) -> None:
    """Refuses a pool that this machine cannot hold: allocation itself would succeed, use would not.

    Raises:
        EngineError: with both sizes.
    """
    needed = contract.pool_bytes(pages)
    if available is not None and needed > available:
        raise EngineError(
            f"the KV pool of {pages} pages needs {needed >> 20} MiB, {available >> 20} MiB are "
            "available; lower kv_cache_pages or kv_cache_bytes."
        )


def check_vocabulary(directory: Path, contract: EngineContract, tokens: int) -> None:
    """Refuses a tokenizer that can write ids the engine does not have.

    Raises:
        EngineError: naming both files.
    """
    rows = contract.geometry.vocab_size
    if tokens > rows:
        raise EngineError(
            f"engine {directory}: tokenizer.json has {tokens} tokens, config.json says the model "
            f"has {rows}; the two belong to different checkpoints, rebuild the engine."
        )


def _check_budget(contract: EngineContract, limits: StepLimits) -> None:
    most = contract.limits.max_step_tokens
    if limits.max_tokens > most:
        raise EngineError(
            f"max_step_tokens is {limits.max_tokens}, the engine was built for at most {most}; "
            "lower it or rebuild the engine with --max-step-tokens."
        )
