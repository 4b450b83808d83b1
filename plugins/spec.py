"""The numbers that the ops and their callers agree on; imports no torch."""

from enum import IntEnum

PANEL = 32
"""Weight columns stored side by side in a packed matrix."""

NO_SLOT = -1
"""A row whose keys and values are not written anywhere."""

NO_PAGE = -1
"""A page that a table row does not hold; never read."""

NO_LABEL = -1
"""Padding in a row of label ids."""


class Phase(IntEnum):
    """What a row is for; its mask, its scalar and its embedding all follow from it."""

    PREFILL = 0
    DENOISE = 1
    COMMIT = 2


FIRST_ROW, ROW_COUNT, PHASE, COMMITTED, TABLE_ROW = range(5)
"""Columns of a segment's row."""

SEGMENT_FIELDS = 5


class Stream(IntEnum):
    """The last counter word of a random number: what it is for, so that no two uses share one."""

    CANDIDATE = 0
    RENOISE = 1
    CANVAS = 2


SEED, POSITION, STEP = range(3)
"""Columns of a row's draws: the request's seed, the token's position, the denoising step."""

DRAW_FIELDS = 3
