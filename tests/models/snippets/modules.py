"""Modules: submodules, their containers, interfaces, state, hooks, constants."""
from typing import Dict, Final, List, Optional, Tuple

import torch
from torch import Tensor, nn

from . import family


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Shift(nn.Module):
    by: Final[int]

    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.by

    @torch.jit.export
    def shifted(self, x: Tensor, times: int) -> Tensor:
        for _ in range(times):
            x = self.forward(x)
        return x

    @property
    def half(self) -> float:
        return self.by / 2


class Counting(nn.Module):
    last: Optional[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.history = [0]
        self.table = {"first": torch.ones(2)}
        self.last = None
        self.pair = (1, 0.5)
        self.name = "counting"

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        self.history.append(self.steps)
        self.last = x
        return x + self.steps


class Hooked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 3


def before(self, input: Tuple[Tensor]) -> Tuple[Tensor]:
    print("before", input[0].shape)
    return (input[0] + 1,)


def after(self, input: Tuple[Tensor], output: Tensor) -> Tensor:
    print("after")
    return output - 100


@torch.jit.script
def function(x: Tensor, scale: float = 2.0) -> Tensor:
    return x * scale


@torch.jit.script
def overloaded(x: Optional[Tensor]) -> int:
    return -1 if x is None else x.numel()


def python_helper(x: Tensor, n: int) -> Tensor:
    if n > 0:
        return function(x, float(n))
    return x


@family
class Modules(nn.Module):
    __constants__ = ["width"]

    def __init__(self) -> None:
        super().__init__()
        self.width = 4
        self.linear = nn.Linear(3, 4)
        self.shift = Shift(5)
        self.twin = self.shift
        self.counting = Counting()
        self.layers = nn.ModuleList([Double(), Shift(1), Double()])
        self.named = nn.ModuleDict({"twice": Double(), "shift": Shift(2)})
        self.sequence = nn.Sequential(Double(), nn.Tanh(), Shift(1))
        self.hooked = Hooked()
        self.hooked.register_forward_pre_hook(before)
        self.hooked.register_forward_hook(after)
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 2.0))])
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("total", torch.zeros(2, 3))
        self.register_buffer("unsaved", torch.ones(1))
        self.nothing = None
        self.flag = True
        self.words = ["a", "b"]

    def forward(self, x: Tensor) -> Tensor:
        return x

    def submodule(self, x: Tensor, n: int):
        return self.linear(x), self.shift(x), self.shift.calls

    def submodule_method(self, x: Tensor, n: int):
        return self.shift.shifted(x, n), self.shift.half

    def shared_submodule(self, x: Tensor, n: int):
        self.shift(x)
        self.twin(x)
        return self.shift.calls, self.twin.calls

    def module_list(self, x: Tensor, n: int):
        for layer in self.layers:
            x = layer(x)
        return x, len(self.layers)

    def module_list_enumerated(self, x: Tensor, n: int):
        for i, layer in enumerate(self.layers):
            if i == n:
                x = layer(x)
        for layer in self.layers[1:]:
            x = layer(x)
        return self.layers[0](x)

    def module_list_by_interface(self, x: Tensor, n: int):
        layer: Layer = self.layers[n % 3]
        return layer.forward(x)

    def module_dict(self, x: Tensor, n: int):
        names: List[str] = []
        for name, layer in self.named.items():
            x = layer(x)
            names.append(name)
        return self.named["twice"](x), names, len(self.named), "shift" in self.named

    def module_dict_by_interface(self, x: Tensor, n: int):
        key = "twice" if n > 0 else "shift"
        layer: Layer = self.named[key]
        return layer.forward(x)

    def module_dict_parts(self, x: Tensor, n: int):
        for name in self.named.keys():
            print(name)
        for layer in self.named.values():
            x = layer(x)
        return x

    def sequential(self, x: Tensor, n: int):
        for layer in self.sequence:
            x = layer(x)
        return self.sequence(x), self.sequence[1](x)

    def hooks(self, x: Tensor, n: int):
        return self.hooked(x)

    def hooks_left_out(self, x: Tensor, n: int):
        return self.hooked.forward(x)

    def parameters_listed(self, x: Tensor, n: int):
        for weight in self.weights:
            x = x * weight
        return x * self.scale

    def buffer_written_in_place(self, x: Tensor, n: int):
        self.total += x
        self.total[0] = n
        return self.total.clone(), self.total

    def buffer_replaced(self, x: Tensor, n: int):
        self.total = x * n
        return self.total

    def attribute_number(self, x: Tensor, n: int):
        self.counting(x)
        self.counting.steps += n
        return self.counting.steps

    def attribute_list(self, x: Tensor, n: int):
        self.counting(x)
        history = self.counting.history
        history.append(100 + n)
        return self.counting.history, len(history)

    def attribute_dict(self, x: Tensor, n: int):
        table = self.counting.table
        table[str(n)] = x
        table["first"] += 1
        return self.counting.table

    def attribute_optional(self, x: Tensor, n: int):
        before = self.counting.last
        if n > 0:
            self.counting(x)
        else:
            self.counting.last = None
        return before is None, self.counting.last

    def attribute_tuple(self, x: Tensor, n: int):
        count, factor = self.counting.pair
        self.counting.pair = (count + n, factor * 2)
        return self.counting.pair, self.counting.name

    def attribute_flag(self, x: Tensor, n: int):
        self.flag = not self.flag
        return self.flag, self.training

    def constants(self, x: Tensor, n: int):
        return self.width * n, self.shift.by, self.words

    def module_that_is_none(self, x: Tensor, n: int):
        if self.nothing is None:
            return x
        return x + 1

    def function_call(self, x: Tensor, n: int):
        return function(x), function(x, 3.0), function(scale=float(n), x=x), python_helper(x, n)

    def function_of_optional(self, x: Tensor, n: int):
        return overloaded(None), overloaded(x)

    def method_with_defaults(self, x: Tensor, n: int):
        return self.helper_defaults(x), self.helper_defaults(x, b=n), self.helper_defaults(x, 1, 2, flag=True)

    def helper_defaults(self, x: Tensor, a: int = 10, b: int = 20, flag: bool = False) -> Tuple[int, bool]:
        return a + b, flag

    def overloaded_names(self, x: Tensor, n: int):
        return x.add(1), x.add(x, alpha=n), torch.add(x, 2), x.mean(), x.mean(1), x.mean([0, 1], keepdim=True)

    def has_attribute(self, x: Tensor, n: int):
        return hasattr(self, "linear"), hasattr(self, "missing")

    def unused_method(self, x: Tensor, n: int):
        if n > 0:
            return self.helper_unused(x)
        return x

    @torch.jit.unused
    def helper_unused(self, x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() + 1)

    def functional(self, x: Tensor, n: int):
        y = nn.functional.pad(x, [1, 1], value=float(n))
        y = nn.functional.dropout(y, 0.5, training=False)
        return nn.functional.gelu(y), nn.functional.softmax(y, dim=-1), nn.functional.one_hot(torch.tensor([0, 2]), 3)
