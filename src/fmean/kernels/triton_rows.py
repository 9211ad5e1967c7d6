"""What all Triton kernels share: the rows of a program, an element of each, and their mean."""

import triton
import triton.language as tl

__all__ = ["bounds", "element", "log2", "mean"]


@triton.jit
def bounds(first, rows, starts, ends, size, BR: tl.constexpr, BE: tl.constexpr):
    """BR rows: which they are, where the elements of each begin and end, how many there are, and the most there are.

    With BE > 1 (and BR = 1) the program takes as many elements of its row at a time, from as many beginnings.
    """
    r = first + tl.arange(0, BR)[:, None]
    real = r < size
    row = tl.load(rows + r, mask=real, other=0)
    start = tl.load(starts + r, mask=real, other=0)
    end = tl.load(ends + r, mask=real, other=0)
    count = end - start
    return row, real, start + tl.arange(0, BE)[:, None], end, count, tl.max(count)


@triton.jit
def log2(a):
    return tl.log2(a)


@triton.jit
def element(x, factor, col, edge, i, end, d, D, COL: tl.constexpr, EDGE: tl.constexpr, FACTOR: tl.constexpr):
    """The features d of the elements at the positions i, 0 from the end of their rows on; their places and factors."""
    there = i < end
    place = tl.load(col + i, mask=there, other=0) if COL else i
    v = tl.load(x + place * D + d, mask=there & (d < D), other=0.0).to(tl.float32)
    w = tl.full([1, 1], 1.0, tl.float32)
    if FACTOR:
        e = tl.load(edge + i, mask=there, other=0) if EDGE else i
        w = tl.load(factor + e, mask=there, other=0.0).to(tl.float32)
    return v, place, w


@triton.jit
def mean(
    x, factor, col, edge, start, end, longest, n, d, D,
    COL: tl.constexpr, EDGE: tl.constexpr, FACTOR: tl.constexpr, DOUBLE: tl.constexpr,
    BR: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """μ of each row, its mean."""
    kind: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    total = tl.zeros([BR * BE, BD], kind)
    for k in range(0, longest, 4 * BE):  # four loads on their way at once
        v0, i0, w0 = element(x, factor, col, edge, start + k, end, d, D, COL, EDGE, FACTOR)
        v1, i1, w1 = element(x, factor, col, edge, start + (k + BE), end, d, D, COL, EDGE, FACTOR)
        v2, i2, w2 = element(x, factor, col, edge, start + (k + 2 * BE), end, d, D, COL, EDGE, FACTOR)
        v3, i3, w3 = element(x, factor, col, edge, start + (k + 3 * BE), end, d, D, COL, EDGE, FACTOR)
        if FACTOR:
            v0, v1, v2, v3 = v0 * w0, v1 * w1, v2 * w2, v3 * w3
        total += (v0.to(kind) + v1.to(kind)) + (v2.to(kind) + v3.to(kind))
    if BE > 1:
        total = tl.sum(total, 0, keep_dims=True)
    return (total / n).to(tl.float32)
