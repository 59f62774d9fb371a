"""A copy of a model that LibTorch runs, to compare with."""
import copy
import io
from typing import Any

import torch

from ._accelerate import expect_scripted, no_advice, scripted


def _reloaded(model: Any) -> torch.jit.ScriptModule:
    """Saves and loads a scripted module or function. The result has functions of its own."""
    buffer = io.BytesIO()
    with no_advice():
        torch.jit.save(model, buffer)
        buffer.seek(0)
        return torch.jit.load(buffer)


def twin_of(model: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Returns a copy that LibTorch runs, whatever runs the model."""
    twin = _reloaded(model)
    if hasattr(model, "training"):
        twin.train(model.training)
    return twin


def scripted_module(model: Any, action: str) -> torch.jit.ScriptModule:
    """Returns a module itself, or scripted; a scripted function as a module."""
    if isinstance(model, torch.jit.ScriptModule):
        return model
    if isinstance(model, torch.nn.Module):
        return scripted(model)
    expect_scripted(model, action)
    return _reloaded(model)


def copies_of(arguments: Any) -> Any:
    """Deep copies, whose tensors are leaves that require gradients where the originals do."""
    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(copied, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(copied, value))
        if isinstance(value, dict):
            return {key: copied(each) for key, each in value.items()}
        return copy.deepcopy(value)
    return copied(arguments)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a result, depth first."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_in(each)]
    return []


def scalar_of(result: Any) -> torch.Tensor | None:
    """The mean of the squares of what a gradient can flow from; None if there is nothing."""
    parts = [tensor for tensor in tensors_in(result) if tensor.requires_grad and tensor.is_floating_point()]
    return sum((tensor.square().mean() for tensor in parts), torch.zeros(())) if parts else None
