"""What one engine process holds beyond its weights and its page pool; prints one JSON object.

Run in a process of its own: python -m benchmarks.memory_probe ENGINE PAGES. All sizes in bytes:

    resident, peak          what the process holds after the batch (VmRSS), and the most it ever
                            held (VmHWM)
    weights, pool           the weights' file, which is mapped, and the page pool
    rest, peak_rest         the first two less the second two: Python, libtorch, workspaces, what
                            malloc keeps of the activations
    weights_resident        how much of the weights is in memory; less than all of them, and the
                            rest looks smaller than it is (the pool always is, to its last page)
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

_PROC = Path("/proc/self")


def status_bytes(field: str) -> int:
    """A memory field of this process's status, in bytes."""
    for line in (_PROC / "status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def resident_bytes(file: Path) -> int:
    """How much of a file this process has mapped and in memory, in bytes."""
    mappings = (_PROC / "smaps").read_text().split("VmFlags:")
    ours = [text for text in mappings if str(file.resolve()) in text]
    return sum(int(text.split("Rss:")[1].split()[0]) * 1024 for text in ours)


def main(engine: Path, pages: int) -> None:
    """Serves 16 reads of 128 + 32 tokens at once, then reports."""
    from benchmarks.session import Session, read_request  # noqa: PLC0415 - memory starts here

    session = Session(engine, pages=pages)
    rng = random.Random(0)
    size = session.contract.geometry.vocab_size
    requests = [
        read_request(n, rng.choices(range(size), k=128), rng.choices(range(size), k=32), (3, 7, 11))
        for n in range(16)
    ]
    session.serve(requests)
    resident, peak = status_bytes("VmRSS"), status_bytes("VmHWM")
    file = engine / "weights.safetensors"
    weights, pool = file.stat().st_size, session.contract.pool_bytes(pages, pages)
    found = {
        "resident": resident,
        "peak": peak,
        "weights": weights,
        "pool": pool,
        "rest": resident - weights - pool,
        "peak_rest": peak - weights - pool,
        "weights_resident": resident_bytes(file),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
