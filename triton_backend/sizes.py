"""Whether a request fits: into the engine's context and, a step at a time, into the KV cache."""

from __future__ import annotations

from triton_backend.core import Request, RequestError
from triton_backend.limits import RequestLimits
from triton_backend.needs import least_need
from triton_backend.page_pool import pages_for


def check_size(request: Request, name: str, limits: RequestLimits) -> None:
    """Refuses a request that could never be served; `name` is the input its prompt came by.

    Raises:
        RequestError: with what it needs and what there is.
    """
    prompt = len(request.prompt_ids)
    more, what = _longest(request)
    if prompt + more > limits.max_context:
        raise RequestError(
            f"{name} and {what}", f"have {prompt} + {more} tokens",
            f"the limit is {limits.max_context} together",
        )  # fmt: skip
    need, kv = least_need(request, limits.kv), limits.kv
    groups = ("", need.full, kv.full_pages), (" sliding", need.sliding, kv.sliding_pages)
    for group, pages, most in groups:
        if pages > most:
            mine = min(pages_for(prompt, kv.page_size), pages)
            raise RequestError(
                f"{name} and {what}",
                f"need {pages}{group} KV pages ({mine} for {prompt} tokens of prompt)",
                f"the server has {most}",
            )


def _longest(request: Request) -> tuple[int, str]:
    """Tokens that follow the prompt at most, and what they are."""
    if request.generation is not None:
        return request.generation.max_tokens, "max_tokens"
    sizes = [len(canvas.prompt_ids) + len(canvas.ids) for canvas in request.canvases]
    most = max(sizes)
    if len(sizes) == 1:
        return most, "its canvas"
    return most, f"canvas {sizes.index(most)} with its question"
