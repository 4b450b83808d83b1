"""Both Triton models, with a stand-in for Triton: every request gets one final response."""

import importlib
import json
import sys

import numpy as np
import pytest

from build_engine.errors import EngineError
from tests.triton_backend.fake_pb_utils import Request, make_module
from tests.triton_backend.fakes import FakeRunner
from tests.triton_backend.test_parse import inputs, ints, questions
from tests.triton_backend.test_startup import write_engine
from triton_backend import startup
from triton_backend.loop import MOST_FAILURES

OUTPUTS = {
    "slot_log_probs", "slot_probs", "slot_label_mass", "slot_entropy", "slot_argmax",
    "executions", "fusion", "queue_ms", "execution_ms", "num_input_tokens",
    "slot_counts", "cached_tokens", "preemptions",
}  # fmt: skip


class Models:
    """The two models as the server starts them."""

    def __init__(self, module, directory):
        self.engine, self.plain = module.EngineModel(), module.StructuredReadModel()
        self.engine.initialize(arguments(engine_dir=str(directory)))
        self.plain.initialize(arguments(max_in_flight="8"))

    def ask(self, model, arrays, **parameters):
        request = Request(arrays, parameters)
        getattr(self, model).execute([request])
        return request.sender.only()

    def close(self):
        self.plain.finalize()
        self.engine.finalize()


def arguments(**parameters):
    texts = {name: {"string_value": value} for name, value in parameters.items()}
    config = json.dumps({"parameters": texts})
    return {"model_config": config, "model_name": "diffusion_gemma", "model_version": "1"}


@pytest.fixture
def module(monkeypatch):
    started = {}
    monkeypatch.setattr(startup, "open_runner", lambda _, contract, __: FakeRunner(contract))
    for name in ("triton_backend.wire", "triton_backend.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    fake = make_module(lambda: started["engine"])
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)
    loaded = importlib.import_module("triton_backend.model")
    loaded.started = started
    yield loaded
    for name in ("triton_backend.wire", "triton_backend.model"):
        sys.modules.pop(name, None)


@pytest.fixture
def models(module, tmp_path):
    write_engine(tmp_path)
    made = Models(module, tmp_path)
    module.started["engine"] = made.engine
    yield made
    made.close()


@pytest.mark.parametrize("model", ["engine", "plain"])
def test_a_tensor_read_gets_every_tensor_in_its_shape_and_type(models, model):
    given = models.ask(model, inputs()).numpy()
    assert set(given) == OUTPUTS
    assert given["slot_log_probs"].shape == given["slot_probs"].shape == (2, 3)
    for name in ("slot_label_mass", "slot_entropy", "slot_argmax"):
        assert given[name].shape == (2,)
    for name in ("executions", "fusion", "queue_ms", "execution_ms", "num_input_tokens"):
        assert given[name].shape == (1,)
    floats = [name for name in OUTPUTS if name.endswith(("probs", "mass", "entropy", "ms"))]
    assert {given[name].dtype for name in floats} == {np.dtype(np.float32)}
    for name in ("slot_argmax", "executions", "num_input_tokens"):
        assert given[name].dtype == np.int32
    assert all(np.isfinite(given[name]).all() for name in floats)
    assert given["fusion"][0] == b"fused"
    assert given["num_input_tokens"][0] == 3


@pytest.mark.parametrize("model", ["engine", "plain"])
def test_questions_get_answers_that_agree_with_the_tensors(models, model):
    given = models.ask(model, questions()).numpy()
    answers = json.loads(given["answers"][0])
    assert answers["again"]["noul"] == pytest.approx(float(given["slot_probs"][0, 0]))


@pytest.mark.parametrize("model", ["engine", "plain"])
def test_a_refusal_keeps_its_words_and_its_code_through_both_models(models, model):
    error = models.ask(model, inputs(slots=ints(9, 0))).error()
    assert error.message() == "slots holds 9 at position 0, the canvas has 0 to 3"
    assert error.code() == "invalid"
    assert not models.ask(model, inputs()).has_error()


@pytest.mark.parametrize("model", ["engine", "plain"])
def test_options_of_a_request_may_be_parameters_through_both_models(models, model):
    trace = f"00-{'1' * 32}-{'2' * 16}-01"
    given = models.ask(
        model, inputs(), return_timing=True, queue_timeout_ms=0.5e6, traceparent=trace
    ).numpy()
    assert json.loads(given["timing_ms"][0])["send"] > 0
    assert given["traceparent"][0].decode() == trace
    error = models.ask(model, inputs(), queue_timeout_ms=-0.5).error()
    assert error.message().startswith("queue_timeout_ms is -0.5, allowed are")


@pytest.mark.parametrize("model", ["engine", "plain"])
def test_the_requests_own_timeout_reaches_the_queue_through_both_models(models, model, monkeypatch):
    taken = []
    loop = models.engine._service.loop
    submit = loop.submit
    monkeypatch.setattr(loop, "submit", lambda request, client: taken.append(request)
                        or submit(request, client))  # fmt: skip
    request = Request(inputs(), _timeout=2_500_000)
    getattr(models, model).execute([request])
    assert not request.sender.only().has_error()
    assert taken[0].queue_timeout == 2.5


@pytest.mark.parametrize("model", ["engine", "plain"])
def test_a_fault_of_ours_in_a_trace_is_logged_with_its_ids_and_a_clients_fault_is_not(
    models, model, monkeypatch, caplog
):
    trace = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    assert models.ask(model, inputs(slots=ints(9, 0)), **trace).has_error()
    assert not caplog.records
    monkeypatch.setattr(models.engine._service.loop, "_execute", lambda _: 1 / 0)
    assert models.ask(model, inputs(), **trace).error().code() == "internal"
    assert f"trace_id={'1' * 32} span_id={'2' * 16}" in caplog.text
    caplog.clear()
    assert models.ask(model, inputs()).has_error()
    assert "trace_id" not in caplog.text


@pytest.mark.parametrize("model", ["engine", "plain"])
def test_an_answer_that_cannot_be_shaped_is_an_error_not_a_silence(models, model, monkeypatch):
    outputs = importlib.import_module("triton_backend.outputs")
    monkeypatch.setattr(outputs, "final", lambda *_: 1 / 0)
    error = models.ask(model, inputs()).error()
    assert error.code() == "internal"
    assert "answer is not sent, ZeroDivisionError" in error.message()


def test_the_way_to_a_first_result_is_observed_once_a_request(models):
    seconds = models.engine._service.loop.counters.first_seconds
    observed = []
    # Publishing empties the deque, so what is appended is kept here.
    client = type("Kept", (), {"append": lambda _, value: observed.append(value)})()
    models.engine._service.loop.counters.first_seconds = client
    try:
        models.ask("engine", inputs())
        models.ask("engine", inputs(slots=ints(9, 0)))
    finally:
        models.engine._service.loop.counters.first_seconds = seconds
    assert len(observed) == 1
    assert observed[0] > 0


@pytest.mark.parametrize("model", ["engine", "plain"])
def test_a_parameter_of_any_type_is_refused_by_name(models, model):
    for value in (0.5, None, "x"):
        error = models.ask(model, inputs(), temperature=value).error()
        assert "parameter 'temperature' is not known" in error.message()


def test_a_fault_in_reading_stays_with_its_request(models, monkeypatch):
    parser = models.engine._service.parser
    monkeypatch.setattr(parser, "_check_size", lambda *_: 1 / 0)
    error = models.ask("engine", inputs()).error()
    assert error.code() == "internal"
    assert "ZeroDivisionError" in error.message()
    monkeypatch.undo()
    assert not models.ask("engine", inputs()).has_error()


def test_an_engine_that_cannot_be_asked_is_an_error_not_a_silence(models, module):
    module.started.clear()
    error = models.ask("plain", inputs()).error()
    assert "diffusion_gemma could not be asked" in error.message()
    module.started["engine"] = models.engine


def test_many_plain_reads_are_in_flight_at_once(models):
    requests = [Request(inputs(input_ids=ints(*range(n % 7)))) for n in range(64)]
    for request in requests:
        models.plain.execute([request])
    assert not any(request.sender.only().has_error() for request in requests)


def test_after_failures_in_a_row_the_engine_says_it_is_not_ready_and_refuses(models, monkeypatch):
    assert models.engine.is_ready()
    service = models.engine._service
    monkeypatch.setattr(service.loop, "_execute", lambda _: 1 / 0)
    for _ in range(MOST_FAILURES - 1):
        error = models.ask("engine", inputs()).error()
        assert "the execution it was in failed" in error.message()
        assert models.engine.is_ready()
    assert "the engine failed" in models.ask("engine", inputs()).error().message()
    service.loop._thread.join(5)
    assert not models.engine.is_ready()
    error = models.ask("plain", inputs()).error()
    assert error.code() == "unavailable"


def test_a_model_that_cannot_serve_raises_one_sentence(module):
    with pytest.raises(EngineError, match="no engine at"):
        module.EngineModel().initialize(arguments(engine_dir="/nowhere"))
