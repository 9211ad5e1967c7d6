"""The 13 standard aggregators straight from their definitions, in float64, one set at a time."""

import numpy as np
from scipy import special, stats

REFERENCE = {
    "mean": np.mean,
    "sum": np.sum,
    # In logs: a product may leave the range on its way to a value within it.
    "product": lambda x: 0.0 if (x == 0).any() else np.exp(np.clip(np.log(np.abs(x)).sum(), -700, 700)),
    "min_magnitude": lambda x: np.min(np.abs(x)),
    "max_magnitude": lambda x: np.max(np.abs(x)),
    "min": np.min,
    "max": np.max,
    "harmonic_mean": lambda x: 0.0 if (x == 0).any() else stats.hmean(np.abs(x)),
    "geometric_mean": lambda x: 0.0 if (x == 0).any() else stats.gmean(np.abs(x)),
    "root_mean_square": lambda x: np.sqrt(np.mean(np.square(x))),
    "euclidean_norm": np.linalg.norm,
    "standard_deviation": np.std,
    "log_sum_exp": special.logsumexp,
}

# Terms of both signs cancel in these: there the error is held against the largest term.
CANCELLING = {"mean", "sum", "standard_deviation", "log_sum_exp"}

TOLERANCE = dict.fromkeys(REFERENCE, 1e-05) | {"geometric_mean": 1e-4, "product": 1e-3}


def reference(name, x, index, size):
    """`[N]` and the set of each element → `[size]`; 0 for an empty set."""
    x, index = np.asarray(x, np.float64), np.asarray(index)
    return np.array([REFERENCE[name](x[index == i]) if (index == i).any() else 0.0 for i in range(size)])


def error(name, y, x, index, size):
    """The largest error of `y`, relative as the tolerance is meant, over sets whose value fits float32."""
    true = reference(name, x, index, size)
    scale = np.abs(true)
    if name in CANCELLING:
        x, index = np.abs(np.asarray(x, np.float64)), np.asarray(index)
        scale = np.maximum(scale, [x[index == i].max(initial=0) for i in range(size)])
    fits = (np.abs(true) < 3e38) & ((true == 0) | (np.abs(true) > 1.2e-38))
    miss = np.abs(np.asarray(y, np.float64) - true)
    return np.max(np.where(fits, miss / np.maximum(scale, 1e-300), 0), initial=0) if miss[fits].any() else 0.0
