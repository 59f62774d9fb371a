"""Writes a scripted model and its CASES file: recorded calls with the answers LibTorch gives.

A CASES file is a TorchScript module without methods. Its attributes, in the order in which they are written:

    method, mode, seed, rtol, atol      how to call, and how closely to compare
    inputs         List[Tuple[...]]     one tuple of positional arguments per case, as they are before the call
    outputs        List[R]              what the method returned
    optimized      bool                 only where true: the answers are those of LibTorch's optimizing executor
    grad_names, grads                   case 0, where an output requires grad: gradients by parameter name
    buffer_names, buffers_after         case 0, where the module has buffers: their values after that one call

Every case starts from a freshly loaded module, a deep copy of its inputs and a newly seeded generator.
"""
import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recipe import Recipe, Sample

BOOL = torch._C.BoolType.get()
FLOAT = torch._C.FloatType.get()
INT = torch._C.IntType.get()
STRING = torch._C.StringType.get()
TENSOR = torch._C.TensorType.get()


def list_of(element: torch._C.Type) -> torch._C.Type:
    return torch._C.ListType(element)


def empty_module(name: str) -> torch.jit.ScriptModule:
    """A scripted module with no members and a type of its own.

    `torch.jit.script(nn.Module())` would not do: all its results share one type, and so each other's attributes.
    """
    return torch.jit._recursive.wrap_cpp_module(torch._C.ScriptModule(name, torch._C.CompilationUnit(), True))


def set_attributes(module: torch.jit.ScriptModule, attributes: dict[str, tuple[torch._C.Type, Any]]) -> None:
    """Adds `name: (type, value)` to the module. Types are explicit, so empty lists and None keep theirs."""
    for name, (type_, value) in attributes.items():
        module._c._register_attribute(name, type_, value)


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of a nest of lists, tuples and dicts, depth first. Script-class objects are not entered."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for element in value for tensor in tensors_in(element)]


def detached(value: Any) -> Any:
    """The same nest with each tensor replaced by a copy that shares nothing and belongs to no gradient graph."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: detached(element) for key, element in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(detached(element) for element in value))
    if isinstance(value, (list, tuple)):
        return type(value)(detached(element) for element in value)
    return value


def call(module: torch.jit.ScriptModule, method: str, arguments: tuple, seed: int, optimized: bool = False) -> Any:
    """One call on a deep copy of the arguments. `forward` goes through the module, so its hooks run."""
    function = module if method == "forward" else getattr(module, method)
    arguments = copy.deepcopy(arguments)
    torch.manual_seed(seed)
    with torch.jit.optimized_execution(optimized):
        return function(*arguments)


def differentiable(value: Any) -> list[Tensor]:
    """The tensors whose gradient a CASES file speaks of: floating (not complex) and requiring grad."""
    return [tensor for tensor in tensors_in(value) if tensor.is_floating_point() and tensor.requires_grad]


def gradients(loss: Tensor, wanted: list[Tensor]) -> list[Tensor]:
    """d loss / d wanted, with zeros where a tensor doesn't take part."""
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [torch.zeros_like(tensor) if grad is None else grad for tensor, grad in zip(wanted, found)]


def parameter_gradients(module: torch.jit.ScriptModule, result: Any) -> dict[str, Tensor]:
    """By name, of the sum of mean(o * o) over the result's differentiable tensors; empty if there are none.

    A parameter that is reachable under several names appears once, under the first.
    """
    parameters = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    outputs = differentiable(result)
    if not parameters or not outputs:
        return {}
    loss = sum((output * output).mean() for output in outputs)
    return dict(zip(parameters, gradients(loss, list(parameters.values()))))


def write_sample(sample: Sample, name: str, directory: Path) -> None:
    """Writes NAME.pt and NAME.cases.pt into the directory."""
    model_path = str(directory / f"{name}.pt")
    torch.jit.script(sample.module.train(sample.mode == "train")).save(model_path)

    outputs, extra = [], {}
    for index, arguments in enumerate(sample.inputs):
        module = torch.jit.load(model_path)
        result = call(module, sample.method, arguments, sample.seed, sample.optimized)
        outputs.append(detached(result))
        if index > 0:
            continue
        buffers = {n: detached(b) for n, b in module.named_buffers()}
        if buffers:
            extra["buffer_names"] = (list_of(STRING), list(buffers))
            extra["buffers_after"] = (list_of(TENSOR), list(buffers.values()))
        grads = parameter_gradients(module, result)
        if sample.largest_grad is not None:
            grads = {n: g for n, g in grads.items() if g.numel() <= sample.largest_grad}
        if grads:
            extra["grad_names"] = (list_of(STRING), list(grads))
            extra["grads"] = (list_of(TENSOR), list(grads.values()))
    if sample.optimized:
        extra["optimized"] = (BOOL, True)

    schema = getattr(module, sample.method).schema
    given = schema.arguments[1:1 + len(sample.inputs[0])]
    cases = empty_module("Cases")
    set_attributes(cases, {
        "method": (STRING, sample.method),
        "mode": (STRING, sample.mode),
        "seed": (INT, sample.seed),
        "rtol": (FLOAT, sample.rtol),
        "atol": (FLOAT, sample.atol),
        "inputs": (list_of(torch._C.TupleType([argument.type for argument in given])), sample.inputs),
        "outputs": (list_of(schema.returns[0].type), outputs),
        **extra,
    })
    torch.jit.save(cases, str(directory / f"{name}.cases.pt"))


def write_model(recipe: Recipe, directory: Path) -> None:
    """Builds a recipe's module, always with the same weights and inputs, and writes its two files."""
    torch.manual_seed(0)
    write_sample(recipe.build(), recipe.name, directory)
