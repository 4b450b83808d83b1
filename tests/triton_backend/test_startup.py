"""What cannot serve says why in one sentence, before the first request."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from build_engine.contract import CONTRACT_FILE, file_sha256
from build_engine.errors import EngineError
from tests.triton_backend.fakes import FakeRunner, make_contract, make_request
from tests.triton_backend.test_loop import FakeClient
from tests.triton_backend.test_metrics import FakeMetric
from triton_backend import runners, startup
from triton_backend.config import ServeConfig
from triton_backend.kv_cache import KvShape
from triton_backend.kv_sizes import check_memory, choose_shape, sequence_bytes
from triton_backend.limits import step_limits
from triton_backend.memory import available_bytes
from triton_backend.startup import open_service
from triton_backend.tokenizer import Tokenizer

CHECKPOINT = Path(__file__).parents[2] / "examples" / "tickets" / "checkpoint"
VOCAB = Tokenizer.load(CHECKPOINT).vocab_size


def write_engine(directory, contract=None, **changes):
    """An engine directory without an engine: contract, tokenizer and hashes."""
    names = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    for name in names:
        shutil.copy(CHECKPOINT / name, directory / name)
    contract = contract or make_contract()
    geometry = dataclasses.replace(contract.geometry, vocab_size=VOCAB)
    files = {name: file_sha256(directory / name) for name in names}
    made = dataclasses.replace(contract, **{"geometry": geometry, "files": files, **changes})
    (directory / CONTRACT_FILE).write_text(made.to_json(), encoding="utf-8")
    return made


def open_fake(directory, monkeypatch, runner=None, **config):
    def open_runner(_, contract, __):
        return runner(contract) if runner else FakeRunner(contract)

    monkeypatch.setattr(startup, "open_runner", open_runner)
    serve = ServeConfig(str(directory), **config)
    return open_service(serve, lambda family, label: FakeMetric())


def test_a_service_answers_and_its_warm_up_is_not_counted(tmp_path, monkeypatch):
    write_engine(tmp_path)
    service = open_fake(tmp_path, monkeypatch)
    client = FakeClient()
    service.loop.submit(make_request(1), client)
    assert client.reply().executions == 1
    service.close()
    assert service.loop._scheduler.counters.executions == 1


def test_no_engine(tmp_path, monkeypatch):
    with pytest.raises(EngineError, match="no engine at .*build one with"):
        open_fake(tmp_path / "nowhere", monkeypatch)


def test_a_changed_file(tmp_path, monkeypatch):
    write_engine(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(EngineError, match=r"tokenizer.json has SHA-256"):
        open_fake(tmp_path, monkeypatch)


def test_another_target(tmp_path):
    contract = write_engine(tmp_path, target="abacus")
    with pytest.raises(EngineError, match="target 'abacus', this server runs cpu"):
        runners.open_runner(tmp_path, contract, 0)


def test_a_budget_over_the_engines(tmp_path, monkeypatch):
    write_engine(tmp_path)
    with pytest.raises(EngineError, match="max_step_tokens is 65, .* at most 64"):
        open_fake(tmp_path, monkeypatch, max_step_tokens=65)


def test_too_few_pages_for_one_read(tmp_path, monkeypatch):
    write_engine(tmp_path)
    with pytest.raises(
        EngineError,
        match="2 pages of full and 2 of sliding.*may need 5 of each",
    ):
        open_fake(tmp_path, monkeypatch, kv_cache_pages=2)


def test_too_little_memory():
    with pytest.raises(EngineError, match="needs 3 MiB, 1 MiB are available; lower"):
        check_memory(make_contract(), KvShape(4, 8, 6200, 6200), 1 << 20)
    check_memory(make_contract(), KvShape(4, 8, 6200, 6200), None)


def test_a_tokenizer_of_another_checkpoint(tmp_path, monkeypatch):
    small = dataclasses.replace(make_contract().geometry, vocab_size=100)
    write_engine(tmp_path, geometry=small)
    with pytest.raises(EngineError, match=r"tokenizer.json has \d+ tokens, config.json .* 100"):
        open_fake(tmp_path, monkeypatch)


def test_an_engine_that_computes_no_numbers(tmp_path, monkeypatch):
    write_engine(tmp_path)
    with pytest.raises(EngineError, match="cannot serve a first read: .*not finite"):
        open_fake(tmp_path, monkeypatch, lambda contract: FakeRunner(contract, poison=0))


def test_the_pools_are_as_large_as_configured():
    contract = make_contract(max_context=1024)
    limits = step_limits(contract, 0)

    def shape(**config):
        found = choose_shape(ServeConfig("e", **config), contract, limits)
        return found.full_pages, found.sliding_pages

    assert shape() == ((1024 + 16) // 4 + 64 // 4, (2 + 2 + 4) + 64 // 4)
    assert shape(kv_cache_pages=50)[0] == 50
    assert shape(kv_cache_pages=50, kv_sliding_pages=40) == (50, 40)
    budget = 50 * contract.kv_page_bytes
    full, sliding = shape(kv_cache_bytes=budget)
    assert full > 50 > sliding
    assert contract.pool_bytes(full, sliding) <= budget < contract.pool_bytes(full + 2, sliding + 2)


def test_a_long_context_takes_a_fifth_where_five_of_six_layers_slide():
    """30 layers alike but for the window of 1024, 32k tokens: the figure of two KV groups."""
    types = tuple("full_attention" if n % 6 == 5 else "sliding_attention" for n in range(30))
    geometry = dataclasses.replace(
        make_contract().geometry, num_layers=30, layer_types=types, sliding_window=1024
    )
    contract = dataclasses.replace(make_contract(), geometry=geometry, page_size=16)
    two_groups, one_group = sequence_bytes(contract, 32768)
    assert 0.19 < two_groups / one_group < 0.2


def test_available_memory_is_within_the_containers_limit(tmp_path):
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:   4 kB\n", encoding="ascii")
    assert available_bytes(meminfo, cgroup) == 4096
    cgroup.write_text("max\n", encoding="ascii")
    assert available_bytes(meminfo, cgroup) == 4096
    cgroup.write_text("1000\n", encoding="ascii")
    assert available_bytes(meminfo, cgroup) == 1000
    assert available_bytes(tmp_path / "none", tmp_path / "none") is None
