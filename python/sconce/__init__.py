"""Runs and trains TorchScript models faster than PyTorch's own executor, with the same answers.

    import sconce, torch

    model = sconce.accelerate(torch.jit.load("model.pt").eval())
    with torch.no_grad():
        y = model(x)                # from now on, every call runs on sconce
    print(sconce.explain(model))    # what was compiled, what was not, and why

The model stays a `torch.jit.ScriptModule`: saving, `state_dict`, `train` and `eval`, hooks, autocast, copies and gradients
work as before.
"""
from ._accelerate import (accelerate, accelerate_all, is_accelerated, load, restore, stop_accelerating_all, wait_for_compiles,
                          warm_up)
from ._bench import BenchResult, bench
from ._check import CheckResult, check
from ._explain import Explanation, capabilities, explain, status
from ._library import __version__, library_path
from ._training import CompiledBackward, TrainStep, capture

__all__ = [
    "BenchResult", "CheckResult", "CompiledBackward", "Explanation", "TrainStep", "__version__", "accelerate",
    "accelerate_all", "bench", "capabilities", "capture", "check", "explain", "is_accelerated", "library_path", "load",
    "restore", "status", "stop_accelerating_all", "wait_for_compiles", "warm_up",
]
