"""What the kernels for a CPU are written with: vectors of W features, by the compilers' own vector types.

What depends on whether numbers are float32 or float64 (R) is in `c_numbers.py`, which comes before and after.
"""

from __future__ import annotations

__all__ = ["HELD", "PRELUDE", "SHARED"]

PRELUDE = r"""
// What AVX-512 has instructions for: the exponent of a number, the nearest integer, the first k numbers of a vector.
// Elsewhere the same is done by hand.
#if defined(__AVX512VL__) && defined(__AVX512DQ__)
#include <immintrin.h>
#if BYTES * W == 64
#define AVX(name) _mm512_##name
#elif BYTES * W == 32
#define AVX(name) _mm256_##name
#else
#define AVX(name) _mm_##name
#endif
#if W == 16
#define FLOATS(name) _mm512_##name##_ps
#elif W == 8
#define FLOATS(name) _mm256_##name##_ps
#else
#define FLOATS(name) _mm_##name##_ps
#endif
#endif
typedef long long I;
typedef R V __attribute__((vector_size(BYTES * W)));
typedef decltype(V{} < V{}) M;
typedef I MI __attribute__((vector_size(BYTES * W)));
typedef float VF __attribute__((vector_size(4 * W)));
typedef double VD __attribute__((vector_size(8 * W)));
typedef double D4 __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))

INLINE V splat(R a) { return V{} + a; }
INLINE V splat(V a) { return a; }
INLINE V sel(M m, V a, V b) { return m ? a : b; }
INLINE R sel(bool m, R a, R b) { return m ? a : b; }
INLINE V sel(bool m, V a, V b) { return m ? a : b; }
// A NaN as the first argument comes out.
#ifdef AVX
INLINE V min_(V a, V b) { return REAL(min)(b, a); }
INLINE V max_(V a, V b) { return REAL(max)(b, a); }
INLINE V sqrt_(V a) { return REAL(sqrt)(a); }
#else
INLINE V min_(V a, V b) { return b < a ? b : a; }
INLINE V max_(V a, V b) { return b > a ? b : a; }
INLINE V sqrt_(V a) { for (int i = 0; i < W; i++) a[i] = sqrt_(a[i]); return a; }
#endif
INLINE R min_(R a, R b) { return b < a ? b : a; }
INLINE R max_(R a, R b) { return b > a ? b : a; }
INLINE V abs_(V a) { return (V)((M)a & MAGNITUDE); }
// The larger of the two, NaN if one is.
INLINE V larger(V a, V b) { return b == b ? max_(a, b) : b; }

// Of the first k numbers: the others are loaded as 0, and not stored. In memory all numbers of x and y are float32.
INLINE M first(I k) { M i = {}; for (int j = 0; j < W; j++) i[j] = j; return i < (int)k; }
#ifdef AVX
INLINE V load(const float* p, I k) { return __builtin_convertvector((VF)FLOATS(maskz_loadu)((1 << k) - 1, p), V); }
INLINE void store(float* p, V v, I k) {
  const VF f = __builtin_convertvector(v, VF);
  // Whole vectors without a mask: a load can have them before they are in the cache.
  if (k == W) FLOATS(storeu)(p, f); else FLOATS(mask_storeu)(p, (1 << k) - 1, f);
}
INLINE bool any(M a, I k) { return LANES((MI)a) & ((1 << k) - 1); }
#else
INLINE V load(const float* p, I k) {
  VF v = {};
  if (k == W) __builtin_memcpy(&v, p, sizeof v); else for (I i = 0; i < k; i++) v[i] = p[i];
  return __builtin_convertvector(v, V);
}
INLINE void store(float* p, V v, I k) {
  const VF f = __builtin_convertvector(v, VF);
  if (k == W) __builtin_memcpy(p, &f, sizeof f); else for (I i = 0; i < k; i++) p[i] = f[i];
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
// log n, which small sets ask for as often as for anything else.
static struct Logs {
  R of[64];
  Logs() { for (int n = 0; n < 64; n++) of[n] = __builtin_log((double)n); }
} logs;
INLINE V log_of(I n) { return splat(n < 64 ? logs.of[n] : (R)__builtin_log((double)n)); }
#define PLACE(e) (GATHER ? col[e] : (e))
#define FACTOR(e) (WEIGHTED ? factor[edge ? edge[e] : (e)] : 1.0f)
#define BLOCK 256  // so many elements are summed on their own: the error grows with the blocks, not with the elements
"""

# F: a parameter, B: a condition on parameters, A: a sum of gradients. All features share one, or each holds its own.
SHARED = """
typedef R F;
typedef bool B;
typedef double A;
INLINE F F_(R a) { return a; }
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
INLINE F F_(R a) { return splat(a); }
INLINE F parameter(const float* p, I i, I D, I d, I k) { return load(p + i * D + d, k); }
INLINE void put(float* p, I i, F value, I D, I d, I k) { store(p + i * D + d, value, k); }
INLINE A total_of(V a) { return __builtin_convertvector(a, VD); }
INLINE F narrow(A a) { return __builtin_convertvector(a, V); }
"""
