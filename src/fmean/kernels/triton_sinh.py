"""GenAgg with f = Sinh over the rows of a CSR matrix, on a GPU (Triton).

One warp takes a row (a set) and a block of features, and every thread goes down its own columns: no two threads have
to agree on anything until the gradients of f's parameters are summed. A row is read twice, from the cache the second
time: for the mean μ, and for the sums. These are taken as they are, along with the range of x − β·μ; only where that
shows that a term may have overflowed are they taken again, in scaled form. Backward reads the row once more, for the
gradient of x. Nothing of the size of the messages is written but that.
"""

import triton
import triton.language as tl

__all__ = ["sinh_backward_kernel", "sinh_forward_kernel"]

HUGE = tl.constexpr(3e38)
UNSCALED = tl.constexpr(60.0)  # up to this exponent, 10¹² terms have a finite sum
LARGEST_EXPONENT = tl.constexpr(87.7)  # e^88.7 is the largest float32


@triton.jit
def _root(a, t):
    """√(a² + e^(−2t)), the reciprocal of the derivative of asinh(eᵗ·a)."""
    size = tl.abs(a)
    return tl.where(size > 1e15, size, tl.sqrt(a * a + tl.maximum(tl.exp(-2 * t), 1e-30)))


@triton.jit
def _asinh(a, t):
    """asinh(eᵗ·a); near 0 by its series, since the logarithm there loses the digits."""
    s = a * a
    near = a * (1.0 + s * (-1 / 6 + s * (3 / 40 + s * (-15 / 336 + s * (105 / 3456 + s * (-945 / 42240))))))
    far = tl.where(a < 0, -1.0, 1.0) * (t + tl.log(tl.abs(a) + _root(a, t)))
    return tl.where(((t > 0) & (a != 0)) | (tl.abs(a) > 0.25), far, near)


@triton.jit
def _sinh_cosh(u, t, e):
    """sinh(u)·e^(−t) and cosh(u)·e^(−t), with e = e^(−t); sinh near 0 by its series, since the two terms cancel."""
    up = tl.exp(u - t)
    down = tl.exp(-u - t)
    s = u * u
    near = u * (1.0 + s * (1 / 6 + s * (1 / 120 + s * (1 / 5040 + s * (1 / 362880))))) * e
    return tl.where(tl.abs(u) < 1, near, (up - down) * 0.5), (up + down) * 0.5


@triton.jit
def _scale(m):
    return tl.maximum(tl.minimum(m, HUGE) - 20.0, 0.0)


@triton.jit
def _square(v, eps):
    """v² + ε², kept finite."""
    return tl.minimum(v * v + eps * eps, HUGE)


@triton.jit
def _log(v, eps):
    """log √(v² + ε²); of a v whose square overflows, log|v|."""
    size = tl.abs(v)
    large = size > 1e15
    return tl.where(large, 1.0, 0.5) * tl.log(tl.where(large, size, v * v + eps * eps))


@triton.jit
def _load(x, order, e, d, D, SORTED: tl.constexpr):
    """The features d of element e of the rows, and their place."""
    place = (e if SORTED else tl.load(order + e)) * D + d
    return tl.load(x + place, mask=d < D, other=0.0).to(tl.float32), place


@triton.jit
def _load_if(x, order, e, end, d, D, SORTED: tl.constexpr):
    """The same, or 0 behind the end of the row."""
    features = tl.where(end - e > 0, D, 0)
    i = e if SORTED else tl.load(order + tl.minimum(e, end - 1))
    return tl.load(x + i * D + d, mask=d < features, other=0.0).to(tl.float32)


@triton.jit
def _mean(x, order, start, end, d, D, SORTED: tl.constexpr, CENTRED: tl.constexpr, BD: tl.constexpr):
    mu = tl.zeros([BD], tl.float32)
    if CENTRED:
        for e in range(start, end, 4):  # four loads on their way at once
            v0 = _load_if(x, order, e, end, d, D, SORTED)
            v1 = _load_if(x, order, e + 1, end, d, D, SORTED)
            v2 = _load_if(x, order, e + 2, end, d, D, SORTED)
            v3 = _load_if(x, order, e + 3, end, d, D, SORTED)
            mu += (v0 + v1) + (v2 + v3)
        mu = mu / (end - start)
    return mu


@triton.jit
def _sums(
    x, order, start, end, d, D, shift, p1, c1, q, p3, c3, eps, h1, top, h3, SORTED: tl.constexpr, BD: tl.constexpr
):
    """The three sums at the scales h1, top, h3, and the least and largest v and the least |v|."""
    zero = tl.zeros([BD], tl.float32)
    t1, t2, t3 = zero, zero, zero
    low, high, least = zero + HUGE, zero - HUGE, zero + HUGE
    e1 = tl.exp(-h1)
    e3 = tl.exp(-h3)
    following = _load_if(x, order, start, end, d, D, SORTED)
    for e in range(start, end):
        v = following - shift
        following = _load_if(x, order, e + 1, end, d, D, SORTED)  # on its way while v is worked on
        log = _log(v, eps)
        s1, k1 = _sinh_cosh(p1 * v + c1, h1, e1)
        s3, k3 = _sinh_cosh(p3 * log + c3, h3, e3)
        t1 += s1
        t2 += tl.exp(q * (log - top))
        t3 += s3
        low = tl.minimum(low, v)
        high = tl.maximum(high, v)
        least = tl.minimum(least, tl.abs(v))
    return t1, t2, t3, low, high, least


@triton.jit
def _derivative_sums(
    x, order, start, end, d, D, shift, p1, c1, q, p3, c3, eps, h1, top, h3, SORTED: tl.constexpr, BD: tl.constexpr
):
    """`_sums`, with the sums of the derivatives of f by v (v1 … v3) and by its parameters (x1 … x3, k3)."""
    zero = tl.zeros([BD], tl.float32)
    t1, t2, t3 = zero, zero, zero
    v1, v2, v3 = zero, zero, zero
    x1, x2, x3 = zero, zero, zero
    k3_sum = zero
    low, high, least = zero + HUGE, zero - HUGE, zero + HUGE
    e1 = tl.exp(-h1)
    e3 = tl.exp(-h3)
    following = _load_if(x, order, start, end, d, D, SORTED)
    for e in range(start, end):
        v = following - shift
        following = _load_if(x, order, e + 1, end, d, D, SORTED)
        log = _log(v, eps)
        s1, k1 = _sinh_cosh(p1 * v + c1, h1, e1)
        s3, k3 = _sinh_cosh(p3 * log + c3, h3, e3)
        s2 = tl.exp(q * (log - top))
        slope = v / _square(v, eps)  # d log √(v² + ε²) / dv
        t1 += s1
        t2 += s2
        t3 += s3
        v1 += k1
        v2 += s2 * slope
        v3 += k3 * slope
        x1 += k1 * v
        x2 += s2 * (log - top)
        x3 += k3 * log
        k3_sum += k3
        low = tl.minimum(low, v)
        high = tl.maximum(high, v)
        least = tl.minimum(least, tl.abs(v))
    return t1, t2, t3, v1, v2, v3, x1, x2, x3, k3_sum, low, high, least


@triton.jit
def _scales(low, high, least, d, D, p1, c1, q, p3, c3, eps):
    """The scales of the sums, and whether any of them is needed."""
    most = _log(tl.maximum(tl.abs(low), tl.abs(high)), eps)
    least = _log(least, eps)
    m1 = tl.maximum(tl.abs(p1 * low + c1), tl.abs(p1 * high + c1))
    m3 = tl.maximum(tl.abs(p3 * least + c3), tl.abs(p3 * most + c3))
    m = tl.maximum(tl.maximum(m1, m3), q * tl.maximum(tl.abs(least), tl.abs(most)))
    needed = tl.max(tl.where(d < D, m, 0.0)) > UNSCALED
    return _scale(m1), most, _scale(m3), needed


@triton.jit
def _parameters(rho1, c1, rho2, rho3, c3, omega):
    w1 = tl.load(omega)
    w2 = tl.load(omega + 1)
    w3 = tl.load(omega + 2)
    top = tl.maximum(tl.maximum(w1, w2), w3)
    w1 = tl.exp(w1 - top)
    w2 = tl.exp(w2 - top)
    w3 = tl.exp(w3 - top)
    total = w1 + w2 + w3
    return (tl.exp(tl.load(rho1)), tl.load(c1), tl.exp(tl.load(rho2)), tl.exp(tl.load(rho3)), tl.load(c3),
            w1 / total, w2 / total, w3 / total)  # fmt: skip


@triton.jit
def sinh_forward_kernel(
    x, ptr, order, y, rho1, c1_, rho2, rho3, c3_, omega, alpha, beta, eps, D,
    SORTED: tl.constexpr, CENTRED: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    start = tl.load(ptr + row)
    end = tl.load(ptr + row + 1)
    out = tl.zeros([BD], tl.float32)
    if end > start:
        p1, c1, q, p3, c3, w1, w2, w3 = _parameters(rho1, c1_, rho2, rho3, c3_, omega)
        b = tl.load(beta) if CENTRED else 0.0
        mu = _mean(x, order, start, end, d, D, SORTED, CENTRED, BD)
        shift = b * mu
        h1 = tl.zeros([BD], tl.float32)
        top = tl.zeros([BD], tl.float32)
        h3 = tl.zeros([BD], tl.float32)
        t1, t2, t3, low, high, least = _sums(
            x, order, start, end, d, D, shift, p1, c1, q, p3, c3, eps, h1, top, h3, SORTED, BD)  # fmt: skip
        scale1, scale2, scale3, needed = _scales(low, high, least, d, D, p1, c1, q, p3, c3, eps)
        if needed:
            h1 = scale1
            top = scale2
            h3 = scale3
            t1, t2, t3, low, high, least = _sums(
                x, order, start, end, d, D, shift, p1, c1, q, p3, c3, eps, h1, top, h3, SORTED, BD)  # fmt: skip
        n = (end - start).to(tl.float32)
        log_n = tl.log(n)
        y1 = (_asinh(tl.exp((tl.load(alpha) - 1) * log_n) * t1, h1) - c1) / p1
        y2 = tl.exp(top + ((tl.load(alpha + 1) - 1) * log_n + tl.log(t2)) / q)
        z3 = (_asinh(tl.exp((tl.load(alpha + 2) - 1) * log_n) * t3, h3) - c3) / p3
        out = w1 * y1 + w2 * y2 + w3 * tl.exp(tl.minimum(z3, LARGEST_EXPONENT))
    tl.store(y + row * D + d, out.to(y.dtype.element_ty), mask=d < D)


@triton.jit
def _store(out, v, d, D):
    """Σ over the features there are."""
    tl.store(out, tl.sum(tl.where(d < D, v, 0.0)))


@triton.jit
def sinh_backward_kernel(
    grad, x, ptr, order, dx, partial, rho1, c1_, rho2, rho3, c3_, omega, alpha, beta, eps, D, size,
    ROWS: tl.constexpr, SORTED: tl.constexpr, CENTRED: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * ROWS
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    p1, c1, q, p3, c3, w1, w2, w3 = _parameters(rho1, c1_, rho2, rho3, c3_, omega)
    b = tl.load(beta) if CENTRED else 0.0
    a1 = tl.load(alpha) - 1
    a2 = tl.load(alpha + 1) - 1
    a3 = tl.load(alpha + 2) - 1
    zero = tl.zeros([BD], tl.float32)
    d_p1, d_c1, d_q, d_p3, d_c3 = zero, zero, zero, zero, zero
    d_w1, d_w2, d_w3, d_a1, d_a2, d_a3, d_b = zero, zero, zero, zero, zero, zero, zero
    for row in range(first, tl.minimum(first + ROWS, size)):
        start = tl.load(ptr + row)
        end = tl.load(ptr + row + 1)
        if end > start:
            n = (end - start).to(tl.float32)
            mu = _mean(x, order, start, end, d, D, SORTED, CENTRED, BD)
            shift = b * mu
            h1, top, h3 = zero, zero, zero
            t1, t2, t3, v1, v2, v3, x1, x2, x3, k3_sum, low, high, least = _derivative_sums(
                x, order, start, end, d, D, shift, p1, c1, q, p3, c3, eps, h1, top, h3, SORTED, BD)  # fmt: skip
            scale1, scale2, scale3, needed = _scales(low, high, least, d, D, p1, c1, q, p3, c3, eps)
            if needed:
                h1 = scale1
                top = scale2
                h3 = scale3
                t1, t2, t3, v1, v2, v3, x1, x2, x3, k3_sum, low, high, least = _derivative_sums(
                    x, order, start, end, d, D, shift, p1, c1, q, p3, c3, eps, h1, top, h3, SORTED, BD)  # fmt: skip
            e1 = tl.exp(-h1)
            e3 = tl.exp(-h3)
            log_n = tl.log(n)
            f1 = tl.exp(a1 * log_n)
            f3 = tl.exp(a3 * log_n)
            y1 = (_asinh(f1 * t1, h1) - c1) / p1
            log_s2 = a2 * log_n + tl.log(t2)
            y2 = tl.exp(top + log_s2 / q)
            z3 = (_asinh(f3 * t3, h3) - c3) / p3
            y3 = tl.exp(tl.minimum(z3, LARGEST_EXPONENT))
            y = w1 * y1 + w2 * y2 + w3 * y3
            g = tl.load(grad + row * D + d, mask=d < D, other=0.0).to(tl.float32)
            d_w1 += g * w1 * (y1 - y)
            d_w2 += g * w2 * (y2 - y)
            d_w3 += g * w3 * (y3 - y)
            # y₁ = (asinh(s₁) − c₁)/p₁
            r1 = f1 / _root(f1 * t1, h1)
            g1 = g * w1 / p1
            d_c1 += g1 * (r1 * v1 - 1)
            d_p1 += g1 * (r1 * x1 - y1)
            d_a1 += g1 * r1 * t1 * log_n
            g1 = g1 * r1 * p1
            # y₂ = s₂^(1/q)
            g2 = g * w2 * y2 / q
            d_q += g2 * (x2 / t2 - log_s2 / q)
            d_a2 += g2 * log_n
            g2 = g2 * q / t2
            # y₃ = exp((asinh(s₃) − c₃)/p₃)
            r3 = f3 / _root(f3 * t3, h3)
            g3 = tl.where(z3 < LARGEST_EXPONENT, g * w3 * y3 / p3, 0.0)
            d_c3 += g3 * (r3 * k3_sum - 1)
            d_p3 += g3 * (r3 * x3 - z3)
            d_a3 += g3 * r3 * t3 * log_n
            g3 = g3 * r3 * p3
            total = g1 * v1 + g2 * v2 + g3 * v3
            d_b -= mu * total
            share = b * total / n
            following, next_place = _load(x, order, start, d, D, SORTED)
            for e in range(start, end):
                v = following - shift
                place = next_place
                following, next_place = _load(x, order, tl.minimum(e + 1, end - 1), d, D, SORTED)
                log = _log(v, eps)
                s1, k1 = _sinh_cosh(p1 * v + c1, h1, e1)
                s3, k3 = _sinh_cosh(p3 * log + c3, h3, e3)
                s2 = tl.exp(q * (log - top))
                dv = g1 * k1 + (g2 * s2 + g3 * k3) * (v / _square(v, eps)) - share
                tl.store(dx + place, dv.to(dx.dtype.element_ty), mask=d < D)
    # In the order of the operator's arguments: ρ₁ c₁ ρ₂ ρ₃ c₃ ω α β, with p = e^ρ.
    out = partial + (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64) * 12
    _store(out, d_p1 * p1, d, D)
    _store(out + 1, d_c1, d, D)
    _store(out + 2, d_q * q, d, D)
    _store(out + 3, d_p3 * p3, d, D)
    _store(out + 4, d_c3, d, D)
    _store(out + 5, d_w1, d, D)
    _store(out + 6, d_w2, d, D)
    _store(out + 7, d_w3, d, D)
    _store(out + 8, d_a1, d, D)
    _store(out + 9, d_a2, d, D)
    _store(out + 10, d_a3, d, D)
    _store(out + 11, d_b, d, D)
