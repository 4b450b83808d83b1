"""Launch plans as text and back, for compilers that take a kernel's constants as text alone."""

import json
from dataclasses import asdict
from typing import Any

from plugins.gpu.attention_plan import AttentionPlan, AttentionShape
from plugins.gpu.experts_plan import ExpertPlan, ExpertShape
from plugins.gpu.heads_plan import DenoisePlan, LabelPlan
from plugins.gpu.launch_plan import Plan
from plugins.gpu.page_plan import PagePlan

_KINDS: dict[str, Any] = {
    "attention": AttentionPlan,
    "denoise": DenoisePlan,
    "experts": ExpertPlan,
    "label": LabelPlan,
    "page": PagePlan,
}
_SHAPES: dict[str, Any] = {"attention": AttentionShape, "experts": ExpertShape}


def write(plan: Plan) -> str:
    """The plan as JSON, in small letters: torch takes text with a D for a mark of alignment."""
    kind = next(name for name, kind in _KINDS.items() if type(plan) is kind)
    text = json.dumps({"kind": kind, **asdict(plan)})  # type: ignore[call-overload]
    assert "D" not in text, text
    return text


def read(text: str) -> Any:
    """The plan that `write` wrote."""
    values = json.loads(text)
    kind = values.pop("kind")
    if kind in _SHAPES:
        values["shape"] = _SHAPES[kind](**values["shape"])
    return _KINDS[kind](**values)
