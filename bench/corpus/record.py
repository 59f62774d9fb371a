"""The list of the corpus. A record names a model and builds it.

Weights and arguments are random with fixed seeds; nothing is downloaded. A family is a file of this folder. A family's
packages are imported when one of its models is built, so that the list needs PyTorch alone.
"""
import hashlib
import importlib
import importlib.util
import inspect
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch


@dataclass
class Example:
    """A scripted or traced module in evaluation mode, and the arguments of one call."""

    module: torch.jit.ScriptModule
    inputs: tuple


@dataclass(frozen=True)
class Model:
    name: str
    family: str
    trains: bool  # some output takes gradients to parameters, and the module runs in training mode
    source: str  # a digest of its file
    builder: Callable[[int], Example]

    def build(self, batch: int) -> Example:
        """Builds the model and arguments with this many examples where the model has a batch."""
        torch.manual_seed(0)
        random.seed(0)
        return self.builder(batch)


# The packages that a family needs beside PyTorch, by the name of its file.
FAMILIES: dict[str, tuple[str, ...]] = {
    "recurrent": (),
    "layers": (),
    "decoding": (),
    "programs": (),
    "solvers": (),
    "torchvision_models": ("torchvision",),
    "timm_models": ("timm",),
    "audio_models": ("torchaudio",),
    "transformers_models": ("transformers",),
}
MODELS: dict[str, Model] = {}


def add(name: str, builder: Callable[[int], Example], trains: bool = True) -> None:
    if name in MODELS:
        raise ValueError(f"two models are called {name}")
    source = Path(inspect.getsourcefile(inspect.unwrap(builder)))
    MODELS[name] = Model(name, source.stem, trains, hashlib.sha256(source.read_bytes()).hexdigest()[:16], builder)


def model(trains: bool = True) -> Callable:
    """Registers a builder under its own name."""
    def register(builder: Callable[[int], Example]) -> Callable:
        add(builder.__name__, builder, trains)
        return builder
    return register


def scripted(module: torch.nn.Module, *inputs) -> Example:
    return Example(torch.jit.script(module.eval()), inputs)


def traced(module: torch.nn.Module, *inputs) -> Example:
    return Example(torch.jit.trace(module.eval(), inputs, check_trace=False), inputs)


def load_families() -> None:
    for family in FAMILIES:
        importlib.import_module(f"corpus.{family}")


def missing_packages(models: list[Model]) -> dict[str, list[str]]:
    """The packages that are not installed, by family."""
    missing = {}
    for family in dict.fromkeys(each.family for each in models):
        absent = [package for package in FAMILIES[family] if importlib.util.find_spec(package) is None]
        if absent:
            missing[family] = absent
    return missing
