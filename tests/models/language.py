"""What the TorchScript language can say: control flow, values of all types, state, classes, calls between modules."""
from typing import Dict, Final, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from recipe import Sample, recipe


class ControlFlow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Linear(8, 8)
        self.large = nn.Linear(8, 8)

    def hailstones(self, n: int) -> List[int]:
        visited = [n]
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            visited.append(n)
            if len(visited) == 12:
                break
        return visited

    def layer(self, x: Tensor, kind: str) -> Tensor:
        if kind == "small":
            return self.small(x)
        if kind.startswith("large"):
            y = self.large(x)
            if kind.endswith("relu"):
                return torch.relu(y)
            return y
        return x

    def shrink(self, x: Tensor) -> Tuple[Tensor, int]:
        halvings = 0
        while bool(x.detach().abs().max() > 1.0):
            x = x * 0.5
            halvings += 1
        return x, halvings

    def add_until(self, items: List[Tensor], limit: float) -> Tuple[Tensor, int]:
        total = torch.zeros(())
        used = 0
        for item in items:
            if item.numel() == 0:
                continue
            total = total + item.sum()
            used += 1
            if float(total) > limit:
                break
        return total, used

    def count(self, text: str) -> Dict[str, int]:
        counts: Dict[str, int] = {}
        for word in text.split(" "):
            if word in counts:
                counts[word] += 1
            else:
                counts[word] = 1
        return counts

    def forward(self, x: Tensor, steps: int, kind: str, items: List[Tensor], extra: Optional[Tensor],
                table: Dict[str, Tensor]) -> Tuple[Tensor, Tensor, List[int], Dict[str, int], Dict[str, Tensor], str]:
        if bool(torch.isnan(x).any()):
            raise ValueError("x has a NaN")
        for i in range(steps):
            x = self.layer(x, kind)
            if i % 2 == 1:
                x = x + float(i)
        if extra is not None:
            x = x * extra
        x, halvings = self.shrink(x)
        total, used = self.add_until(items, 5.0)
        for name, value in table.items():
            total = total + value.mean() * len(name)
        table["total"] = total
        numbers = self.hailstones(steps + 5)
        numbers.extend([halvings, used])
        numbers.sort()
        squares = [n * n for n in numbers]
        report = "{} steps, {}: {}".format(steps, kind.upper(), len(squares))
        return x, total, numbers + squares, self.count("a b a " + kind), table, report

    @torch.jit.export
    def raises(self, x: Tensor, limit: float) -> Tensor:
        y = self.small(x)
        if float(x.max()) > limit:
            raise ValueError(f"found a value above {limit}")
        return y

    @torch.jit.export
    def asserts(self, n: int) -> int:
        assert n >= 0, "n must not be negative"
        return n * 2

    @torch.jit.export
    def picks(self, items: List[int], index: int) -> int:
        return items[index]

    @torch.jit.export
    def divides(self, a: int, b: int) -> int:
        return a // b

    @torch.jit.export
    def looks_up(self, table: Dict[str, int], key: str) -> int:
        return table[key]

    @torch.jit.export
    def multiplies(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.mm(x, y)

    @torch.jit.export
    def raises_after_writing(self, x: Tensor) -> Tensor:
        x.add_(1.0)
        if x.size(0) > 1:
            raise RuntimeError("x was already written")
        return x


@recipe
def control_flow() -> Sample:
    """branches, loops, break, early return, lists, dicts, strings, optionals; further methods that raise"""
    def some(*sizes: int) -> List[Tensor]:
        return [torch.rand(size) for size in sizes]
    return Sample(ControlFlow(), [
        (torch.randn(3, 8), 2, "small", some(2, 3), None, {"a": torch.ones(2)}),
        (torch.randn(1, 8), 3, "large relu", some(4, 0, 30, 5), torch.randn(8), {}),
        (torch.randn(3, 8) * 9, 1, "large", [], torch.tensor(2.0), {"long name": torch.randn(3), "b": torch.zeros(1)}),
        (torch.randn(2, 8), 0, "neither", some(0), None, {"total": torch.ones(1)}),
        (torch.randn(4, 8), 9, "small", some(20, 20), None, {}),
    ])


class AttributesState(nn.Module):
    """Every kind of attribute that forward may change, and a branch that only a later call takes."""

    sizes: List[int]
    previous: Optional[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))
        self.register_buffer("total", torch.zeros(6))
        self.register_buffer("newest", torch.zeros(1))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("variance", torch.ones(6))
        self.calls: int = 0
        self.scale: float = 1.0
        self.history: List[Tensor] = [torch.zeros(6)]
        self.sizes = []
        self.by_size: Dict[int, Tensor] = {0: torch.zeros(6)}
        self.previous = None

    def forward(self, x: Tensor) -> Tuple[Tensor, int, List[int], Tensor]:
        self.calls += 1
        y = x * self.weight + self.total
        with torch.no_grad():
            self.total.add_(x.sum(0))
            self.total[0] = float(self.calls)
        self.newest = x.detach().mean(0)
        normed = nn.functional.batch_norm(x, self.mean, self.variance, training=True, momentum=0.3)
        previous = self.previous
        if previous is not None:
            y = y + previous
        self.previous = x.detach().amax(0)
        self.history.append(self.newest)
        self.sizes.append(x.size(0))
        self.by_size[x.size(0)] = self.newest * 2
        if self.calls % 3 == 0:
            self.scale *= 0.5
            self.history.clear()
        remembered = self.by_size[x.size(0)] + self.by_size[0]
        for entry in self.history:
            remembered = remembered + entry
        return (y + normed) * self.scale, self.calls, self.sizes, remembered


@recipe
def attributes_state() -> Sample:
    """forward changes buffers in place, rebinds them, and changes ints, floats, lists, dicts, optionals"""
    return Sample(AttributesState(), [(torch.randn(4, 6),), (torch.randn(2, 6),), (torch.randn(9, 6),)])


class NoneAndOptional(nn.Module):
    bias: Optional[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("shift", None)
        self.bias = None

    def forward(self, x: Optional[Tensor], y: Tensor, repeat: Optional[int], names: Optional[List[str]]
                ) -> Tuple[Optional[Tensor], Tensor, Optional[int], List[Optional[Tensor]]]:
        y = y * self.weight
        shift = self.shift
        if shift is not None:
            y = y + shift
        bias = self.bias
        if bias is not None:
            y = y + bias
        kept: List[Optional[Tensor]] = [x, None, y]
        if x is None:
            return None, y, repeat, kept
        product: Optional[Tensor] = x * y
        if repeat is None:
            product = None
        else:
            for _ in range(repeat):
                if product is not None:
                    product = product + 1.0
        length: Optional[int] = None
        if names is not None and len(names) > 0:
            length = len(names[0])
        return product, torch.clamp(y, None, 1.0), length, kept


@recipe
def none_and_optional() -> Sample:
    """optional arguments, None in outputs and in lists, attributes that are None"""
    return Sample(NoneAndOptional(), [
        (torch.randn(3, 4), torch.randn(3, 4), 2, ["abc"]),
        (None, torch.randn(2, 4), 5, None),
        (torch.randn(4), torch.randn(3, 4), None, []),
        (torch.randn(1, 4), torch.randn(3, 4), 0, None),
    ])


class UndefinedTensors(nn.Module):
    """An operator with an output mask leaves the outputs that the mask excludes undefined."""

    def forward(self, grad: Tensor, x: Tensor, weight: Tensor, want_input: bool) -> Tensor:
        by_input, by_weight, _ = torch.ops.aten.convolution_backward(
            grad, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [want_input, not want_input, False])
        if want_input:
            return by_input
        return by_weight * 2


@recipe
def undefined_tensors() -> Sample:
    """convolution_backward with an output mask: undefined tensors between nodes"""
    def arguments(batch: int, want_input: bool) -> tuple:
        return torch.randn(batch, 4, 5, 5), torch.randn(batch, 3, 5, 5), torch.randn(4, 3, 3, 3), want_input
    return Sample(UndefinedTensors(), [arguments(2, True), arguments(1, False), arguments(1, True)])


class Summary(NamedTuple):
    mean: Tensor
    count: int


class SeveralMethods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(10, 4)
        self.decoder = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return torch.tanh(self.encoder(x))

    @torch.jit.export
    def decode(self, code: Tensor) -> Tensor:
        return self.decoder(code)

    @torch.jit.export
    def scale(self, x: Tensor, factor: float = 2.0, note: str = "none") -> Tuple[Tensor, str]:
        return self.encode(x) * factor, note

    @torch.jit.export
    def summary(self, x: Tensor) -> Summary:
        return Summary(self.forward(x).mean(0), x.size(0))

    @torch.jit.export
    def width(self) -> int:
        return self.encoder.weight.size(1)


def rows(*sizes: int) -> list[tuple]:
    return [(torch.randn(size, 10),) for size in sizes]


@recipe
def several_methods() -> Sample:
    """a module with exported methods beside forward: forward"""
    return Sample(SeveralMethods(), rows(3, 1, 5))


@recipe
def several_methods_encode() -> Sample:
    """the same module: `encode`"""
    return Sample(SeveralMethods(), rows(2, 4, 2), method="encode")


@recipe
def several_methods_scale() -> Sample:
    """the same module: `scale`, with its two default arguments left out"""
    return Sample(SeveralMethods(), rows(2, 4, 1), method="scale")


@recipe
def several_methods_summary() -> Sample:
    """the same module: `summary`, which returns a NamedTuple"""
    return Sample(SeveralMethods(), rows(2, 4, 1), method="summary")


@recipe
def several_methods_width() -> Sample:
    """the same module: `width`, which takes no argument and returns an int"""
    return Sample(SeveralMethods(), [(), ()], method="width")


class Residual(nn.Module):
    depth: Final[int]

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.inner = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        y = x
        for _ in range(self.depth):
            y = self.inner(y)
        return x + y, y.mean()


class NestedModules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Residual(6, depth) for depth in (1, 2, 3)])
        self.heads = nn.ModuleDict({"left": nn.Linear(6, 2), "right": nn.Sequential(nn.Linear(6, 4), nn.ReLU())})
        self.shared = nn.Linear(6, 6)
        self.shared_again = self.shared
        self.tied = nn.Linear(6, 6, bias=False)
        self.tied.weight = self.shared.weight

    def forward(self, x: Tensor) -> Tuple[Dict[str, Tensor], List[Tensor]]:
        means: List[Tensor] = []
        for block in self.blocks:
            x, mean = block(x)
            means.append(mean)
        x = self.tied(torch.relu(self.shared_again(self.shared(x))))
        results: Dict[str, Tensor] = {}
        for name, head in self.heads.items():
            results[name] = head(x)
        return results, means


@recipe
def nested_modules() -> Sample:
    """ModuleList, ModuleDict, Sequential, a module under two names, a parameter tied to another's"""
    return Sample(NestedModules(), [(torch.randn(3, 6),), (torch.randn(1, 6),), (torch.randn(2, 5, 6),)])


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Rotate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, 1, -1)


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(5))
        self.register_buffer("used", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.used.add_(1)
        return x * self.scale + 1.0


class InterfaceDispatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList([Rotate(), Affine()])

    def forward(self, x: Tensor, order: List[int]) -> Tensor:
        for index in order:
            step: Step = self.steps[index]
            x = step.forward(x)
        return x


@recipe
def interface_dispatch() -> Sample:
    """submodules chosen at run time through an interface"""
    return Sample(InterfaceDispatch(), [(torch.randn(2, 5), [1, 0, 1]), (torch.randn(3, 5), []),
                                        (torch.randn(1, 5), [0]), (torch.randn(2, 5), [1, 1, 1, 1])])


@torch.jit.script
class Tally:
    """Ordered by its count."""

    def __init__(self, name: str, start: Tensor):
        self.name = name
        self.sum = start
        self.count = 0

    def add(self, x: Tensor) -> None:
        self.sum = self.sum + x.sum(0)
        self.count += x.size(0)

    def mean(self) -> Tensor:
        return self.sum / max(self.count, 1)

    def __lt__(self, other: "Tally") -> bool:
        return self.count < other.count


class ScriptClass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, batches: List[Tensor]) -> Tuple[Tensor, List[str], int]:
        tallies = [Tally("all", torch.zeros(4)), Tally("long", torch.zeros(4)), Tally("none", torch.ones(4))]
        for batch in batches:
            tallies[0].add(batch * self.weight)
            if batch.size(0) > 2:
                tallies[1].add(batch)
        names: List[str] = []
        for tally in sorted(tallies):
            names.append(tally.name)
        tallies.sort(reverse=True)
        return tallies[-1].mean() + tallies[0].sum, names, tallies[1].count


@recipe
def script_class() -> Sample:
    """objects of a script class, changed by their methods and sorted by their __lt__"""
    return Sample(ScriptClass(), [([torch.randn(3, 4), torch.randn(1, 4)],), ([],), ([torch.randn(2, 4)] * 3,)])


class ScriptClassOutput(nn.Module):
    def forward(self, x: Tensor, name: str) -> Tuple[Tally, Dict[str, Tally]]:
        one = Tally(name, torch.zeros(4))
        one.add(x)
        two = Tally(name + "'", x[0])
        return one, {"one": one, "two": two}


@recipe
def script_class_output() -> Sample:
    """objects of a script class among the outputs"""
    return Sample(ScriptClassOutput(), [(torch.randn(3, 4), "a"), (torch.randn(1, 4), ""), (torch.randn(2, 4), "a")])


class ForkJoin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])

    def slow(self, x: Tensor, times: int) -> Tuple[Tensor, int]:
        for _ in range(times):
            x = torch.tanh(x + 0.5)
        return x, times

    def forward(self, x: Tensor, times: List[int]) -> Tuple[Tensor, int]:
        futures: List[torch.jit.Future[Tuple[Tensor, int]]] = []
        for count in times:
            futures.append(torch.jit.fork(self.slow, x, count))
        branches = [torch.jit.fork(branch, x) for branch in self.branches]
        y = torch.relu(x)
        total = 0
        for future in futures:
            partial, count = torch.jit.wait(future)
            y = y + partial
            total += count
        for branch in branches:
            y = y + torch.jit.wait(branch)
        return y, total


@recipe
def fork_join() -> Sample:
    """torch.jit.fork and wait: tasks in a list, tasks that are submodules"""
    return Sample(ForkJoin(), [(torch.randn(2, 6), [1, 3]), (torch.randn(1, 6), []), (torch.randn(4, 6), [2, 2, 2, 5])])


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x))


def double_input(self, inputs: Tuple[Tensor]) -> Tuple[Tensor]:
    return (inputs[0] * 2.0,)


def add_input(self, inputs: Tuple[Tensor], output: Tensor) -> Tensor:
    return output + inputs[0]


def clamp_output(self, inputs: Tuple[Tensor], output: Tensor) -> Tensor:
    return output.clamp(-1.0, 1.0)


@recipe
def module_hooks() -> Sample:
    """forward hooks and pre-hooks on a submodule"""
    module = Hooked()
    module.inner.register_forward_pre_hook(double_input)
    module.inner.register_forward_hook(add_input)
    module.outer.register_forward_hook(clamp_output)
    return Sample(module, [(torch.randn(3, 4),), (torch.randn(1, 4),), (torch.randn(5, 4),)])


@recipe
def module_hooks_outer() -> Sample:
    """hooks on the module itself, which run as Module::operator() runs them, not get_method("forward")"""
    module = Hooked()
    module.register_forward_pre_hook(double_input)
    module.register_forward_hook(add_input)
    module.register_forward_hook(clamp_output)
    return Sample(module, [(torch.randn(3, 4),), (torch.randn(1, 4),), (torch.randn(5, 4),)])
