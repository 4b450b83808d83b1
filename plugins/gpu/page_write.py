"""The kernel that writes new keys and values to their slots of the pool; knows no mask."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["pages"])
def page_write_kernel(k, v, slots, before, pages, pool, plan: tl.constexpr):  # noqa: ARG001
    """Copies row `program_id(0)` of k and v [N, Hkv, D] into `pool` [pages, 2, page, Hkv, D].

    `slots` [N] int64 holds page * page_size + offset, or less than 0 for a row kept nowhere; nor
    is one past the last page kept.
    `before` is `pool` again and never read: TensorRT passes an aliased tensor twice.
    """
    ELEMENTS: tl.constexpr = plan.elements
    BLOCK: tl.constexpr = plan.block
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    if (slot < 0) | (slot // plan.page >= pages):
        return
    # [page, 2, offset]: keys of a page lie a whole page before its values.
    key = (slot // plan.page * 2 * plan.page + slot % plan.page) * ELEMENTS
    value = key + plan.page * ELEMENTS
    for start in range(0, ELEMENTS, BLOCK):
        element = start + tl.arange(0, BLOCK)
        inside = element < ELEMENTS
        tl.store(pool + key + element, tl.load(k + row * ELEMENTS + element, inside), inside)
        tl.store(pool + value + element, tl.load(v + row * ELEMENTS + element, inside), inside)
