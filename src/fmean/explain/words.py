"""What an aggregation does, in plain English."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .explanation import Explanation

__all__ = ["paragraph", "title"]


def title(name: str) -> str:
    """`root_mean_square` → `root mean square`."""
    return name.replace("_", " ")


def paragraph(e: Explanation) -> str:
    """Sentences on: which standard aggregator it is like, which elements count, the sign, β, the size of the set."""
    if not e.finite:
        return "It cannot be used: some of its numbers are NaN or infinite, as after a training that diverged."
    does = [sentence for sentence in (_influence(e), _sign(e), _centring(e), _doubling(e)) if sentence]
    if e.channels > 1 and does:
        does[0] = f"Feature {e.feature} is typical: {does[0][0].lower()}{does[0][1:]}"
    return " ".join([_likeness(e), *does, _range(e)])


def _likeness(e: Explanation) -> str:
    (first, r), (second, r2) = e.nearest[:2]
    if e.channels > 1:
        counts: dict[str, int] = {}
        for feature in e.features:
            name = feature.nearest if feature.correlation >= 0.9 else "none of the 13"
            counts[name] = counts.get(name, 0) + 1
        listed = ", ".join(
            f"{title(name)} ({count})" for name, count in sorted(counts.items(), key=lambda item: -item[1])
        )
        return f"Each of the {e.channels} features has an aggregation of its own, most like: {listed}."
    if all(one == 0 for _, one in e.nearest):
        return "It gives the same result for all sets like those it has met, and so is like no other aggregation."
    if r >= 0.995:
        return f"This is {title(first)} in all but name (correlation {_r(r)})."
    if r >= 0.95:
        return f"This is close to {title(first)} (correlation {_r(r)})."
    if r >= 0.8:
        return f"This resembles {title(first)} (correlation {_r(r)}) and {title(second)} ({_r(r2)}), but is neither."
    return f"This is none of the 13 standard aggregators: the nearest, {title(first)}, has a correlation of {_r(r)}."


def _influence(e: Explanation) -> str:
    if not e.influence:
        return ""
    equal = e.influence["equal"]
    shares = {who: share for who, share in e.influence.items() if who != "equal"}
    who = max(shares, key=lambda name: shares[name])
    share = shares[who]
    element = f"the element of {who}" if "magnitude" in who else f"the {who} element"
    if share >= 0.8:
        return (
            f"Of each set {element} decides: it carries {share:.0%} of the influence (an equal share is {equal:.0%})."
        )
    if share >= 1.25 * equal:
        return f"All elements count, {element} most: {share:.0%} of the influence, where an equal share is {equal:.0%}."
    return "All elements of a set count about the same."


def _sign(e: Explanation) -> str:
    if e.evenness > 0.99:
        return "The signs of the elements make no difference, only their magnitudes count."
    return ""


def _centring(e: Explanation) -> str:
    beta = e.typical.beta.item()
    if abs(beta) < 0.1:
        return ""
    if 0.9 <= beta <= 1.1:
        return "It looks at the deviations from the set's mean alone: the same number added to all changes nothing."
    if 0 < beta < 0.9:
        return f"Before that, {beta:.0%} of the set's mean is taken off every element, so variation counts more."
    if beta > 1.1:
        return f"Before that, {beta:.2g} times the set's mean is taken off every element."
    return f"Before that, {-beta:.2g} times the set's mean is added to every element, so that it counts more."


def _doubling(e: Explanation) -> str:
    kind, by = e.doubling.kind, e.doubling.by
    if kind == "same":
        return "The size of the set makes no difference: with every element twice the result is the same."
    if kind == "plus":
        how = "more" if by > 0 else "less"
        return f"The size of the set counts: with every element twice the result is {abs(by):.2g} {how}."
    if kind == "times" and 0 < by < 1e3:
        if abs(by - 2) < 0.1:
            return "It grows with the size of the set as a sum does: twice the elements, twice the result."
        how = "grows" if by > 1 else "shrinks"
        return f"It {how} with the size of the set: with every element twice the result is {by:.2f} times as large."
    return "The size of the set counts: with every element twice the result is another one, by no fixed factor."


def _range(e: Explanation) -> str:
    low, _, high = e.range.values
    if e.range.seen:
        few, _, many = (round(n) for n in e.range.sizes)
        size = f"{few}" if few == many else f"{few} to {many}"
        values = f"elements from {_between(low, high)} to {_between(high, low)}" if high > low else f"only {low:.4g}"
        return f"(In training it met {values}, in sets of {size}.)"
    return "(It kept no record of data in training; all this is for elements drawn from N(0, 1), 1 to 10 in a set.)"


def _between(value: float, other: float) -> str:
    """A number, to as many digits as tell it from another; at least three."""
    return next((text for n in range(3, 12) if (text := f"{value:.{n}g}") != f"{other:.{n}g}"), f"{value:g}")


def _r(correlation: float) -> str:
    # Not rounded up to 1: only what is 1 is said to be.
    return f"{int(correlation * 10000) / 10000:.4f}" if correlation > 0.99 else f"{correlation:.3f}"
