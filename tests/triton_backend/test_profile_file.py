"""`profile.json`: what is written is read back, what is wrong is one sentence."""

import json

import pytest

from build_engine.contract import PROFILE_FILE
from build_engine.errors import EngineError
from tests.triton_backend.fakes import PAGE, make_contract
from triton_backend.cost_model import CostModel, Curve
from triton_backend.kv_cache import NO_PAGE, Sequence
from triton_backend.profile_file import Profile, engine_identity, load_profile

COST = CostModel(Curve(((8, 0.01), (64, 0.04))), Curve(((8, 0.001),)), Curve(), 1e-9)


@pytest.fixture
def engine(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def make_profile(engine, **changes) -> Profile:
    values = {
        "engine": engine_identity(engine), "machine": "one", "threads": 2, "date": "today",
        "cost": COST, "copy_bytes_per_second": 1e9,
    }  # fmt: skip
    return Profile(**{**values, **changes})


def test_what_is_saved_is_loaded(engine):
    for rate in (1e9, None):
        profile = make_profile(engine, copy_bytes_per_second=rate)
        assert profile.save(engine) == engine / PROFILE_FILE
        assert load_profile(engine) == profile
    assert sorted(path.name for path in engine.iterdir()) == ["config.json", PROFILE_FILE]


def test_without_a_file_there_is_no_profile(engine):
    assert load_profile(engine) is None


def test_a_profile_of_another_engine_is_refused(engine):
    make_profile(engine).save(engine)
    (engine / "config.json").write_text("{ }")
    with pytest.raises(EngineError, match="another engine.*run `make profile` again"):
        load_profile(engine)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format_version": 2}, "format_version 1 is needed"),
        ({"threads": "two"}, "threads is 'two'"),
        ({"threads": True}, "threads is True"),
        ({"date": 3}, "date is 3"),
        ({"copy_bytes_per_second": -1}, "from 0 on"),
        ({"copy_bytes_per_second": float("inf")}, "from 0 on"),
        ({"seconds_per_pair": float("nan")}, "from 0 on"),
        ({"seconds_by_rows": 1}, "not subscriptable"),
        ({"seconds_by_rows": {}}, "layers is missing"),
        ({"seconds_by_rows": {"layers": [], "denoise": [], "read": []}}, "no points"),
        ({"seconds_by_rows": {"layers": [[8, 2], [4, 3]], "denoise": [], "read": []}}, "must rise"),
        ({"seconds_by_rows": {"layers": [[8, 2], [9, 1]], "denoise": [], "read": []}}, "must rise"),
        ({"seconds_by_rows": {"layers": [[8]], "denoise": [], "read": []}}, "rows and seconds"),
    ],
)
def test_a_file_that_is_no_profile_is_refused_in_one_sentence(engine, change, says):
    make_profile(engine).save(engine)
    path = engine / PROFILE_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(EngineError, match=says) as raised:
        load_profile(engine)
    assert str(raised.value).endswith("run `make profile` again.")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "[", "[]", "null", '"x"', "{}", "\x00", "[" * 100_000])
def test_a_file_of_anything_else_is_refused_in_one_sentence(engine, text):
    (engine / PROFILE_FILE).write_text(text)
    with pytest.raises(EngineError, match="is no profile .*run `make profile` again"):
        load_profile(engine)


def test_a_file_that_cannot_be_written_leaves_the_old_one(engine, monkeypatch):
    make_profile(engine).save(engine)
    with pytest.raises(TypeError):
        make_profile(engine, machine=object()).save(engine)
    assert load_profile(engine) == make_profile(engine)
    assert sorted(path.name for path in engine.iterdir()) == ["config.json", PROFILE_FILE]


def test_a_context_is_swapped_if_its_pages_move_faster_than_it_is_computed(engine):
    contract = make_contract()
    pages = 10
    sequence = Sequence("", computed=pages * PAGE, full=list(range(pages)))
    sequence.sliding, sequence.first = [NO_PAGE] * 7 + [0, 1, 2], 7
    held = 10 * contract.group_page_bytes(False) + 3 * contract.group_page_bytes(True)
    anew = COST.prefill_seconds(pages * PAGE, 16)
    faster, slower = 2 * held / anew * 1.01, 2 * held / anew * 0.99
    for rate, swaps in ((faster, True), (slower, False), (None, False)):
        profile = make_profile(engine, copy_bytes_per_second=rate)
        assert profile.swap_choice(contract, 16)(sequence) is swaps
