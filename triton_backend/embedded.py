"""Finds the Triton server inside the nvidia-pytriton wheel and lays out what it needs to start.

Knows nothing of models or engines.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from triton_backend.launch_error import LaunchError

DISTRIBUTION = "nvidia-pytriton"
# Names that other programs look for; the wheel stores the same libraries under hashed names.
_PLAIN_NAMES = {"libb64": "libb64.so.0d", "libcudart": "libcudart.so.12"}


@dataclass(frozen=True)
class Installation:
    """A server binary with its Python backend; `libraries` are the wheel's own shared objects."""

    binary: Path
    backend: Path
    stub: Path
    libraries: Path


def find_installation() -> Installation:
    """The embedded server for the running Python."""
    spec = PathFinder.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise LaunchError(f"{DISTRIBUTION} is not installed in {sys.prefix}: run `make setup`.")
    package = Path(spec.origin).parent
    server = package / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        have = ", ".join(sorted(path.name for path in stub.parents[1].iterdir()))
        raise LaunchError(
            f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)} has no backend for Python {version}, "
            f"only for {have}: make the virtual environment with one of those."
        )
    libraries = package.parent / "nvidia_pytriton.libs"
    return Installation(
        server / "bin" / "tritonserver", server / "backends" / "python", stub, libraries
    )


def shared_python() -> Path:
    """The running Python's shared library, which the backend's stub is linked against."""
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    for directory in _library_directories():
        if (directory / name).exists():
            return directory / name
    package = name.removesuffix(".so.1.0")
    raise LaunchError(
        f"{name} is missing, which Triton's Python backend needs: install it with "
        f"`apt-get install {package}` (a Python built by hand needs --enable-shared)."
    )


def _library_directories() -> Iterator[Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    roots = (sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib", "/usr/lib", "/lib")
    for root in filter(None, roots):
        yield Path(root) / multiarch
        yield Path(root)


def lay_out(installation: Installation, directory: Path) -> Mapping[str, str]:
    """Links backend and libraries into `directory`; returns the environment the server needs.

    The backend runs its stub through a shell, unquoted, so `directory` must hold no space.
    """
    backend = directory / "backends" / "python"
    backend.mkdir(parents=True)
    for source in filter(Path.is_file, installation.backend.iterdir()):
        (backend / source.name).symlink_to(source)
    # Copied, because a link would still find its libraries from where it points to.
    shutil.copy2(installation.stub, backend)
    libraries = directory / "lib"
    libraries.mkdir()
    python = shared_python()
    # For some versions the wheel holds a Python of its own under a hashed name, whose built-in
    # modules are not those that the running Python's standard library counts on.
    hashed = installation.libraries.glob(f"libpython3-*.{sys.version_info.minor}.so.1.0")
    for name in (python.name, *(path.name for path in hashed)):
        (libraries / name).symlink_to(python)
    path = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)])
    return {
        "PATH": path,
        "LD_LIBRARY_PATH": f"{libraries}:{installation.libraries}",
        "PYTHONNOUSERSITE": "1",
    }


def link_plain_names(installation: Installation, directory: Path) -> None:
    """Links the wheel's base64 and CUDA runtime libraries under the names perf_analyzer wants."""
    for stem, plain in _PLAIN_NAMES.items():
        found = next(installation.libraries.glob(f"{stem}-*"), None)
        if found is None:
            raise LaunchError(f"{installation.libraries} holds no {stem}.")
        (directory / plain).symlink_to(found)
