"""The numbers that a kernel for a CPU computes with, float32 or float64: their powers and logarithms, as C++ source."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DOUBLE", "FLOAT", "Numbers"]


class Numbers(NamedTuple):
    width: int
    """How many of them a vector holds, at most."""
    types: str
    """What comes before the prelude."""
    functions: str
    """What comes after it."""


# Polynomials by pairs of coefficients, in the square: a chain half as long. They have the least relative error.

FLOAT = Numbers(
    16,
    r"""
typedef float R;
#define BYTES 4
#define MAGNITUDE 0x7fffffff
#define REAL(name) AVX(name##_ps)
#define LANES AVX(movepi32_mask)
static inline float sqrt_(float a) { return __builtin_sqrtf(a); }
static inline float abs_(float a) { return __builtin_fabsf(a); }
static inline float exp2_(float a) { return __builtin_exp2f(a); }
static inline float log2_(float a) { return __builtin_log2f(a); }
""",
    r"""
// 2^x = 2^k * 2^r with |r| <= 1/2, and 2^0 = 1.
INLINE V exp2_(V x) {
#ifdef AVX
  V k = AVX(roundscale_ps)(x, _MM_FROUND_TO_NEAREST_INT);
#else  // 0 below the least normal number, infinity from 2^127.5 on
  x = x > 128.0f ? splat(128.0f) : x;
  x = x < -127.0f ? splat(-127.0f) : x;
  V k = (x + 12582912.0f) - 12582912.0f;
#endif
  V r = x - k;
  V q = r * r;
  V e = (r * 1.53533622e-4f + 1.33988744e-3f) * q + (r * 9.61843736e-3f + 5.55033247e-2f);
  e = e * q + (r * 2.40226479e-1f + 6.93147203e-1f);
  e = e * r + 1.0f;
#ifdef AVX
  return AVX(scalef_ps)(e, k);  // of k = +-infinity, where r is NaN, infinity and 0
#else
  return e * (V)((__builtin_convertvector(k, M) + 127) << 23);
#endif
}

// log2 x = k + log2 m with m in [3/4, 3/2); log2 m = t + t*P(t) with t = m - 1: near x = 1 no digits are lost.
// Of normal positive numbers, infinity and NaN: no formula asks for another.
INLINE V log2_(V x) {
#ifdef AVX
  V m = AVX(getmant_ps)(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src), k = AVX(getexp_ps)(x) - AVX(getexp_ps)(m);
#else
  M i = ((M)x - 0x3f400000) >> 23;
  V m = (V)((M)x - (i << 23)), k = __builtin_convertvector(i, V);
#endif
  V t = m - 1.0f;
  V q = t * t;
  V l = q * 7.80667492e-2f + (2.16324873e-1f - t * 1.74230248e-1f);
  l = l * q + (2.88191504e-1f - t * 2.42723517e-1f);
  l = l * q + (4.80902081e-1f - t * 3.60575922e-1f);
  l = l * q + (4.42695030e-1f - t * 7.21348478e-1f);
  l = l * t + (t + k);
#ifdef AVX
  return l;  // k is infinity and NaN of these
#else
  return x <= 3.4028235e38f ? l : x;
#endif
}

INLINE V bounded(V gradient) { return gradient; }

// A sum in float64, as two halves: the compiler would keep VD, which is longer than a register, in memory.
typedef double VH __attribute__((vector_size(4 * W)));
struct Wide { VH a, b; };
INLINE void add(Wide& s, V v) {
  const VD d = __builtin_convertvector(v, VD);
  Wide h;
  __builtin_memcpy(&h, &d, sizeof d);
  s.a += h.a; s.b += h.b;
}
INLINE V mean(Wide s, double n) {
  const double share = 1 / n;  // one division, not one for each feature
  s.a *= share; s.b *= share;
  VD d;
  __builtin_memcpy(&d, &s, sizeof d);
  return __builtin_convertvector(d, V);
}
""",
)

# To 14 digits: what comes out is float32, and the errors of 100,000 equal terms add up to 9 digits still.
DOUBLE = Numbers(
    8,
    r"""
typedef double R;
#define BYTES 8
#define MAGNITUDE 0x7fffffffffffffffL
#define REAL(name) AVX(name##_pd)
#define LANES AVX(movepi64_mask)
static inline double sqrt_(double a) { return __builtin_sqrt(a); }
static inline double abs_(double a) { return __builtin_fabs(a); }
static inline double exp2_(double a) { return __builtin_exp2(a); }
static inline double log2_(double a) { return __builtin_log2(a); }
""",
    r"""
// As an integer it begins with 0x4338 and ends with k, if k is added to it as a number.
#define INTEGER 6755399441055744.0

// 2^x = 2^k * 2^r with |r| <= 1/2, and 2^0 = 1.
INLINE V exp2_(V x) {
#ifdef AVX
  V k = AVX(roundscale_pd)(x, _MM_FROUND_TO_NEAREST_INT);
#else  // 0 below the least normal number, infinity from 2^1023.5 on
  x = x > 1024.0 ? splat(1024.0) : x;
  x = x < -1023.0 ? splat(-1023.0) : x;
  V shifted = x + INTEGER, k = shifted - INTEGER;
#endif
  V r = x - k;
  V q = r * r;
  V e = (r * 1.01483435511132336e-7 + 1.3258335571241997e-6) * q + (r * 1.52529899873597e-5 + 1.54034408838282054e-4);
  e = e * q + (r * 1.33335576255546386e-3 + 9.61812918116442294e-3);
  e = e * q + (r * 5.5504108668414832e-2 + 2.40226506957228207e-1);
  e = e * q + (r * 6.93147180559885192e-1 + 1.0);
#ifdef AVX
  return AVX(scalef_pd)(e, k);  // of k = +-infinity, where r is NaN, infinity and 0
#else
  return e * (V)(((M)shifted + 1023) << 52);
#endif
}

// log2 x = k + log2 m with m in [3/4, 3/2); log2 m = s*Q(s^2) with s = (m - 1)/(m + 1). Of 0 it is -infinity.
INLINE V log2_(V x) {
#ifdef AVX
  V m = AVX(getmant_pd)(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src), k = AVX(getexp_pd)(x) - AVX(getexp_pd)(m);
#else
  M i = ((M)x - 0x3fe8000000000000L) >> 52;
  V m = (V)((M)x - (i << 52)), k = (V)(i + 0x4338000000000000L) - INTEGER;
#endif
  V s = (m - 1.0) / (m + 1.0);
  V z = s * s, q = z * z;
  V l = q * 2.51055985104270248e-1 + (z * 2.60666229854223931e-1 + 3.20644258291072324e-1);
  l = l * q + (z * 4.12197943049141052e-1 + 5.77078020645836612e-1);
  l = l * q + (z * 9.61796693915206278e-1 + 2.88539008177793122);
  l = l * s + k;
#ifdef AVX
  return l;  // k is infinity and NaN of these
#else
  return x <= 1.7976931348623157e308 ? x > 0.0 ? l : splat(-__builtin_inf()) : x;
#endif
}

// What is computed on the way to x and y is kept in float64 as well.
INLINE V load(const double* p, I k) {
#ifdef AVX
  return AVX(maskz_loadu_pd)((1 << k) - 1, p);
#else
  V v = {};
  if (k == W) __builtin_memcpy(&v, p, sizeof v); else for (I i = 0; i < k; i++) v[i] = p[i];
  return v;
#endif
}
INLINE void store(double* p, V v, I k) {
#ifdef AVX
  if (k == W) AVX(storeu_pd)(p, v); else AVX(mask_storeu_pd)(p, (1 << k) - 1, v);
#else
  if (k == W) __builtin_memcpy(p, &v, sizeof v); else for (I i = 0; i < k; i++) p[i] = v[i];
#endif
}

// The largest float32 in place of more: a product may be within the range where its gradient is not.
INLINE V bounded(V gradient) {
  return max_(min_(gradient, splat(3.4028234663852886e38)), splat(-3.4028234663852886e38));
}

struct Wide { V a; };
INLINE void add(Wide& s, V v) { s.a += v; }
INLINE V mean(Wide s, double n) {  // as exact as x is, and no more: the mean of equal numbers is that number
  const V m = s.a / n;
  return __builtin_convertvector(__builtin_convertvector(m, VF), V);
}
""",
)
