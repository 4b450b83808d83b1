"""The engine thread: schedule, run, record, over and over; every request gets one final reply.

Owns the threads' meeting point and nothing else; policy is the scheduler's, numbers the runner's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from triton_backend.core import ErrorKind, Piece, Reply, Request, RequestError, Step, StepResult
from triton_backend.counters import Counters
from triton_backend.outbox import Outbox
from triton_backend.scheduler import Scheduler

PUBLISH_SECONDS = 0.25
"""How old published numbers may be while the engine is busy; when it rests they are exact."""

MOST_FAILURES = 3
"""Executions that may fail one after the other before the engine counts as broken."""

_log = logging.getLogger(__name__)


class Client(Protocol):
    """Who asked: takes pieces and then the one final reply, on the sender thread."""

    def send_piece(self, piece: Piece) -> None: ...

    def send(self, reply: Reply) -> None: ...

    def is_cancelled(self) -> bool: ...


class EngineLoop:
    """Serves requests of many clients on one thread; `submit`, `cancel` and `stop` are for others.

    `publish` is called on the sender thread only, after the replies that it counts.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        execute: Callable[[Step], StepResult],
        outbox: Outbox,
        publish: Callable[[], None],
        max_queue_size: int,
    ) -> None:
        self._scheduler = scheduler
        self._execute = execute
        self._outbox = outbox
        self._publish = publish
        self._max_queue_size = max_queue_size
        self._wake = threading.Condition()
        self._inbox: list[tuple[Request, float]] = []
        self._cancels: list[int] = []
        self._refusals: list[RequestError] = []
        self._live: dict[int, tuple[Request, Client]] = {}
        self._published = 0.0
        self._failures = 0
        self._stopping = self._abandoned = self._broken = False
        self._thread: threading.Thread | None = None

    @property
    def counters(self) -> Counters:
        """What has happened so far; for reading, and to add what senders observe."""
        return self._scheduler.counters

    @property
    def ready(self) -> bool:
        """Whether a request would be accepted and served, a full queue aside."""
        running = self._thread is not None and self._thread.is_alive()
        return running and not (self._stopping or self._broken)

    def start(self, prepare: Callable[[], None]) -> None:
        """Starts serving once `prepare` has run on the engine thread; raises what that raises."""
        outcome: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._main, args=(prepare, outcome), name="engine", daemon=True
        )
        self._thread.start()
        outcome.result()

    def submit(self, request: Request, client: Client) -> None:
        """Queues a request; its client gets exactly one reply.

        Raises:
            RequestError: not accepted, and no reply will come.
        """
        with self._wake:
            if not self.ready:
                why = "its engine failed" if self._broken else "it is stopping"
                raise RequestError("the server", "takes no requests", why, ErrorKind.UNAVAILABLE)
            waiting = len(self._inbox) + self._scheduler.num_waiting
            if waiting >= self._max_queue_size:
                raise RequestError(
                    "the queue", f"holds {waiting} waiting requests",
                    f"max_queue_size is {self._max_queue_size}", ErrorKind.UNAVAILABLE,
                )  # fmt: skip
            self._live[request.key] = (request, client)
            self._inbox.append((request, time.monotonic()))
            self._wake.notify()

    def cancel(self, key: int) -> None:
        """Asks for a request to be dropped before the next step; nothing if it is answered."""
        with self._wake:
            self._cancels.append(key)
            self._wake.notify()

    def refuse(self, error: RequestError) -> None:
        """Counts a request that never became one."""
        with self._wake:
            self._refusals.append(error)
            self._wake.notify()

    def live(self) -> list[tuple[int, Client]]:
        """Requests without a reply, by key."""
        with self._wake:
            return [(key, client) for key, (_, client) in self._live.items()]

    def stop(self, patience: float) -> None:
        """Takes no more requests, finishes those it has, ends the thread.

        What is not finished after `patience` seconds gets an error reply.
        """
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(patience)
            self._abandoned = True
            self._thread.join()

    def _main(self, prepare: Callable[[], None], outcome: Future[None]) -> None:
        try:
            prepare()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._broken = True
            outcome.set_exception(error)
            return
        outcome.set_result(None)
        self._serve()

    def _serve(self) -> None:
        try:
            while self._collect():
                for reply in self._scheduler.expire(time.monotonic()):
                    self._reply(reply)
                if self._scheduler.has_work:
                    self._step()
            self._answer_all("the server is stopping", ErrorKind.UNAVAILABLE)
        except Exception as error:  # noqa: BLE001 - whatever broke, every client must be told
            _log.exception("the engine failed, no more requests are served")
            self._broken = True
            self._answer_all(f"the engine failed: {error!r}", ErrorKind.INTERNAL)
        self._outbox.post(self._publish)

    def _step(self) -> None:
        step = self._scheduler.schedule(time.monotonic())
        for news in self._results(step):
            if isinstance(news, Reply):
                self._reply(news)
            else:
                self._tell(news)

    def _results(self, step: Step) -> Sequence[Piece | Reply]:
        """What a step gave; one that fails costs its own requests, several in a row the engine."""
        try:
            result = self._execute(step)
        except Exception as error:
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                raise
            _log.exception("an execution failed; its requests are told, the others go on")
            why = f"the execution it was in failed: {error!r}"
            said = RequestError("request", "was not served", why, ErrorKind.INTERNAL)
            return self._scheduler.fail(step, said)
        self._failures = 0
        return self._scheduler.record(step, result)

    def _collect(self) -> bool:
        """Takes in what other threads left, and waits for it when idle; False ends the loop."""
        if not self._scheduler.has_work:
            self._scheduler.rest()
        self._show()
        with self._wake:
            self._wake.wait_for(self._has_news)
            inbox, self._inbox = self._inbox, []
            cancels, self._cancels = self._cancels, []
            refusals, self._refusals = self._refusals, []
            stopping = self._stopping
        for request, arrived in inbox:
            self._scheduler.add(request, arrived)
        for key in cancels:
            if (reply := self._scheduler.cancel(key, time.monotonic())) is not None:
                self._reply(reply)
        for error in refusals:
            self._scheduler.counters.count_error(error)
        return not self._abandoned and (self._scheduler.has_work or not stopping)

    def _show(self) -> None:
        idle = not (self._scheduler.has_work or self._inbox)
        if idle or time.monotonic() - self._published > PUBLISH_SECONDS:
            self._outbox.post(self._publish)
            self._published = time.monotonic()

    def _has_news(self) -> bool:
        news = self._inbox or self._cancels or self._refusals or self._stopping
        return bool(news) or self._scheduler.has_work

    def _tell(self, piece: Piece) -> None:
        with self._wake:
            _, client = self._live[piece.request.key]
        self._outbox.post(client.send_piece, piece)

    def _reply(self, reply: Reply) -> None:
        with self._wake:
            _, client = self._live.pop(reply.request.key)
        self._scheduler.counters.count_reply(reply)
        self._outbox.post(client.send, reply)

    def _answer_all(self, why: str, kind: ErrorKind) -> None:
        with self._wake:
            self._stopping = True
            live = [request for request, _ in self._live.values()]
        for request in live:
            self._reply(Reply(request, error=RequestError("request", "was not served", why, kind)))
