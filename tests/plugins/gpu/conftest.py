"""Starts the interpreter once for every test of this folder."""

from collections.abc import Iterator

import pytest

from tests.plugins.gpu.interpreter import Interpreter


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as started:
        yield started
