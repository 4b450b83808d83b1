"""Chooses the server's three ports; knows sockets and nothing else."""

from __future__ import annotations

import contextlib
import errno
import socket
from dataclasses import dataclass

from triton_backend.launch_error import LaunchError


@dataclass(frozen=True)
class Ports:
    """Where HTTP, gRPC and metrics listen; 0 asks for a free port."""

    http: int = 0
    grpc: int = 0
    metrics: int = 0


ANY_PORTS = Ports()


def choose(host: str, wanted: Ports) -> Ports:
    """The wanted ports with every 0 replaced by a free one; all are held until all are known."""
    with contextlib.ExitStack() as held:

        def one(kind: str, port: int) -> int:
            listener = held.enter_context(_socket(host))
            # As the server does, so that a port is not refused while old connections fade.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((host, port))
            except OSError as error:
                raise LaunchError(_refusal(kind, host, port, error)) from None
            return int(listener.getsockname()[1])

        return Ports(
            one("HTTP", wanted.http), one("gRPC", wanted.grpc), one("metrics", wanted.metrics)
        )


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)


def _refusal(kind: str, host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"The {kind} port {port} on {host} is already in use: choose another."
    return f"The {kind} port {port} on {host} cannot be used: {error.strerror or error}."
