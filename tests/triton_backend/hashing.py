"""What the fake runner computes, not a model: hashes that any wrong token or place shows in."""

import numpy as np

VOCAB = 97
_MASK = (1 << 61) - 1


def mix(*values: int) -> int:
    state = 1469598103
    for value in values:
        state = (state * 1000003 + int(value) + 7) & _MASK
    return state


def prefix_hashes(prompt_ids) -> list[int]:
    hashes, state = [], 0
    for position, token in enumerate(prompt_ids):
        state = mix(state, token, position)
        hashes.append(state)
    return hashes


def row_outputs(state: int, labels) -> tuple[list[float], float, float, int]:
    """Label logits, log-sum-exp, entropy and argmax that belong to a hash."""
    logits = [(mix(state, label) % 4001) / 1000 - 2 if label >= 0 else -np.inf for label in labels]
    return logits, 6 + (state % 1000) / 1000, (state % 777) / 100, state % VOCAB


def canvas_state(prompt, canvas_ids, slot: int) -> int:
    """The hash of a canvas row that sees a prefix (its hashes, position for position)."""
    return mix(*prompt, *canvas_ids, slot)
