"""Options that are out of range, and options that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_engine.__main__ import main
from tests.build_engine.refusals import Refusal
from tests.checkpoints import make_checkpoint

REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "context_zero": (("--max-context", "0"), "--max-context 0 is outside 2..128"),
    "context_negative": (("--max-context", "-5"), "--max-context -5 is outside 2..128"),
    "context_beyond_positions": (("--max-context", "129"), "max_position_embeddings"),
    "canvas_zero": (("--max-canvas", "0"), "--max-canvas 0 is outside 1..128"),
    "canvas_beyond_context": (("--max-canvas", "65", "--max-context", "64"), "outside 1..64"),
    "page_zero": (("--page-size", "0"), "--page-size 0 is not a power of two"),
    "page_negative": (("--page-size", "-8"), "--page-size -8 is not a power of two"),
    "page_huge": (("--page-size", str(1 << 40)), "from 1 to 4096"),
    "rows_huge": (("--max-step-tokens", str(10**20)), "is outside 2..32768"),
    "segments_huge": (("--max-segments", "65537"), "--max-segments 65537 is outside 2..32768"),
    "output_rows_negative": (("--max-output-rows", "-1"), "--max-output-rows -1 is outside 2.."),
    "labels_beyond_the_head": (("--max-labels", "5000"), "--max-labels 5000 is outside 2..4096"),
    "weightless_cpu": (("--weightless",), "--weightless is for --target onnx"),
    "gpu_of_a_cpu": (("--compute-capability", "8.9"), "not for --target cpu"),
    "gpu_of_onnx": (("--target", "onnx", "--compute-capability", "8.9"), "not for --target onnx"),
    "weightless_of_another_dtype": (
        ("--target", "onnx", "--weightless", "--dtype", "bfloat16"),
        "--weightless needs the checkpoint's own --dtype",
    ),
    "gpu_unknown": (
        ("--target", "tensorrt-rtx", "--compute-capability", "9.9"),
        "--compute-capability 9.9 is not one of",
    ),
    "gpu_a_word": (
        ("--target", "tensorrt-rtx", "--compute-capability", "ada"),
        "--compute-capability ada is not one of",
    ),
    "gpu_too_old_for_bfloat16": (
        ("--target", "tensorrt-rtx", "--compute-capability", "7.5", "--dtype", "bfloat16"),
        "--dtype bfloat16 needs --compute-capability 8.0",
    ),
    "weightless_plans": (("--target", "tensorrt-rtx", "--weightless"), "--weightless is for"),
    "two_at_once": (
        ("--page-size", "3", "--max-labels", "1"),
        "--page-size 3 is not a power of two from 1 to 4096; --max-labels 1 is outside",
    ),
}


@pytest.mark.parametrize(("options", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_an_option_that_cannot_be_is_refused_with_its_limit(
    tiny: Path, refused: Refusal, options: tuple[str, ...], said: str
) -> None:
    if "tensorrt-rtx" in options:
        pytest.importorskip("tensorrt_rtx_bindings")
    if "onnx" in options:
        pytest.importorskip("onnxscript")
    assert said in refused(tiny, *options)


def test_a_dtype_that_the_kernels_cannot_pack_is_refused_by_the_weight(
    tmp_path: Path, refused: Refusal
) -> None:
    odd = make_checkpoint(tmp_path / "odd", intermediate_size=95)
    message = refused(odd, "--dtype", "bfloat16")
    assert "down_proj.weight" in message
    assert "depth 95" in message
    assert "--dtype float32" in message


def test_a_build_that_is_not_needed_is_still_one_that_could_be(
    tmp_path: Path, refused: Refusal
) -> None:
    """`--if-needed` reads the same checkpoint, and says the same of it."""
    assert "is not a directory" in refused(tmp_path / "nowhere", "--if-needed")


@pytest.mark.parametrize(
    "options",
    [
        ("--target", "tpu"),
        ("--dtype", "float16"),
        ("--page-size", "eight"),
        ("--max-context", "1e3"),
        ("--compute-capability",),
        ("--unknown",),
    ],
)
def test_a_word_that_is_no_option_is_answered_with_the_usage(
    tiny: Path, tmp_path: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--checkpoint", str(tiny), "--output", str(tmp_path / "engine"), *options])
    assert stopped.value.code == 2
    assert options[0] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
