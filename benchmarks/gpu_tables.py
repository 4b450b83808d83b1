"""The cases of each kind of run, the most important first; imports no torch."""

from benchmarks.gpu_cases import Case

_ATTENTION = "benchmarks.gpu_check_attention:"
_EXPERTS = "benchmarks.gpu_check_experts:"
_HEADS = "benchmarks.gpu_check_heads:"
_MODEL = "benchmarks.gpu_check_model:"
_ENGINE = "benchmarks.gpu_check_engine:engine"

# (query heads, key/value heads, width, window); the released checkpoint's first.
_RELEASED_HEADS = ((16, 8, 256, 1024), (16, 2, 512, 0))
_SMALL_HEADS = ((2, 2, 16, 24), (4, 2, 32, 0), (3, 1, 40, 24), (8, 4, 64, 24), (4, 1, 128, 0))
_ROWS = (1, 15, 16, 17, 64, 65, 300)
_SHAPES = ((8, 2, 64, 32), (128, 8, 40, 34), (4, 4, 130, 200), (8, 1, 70, 2))
_TABLES = ((1, 1), (3, 7), (33, 64), (16, 127), (17, 128), (2, 129), (65, 300))

CHECKS = (
    Case("attention: edges of pages and windows", f"{_ATTENTION}edges", 30),
    *(
        Case(
            f"attention: released heads, {dtype}",
            f"{_ATTENTION}heads",
            40,
            arguments={"dtype": dtype, "shapes": _RELEASED_HEADS},
        )
        for dtype in ("bfloat16", "float32", "float16")
    ),
    Case("experts: uneven routings", f"{_EXPERTS}routings", 15),
    *(
        Case(
            f"experts: sizes, {dtype}",
            f"{_EXPERTS}sizes",
            60,
            arguments={"dtype": dtype, "shapes": _SHAPES[:shapes], "rows": _ROWS},
        )
        for dtype, shapes in (("bfloat16", 4), ("float32", 4), ("float16", 1))
    ),
    Case("experts: released sizes", f"{_EXPERTS}released", 20, 6, {"rows": (1, 17, 768)}),
    Case("heads: ties and no rows", f"{_HEADS}ties", 15),
    *(
        Case(
            f"heads: sizes, {dtype}",
            f"{_HEADS}sizes",
            60,
            arguments={"dtype": dtype, "shapes": shapes},
        )
        for dtype, shapes in (
            ("bfloat16", _TABLES),
            ("float32", _TABLES),
            ("float16", _TABLES[-2:]),
        )
    ),
    Case("heads: released sizes", f"{_HEADS}released", 30, 8, {"rows": 17}),
    *(
        Case(f"model: reads, {dtype}", f"{_MODEL}reads", 60, arguments={"dtype": dtype})
        for dtype in ("float32", "bfloat16")
    ),
    Case("model: generation, float32", f"{_MODEL}generation", 60),
    *(
        Case(
            f"engine: {dtype}",
            _ENGINE,
            150,
            arguments={"dtype": dtype, "generations": dtype == "float32"},
            needs_gpu=True,
        )
        for dtype in ("float32", "bfloat16")
    ),
    Case("attention: many segments", f"{_ATTENTION}many_segments", 15),
    *(
        Case(
            f"attention: split keys of {width}, {dtype}",
            f"{_ATTENTION}split_keys",
            20,
            arguments={"width": width, "dtype": dtype},
        )
        for width, dtype in ((512, "bfloat16"), (16, "float32"))
    ),
    Case("attention: pages past 2^31 numbers", f"{_ATTENTION}high_pages", 15, 6),
    *(
        Case(
            f"attention: other heads, {dtype}",
            f"{_ATTENTION}heads",
            60,
            arguments={"dtype": dtype, "shapes": _SMALL_HEADS[:shapes], "long": False},
        )
        for dtype, shapes in (("bfloat16", 5), ("float32", 5), ("float16", 1))
    ),
    Case(
        "heads: other widths, float32",
        f"{_HEADS}sizes",
        20,
        arguments={"dtype": "float32", "shapes": ((5, 200),), "hidden": 130},
    ),
)

_BENCH_ATTENTION = "benchmarks.gpu_bench_attention:"
_SLIDING, _FULL = 0, 5


def _attention(name: str, *shape: int) -> Case:
    return Case(f"attention: {name}", f"{_BENCH_ATTENTION}dense", 15, 8, {"shape": shape})


def _flex(name: str, *shape: int) -> Case:
    function = f"{_BENCH_ATTENTION}flex"
    return Case(f"attention: flex, {name}", function, 40, 8, {"shape": shape}, needs_gpu=True)


_READ = "benchmarks.gpu_bench_read:read"
_STEP = "benchmarks.gpu_bench_generate:step"
_WHOLE = "benchmarks.gpu_bench_generate:whole"
_EXPERT_ROWS = "benchmarks.gpu_bench_experts:rows"
_LABEL, _DENOISE = (f"benchmarks.gpu_bench_heads:{name}" for name in ("label", "denoise"))

BENCHES = (
    Case("ceilings: copy and product", "benchmarks.gpu_bench_ceilings:ceilings", 10, 6),
    Case("read: prompt of 512", _READ, 90, 6, {"reads": 1, "prompt": 512}),
    _attention("canvas over 512, full layer", _FULL, 1, 512, 256),
    _attention("canvas over 768, sliding layer", _SLIDING, 1, 768, 256),
    _attention("16 canvases over 512, full layer", _FULL, 16, 512, 256),
    _attention("16 canvases over 768, sliding layer", _SLIDING, 16, 768, 256),
    Case("experts: 768 rows", _EXPERT_ROWS, 15, 5, {"count": 768}),
    Case("heads: read of 8 slots", _LABEL, 15, 8, {"rows": 8}),
    Case("heads: denoising of a canvas", _DENOISE, 20, 10, {"rows": 256}),
    Case("generation: step of 1 canvas", _STEP, 20, 4, {"canvases": 1}),
    Case("generation: step of 16 canvases", _STEP, 20, 12, {"canvases": 16}),
    Case("generation: whole, 1 canvas", _WHOLE, 20, 4, {"canvases": 1}),
    _attention("prompt of 1024, sliding layer", _SLIDING, 1, 0, 1024),
    _attention("prompt of 4096, full layer", _FULL, 1, 0, 4096),
    _attention("canvas over 8192, full layer", _FULL, 1, 8192, 256),
    _flex("canvas over 768, sliding layer", _SLIDING, 1, 768, 256),
    _flex("canvas over 512, full layer", _FULL, 1, 512, 256),
    Case("generation: whole, 16 canvases", _WHOLE, 40, 12, {"canvases": 16}),
    Case("experts: 4096 rows", _EXPERT_ROWS, 15, 6, {"count": 4096}),
    _flex("prompt of 1024, sliding layer", _SLIDING, 1, 0, 1024),
    Case("experts: 16 rows", _EXPERT_ROWS, 15, 5, {"count": 16}),
    Case("read: prompt of 2048", _READ, 20, 8, {"reads": 1, "prompt": 2048}),
    Case("read: 4 prompts of 512", _READ, 25, 10, {"reads": 4, "prompt": 512}),
    Case("generation: step of 4 canvases", _STEP, 20, 6, {"canvases": 4}),
    Case("generation: whole, 4 canvases", _WHOLE, 25, 6, {"canvases": 4}),
    Case("heads: denoising of 4 canvases", _DENOISE, 25, 16, {"rows": 1024}),
    Case("heads: read of 256 slots", _LABEL, 15, 8, {"rows": 256}),
)

TABLES = {"check": CHECKS, "bench": BENCHES}
