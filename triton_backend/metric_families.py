"""The names, kinds and meanings of all metrics; knows no numbers.

The `nv_trt_llm_*` names and labels are those of TensorRT-LLM's backend, so that tools made for it
work; `dg_*` are this project's own.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
REQUEST_BUCKETS = (*STEP_BUCKETS, 10.0, 20.0, 60.0, 120.0)


@dataclass(frozen=True)
class Family:
    """One metric family; `kind` is counter, gauge or histogram, `label` names its one label.

    Only a histogram has buckets.
    """

    name: str
    kind: str
    help: str
    label: str = ""
    buckets: tuple[float, ...] = ()


REQUESTS = Family("nv_trt_llm_request_metrics", "gauge", "Requests by state", "request_type")
PAGES = Family("nv_trt_llm_kv_cache_block_metrics", "gauge", "KV pages", "kv_cache_block_type")
BATCH = Family(
    "nv_trt_llm_inflight_batcher_metrics",
    "gauge",
    "The execution that runs now",
    "inflight_batcher_specific_metric",
)
GENERAL = Family("nv_trt_llm_general_metrics", "gauge", "Executions, and when", "general_type")
STEPS = Family("dg_steps_total", "counter", "Executions of the engine, shared by requests")
ROWS = Family("dg_rows_total", "counter", "Rows computed, by phase", "phase")
FUSED = Family(
    "dg_executions_fused_total", "counter", "Requests whose canvas joined the end of its prompt"
)
SPLIT = Family(
    "dg_executions_split_total", "counter", "Requests whose canvas ran after its prompt", "reason"
)
OUTCOMES = Family("dg_requests_total", "counter", "Requests by how they ended", "outcome")
READS = Family("dg_read_canvases_total", "counter", "Canvases of finished reads")
TOKENS = Family("dg_generated_tokens_total", "counter", "Tokens of finished generations")
CANVASES = Family("dg_generated_canvases_total", "counter", "Canvases of finished generations")
LIMITED = Family(
    "dg_limited_generations_total",
    "counter",
    "Generations held to fewer denoising steps than asked, under load",
)
PREEMPTIONS = Family(
    "dg_preemptions_total", "counter", "Times a running request gave its KV pages to another"
)
SWAPPED = Family("dg_swapped_pages_total", "counter", "KV pages copied to host memory")
EXPIRED = Family("dg_queue_timeouts_total", "counter", "Requests that waited too long to start")
PREFIXES = Family(
    "dg_prefix_lookups_total",
    "counter",
    "Contexts begun, by whether a part was in the prefix cache",
    "result",
)
PREFIX_TOKENS = Family(
    "dg_prefix_tokens_total",
    "counter",
    "Tokens of contexts begun, by where keys and values come from",
    "source",
)
SLIDING_PAGES = Family(
    "dg_kv_sliding_pages", "gauge", "KV pages of the sliding-window layers", "state"
)
KV_WAITS = Family("dg_kv_waits_total", "counter", "Requests held back for want of KV pages")
KV_WAIT_SECONDS = Family("dg_kv_wait_seconds_total", "counter", "Seconds they were held back")
STEP_SECONDS = Family(
    "dg_step_seconds", "histogram", "Seconds of one execution", buckets=STEP_BUCKETS
)
QUEUE_SECONDS = Family(
    "dg_queue_seconds",
    "histogram",
    "Seconds of a served request until its first execution",
    buckets=REQUEST_BUCKETS,
)
FIRST_SECONDS = Family(
    "dg_first_result_seconds",
    "histogram",
    "Seconds from a request's arrival to its answer or first tokens",
    buckets=REQUEST_BUCKETS,
)
READY = Family("dg_engine_ready", "gauge", "1 while the engine takes requests")
