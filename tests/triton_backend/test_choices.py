"""The budget and the swaps of a server: configured, or by the profile, or one sentence."""

from dataclasses import replace

import pytest

from build_engine.errors import EngineError
from tests.triton_backend.fakes import make_contract
from triton_backend.choices import choose
from triton_backend.config import ConfigError, ServeConfig, parse_config
from triton_backend.cost_model import CostModel, Curve
from triton_backend.kv_cache import Sequence
from triton_backend.limits import step_limits
from triton_backend.profile_file import Profile, engine_identity

CONTRACT = make_contract()  # canvases of 16, executions of 64 rows
LIMITS = step_limits(CONTRACT, 0)


@pytest.fixture
def engine(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def save_profile(engine, rate=None):
    cost = CostModel(Curve(((8, 0.01), (16, 0.01), (64, 0.04))))
    Profile(engine_identity(engine), "one", 1, "today", cost, rate).save(engine)


def choices(engine, **config):
    return choose(ServeConfig(str(engine), **config), engine, CONTRACT, LIMITS)


def test_without_a_step_time_the_budget_is_the_configured_one(engine):
    assert choices(engine).policy == ServeConfig("x").policy
    assert choices(engine, token_budget=32).policy.token_budget == 32
    save_profile(engine)
    assert choices(engine).policy == ServeConfig("x").policy


def test_a_step_time_gives_the_largest_budget_that_keeps_it(engine):
    save_profile(engine)
    policy = choices(engine, step_seconds=0.025).policy
    assert policy == replace(ServeConfig("x").policy, token_budget=40)
    assert choices(engine, step_seconds=9.0).policy.token_budget == LIMITS.max_tokens


def test_a_step_time_without_a_profile_is_refused(engine):
    with pytest.raises(EngineError, match="step_seconds is 0.1,.*run `make profile` first"):
        choices(engine, step_seconds=0.1)


def test_a_step_time_that_no_canvas_keeps_is_refused(engine):
    save_profile(engine)
    with pytest.raises(EngineError, match="step_seconds is 0.005.* 0 rows .*may have 16; raise it"):
        choices(engine, step_seconds=0.005)


def test_a_budget_that_no_canvas_fits_is_refused(engine):
    with pytest.raises(EngineError, match="token_budget is 15, a canvas may have 16 rows"):
        choices(engine, token_budget=15)
    assert choices(engine, token_budget=15, prefill="deficit").policy.token_budget == 15


def test_both_a_budget_and_a_step_time_are_refused():
    parameters = {"engine_dir": "x", "token_budget": "64", "step_seconds": "0.1"}
    with pytest.raises(ConfigError, match="token_budget and step_seconds are both set"):
        parse_config(parameters)


def test_swaps_follow_the_profile_and_without_one_every_context_is_swapped(engine):
    sequence = Sequence("", computed=64, full=list(range(16)), sliding=list(range(16)))
    assert choices(engine).prefers_swap(sequence)
    save_profile(engine, rate=1e12)
    assert choices(engine).prefers_swap(sequence)
    save_profile(engine, rate=1.0)
    assert not choices(engine).prefers_swap(sequence)
