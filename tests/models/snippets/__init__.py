"""Small methods, one per feature of the TorchScript language.

Each family is a module class whose public methods take `(self, x: Tensor, n: int)`; the tests call every one of them
with several `n` and compare result, printed text and exception with LibTorch's. A name that begins with `helper_` or `_`
is there for the others.
"""
import importlib
from pathlib import Path

import torch
from torch import nn

FAMILIES: dict[str, type[nn.Module]] = {}
FOLDER = "language"
ABOUT = "snippets, one method per feature of the language"
NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
FILES = [f"{name}.pt" for name in NAMES]


def is_snippet(name: str) -> bool:
    return not name.startswith(("_", "helper_")) and name != "forward"


def family(cls: type[nn.Module]) -> type[nn.Module]:
    """Class decorator: exports the snippets of `cls`, a module class without arguments, as methods of its script."""
    for name, member in list(vars(cls).items()):
        if is_snippet(name) and callable(member):
            torch.jit.export(member)
    FAMILIES[cls.__module__.rpartition(".")[2]] = cls
    return cls


def write_snippets(directory: Path) -> None:
    for name in NAMES:
        importlib.import_module(f"{__name__}.{name}")
        torch.manual_seed(0)
        torch.jit.script(FAMILIES[name]()).save(str(directory / f"{name}.pt"))
