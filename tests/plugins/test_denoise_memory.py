"""The denoise head keeps no logits: its memory is that of its outputs and of a tile."""

import subprocess
import sys
from pathlib import Path

from plugins import loader

# Peak resident memory after calls of 1, 4 and 8 canvases, in bytes, with their inputs made before.
SCRIPT = """
import torch
from plugins import loader

VOCABULARY, HIDDEN, CANVAS = 262_144, 64, 256

def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

loader.load()
torch.set_num_threads(2)
table = torch.full((VOCABULARY, HIDDEN), 0.01)
rows = 8 * CANVAS
hidden, temperature = torch.ones(rows, HIDDEN), torch.ones(rows)
draws = torch.zeros(rows, 3, dtype=torch.int64)
torch.ops.dg.denoise_head(hidden[:2], table[:500], temperature[:2], draws[:2], 30.0, 8.0)
print(peak())
for canvases in (1, 4, 8):
    n = canvases * CANVAS
    torch.ops.dg.denoise_head(hidden[:n], table, temperature[:n], draws[:n], 30.0, 8.0)
    print(peak())
"""
OUTPUT_BYTES = 256 * (64 + 5) * 4
# Partial sums of 32 splits of the vocabulary take 0.7 MiB, tiles 0.1 MiB a thread; the allocator's
# own steps are the rest. The logits of a single canvas would take 256 MiB.
SLACK = 4 << 20


def test_peak_memory_grows_by_the_outputs_alone():
    root = Path(loader.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, check=True, capture_output=True, text=True
    )
    before, *after = map(int, done.stdout.split())
    for canvases, peak in zip((1, 4, 8), after, strict=True):
        assert peak - before <= canvases * OUTPUT_BYTES + SLACK
