"""The random draws of `dg::denoise_head` as ONNX functions: Philox4x32-10 in 64-bit integers.

Words are int64 within [0, 2^32). Only `BitwiseXor` is an op that TensorRT lacks.
"""

from onnxscript import opset23 as op
from onnxscript import script

from plugins.onnx_domain import FLOAT, dg

_BYTE = 1 << 8
_WORD = 1 << 32
_HALF = 1 << 16
_TOP, _TWICE_TOP = 1 << 24, 1 << 25
_UNIT = 2.0**-25


@script(dg, default_opset=op)
def philox_product(word, factor):
    """High and low word of a product, by halves, so that 63 bits are enough."""
    half = op.Constant(value_int=_HALF)
    upper = word / half
    low = (word - upper * half) * factor
    carry = low / half
    middle = upper * factor + carry
    high = middle / half
    return high, (middle - high * half) * half + (low - carry * half)


@script(dg, default_opset=op)
def xor_by_table(a, b, table):
    """`BitwiseXor` of words for runtimes without it: `table` [65536] holds that of two bytes."""
    byte = op.Constant(value_int=_BYTE)
    a_one, b_one = a / byte, b / byte
    a_two, b_two = a_one / byte, b_one / byte
    a_three, b_three = a_two / byte, b_two / byte
    zero = op.Gather(table, (a - a_one * byte) * byte + (b - b_one * byte))
    one = op.Gather(table, (a_one - a_two * byte) * byte + (b_one - b_two * byte))
    two = op.Gather(table, (a_two - a_three * byte) * byte + (b_two - b_three * byte))
    three = op.Gather(table, a_three * byte + b_three)
    return ((three * byte + two) * byte + one) * byte + zero


@script(dg, default_opset=op)
def philox_round(a, b, c, d, key_a, key_b):
    """One round over four counter words and the two key words, and the next round's key."""
    even_high, even_low = dg.philox_product(a, op.Constant(value_int=0xD2511F53))
    odd_high, odd_low = dg.philox_product(c, op.Constant(value_int=0xCD9E8D57))
    first = op.BitwiseXor(op.BitwiseXor(odd_high, b), key_a)
    third = op.BitwiseXor(op.BitwiseXor(even_high, d), key_b)
    word = op.Constant(value_int=_WORD)
    next_a = (key_a + op.Constant(value_int=0x9E3779B9)) % word
    next_b = (key_b + op.Constant(value_int=0xBB67AE85)) % word
    return first, odd_low, third, even_low, next_a, next_b


@script(dg, default_opset=op)
def philox(a, b, c, d, key_a, key_b):
    """The four output words of ten rounds."""
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    a, b, c, d, key_a, key_b = dg.philox_round(a, b, c, d, key_a, key_b)
    return a, b, c, d


@script(dg, default_opset=op)
def minus_log_uniform(word):
    """-log(u) in fp32 for u = ((word >> 8) + 0.5) * 2^-24.

    fp32 cannot hold u near 1, where draws are decided; its distance v to 1 it can, and
    -log(1 - v) is v * log(y) / (y - 1) with y = 1 - v as rounded.
    """
    upper24 = word / op.Constant(value_int=256)
    odd = upper24 * 2 + 1
    high = odd > op.Constant(value_int=_TOP)
    unit = op.Constant(value_float=_UNIT)
    one = op.Constant(value_float=1.0)
    far = op.Cast(op.Where(high, _TOP, odd), to=FLOAT) * unit
    distance = op.Cast(op.Where(high, _TWICE_TOP - odd, 1), to=FLOAT) * unit
    near = one - distance
    exact = near == one
    ratio = op.Log(op.Where(exact, 0.5, near)) / (op.Where(exact, 0.5, near) - one)
    return op.Where(high, distance * op.Where(exact, one, ratio), op.Neg(op.Log(far)))


@script(dg, default_opset=op)
def exponential(draws, embedding):
    """An exponential variate [R, V] of every id of every row's draws."""
    vocabulary = op.Slice(op.Shape(embedding), [0], [1], [0])
    blocks = op.Squeeze((vocabulary + 3) / 4, [0])
    block = op.Unsqueeze(op.Range(0, blocks, 1), [0])
    seed, position, step = op.Split(draws, num_outputs=3, axis=1)
    word = op.Constant(value_int=_WORD)
    key_low = seed % word
    key_high = ((seed - key_low) / word) % word
    stream = op.Expand(op.Constant(value_ints=[0]), op.Shape(seed))
    a, b, c, d = dg.philox(block, position, step, stream, key_low, key_high)
    one, two = op.Unsqueeze(a, [2]), op.Unsqueeze(b, [2])
    three, four = op.Unsqueeze(c, [2]), op.Unsqueeze(d, [2])
    words = op.Concat(one, two, three, four, axis=2)
    lined = op.Reshape(words, [0, -1])
    return dg.minus_log_uniform(op.Slice(lined, [0], vocabulary, [1]))
