"""Starts a server on an engine, shows what it can do, and stops it.

A structured read over HTTP and gRPC, or with `--generate` a streamed reply.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from triton_backend.launch_error import LaunchError
from triton_backend.server import Server, ServerConfig


def _client(module: str, url: str, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", f"examples.clients.{module}", "--url", url, *arguments], check=True
    )


def _show(server: Server, generate: bool) -> None:
    print(f"serving on {server.http_url} (HTTP) and {server.grpc_url} (gRPC)", flush=True)
    state = Path(__file__).resolve().parents[1] / "tickets" / "state.txt"
    print(f"ticket: {state.read_text(encoding='utf-8').strip()}", flush=True)
    reads = (
        ("over HTTP", "http_read", server.http_url),
        ("over gRPC", "grpc_read", server.grpc_url),
    )
    writes = (("a reply, canvas after canvas", "generate", server.grpc_url),)
    for label, module, url in writes if generate else reads:
        print(f"\n{label}", flush=True)
        _client(module, url)


def main() -> int:
    """Returns 0 when every client got its answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--tritonserver", type=Path)
    parser.add_argument("--generate", action="store_true", help="stream a reply instead of reads")
    options = parser.parse_args()
    try:
        with Server(ServerConfig(options.engine, tritonserver=options.tritonserver)) as server:
            _show(server, options.generate)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
