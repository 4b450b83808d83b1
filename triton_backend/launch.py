"""Command line that serves an engine in the foreground: `python -m triton_backend.launch`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from triton_backend import server_log
from triton_backend.launch_error import LaunchError
from triton_backend.ports import Ports
from triton_backend.repository import TEMPLATES
from triton_backend.server import Server, ServerConfig


def parser() -> argparse.ArgumentParser:
    """Options of `python -m triton_backend.launch`."""
    made = argparse.ArgumentParser(
        prog="python -m triton_backend.launch",
        description="Serve an engine directory with Triton Inference Server until interrupted.",
    )
    made.add_argument("--engine", type=Path, required=True, help="directory made by build_engine")
    made.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    made.add_argument("--http-port", type=int, default=8000)
    made.add_argument("--grpc-port", type=int, default=8001)
    made.add_argument("--metrics-port", type=int, default=8002)
    made.add_argument(
        "--tritonserver", type=Path, help="your own server instead of the embedded one"
    )
    made.add_argument(
        "--templates", type=Path, default=TEMPLATES, help="model repository to fill (%(default)s)"
    )
    made.add_argument("--threads", type=int, default=0, help="CPU threads (default: every core)")
    made.add_argument("--ready-timeout", type=float, default=300.0, help="seconds to start in")
    made.add_argument("--verbose", action="store_true", help="show everything the server logs")
    made.add_argument(
        "--fusion", choices=("on", "off"), help="canvas in the prompt's last execution"
    )
    made.add_argument("--max-step-tokens", help="rows in one execution")
    made.add_argument("--kv-cache-pages", help="pages in the KV pool")
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter that a model's config.pbtxt declares",
    )
    return made


def to_config(options: argparse.Namespace) -> ServerConfig:
    """The one place where options become a ServerConfig."""
    named = {
        "fusion": options.fusion,
        "max_step_tokens": options.max_step_tokens,
        "kv_cache_pages": options.kv_cache_pages,
    }
    parameters = {name: value for name, value in named.items() if value is not None}
    for setting in options.set:
        name, separator, value = setting.partition("=")
        if not separator:
            raise LaunchError(f"--set takes NAME=VALUE, not {setting}.")
        parameters[name] = value
    return ServerConfig(
        engine=options.engine,
        host=options.host,
        ports=Ports(options.http_port, options.grpc_port, options.metrics_port),
        tritonserver=options.tritonserver,
        parameters=parameters,
        threads=options.threads,
        ready_seconds=options.ready_timeout,
        templates=options.templates,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until a signal or the server's own end; returns the server's exit code."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    echo = Echo(options.verbose)
    server: Server | None = None
    try:
        server = Server(to_config(options), echo)
        server.start()
        server.wait_ready()
        echo.ready = True
        _announce(server)
        code = server.process.wait()
        _complain(server_log.failure(server.process.log, code))
    except KeyboardInterrupt:
        sys.stderr.write("stopping: requests in flight are finished first\n")
    except LaunchError as error:
        _complain(str(error))
        return _end(server) or 1
    return _end(server)


class Echo:
    """Passes on the server's warnings and errors while it serves, or every line if `verbose`.

    Before it is ready its complaints are about devices it does not need, or are the one
    sentence that `main` prints.
    """

    def __init__(self, verbose: bool) -> None:
        self.verbose = verbose
        self.ready = False

    def __call__(self, line: str) -> None:
        if self.verbose or (self.ready and not server_log.is_routine(line)):
            sys.stderr.write(line)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _complain(sentence: str) -> None:
    sys.stderr.write(f"error: {sentence}\n")


def _end(server: Server | None) -> int:
    """Stops the server; a second signal must not leave it or its files behind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    code = 0 if server is None else server.stop()
    return code if code >= 0 else 128 - code


def _announce(server: Server) -> None:
    lines = (
        f"serving {server.config.engine}",
        f"  HTTP     http://{server.http_url}/v2/models/structured_read/infer",
        f"  gRPC     {server.grpc_url}",
        f"  metrics  {server.metrics_url}",
        "Ctrl-C stops the server.",
    )
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
