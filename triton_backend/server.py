"""One Triton server on this project's models: start, readiness, metrics, stop.

Knows ports, command lines and temporary files; nothing of requests or of the engine's inside.
"""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from triton_backend import embedded, ports, repository, server_log
from triton_backend.launch_error import LaunchError
from triton_backend.ports import ANY_PORTS, Ports
from triton_backend.process import LoggedProcess

_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class ServerConfig:
    """What to serve and where: port 0 takes a free one, `tritonserver` None the embedded server,
    `threads` 0 every core this process may use; `parameters` are the models' own.
    """

    engine: Path
    host: str = "127.0.0.1"
    ports: Ports = ANY_PORTS
    tritonserver: Path | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    threads: int = 0
    ready_seconds: float = 300.0
    exit_seconds: int = 25
    templates: Path = repository.TEMPLATES


class Server:
    """A server process; as a context manager it is ready on entry and gone on exit."""

    def __init__(self, config: ServerConfig, echo: Callable[[str], None] | None = None) -> None:
        self.config = config
        self.ports = config.ports
        self._echo = echo
        self._shm_prefix = f"dg{os.getpid()}{secrets.token_hex(4)}_"
        self._directory: Path | None = None
        self._process: LoggedProcess | None = None

    @property
    def http_url(self) -> str:
        return f"{self._client_host}:{self.ports.http}"

    @property
    def grpc_url(self) -> str:
        return f"{self._client_host}:{self.ports.grpc}"

    @property
    def metrics_url(self) -> str:
        return f"http://{self._client_host}:{self.ports.metrics}/metrics"

    @property
    def process(self) -> LoggedProcess:
        """The running or ended child; only after `start`."""
        assert self._process is not None, "the server is not started"
        return self._process

    @property
    def _client_host(self) -> str:
        return "127.0.0.1" if self.config.host == "0.0.0.0" else self.config.host

    def __enter__(self) -> Server:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the process; returns at once. After an error, `stop` still cleans up."""
        self.ports = ports.choose(self.config.host, self.config.ports)
        self._directory = _scratch_directory()
        command, environment = self._prepare(self._directory)
        self._process = LoggedProcess(command, environment, self._echo)

    def wait_ready(self) -> None:
        """Returns when a read can be served; LaunchError with the server's own reason if never."""
        deadline = time.monotonic() + self.config.ready_seconds
        while not self.is_ready():
            code = self.process.poll()
            if code is not None:
                raise LaunchError(server_log.failure(self.process.log, code))
            if time.monotonic() > deadline:
                seconds = self.config.ready_seconds
                raise LaunchError(f"The server is not ready after {seconds:.0f} s.")
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """Whether every model can serve and the metrics page, which starts last, is there."""
        pages = ((self.ports.http, "/v2/health/ready"), (self.ports.metrics, "/metrics"))
        try:
            return all(self._get(port, path)[0] == http.client.OK for port, path in pages)
        except (OSError, http.client.HTTPException):
            return False

    def metrics(self) -> dict[str, float]:
        """Every metric sample by its full name, labels included."""
        return server_log.samples(self._get(self.ports.metrics, "/metrics")[1])

    def stop(self) -> int:
        """Drains and ends the server, or kills it if it will not end; returns its exit code."""
        code = 0 if self._process is None else self._process.stop(self.config.exit_seconds + 5)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        # A crashed server cannot remove its own regions.
        for region in _SHARED_MEMORY.glob(f"{self._shm_prefix}*"):
            region.unlink(missing_ok=True)
        return code

    def _get(self, port: int, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._client_host, port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def _prepare(self, directory: Path) -> tuple[list[str], dict[str, str]]:
        """The command line and environment, with every file they name laid out."""
        config = self.config
        parameters = {"engine_dir": str(config.engine.resolve()), **config.parameters}
        models = repository.render(directory, parameters, config.templates)
        threads = config.threads or len(os.sched_getaffinity(0))
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        arguments = self._arguments(models)
        if config.tritonserver is None:
            installation = embedded.find_installation()
            environment |= embedded.lay_out(installation, directory)
            backends = f"--backend-directory={directory / 'backends'}"
            return [str(installation.binary), *arguments, backends], environment
        if shutil.which(config.tritonserver) is None:
            raise LaunchError(f"{config.tritonserver} is not a program that can be run.")
        # The user's server brings its own Python, which must see this project.
        paths = [str(repository.TEMPLATES.parent), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return [str(config.tritonserver), *arguments], environment

    def _arguments(self, models: Path) -> list[str]:
        return [
            f"--model-repository={models}",
            *(f"--{kind}-address={self.config.host}" for kind in ("http", "grpc", "metrics")),
            f"--http-port={self.ports.http}",
            f"--grpc-port={self.ports.grpc}",
            f"--metrics-port={self.ports.metrics}",
            # The trace that a request is part of comes as a header, and reaches the model so.
            *(f"--{kind}-header-forward-pattern=(?i)traceparent" for kind in ("http", "grpc")),
            f"--exit-timeout-secs={self.config.exit_seconds}",
            f"--backend-config=python,shm-region-prefix-name={self._shm_prefix}",
        ]


def _scratch_directory() -> Path:
    """A temporary directory whose path holds no space, as the Python backend demands."""
    usual = tempfile.gettempdir()
    parent = "/tmp" if any(letter.isspace() for letter in usual) else usual
    return Path(tempfile.mkdtemp(prefix="diffusiongemma-", dir=parent))
