"""Building: cached by content, one sentence on failure, safe for two processes at once."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from plugins import library, libtorch
from plugins.errors import PluginError


def test_a_built_library_is_found_again():
    assert library.build() == library.build()


def test_torchs_place_and_release_are_found_without_importing_it():
    assert (libtorch.directory(), libtorch.version()) == (
        Path(torch.__file__).parent,
        torch.__version__,
    )


def test_no_torch_is_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(PluginError, match="torch is not installed"):
        libtorch.load()


def test_no_compiler_is_one_sentence(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/compiler")
    with pytest.raises(PluginError, match="No working C\\+\\+ compiler among /nowhere/compiler"):
        library.find_toolchain()


def test_the_key_follows_the_compiler_and_the_sources(monkeypatch, tmp_path):
    here = library.Toolchain(("g++",), "12")
    keys = {library.cache_key(here), library.cache_key(library.Toolchain(("g++",), "13"))}
    (tmp_path / "other.cpp").write_text("int x;")
    monkeypatch.setattr(library, "_SOURCES", tmp_path)
    keys.add(library.cache_key(here))
    assert len(keys) == 3


def test_an_unwritable_tree_falls_back_to_the_user_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "__file__", str(tmp_path / "file" / "plugins" / "library.py"))
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert library.default_cache() == tmp_path / "user" / "diffusiongemma-triton" / "plugins"


@pytest.fixture
def tiny_sources(monkeypatch, tmp_path) -> Path:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "one.cpp").write_text("int one() { return 1; }")
    monkeypatch.setattr(library, "_SOURCES", sources)
    return sources


def test_a_path_with_spaces_and_no_leftovers(tiny_sources, tmp_path):
    cache = tmp_path / "a cache"
    built = library.build(cache)
    assert built.exists()
    assert {path.name for path in cache.iterdir()} == {built.name, "build.lock"}


def test_broken_sources_name_the_first_error_and_leave_no_library(tiny_sources, tmp_path):
    (tiny_sources / "one.cpp").write_text("int one() { return nothing; }")
    with pytest.raises(PluginError, match="did not compile.*nothing"):
        library.build(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.so"))


def test_two_processes_build_at_once(tiny_sources, tmp_path):
    script = (
        "import sys, pathlib; from plugins import library;"
        "library._SOURCES = pathlib.Path(sys.argv[1]);"
        "print(library.build(pathlib.Path(sys.argv[2])))"
    )
    command = [sys.executable, "-c", script, str(tiny_sources), str(tmp_path / "cache")]
    root = Path(library.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in "ab"
    ]
    printed = [process.communicate(timeout=60)[0] for process in running]
    assert printed[0] == printed[1] != ""
