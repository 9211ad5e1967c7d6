"""One random aggregation, fixed by one integer."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fmean import GenAgg
from fmean.functions import (
    Exp,
    Identity,
    InvertibleNN,
    LogAbs,
    Magnitude,
    Mixture,
    MLPAutoencoder,
    Power,
    Sinh,
    SinhLinear,
    SinhLog,
)

from .values import VALUES

__all__ = ["Case", "draw"]

LAYERS = [(1, 2, 2, 4), (1, 2, 2), (1, 4), (1, 3, 1), (1, 8, 8), (1, 2, 2, 2, 3), (1, 1), (1, 16, 4)]
FEATURES = [1, 1, 2, 3, 4, 5, 8, 16, 17, 32, 64, 70]


@dataclass
class Case:
    seed: int
    words: dict[str, object]
    """What was drawn, to be printed."""
    agg: GenAgg
    x: Tensor
    index: Tensor
    """The set of each element, int64, however the sets are handed over."""
    size: int
    dim: int = -2
    sets: dict[str, object] = field(default_factory=dict)
    """index, ptr and dim_size as they are handed over."""
    weight: Tensor | None = None
    source: Tensor | None = None
    edge_weight: Tensor | None = None
    gradients: str = "all"
    """Whose gradients are taken: of `all`, `x`, the `parameters`, or `none`."""
    autocast: bool = False

    @property
    def train(self) -> bool:
        return self.agg.training

    def __str__(self) -> str:
        return " ".join(f"{name}={str(value).replace(' ', '')}" for name, value in self.words.items())


def draw(seed: int) -> Case:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    words: dict[str, object] = {}

    def choose(name, options, weights=None):
        words[name] = rng.choices(options, weights)[0]
        return words[name]

    dtype = choose("type", ["float32", "float64", "float16", "bfloat16"], [60, 20, 10, 10])
    dtype = getattr(torch, str(dtype))
    call = choose("call", ["genagg", "weight", "neighbours"], [60, 20, 20])
    if call == "neighbours" and not hasattr(GenAgg, "neighbours"):
        call = words["call"] = "genagg"
    train = choose("train", [False, True], [95, 5]) and call != "neighbours"

    sizes, features = _profile(rng, words)
    elements, size = sum(sizes), len(sizes)
    rank = 2 if call == "neighbours" else choose("rank", [2, 3, 1], [70, 20, 10])
    dim, rest = -2, (features,)
    if rank == 1:
        dim, rest, features = rng.choice([0, -1]), (), 1
    elif rank == 2 and call != "neighbours" and rng.random() < 0.15:
        dim, features = rng.choice([1, -1]), 1
    elif rank == 3:
        dim, extra = rng.choice([-2, 0, 1, 2]), rng.randint(1, 3)
        features = 1 if dim == 2 else features
        rest = (extra, features) if dim != 2 else (extra, rng.randint(1, 5))
    words |= {"elements": elements, "sets": size, "rest": rest, "dim": dim, "train": train}

    index = torch.arange(size).repeat_interleave(torch.tensor(sizes, dtype=torch.long))
    how = choose("sets_by", ["sorted", "unsorted", "ptr", "none", "both"], [35, 35, 15, 10, 5])
    if call == "neighbours" and how not in ("sorted", "unsorted"):
        how = words["sets_by"] = "unsorted"
    if how == "unsorted":
        index = index[torch.randperm(elements)]
    if how == "none":
        index, size = torch.zeros(elements, dtype=torch.long), 1
    kind = choose("index_type", [torch.int64, torch.int32], [80, 20])
    sets: dict[str, object] = {}
    if how in ("sorted", "unsorted", "both"):
        sets["index"] = index.to(kind)
        if choose("index_strided", [False, True], [90, 10]):
            sets["index"] = torch.stack([sets["index"]] * 2, 1)[:, 1]
    if how in ("ptr", "both"):
        sets["ptr"] = torch.tensor([0, *sizes]).cumsum(0).to(kind)
    if how != "none" and (call == "neighbours" or rng.random() < 0.8):
        sets["dim_size"] = size
    elif how in ("sorted", "unsorted"):
        size = int(index.max()) + 1 if elements else 0

    channels = features if features > 1 and choose("per_feature", [False, True], [70, 30]) else 1
    f = _function(rng, words, channels, train)
    agg = _genagg(rng, words, f, channels)
    lone = torch.Size(rest).numel() // channels * min(elements, size) <= 1  # of which BatchNorm has no variance
    if train and not (lone and getattr(f, "batch_norm", False)):
        agg.train()
    else:
        words["train"] = agg.eval().training
    if dtype == torch.float64:
        agg.to(rng.choices([torch.float64, torch.float32], [80, 20])[0])
    elif dtype == torch.float16 or dtype == torch.bfloat16:
        agg.to(rng.choices([torch.float32, dtype], [85, 15])[0])
    words["parameters"] = str(agg.alpha.dtype).removeprefix("torch.")

    nodes = elements if call != "neighbours" else max(1, rng.choice([elements, elements // 3, size]))
    values = choose("values", list(VALUES), [40] + [5] * (len(VALUES) - 1)) if not agg.training else "normal"
    words["values"] = values
    x = VALUES[values](rng, nodes, rest, index)
    if choose("non_finite", [False, True], [92, 8]) and x.numel() and not agg.training:
        for _ in range(rng.randint(1, 3)):
            x.view(-1)[rng.randrange(x.numel())] = rng.choice([math.nan, math.inf, -math.inf])
    else:
        words["non_finite"] = False
    largest = torch.finfo(dtype).max / 1000
    x = x.double() * (1 + 1.23e-9)  # digits that only float64 holds
    x = torch.where(x.isfinite(), x.clamp(-largest, largest), x).to(dtype).movedim(0, dim)
    x = _laid_out(choose("layout", ["contiguous", "transposed", "strided"], [70, 20, 10]), x)

    case = Case(seed, words, agg, x, index, size, dim, sets)
    if call == "weight":
        case.weight = _weight(rng, words, x, dim, dtype)
    if call == "neighbours":
        case.source = torch.randint(0, nodes, (elements,)).to(kind)
        if choose("edge_weight", [False, True]):
            case.edge_weight = (torch.randn(elements) if rng.random() < 0.5 else torch.rand(elements)).to(dtype)
            if elements and rng.random() < 0.3:
                case.edge_weight[rng.randrange(elements)] = 0
    case.gradients = choose("gradients", ["all", "x", "parameters", "none"], [80, 8, 6, 6])
    case.autocast = choose("autocast", [False, True], [95, 5])
    words["f"] = str(agg)
    return case


def _profile(rng, words) -> tuple[list[int], int]:
    """How many elements each set has, and how many features."""
    features = rng.choice(FEATURES)
    profile = rng.choices(["mixed", "none", "one", "single", "equal", "power", "hub"], [40, 4, 8, 8, 10, 27, 3])[0]
    words["profile"] = profile
    many = rng.choices([6, 25, 80], [50, 35, 15])[0]
    size = rng.randint(1, many)
    if profile == "mixed":
        sizes = [rng.choice([0, 0, 1, 1, 2, 3, 4, 7]) for _ in range(size)]
    elif profile == "none":
        sizes = [0] * rng.randint(0, 4)
    elif profile == "one":
        sizes = [rng.randint(1, 300)]
    elif profile == "single":
        sizes = [1] * size
    elif profile == "equal":
        sizes = [rng.randint(1, 8)] * min(size, 40)
    elif profile == "power":
        sizes = [min(int(rng.paretovariate(1.0)) - rng.randint(0, 1), 120) for _ in range(size)]
    else:
        sizes, features = [rng.randint(0, 3) for _ in range(min(size, 6))], rng.randint(1, 4)
        sizes.insert(rng.randint(0, len(sizes)), rng.randint(1000, 4000))
    while sum(sizes) > 300 and profile != "hub":
        sizes.pop()
    return sizes, features


def _function(rng, words, channels: int, train: bool) -> nn.Module:
    def mixture():
        parts = [Identity, LogAbs, lambda: Power(2), lambda: Power(-1), Exp, lambda: Exp(-0.5)]
        learned = [SinhLinear, SinhLog, Magnitude, lambda channels: InvertibleNN(2, channels=channels)]
        drawn = [rng.choice(parts)() if rng.random() < 0.5 else rng.choice(learned)(channels=channels) for _ in "123"]
        return Mixture(drawn[: rng.randint(1, 3)], channels)

    options = {
        "sinh": (20, lambda: Sinh(channels)),
        "sinh_linear": (8, lambda: SinhLinear(channels, rng.choice([0.0, 1.0, -1.0]))),
        "mlp": (20, lambda: MLPAutoencoder(rng.choice(LAYERS), rng.random() < 0.4, channels=channels)),
        "invertible": (10, lambda: InvertibleNN(rng.randint(1, 4), rng.random() < 0.5, channels)),
        "mixture": (12, mixture),
        "identity": (5, Identity),
        "log_abs": (5, LogAbs),
        "power": (14, lambda: Power(rng.choice([2, -1, 3, 0.5, math.inf, -math.inf]))),
        "exp": (9, lambda: Exp(rng.choice([1, -0.5, math.inf, -math.inf]))),
    }
    name = "mlp" if train else rng.choices(list(options), [weight for weight, _ in options.values()])[0]
    f = options[name][1]()
    spread = rng.choice([0.0, 0.2, 0.5])
    with torch.no_grad():
        for parameter in f.parameters():
            parameter += spread * torch.randn_like(parameter)
        for name, buffer in f.named_buffers():
            if name.endswith("running_mean"):
                buffer += torch.randn_like(buffer)
            elif name.endswith("running_var"):
                buffer *= torch.rand_like(buffer) * 2 + 0.05
        if isinstance(f, Sinh | SinhLinear) and rng.random() < 0.15:  # near a limit: max, min, sum, product
            part = rng.choice(list(f.parts)) if isinstance(f, Sinh) else f
            part.rho.fill_(rng.choice([-4.0, 2.0, 3.0]))
            if hasattr(part, "c"):
                part.c.fill_(rng.choice([-5.0, 0.0, 5.0]))
    return f.requires_grad_(rng.random() < 0.95)


def _genagg(rng, words, f, channels: int) -> GenAgg:
    def number(*shape):
        plain = rng.choice([0.0, 0.0, 1.0, 0.5])
        return torch.full(shape, plain) if rng.random() < 0.4 else torch.rand(shape) * 2 - 0.5

    k, lead = f.k, [channels] if channels > 1 else []
    alpha = rng.choice([number(), number(k) if k > 1 else number(), number(*lead, k) if k > 1 else number(*lead)])
    beta = rng.choice([torch.zeros(()), torch.zeros(()), number(), number(*lead)])
    learn_beta = rng.random() < 0.6
    words["beta"] = ("learnable" if learn_beta else "fixed") + str(list(beta.shape))
    return GenAgg(f, alpha, beta, learn_alpha=rng.random() < 0.9, learn_beta=learn_beta, channels=channels)


def _weight(rng, words, x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    shape = rng.choice([[x.size(dim)], list(x.shape), [s if i == dim % x.dim() else 1 for i, s in enumerate(x.shape)]])
    kind = words["weights"] = rng.choice(["random", "zeros", "whole", "wide"])
    weight = {
        "random": lambda: torch.rand(shape) + 0.01,
        "zeros": lambda: torch.rand(shape) * (torch.rand(shape) < 0.6),
        "whole": lambda: torch.randint(0, 4, shape).float(),
        "wide": lambda: 10 ** (torch.rand(shape) * 6 - 3),
    }[kind]()
    return weight.to(dtype)


def _laid_out(layout: str, x: Tensor) -> Tensor:
    if layout == "contiguous":
        return x.contiguous()
    if layout == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    return torch.stack([x, x], -1)[..., 0]
