"""Loads the kernels once for every test of this folder."""

import pytest

from plugins import loader


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than a few seconds")


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    loader.load()
