// y = f⁻¹( n^(α−1) · Σ f(xᵢ − β·μ) ), the same way as fmean.augmented_f_mean takes it in float64: sums are scaled
// by the largest term of a set, so that none overflows. Each f has
//   bound(x)       the number whose maximum m over a set fixes the scale,
//   scaled(x, m)   f(x) divided by that scale,
//   inverse(s, m)  f⁻¹ of s times it,
// or `limit: true`, and then bound(x) is an increasing function of what counts, and inverse(m) the result.

const EPS = 1e-6;
const LARGEST_U = 20;
const LARGEST_LOG = Math.log(Number.MAX_VALUE);

const magnitude = (x) => Math.hypot(x, EPS);
const powOrZero = (a, p) => (a === 0 ? 0 : a ** p);
const finite = (x) => Math.max(-Number.MAX_VALUE, Math.min(x, Number.MAX_VALUE));

function sinhOf(u, back) {
  const scale = (m) => Math.max(m - LARGEST_U, 0);
  return {
    bound: (x) => finite(Math.abs(u(x))),
    scaled(x, m) {
      const v = u(x), t = scale(m);
      return Math.abs(v) < 1 ? Math.sinh(v) * Math.exp(-t) : (Math.exp(v - t) - Math.exp(-v - t)) / 2;
    },
    inverse(s, m) {
      const t = scale(m);
      if (t === 0) return back(Math.asinh(s));
      const root = Math.sqrt(s * s + Math.max(Math.exp(-2 * t), 1e-30));
      return back(Math.sign(s) * (t + Math.log(Math.abs(s) + root)));
    },
  };
}

const sinhLinear = ({ p, c }) => sinhOf((x) => p * x + c, (u) => (u - c) / p);

const sinhLog = ({ p, c }) =>
  sinhOf((x) => p * Math.log(magnitude(x)) + c, (u) => Math.exp(Math.min((u - c) / p, LARGEST_LOG - 1)));

const magnitudePower = ({ p }) => ({
  bound: (x) => finite(magnitude(x)),
  scaled: (x, m) => (magnitude(x) / Math.max(m, EPS)) ** p,
  inverse: (s, m) => Math.max(m, EPS) * powOrZero(s, 1 / p),
});

const identity = () => ({ bound: () => 0, scaled: (x) => x, inverse: (s) => s });

const logAbs = () => ({
  bound: () => 0,
  scaled: (x) => Math.max(Math.log(Math.abs(x)), -1e30), // 0 among the elements makes the result 0
  inverse: (s) => (s > LARGEST_LOG ? Infinity : Math.exp(s)),
});

const power = (p) => () => ({
  bound: (x) => Math.sign(p) * finite(Math.abs(x)),
  scaled(x, m) {
    const ratio = m === 0 ? Number(p < 0) : Math.abs(x) / Math.abs(m);
    return powOrZero(finite(ratio), p);
  },
  inverse: (s, m) => Math.abs(m) * powOrZero(s, 1 / p),
});

const exponential = () => ({
  translates: true,
  bound: finite,
  scaled: (x, m) => Math.exp(x - m),
  inverse: (s, m) => m + Math.log(s),
});

const limit = (sign, ofMagnitudes) => () => ({
  limit: true,
  translates: !ofMagnitudes,
  bound: (x) => sign * (ofMagnitudes ? Math.abs(x) : x),
  inverse: (m) => sign * m,
});

// The f's to choose from: those of fmean.functions.Sinh, then the 13 rows of fmean.STANDARD.
const FREE = {
  "sinh(p·x + c)": { make: sinhLinear, uses: ["alpha", "beta", "p", "c"] },
  "|x|^p": { make: magnitudePower, uses: ["alpha", "beta", "p"] },
  "sinh(p·log|x| + c)": { make: sinhLog, uses: ["alpha", "beta", "p", "c"] },
};

const row = (make, formula, alpha = 0, beta = 0, uses = ["alpha", "beta"]) => ({ make, formula, alpha, beta, uses });

const PRESETS = {
  mean: row(identity, "x"),
  sum: row(identity, "x", 1),
  product: row(logAbs, "log|x|", 1),
  min_magnitude: row(limit(-1, true), "|x|^p, p → −∞", 0, 0, ["beta"]),
  max_magnitude: row(limit(1, true), "|x|^p, p → ∞", 0, 0, ["beta"]),
  min: row(limit(-1, false), "e^(p·x), p → −∞", 0, 0, ["beta"]),
  max: row(limit(1, false), "e^(p·x), p → ∞", 0, 0, ["beta"]),
  harmonic_mean: row(power(-1), "1/|x|"),
  geometric_mean: row(logAbs, "log|x|"),
  root_mean_square: row(power(2), "|x|^2"),
  euclidean_norm: row(power(2), "|x|^2", 1),
  standard_deviation: row(power(2), "|x|^2", 0, 1),
  log_sum_exp: row(exponential, "e^x", 1),
};

function aggregate(xs, f, alpha, beta) {
  const n = xs.length;
  const shift = beta === 0 ? 0 : (beta * xs.reduce((a, b) => a + b, 0)) / n;
  const z = shift === 0 || f.translates ? xs : xs.map((x) => x - shift);
  const m = z.reduce((most, x) => Math.max(most, f.bound(x)), -Infinity);
  const s = f.limit ? m : n ** (alpha - 1) * z.reduce((sum, x) => sum + f.scaled(x, m), 0);
  return f.inverse(s, m) - (f.translates ? shift : 0);
}
