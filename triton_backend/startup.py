"""Opens an engine directory for serving: checks first, then loads, then proves it with a read.

Whatever could fail on the first request fails here instead, as one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from build_engine.contract import EngineContract, load_contract
from build_engine.errors import EngineError
from triton_backend.choices import Choices, choose
from triton_backend.config import ServeConfig
from triton_backend.core import Request, Step, StepResult
from triton_backend.counters import Counters
from triton_backend.execute import run
from triton_backend.fusion import StepLimits
from triton_backend.generation_defaults import load_defaults
from triton_backend.host_store import HostStore
from triton_backend.kv_cache import KvCache, KvShape
from triton_backend.kv_sizes import check_memory, choose_shape, host_slots
from triton_backend.limits import request_limits, step_limits
from triton_backend.loop import EngineLoop
from triton_backend.memory import available_bytes
from triton_backend.metric_families import Family
from triton_backend.metrics import Metric, Publisher, values
from triton_backend.outbox import Outbox
from triton_backend.paging import Swapping
from triton_backend.parse import Parser
from triton_backend.reading import Reading
from triton_backend.runner import Runner, RunnerOptions
from triton_backend.runners import open_runner, pools_in_host_memory
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
    choices = choose(config, directory, contract, limits)
    shape = choose_shape(config, contract, limits)
    if pools_in_host_memory(contract):
        check_memory(contract, shape, available_bytes())
    tokenizer = Tokenizer.load(directory)
    check_vocabulary(directory, contract, tokenizer.vocab_size)
    runner = open_runner(directory, contract, _runner_options(config))
    runner.create_pools(shape.full_pages, shape.sliding_pages)
    slots = host_slots(config, contract, shape)
    if any(slots):
        runner.create_host_pools(*slots)
    defaults = load_defaults(directory)
    parser = Parser(request_limits(contract, limits, shape), tokenizer, defaults)
    outbox = Outbox()
    make_work = work_maker(tokenizer, contract)
    loop = _start_loop(config, choices, runner, limits, shape, outbox, make_metric, make_work)
    return Service(parser, loop, outbox, Watch(loop))


def _runner_options(config: ServeConfig) -> RunnerOptions:
    cache = Path(config.kernel_cache) if config.kernel_cache else None
    return RunnerOptions(config.threads, cache, config.cuda_graphs)


def _start_loop(
    config: ServeConfig,
    choices: Choices,
    runner: Runner,
    limits: StepLimits,
    shape: KvShape,
    outbox: Outbox,
    make_metric: MakeMetric,
    make_work: MakeWork,
) -> EngineLoop:
    slots = host_slots(config, runner.contract, shape)

    def scheduler() -> Scheduler:
        kv = KvCache(shape, config.prefix_cache)
        swapping = Swapping(HostStore(*slots), choices.prefers_swap)
        return Scheduler(limits, kv, choices.policy, Counters(), make_work, swapping)

    def execute(step: Step) -> StepResult:
        return run(runner, step)

    def publish() -> None:
        publisher(serving.counters)

    serving = scheduler()
    loop = EngineLoop(serving, execute, outbox, publish, config.max_queue_size)
    publisher = Publisher(make_metric, lambda: values(serving, loop.ready, limits.max_segments))
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
