"""All recipes, by their names."""

from __future__ import annotations

from functools import cache

from .learnable import InvertibleRecipe, MixtureRecipe, MLPRecipe, SinhLinearRecipe, SinhRecipe
from .recipe import Recipe
from .symbolic import ExpRecipe, IdentityRecipe, LimitRecipe, LogAbsRecipe, PowerRecipe

__all__ = ["MIXTURE", "RECIPES", "recipe"]

MIXTURE = "mixture of "

RECIPES: dict[str, type[Recipe]] = {
    "sinh": SinhRecipe,
    "sinh_linear": SinhLinearRecipe,
    "mlp": MLPRecipe,
    "invertible": InvertibleRecipe,
    "identity": IdentityRecipe,
    "log_abs": LogAbsRecipe,
    "power": PowerRecipe,
    "exp": ExpRecipe,
    "limit": LimitRecipe,
}


@cache
def recipe(name: str) -> Recipe:
    """A recipe by its name and numbers.

    >>> recipe("mlp 1 2 2 4 1").parameters  # layers 1 → 2 → 2 → 4 and back, and one α
    42
    """
    if name.startswith(MIXTURE):
        return MixtureRecipe([recipe(part) for part in name.removeprefix(MIXTURE).split(" + ")])
    kind, *numbers = name.split()
    return RECIPES[kind](*map(float, numbers))
