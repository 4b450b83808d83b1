"""A kernel compiled ahead of time, on a machine that needs no GPU; knows no op and no torch.

Triton ends every entry point with pointers to scratch memory that its own launcher fills in.
Others, such as TensorRT, pass the kernel's own arguments only, so those pointers are taken out of
the PTX, once it is certain that nothing reads them.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from plugins.gpu.device import Gpu
from plugins.gpu.launch_plan import Plan

_ALIGNED = [["tt.divisibility", 16]]
_HIDDEN = 2
_WARP = 32

Signature = Mapping[str, "str | tuple[str, ...]"]
"""Types of a kernel's arguments but its plan, as "*bf16" and "i32"; a tuple's are flattened."""


class ArtifactError(RuntimeError):
    """A compiled kernel is not what others can launch; the message is one sentence."""


@dataclass(frozen=True)
class Artifact:
    """What a launcher other than Triton's needs: the arguments are `arguments`, in this order."""

    entry: str
    ptx: str
    arguments: tuple[tuple[str, str], ...]  # (name, type)
    shared_bytes: int
    warps: int
    capability: int
    cubin: bytes  # Triton's own, hidden arguments included

    @property
    def threads(self) -> int:
        """`.reqntid` of the PTX: a block must have exactly as many."""
        return self.warps * _WARP


@dataclass(frozen=True)
class Usage:
    """What one thread, and one program of the kernel, occupy."""

    registers: int
    stack_bytes: int  # spilled registers, as no kernel has arrays of its own
    shared_bytes: int


def compile_kernel(kernel: Any, signature: Signature, plan: Plan, gpu: Gpu) -> Artifact:
    """Compiles for `gpu`; every pointer must be aligned to 16 bytes when it is launched."""
    types = dict(signature)
    if [*types, "plan"] != kernel.arg_names:
        raise ArtifactError(f"{kernel.__name__} takes {kernel.arg_names}, not {[*types, 'plan']}.")
    positions = {name: kernel.arg_names.index(name) for name in types}
    attributes = {
        (positions[name], *path): _ALIGNED
        for name, kind in types.items()
        for path, one in _leaves(kind)
        if one.startswith("*")
    }
    source = ASTSource(kernel, {**types, "plan": "constexpr"}, {"plan": plan}, attributes)
    target = GPUTarget("cuda", gpu.capability, _WARP)
    options = {"num_warps": plan.warps, "num_stages": plan.stages}
    compiled = triton.compile(source, target=target, options=options)
    meta = compiled.metadata
    if meta.global_scratch_size or meta.profile_scratch_size:
        raise ArtifactError(
            f"{meta.name} needs scratch memory, which Triton's launcher alone gives."
        )
    arguments = tuple(
        (".".join([name, *map(str, path)]), one)
        for name, kind in types.items()
        for path, one in _leaves(kind)
    )
    ptx = strip_hidden(compiled.asm["ptx"], meta.name, len(arguments))
    return Artifact(
        *(meta.name, ptx, arguments, meta.shared, meta.num_warps),
        *(gpu.capability, compiled.asm["cubin"]),
    )


def strip_hidden(ptx: str, entry: str, visible: int) -> str:
    """The PTX with the first `visible` parameters of its entry point alone."""
    match = re.search(rf"\.entry {re.escape(entry)}\(\n(.*?)\n\)", ptx, re.DOTALL)
    if match is None:
        raise ArtifactError(f"{entry} is no entry point of the PTX.")
    parameters = match.group(1).split(",\n")
    hidden = parameters[visible:]
    if len(hidden) != _HIDDEN:
        raise ArtifactError(
            f"{entry} has {len(parameters)} parameters for {visible} arguments; "
            f"{_HIDDEN} hidden ones are known of, so this release of triton needs a look."
        )
    body = ptx[match.end() :]
    for parameter in hidden:
        name = parameter.split()[-1]
        if ".u64" not in parameter or re.search(rf"\b{re.escape(name)}\b", body):
            raise ArtifactError(f"{entry} uses its hidden parameter {name}.")
    return ptx[: match.start(1)] + ",\n".join(parameters[:visible]) + ptx[match.end(1) :]


def usage(artifact: Artifact) -> Usage:
    """Read from the machine code by the tool in the triton package."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(artifact.cubin)
        file.flush()
        text = _tool("cuobjdump", "--dump-resource-usage", file.name)
    found = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text)}
    return Usage(found["REG"], found["STACK"] + found["LOCAL"], artifact.shared_bytes)


def assemble(artifact: Artifact) -> str:
    """What ptxas says of the stripped PTX; an error of it is raised."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "kernel.ptx"
        source.write_text(artifact.ptx)
        suffix = "a" if artifact.capability >= 90 else ""
        name = "ptxas-blackwell" if artifact.capability >= 100 else "ptxas"
        options = ("-v", f"--gpu-name=sm_{artifact.capability}{suffix}")
        return _tool(name, *options, str(source), "-o", str(source.with_suffix(".cubin")))


def _tool(name: str, *arguments: str) -> str:
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    done = subprocess.run([str(path), *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise ArtifactError(f"{name} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout + done.stderr


def _leaves(kind: str | tuple[str, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    if isinstance(kind, str):
        yield (), kind
    else:
        yield from (((index,), one) for index, one in enumerate(kind))
