"""Acceleration in place: calls of a scripted module or function run on sconce, whoever makes them."""
import contextlib
import copy
import functools
import json
import warnings
from collections.abc import Iterator
from typing import Any, TypeVar

import torch

from ._library import ops

Scripted = TypeVar("Scripted", bound="torch.jit.ScriptModule | torch.jit.ScriptFunction")


@functools.cache
def any_module() -> torch.jit.ScriptModule:
    """Leads to the code that Python has scripted, which it keeps until the process ends: operators cannot be given functions."""
    module = scripted(torch.nn.Identity())
    ops.note_immortal_code(module._c)
    return module


@contextlib.contextmanager
def no_advice() -> Iterator[None]:
    """Silences PyTorch's advice to use something other than torch.jit."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        yield


def scripted(model: Any) -> Any:
    with no_advice():
        return torch.jit.script(model)


def is_function(model: Any) -> bool:
    return isinstance(model, torch.jit.ScriptFunction)


def expect_scripted(model: Any, action: str) -> None:
    if not isinstance(model, torch.jit.ScriptModule) and not is_function(model):
        remedy = ("torch.jit.script(model) makes one, and sconce.accelerate(model) does that itself"
                  if isinstance(model, torch.nn.Module) else "torch.jit.script makes one")
        raise TypeError(f"sconce.{action} expects a scripted module or function, not {type(model).__name__}; {remedy}")


def call(operator: str, model: Any, *arguments: Any) -> Any:
    """Calls an operator on a scripted module or function."""
    expect_scripted(model, operator)
    if is_function(model):
        return getattr(ops, operator + "_function")(any_module()._c, model.qualified_name, *arguments)
    # LibTorch leaks a reference to a ScriptModule that an operator takes, and none to the object in it.
    return getattr(ops, operator)(model._c, *arguments)


def accelerate(model: Any, **options: Any) -> Any:
    """Makes all later calls of the model run on sconce. Returns the model.

    model: a scripted or traced module or function. Another torch.nn.Module is scripted first, and the scripted one returned;
      what the frontend does not accept raises its error.
    options: fields of sconce's options, such as `exact=True` (the bits of eager execution), `compile="blocking"`,
      `pack_weights=False`, `record_calls=False`, `intra_op_threads=1`. RuntimeError for an unknown one, or a wrong value.

    A method is compiled when it is first called. LibTorch still runs those that sconce cannot, and `sconce.explain` says why.
    Methods belong to classes: copies of the model are accelerated with it, and run on their own parameters. No other thread
    may call the model meanwhile.
    """
    if isinstance(model, torch.nn.Module) and not isinstance(model, torch.jit.ScriptModule):
        model = scripted(model)
    any_module()
    call("accelerate", model, json.dumps(options) if options else "")
    return model


def accelerate_all(**options: Any) -> None:
    """Accelerates each module in its first call from now on, whoever makes it: for libraries that run a copy of a model that
    they were given. `stop_accelerating_all` ends it."""
    ops.accelerate_all(json.dumps(options) if options else "")


def stop_accelerating_all() -> bool:
    """Accelerates no further modules. Returns whether there was something to end."""
    return ops.stop_accelerating_all()


def restore(model: Scripted) -> Scripted:
    """Makes LibTorch run the model again, and all models of its class; for an optimizer, undoes `capture`. Returns it."""
    if isinstance(model, torch.optim.Optimizer):
        from ._training import release
        release(model)
    else:
        call("restore", model)
    return model


def is_accelerated(model: Any) -> bool:
    """Whether calls of the model run on sconce."""
    return call("is_accelerated", model)


def load(path: Any, map_location: Any = None, **options: Any) -> torch.jit.ScriptModule:
    """Loads what `torch.jit.save` wrote, and accelerates it. path: a path or a file object, as for torch.jit.load."""
    with no_advice():
        model = torch.jit.load(path, map_location)
    return accelerate(model, **options)


def wait_for_compiles(model: Any) -> None:
    """Waits until nothing of the model is being compiled in the background."""
    call("wait_for_compiles", model)


def warm_up(model: torch.jit.ScriptModule, *args: Any, **kwargs: Any) -> None:
    """Compiles what calls with such arguments need, so that later calls find it: for gradients if they are on.

    The calls run on a copy of the model and the arguments; the state of the random generators is kept.
    """
    expect_scripted(model, "warm_up")
    with torch.random.fork_rng(devices=[]):
        scratch = model
        if not is_function(model):
            with torch.no_grad():
                scratch = copy.deepcopy(model)
            for own, other in zip(scratch.parameters(), model.parameters()):
                own.requires_grad_(other.requires_grad)
        for _ in range(2):
            for _ in range(3):
                scratch(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            wait_for_compiles(model)
