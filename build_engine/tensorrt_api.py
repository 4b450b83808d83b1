"""The only module that imports TensorRT; what differs between 10.14 and 11.x is settled here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from build_engine.errors import EngineError

OLDEST, NEXT = (10, 14), (12, 0)
"""The first release that is known, and the first that is not."""

_MODULES = ("tensorrt", "tensorrt_bindings")
_NETWORK_FLAGS = ("STRONGLY_TYPED", "PREFER_AOT_PYTHON_PLUGINS")
_ALIASED = "ALIASED_PLUGIN_IO_10_03"
_STRIPPED = ("STRIP_PLAN", "REFIT_INDIVIDUAL")
_HOW = "use NVIDIA's TensorRT container or `pip install tensorrt` with its index, pypi.nvidia.com"


@dataclass
class Log:
    """The errors that TensorRT reported, first the one that names the cause."""

    errors: list[str] = field(default_factory=list)

    @property
    def first(self) -> str:
        return self.errors[0] if self.errors else "no reason given"


@dataclass(frozen=True)
class Api:
    """TensorRT's modules and version, and what a build needs of them."""

    trt: Any
    plugin: Any

    @property
    def version(self) -> str:
        return str(self.trt.__version__)

    @property
    def dtypes(self) -> dict[Any, str]:
        """Names of the dtypes that bindings have."""
        trt = self.trt
        names = {trt.float32: "float32", trt.bfloat16: "bfloat16"}
        return {**names, trt.int32: "int32", trt.int64: "int64"}

    def logger(self, log: Log) -> Any:
        """A logger that keeps errors in `log`."""
        base: Any = self.trt.ILogger
        severity = base.Severity

        class Logger(base):
            def __init__(self) -> None:
                super().__init__()

            def log(self, level: Any, message: str) -> None:
                if level in (severity.ERROR, severity.INTERNAL_ERROR):
                    log.errors.append(" ".join(message.split()).rstrip("."))

        return Logger()

    def progress(self, name: str, report: Callable[[str], None]) -> Any:
        """Tells the innermost phase of a build and how far it is."""
        base: Any = self.trt.IProgressMonitor
        steps: dict[str, int] = {}

        class Progress(base):
            def __init__(self) -> None:
                super().__init__()

            def phase_start(
                self,
                phase_name: str,
                parent_phase: str | None,  # noqa: ARG002
                num_steps: int,
            ) -> None:
                steps[phase_name] = num_steps
                report(f"build {name}: {phase_name}")

            def step_complete(self, phase_name: str, step: int) -> bool:
                # Phases of one name may overlap, and an exception here would cancel the build.
                of = f" of {steps[phase_name]}" if phase_name in steps else ""
                report(f"build {name}: {phase_name}, {step + 1}{of}")
                return True

            def phase_finish(self, phase_name: str) -> None:
                steps.pop(phase_name, None)

        return Progress()

    def network(self, builder: Any) -> Any:
        """An empty network; both flags go without saying in releases that lack them."""
        known = self.trt.NetworkDefinitionCreationFlag
        flags = [getattr(known, name) for name in _NETWORK_FLAGS if hasattr(known, name)]
        return builder.create_network(sum(1 << int(flag) for flag in flags))

    def config(self, builder: Any, dtype: str) -> Any:
        """Plugins may update inputs, plans lack the weights they will be given, fp32 is fp32."""
        trt, config = self.trt, builder.create_builder_config()
        config.set_preview_feature(getattr(trt.PreviewFeature, _ALIASED), True)
        for name in _STRIPPED:
            config.set_flag(getattr(trt.BuilderFlag, name))
        if dtype == "float32":
            config.clear_flag(trt.BuilderFlag.TF32)
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        return config

    def use_timing_cache(self, config: Any, stored: bytes) -> None:
        """Start from the stored cache, or from none where it is of another release or GPU."""
        if not (stored and config.set_timing_cache(config.create_timing_cache(stored), False)):
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def aliased_input(self, engine: Any, output: str) -> str | None:
        """The input that an output shares its memory with; None where the library does not tell.

        10.14 cannot be asked, 11.2 tells of its own layers and not of plugins.
        """
        ask = getattr(engine, "get_aliased_input_tensor", None)
        return (ask(output) or None) if ask else None

    def layers(self, engine: Any) -> str:
        """The engine inspector's report as JSON."""
        inspector = engine.create_engine_inspector()
        return str(inspector.get_engine_information(self.trt.LayerInformationFormat.JSON))


def load() -> Api:
    """TensorRT, if it is here and of a release that is known.

    Raises:
        EngineError: it is not.
    """
    trt = _module()
    wrong = _problem_of(str(trt.__version__))
    if wrong:
        raise EngineError(wrong)
    return Api(trt, importlib.import_module(f"{trt.__name__}.plugin"))


def _module() -> Any:
    """The package or, where it was left out, the bindings that it is made of."""
    why = ""
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            why = why or str(error)
    raise EngineError(f"TensorRT cannot be imported ({why}); {_HOW}.")


def _problem_of(version: str) -> str:
    found = tuple(int(number) for number in version.split(".")[:2])
    if found < OLDEST:
        return f"TensorRT {version} is too old, {_text(OLDEST)} is the first that will do; {_HOW}."
    if found >= NEXT:
        return f"TensorRT {version} is too new, releases before {_text(NEXT)} are known; {_HOW}."
    return ""


def _text(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
