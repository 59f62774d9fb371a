"""The list of models. A recipe is a function that builds one module and the inputs to call it with.

The function's name is the model's name, and the first line of its docstring is what `--list` prints.
"""
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

from torch import nn


@dataclass
class Sample:
    """A module that can be scripted, and the calls that its CASES file records.

    All tuples in `inputs` have the same length; arguments with a default may be left out at the end.
    """

    module: nn.Module
    inputs: list[tuple]
    method: str = "forward"
    mode: str = "eval"
    seed: int = 0
    rtol: float = 1e-3
    atol: float = 1e-5
    # Parameters with more elements than this are left out of grad_names; None keeps all.
    largest_grad: Optional[int] = None
    # The reference is LibTorch with optimization off. True takes its default executor instead, for programs
    # whose meaning only that one applies (autocast blocks).
    optimized: bool = False


@dataclass(frozen=True)
class Recipe:
    name: str
    about: str
    source: Path
    build: Callable[[], Sample]
    # Where its files go, below those of the other models. Named after the library of tests/plugins that has operators
    # which the model needs and LibTorch lacks.
    folder: str = ""


RECIPES: dict[str, Recipe] = {}


def recipe(build: Optional[Callable[[], Sample]] = None, *, folder: str = "") -> Callable:
    """Registers `build`. It is called with LibTorch's generator seeded, so what it draws is always the same."""
    if build is None:
        return lambda build: recipe(build, folder=folder)
    name = build.__name__
    if name in RECIPES:
        raise ValueError(f"two recipes are called {name}")
    RECIPES[name] = Recipe(name, inspect.getdoc(build).splitlines()[0], Path(inspect.getsourcefile(build)), build, folder)
    return build
