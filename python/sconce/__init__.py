"""Runs and trains TorchScript models faster than PyTorch's own executor, with the same answers.

    import sconce, torch

    model = sconce.accelerate(torch.jit.load("model.pt").eval())
    with torch.no_grad():
        y = model(x)                # from now on, every call runs on sconce
    print(sconce.explain(model))    # what was compiled, what was not, and why

The model stays a `torch.jit.ScriptModule`: saving, `state_dict`, `train` and `eval`, hooks, autocast, copies and gradients
work as before.
"""
from ._accelerate import accelerate, is_accelerated, load, restore, wait_for_compiles, warm_up
from ._bench import BenchResult, bench
from ._check import CheckResult, check
from ._explain import Explanation, explain, status
from ._library import __version__, library_path

__all__ = [
    "BenchResult", "CheckResult", "Explanation", "__version__", "accelerate", "bench", "check", "explain", "is_accelerated",
    "library_path", "load", "restore", "status", "wait_for_compiles", "warm_up",
]
