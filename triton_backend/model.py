"""The Triton models; Triton calls them, they call the service and return at once."""

from __future__ import annotations

import gc
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from triton_backend.config import model_parameters, parse_config, parse_read_config
from triton_backend.core import ErrorKind, RequestError
from triton_backend.startup import open_service
from triton_backend.wire import (
    TritonClient,
    forget_answered,
    forward,
    metric_maker,
    read_inputs,
    relay,
)

ENGINE_MODEL = "diffusion_gemma"

_log = logging.getLogger(__name__)


class EngineModel:
    """`diffusion_gemma`: decoupled, one instance, every request shares the engine's executions."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the engine; an exception's message tells why the model is not ready."""
        config = parse_config(model_parameters(json.loads(args["model_config"])))
        make_metric = metric_maker(args["model_name"], args["model_version"])
        self._service = open_service(config, make_metric)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._accept(request)

    def is_ready(self) -> bool:
        """For servers that ask: false once the engine has failed."""
        return self._service.loop.ready

    def finalize(self) -> None:
        self._service.close()
        # The server's metrics must go while its memory is there: freed later, they crash its stub.
        del self._service
        gc.collect()

    def _accept(self, request: Any) -> None:
        client = TritonClient(request, self._service.loop.counters.first_seconds.append)
        try:
            parsed = self._service.parser.parse(read_inputs(request), client.parameters)
            client.parsed = parsed
            generation = parsed.request.generation
            if generation is not None and generation.stream:
                self._service.outbox.post(client.open_stream)
            self._service.loop.submit(parsed.request, client)
        except RequestError as error:
            self._refuse(client, error)
        except Exception as error:  # noqa: BLE001 - our fault must not become the neighbours'
            _log.exception("a request could not be read")
            said = RequestError("request", "could not be read", repr(error), ErrorKind.INTERNAL)
            self._refuse(client, said)

    def _refuse(self, client: TritonClient, error: RequestError) -> None:
        self._service.loop.refuse(error)
        self._service.outbox.post(client.refuse, error)


class _Forwarding:
    """A model that asks the engine's: each request waits on a thread of its own.

    So many are in flight at a time and share executions.
    """

    def initialize(self, args: dict[str, str]) -> None:
        config = parse_read_config(model_parameters(json.loads(args["model_config"])))
        self._threads = ThreadPoolExecutor(config.max_in_flight, thread_name_prefix="forward")

    def finalize(self) -> None:
        self._threads.shutdown()
        forget_answered()


class StructuredReadModel(_Forwarding):
    """`structured_read`: the same read for clients that want one plain response."""

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._threads.submit(forward, request, request.get_response_sender(), ENGINE_MODEL)


class EnsembleModel(_Forwarding):
    """`ensemble`: generation as TensorRT-LLM's ensemble shapes it, with a batch dimension of 1."""

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._threads.submit(relay, request, request.get_response_sender(), ENGINE_MODEL)
