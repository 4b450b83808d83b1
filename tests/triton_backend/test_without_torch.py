"""The process that serves holds torch's C++ library and nothing of its Python."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path

from tests.triton_backend.fake_pb_utils import make_module

sys.modules["triton_python_backend_utils"] = make_module(lambda: None)
import triton_backend.model
from benchmarks.session import Session, read_request
from tests.triton_backend.fakes import make_generation

session = Session(Path(sys.argv[1]), pages=64)
read, written = read_request(1, range(20), range(16)), make_generation(2, canvas=16, max_tokens=32)
replies = session.serve([read, written])
assert not any(reply.error for reply in replies.values()), replies
print(len(replies[1].reads), len(replies[2].written.token_ids), "torch" in sys.modules)
print(sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "safetensors")))
"""


def test_a_read_and_a_generation_import_no_torch(tiny_engine: Path) -> None:
    """Torch's Python is 90 MiB, of the 256 that an engine may take beside weights and pool."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tiny_engine)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1 32 False", "[]"]
