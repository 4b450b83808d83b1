"""Owns the wire shape of answers, slot probabilities in, JSON out; must not know tokens."""

from collections.abc import Sequence

from triton_backend.question_parse import Question


def answers(
    questions: tuple[Question, ...], slot_probs: Sequence[Sequence[float]]
) -> dict[str, dict[str, object]]:
    """One answer per question id; row i of slot_probs belongs to question i, padding is ignored."""
    result = {}
    for question, row in zip(questions, slot_probs, strict=True):
        probs = [float(p) for p in list(row)[: len(question.options)]]
        result[question.id] = _SHAPES[question.kind](question, probs)
    return result


def choice_confidence(probs: Sequence[float]) -> float:
    """0 for a uniform answer, 1 for a certain one."""
    uniform = 1 / len(probs)
    return (max(probs) - uniform) / (1 - uniform)


def score_confidence(probs: Sequence[float]) -> float:
    """1 minus the expected distance from the likeliest level, in spreads of a uniform answer."""
    levels = range(len(probs))
    modal = likeliest(probs)
    distance = sum(p * abs(level - modal) for level, p in zip(levels, probs, strict=True))
    middle = (len(probs) - 1) / 2
    spread = sum(abs(level - middle) for level in levels) / len(probs)
    return max(0.0, 1 - distance / spread)


def likeliest(probs: Sequence[float]) -> int:
    """The first of the largest."""
    return max(range(len(probs)), key=lambda i: (probs[i], -i))


def _noul(_: Question, probs: list[float]) -> dict[str, object]:
    return {"type": "noul", "noul": probs[0]}


def _choice(question: Question, probs: list[float]) -> dict[str, object]:
    names = [option.name for option in question.options]
    return {
        "type": "choice",
        "choice": names[likeliest(probs)],
        "probabilities": dict(zip(names, probs, strict=True)),
        "confidence": choice_confidence(probs),
    }


def _score(question: Question, probs: list[float]) -> dict[str, object]:
    return {
        "type": "score",
        "score": sum(level * p for level, p in enumerate(probs)),
        "legend": {option.name: option.description for option in question.options},
        "probabilities": {o.name: p for o, p in zip(question.options, probs, strict=True)},
        "confidence": score_confidence(probs),
    }


_SHAPES = {"noul": _noul, "choice": _choice, "score": _score}
