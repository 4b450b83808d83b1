"""Builds the CPU kernels' shared library once per machine; knows no op and imports no torch."""

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from plugins import libtorch
from plugins.errors import PluginError

_SOURCES = Path(__file__).parent / "csrc"
_FLAGS = (
    *("-std=c++20", "-O3", "-march=native", "-fPIC", "-fopenmp"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi"),
)
_LIBRARIES = ("-lc10", "-ltorch_cpu")


@dataclass(frozen=True)
class Toolchain:
    command: tuple[str, ...]
    version: str


def build(cache: Path | None = None) -> Path:
    """The shared library for these sources, this compiler, this torch and this CPU."""
    cache = cache or default_cache()
    toolchain = find_toolchain()
    library = cache / f"libdg_{cache_key(toolchain)}.so"
    if not library.exists():
        with _only_one(cache):
            if not library.exists():
                _compile(toolchain, library)
    return library


def default_cache() -> Path:
    """`.cache/plugins` beside the sources, or the user's cache where that is read-only."""
    beside = Path(__file__).resolve().parent.parent / ".cache" / "plugins"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for directory in (beside, user / "diffusiongemma-triton" / "plugins"):
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK | os.X_OK):
            return directory
    raise PluginError(f"Neither {beside} nor {user} can be written, so the kernels have no place.")


def find_toolchain() -> Toolchain:
    """The compiler named by $CXX, else the first of g++, c++ and clang++."""
    named = os.environ.get("CXX")
    candidates = [shlex.split(named)] if named else [["g++"], ["c++"], ["clang++"]]
    for command in candidates:
        if command and shutil.which(command[0]):
            version = subprocess.run(
                [*command, "--version"], check=False, capture_output=True, text=True
            )
            if version.returncode == 0:
                return Toolchain(tuple(command), version.stdout)
    tried = ", ".join(shlex.join(command) for command in candidates)
    raise PluginError(f"No working C++ compiler among {tried}: install g++ or set CXX.")


def cache_key(toolchain: Toolchain) -> str:
    """Changes with whatever the library's machine code depends on."""
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    versions = (toolchain.version, libtorch.version(), _cpu())
    for part in (*_FLAGS, *_LIBRARIES, *toolchain.command, *versions):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:20]


def _cpu() -> str:
    flags = ""
    if (info := Path("/proc/cpuinfo")).exists():
        lines = info.read_text().splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}"


@contextmanager
def _only_one(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "build.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(toolchain: Toolchain, library: Path) -> None:
    """Compiles in a temporary directory beside `library`, then renames: no half-written library."""
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        sources = sorted(_SOURCES.glob("*.cpp"))
        objects = [Path(scratch) / f"{source.stem}.o" for source in sources]
        torch = libtorch.directory()
        include = torch / "include"
        torch_includes = (include, include / "torch" / "csrc" / "api" / "include")
        headers = [part for path in torch_includes for part in ("-isystem", str(path))]
        commands = [
            [*toolchain.command, *_FLAGS, *headers, "-c", str(source), "-o", str(target)]
            for source, target in zip(sources, objects, strict=True)
        ]
        with ThreadPoolExecutor(min(len(commands), os.cpu_count() or 1)) as pool:
            list(pool.map(_run, commands))
        linked = Path(scratch) / "linked.so"
        libraries = [f"-L{torch / 'lib'}", *_LIBRARIES]
        inputs = [str(target) for target in objects]
        _run([*toolchain.command, *_FLAGS, "-shared", *inputs, *libraries, "-o", str(linked)])
        os.replace(linked, library)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        first = errors[0] if errors else done.stderr.strip()[-300:]
        raise PluginError(f"The kernels did not compile: {first} (from {shlex.join(command)}).")


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
