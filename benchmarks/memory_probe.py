"""What one engine process holds beyond its weights and its page pool; prints one JSON object.

Run in a process of its own: python -m benchmarks.memory_probe ENGINE PAGES
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path


def status_bytes(field: str) -> int:
    """A memory field of this process's /proc status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def main(engine: Path, pages: int) -> None:
    """Serve one full-size batch and report resident memory at its peak."""
    from benchmarks.session import Session, read_request  # noqa: PLC0415 - memory starts here

    session = Session(engine, pages=pages)
    rng = random.Random(0)
    size = session.contract.geometry.vocab_size
    requests = [
        read_request(n, rng.choices(range(size), k=128), rng.choices(range(size), k=32), (3, 7, 11))
        for n in range(16)
    ]
    session.serve(requests)
    weights = (engine / "weights.safetensors").stat().st_size
    pool = session.contract.pool_bytes(pages)
    peak = status_bytes("VmHWM")
    print(
        json.dumps({"peak": peak, "weights": weights, "pool": pool, "rest": peak - weights - pool})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
