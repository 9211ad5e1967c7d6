"""What the kernels for a CPU are written with: vectors of W features, by the compilers' own vector types."""

from __future__ import annotations

__all__ = ["HELD", "PRELUDE", "SHARED"]

PRELUDE = r"""
// What AVX-512 has instructions for: the exponent of a number, the nearest integer, the first k numbers of a vector.
// Elsewhere the same is done by hand.
#if defined(__AVX512VL__) && defined(__AVX512DQ__)
#include <immintrin.h>
#if W == 16
#define AVX(name) _mm512_##name
#elif W == 8
#define AVX(name) _mm256_##name
#else
#define AVX(name) _mm_##name
#endif
#endif
typedef long long I;
typedef float V __attribute__((vector_size(4 * W)));
typedef int M __attribute__((vector_size(4 * W)));
typedef I MI __attribute__((vector_size(4 * W)));
typedef double VD __attribute__((vector_size(8 * W)));
typedef double D4 __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))

INLINE V splat(float a) { return V{} + a; }
INLINE V splat(V a) { return a; }
INLINE V sel(M m, V a, V b) { return m ? a : b; }
INLINE float sel(bool m, float a, float b) { return m ? a : b; }
INLINE V sel(bool m, V a, V b) { return m ? a : b; }
// A NaN as the first argument comes out.
#ifdef AVX
INLINE V min_(V a, V b) { return AVX(min_ps)(b, a); }
INLINE V max_(V a, V b) { return AVX(max_ps)(b, a); }
#else
INLINE V min_(V a, V b) { return b < a ? b : a; }
INLINE V max_(V a, V b) { return b > a ? b : a; }
#endif
INLINE float min_(float a, float b) { return b < a ? b : a; }
INLINE float max_(float a, float b) { return b > a ? b : a; }
INLINE V abs_(V a) { return (V)((M)a & 0x7fffffff); }
INLINE float abs_(float a) { return __builtin_fabsf(a); }
INLINE float exp2_(float a) { return __builtin_exp2f(a); }
INLINE float log2_(float a) { return __builtin_log2f(a); }
INLINE float sqrt_(float a) { return __builtin_sqrtf(a); }
INLINE V sqrt_(V a) { for (int i = 0; i < W; i++) a[i] = __builtin_sqrtf(a[i]); return a; }

// Polynomials by pairs of coefficients, in the square: a chain half as long. They have the least relative error.

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

// Of the first k numbers: the others are loaded as 0, and not stored.
INLINE M first(I k) { M i = {}; for (int j = 0; j < W; j++) i[j] = j; return i < (int)k; }
#ifdef AVX
INLINE V load(const float* p, I k) { return AVX(maskz_loadu_ps)((1 << k) - 1, p); }
INLINE void store(float* p, V v, I k) {
  // Whole vectors without a mask: a load can have them before they are in the cache.
  if (k == W) AVX(storeu_ps)(p, v); else AVX(mask_storeu_ps)(p, (1 << k) - 1, v);
}
INLINE bool any(M a, I k) { return AVX(movepi32_mask)((MI)a) & ((1 << k) - 1); }
#else
INLINE V load(const float* p, I k) {
  V v = {};
  if (k == W) __builtin_memcpy(&v, p, sizeof v); else for (I i = 0; i < k; i++) v[i] = p[i];
  return v;
}
INLINE void store(float* p, V v, I k) {
  if (k == W) __builtin_memcpy(p, &v, sizeof v); else for (I i = 0; i < k; i++) p[i] = v[i];
}
INLINE bool any(M a, I k) { bool is = false; for (I i = 0; i < k; i++) is |= a[i] != 0; return is; }
#endif
INLINE float sum(V a) {
  const VD d = __builtin_convertvector(a, VD);
  D4 s[W / 4];
  __builtin_memcpy(s, &d, sizeof d);
  for (int i = 1; i < W / 4; i++) s[0] += s[i];
  return (s[0][0] + s[0][1]) + (s[0][2] + s[0][3]);
}
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
// log n, which small sets ask for as often as for anything else.
static struct Logs {
  float of[64];
  Logs() { for (int n = 0; n < 64; n++) of[n] = __builtin_logf((float)n); }
} logs;
INLINE V log_of(I n) { return splat(n < 64 ? logs.of[n] : __builtin_logf((float)n)); }
#define PLACE(e) (GATHER ? col[e] : (e))
#define FACTOR(e) (WEIGHTED ? factor[edge ? edge[e] : (e)] : 1.0f)
#define BLOCK 256  // so many elements are summed on their own: the error grows with the blocks, not with the elements
"""

# F: a parameter, B: a condition on parameters, A: a sum of gradients. All features share one, or each holds its own.
SHARED = """
typedef float F;
typedef bool B;
typedef double A;
INLINE F F_(float a) { return a; }
INLINE F parameter(const float* p, I i, I D, I d, I k) { return p[i]; }
INLINE void put(float* p, I i, F value, I D, I d, I k) { p[i] = value; }
INLINE A total_of(V a) { return sum(a); }
INLINE F narrow(A a) { return a; }
"""
HELD = """
typedef V F;
typedef M B;
typedef VD A;
INLINE F F_(V a) { return a; }
INLINE F F_(float a) { return splat(a); }
INLINE F parameter(const float* p, I i, I D, I d, I k) { return load(p + i * D + d, k); }
INLINE void put(float* p, I i, F value, I D, I d, I k) { store(p + i * D + d, value, k); }
INLINE A total_of(V a) { return __builtin_convertvector(a, VD); }
INLINE F narrow(A a) { return __builtin_convertvector(a, V); }
"""
