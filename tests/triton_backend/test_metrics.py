"""What is published adds up to what has happened, under the names that tools look for."""

import re

import pytest

from tests.triton_backend.fakes import make_generation, make_limits, make_request, make_scheduler
from tests.triton_backend.test_scheduler import drain
from triton_backend import metric_families
from triton_backend.core import ErrorKind, FinishReason, Reply, RequestError, Written
from triton_backend.counters import Counters
from triton_backend.metric_families import Family
from triton_backend.metrics import Publisher, values


class FakeMetric:
    def __init__(self):
        self.value, self.observed, self.calls = 0.0, [], 0

    def increment(self, value):
        assert value > 0
        self.value += value
        self.calls += 1

    def set(self, value):
        self.value = value
        self.calls += 1

    def observe(self, value):
        self.observed.append(value)


class Page:
    """The metrics page: one FakeMetric per family and label."""

    def __init__(self, scheduler):
        self.made = {}
        self.publish = Publisher(self.make, lambda: values(scheduler, True, 16))

    def make(self, family, label):
        assert (family.name, label) not in self.made, "a metric is made twice"
        assert family.label or not label
        return self.made.setdefault((family.name, label), FakeMetric())

    def __getitem__(self, entry):
        return self.made[entry].value


def test_every_metric_is_there_before_anything_happens():
    page = Page(make_scheduler())
    names = {name for name, _ in page.made}
    assert {"nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics",
            "nv_trt_llm_inflight_batcher_metrics", "nv_trt_llm_general_metrics",
            "dg_steps_total", "dg_step_seconds"} <= names  # fmt: skip
    for kind in ("active", "max", "scheduled", "context", "waiting"):
        assert ("nv_trt_llm_request_metrics", kind) in page.made
    for kind in ("max", "free", "used", "tokens_per"):
        assert ("nv_trt_llm_kv_cache_block_metrics", kind) in page.made
    for reason in ("budget", "length", "disabled", "pages"):
        assert page["dg_executions_split_total", reason] == 0


def test_numbers_follow_what_happened_and_gauges_return_to_rest():
    scheduler = make_scheduler(limits=make_limits(tokens=16))
    page = Page(scheduler)
    for key, prompt in ((1, 20), (2, 16)):
        scheduler.add(make_request(key, prompt=prompt), 0.0)
    page.publish(Counters())
    assert page["nv_trt_llm_request_metrics", "waiting"] == 2
    replies, _ = drain(scheduler)
    for reply in replies.values():
        scheduler.counters.count_reply(reply)
    scheduler.rest()
    steps = len(scheduler.counters.step_seconds)
    page.publish(scheduler.counters)
    assert page["dg_steps_total", ""] == steps
    assert not scheduler.counters.step_seconds
    assert page["dg_rows_total", "prefill"] == 36
    assert page["dg_rows_total", "denoise"] == 8
    assert page["dg_executions_fused_total", ""] + page["dg_executions_split_total", "budget"] == 2
    assert page["dg_requests_total", "ok"] == 2
    assert page["nv_trt_llm_request_metrics", "active"] == 0
    assert page["nv_trt_llm_request_metrics", "scheduled"] == 0
    assert page["nv_trt_llm_kv_cache_block_metrics", "free"] == 64
    assert page["nv_trt_llm_general_metrics", "iteration_counter"] == page["dg_steps_total", ""]
    observed = page.made["dg_step_seconds", ""].observed
    assert len(observed) == page["dg_steps_total", ""]


def test_waits_and_first_results_are_observed_once_each():
    scheduler = make_scheduler()
    page = Page(scheduler)
    request = make_request(1, canvases=3)
    scheduler.add(request, 0.0)
    replies, _ = drain(scheduler)
    counters = scheduler.counters
    counters.count_reply(replies[1])
    counters.first_seconds.append(0.5)
    for _ in range(2):
        page.publish(counters)
    assert page.made["dg_queue_seconds", ""].observed == [replies[1].timing.queue]
    assert page.made["dg_first_result_seconds", ""].observed == [0.5]
    assert page["dg_read_canvases_total", ""] == 3


def test_generations_held_to_fewer_steps_are_counted():
    counters = make_scheduler().counters
    for effort in (1.0, 0.5):
        written = Written((1,), (0.0,), "x", FinishReason.STOP, (1,), effort)
        counters.count_reply(Reply(make_generation(0), written=written, executions=1))
    assert (counters.limited, counters.written_canvases) == (1, 2)


FAMILIES = [value for value in vars(metric_families).values() if isinstance(value, Family)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_follow_prometheus_conventions(family):
    """Base units, `_total` for counters alone; TensorRT-LLM's names are as they are."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", family.name)
    assert re.fullmatch(r"([a-z][a-z0-9_]*)?", family.label)
    assert family.help and not family.help.endswith(".")
    assert (family.kind == "histogram") == bool(family.buckets)
    assert list(family.buckets) == sorted(set(family.buckets))
    if family.name.startswith("nv_trt_llm_"):
        return
    assert family.name.startswith("dg_")
    assert (family.kind == "counter") == family.name.endswith("_total")
    assert not re.search(r"_(ms|minutes|kb|mb|count|sum|bucket)(_total)?$", family.name)
    if family.kind == "histogram":
        assert family.name.endswith("_seconds")


def test_ok_failed_and_cancelled_are_told_apart():
    counters = make_scheduler().counters
    request = make_request(1)
    for kind in (ErrorKind.INVALID, ErrorKind.UNAVAILABLE, ErrorKind.INTERNAL):
        counters.count_error(RequestError("x", "y", kind=kind))
    cancelled = RequestError("request", "was cancelled", kind=ErrorKind.CANCELLED)
    counters.count_reply(Reply(request, error=cancelled))
    counters.count_reply(Reply(request))
    assert (counters.ok, counters.failed, counters.cancelled) == (1, 3, 1)


def test_only_what_changed_is_sent():
    page = Page(make_scheduler())
    page.publish(Counters())
    calls = {entry: metric.calls for entry, metric in page.made.items()}
    page.publish(Counters())
    changed = {e for e, metric in page.made.items() if metric.calls != calls[e]}
    assert changed <= {("nv_trt_llm_general_metrics", "timestamp")}


def test_trouble_with_the_page_is_logged_and_stops_nothing(caplog):
    page = Page(make_scheduler())
    page.publish._read = lambda: 1 / 0
    page.publish(Counters())
    assert "could not be published" in caplog.text


def test_families_with_one_name_are_one_family():
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
