"""Script classes, enums, dataclasses, interfaces, with-blocks."""
from enum import Enum
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

from . import family


class Color(Enum):
    RED = 1
    GREEN = 2


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@torch.jit.script
class Counter:
    def __init__(self, start: int):
        self.count = start
        self.names: List[str] = []

    def add(self, name: str, by: int = 1) -> int:
        self.count += by
        self.names.append(name)
        return self.count

    @staticmethod
    def twice(value: int) -> int:
        return value * 2

    @property
    def doubled(self) -> int:
        return self.count * 2

    @doubled.setter
    def doubled(self, value: int):
        self.count = value // 2


@torch.jit.script
class Vector:
    def __init__(self, a: float, b: float):
        self.a = a
        self.b = b

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(self.a + other.a, self.b + other.b)

    def __mul__(self, factor: float) -> "Vector":
        return Vector(self.a * factor, self.b * factor)

    def __sub__(self, other: "Vector") -> "Vector":
        return Vector(self.a - other.a, self.b - other.b)

    def __neg__(self) -> "Vector":
        return Vector(-self.a, -self.b)

    def __eq__(self, other: "Vector") -> bool:
        return self.a == other.a and self.b == other.b

    def __lt__(self, other: "Vector") -> bool:
        return self.a < other.a

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> float:
        return self.a if index == 0 else self.b

    def __setitem__(self, index: int, value: float) -> None:
        if index == 0:
            self.a = value
        else:
            self.b = value

    def __contains__(self, value: float) -> bool:
        return self.a == value or self.b == value

    def __call__(self, factor: float) -> float:
        return (self.a + self.b) * factor


@torch.jit.script
class Node:
    def __init__(self, value: int):
        self.value = value
        self.tensors: List[Tensor] = []
        self.parent = torch.jit.annotate(Optional[Counter], None)


@torch.jit.script
class Guard:
    def __init__(self, log: List[str]):
        self.log = log

    def __enter__(self) -> int:
        self.log.append("enter")
        return 7

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        self.log.append("exit")


@torch.jit.script
class Loud:
    def __init__(self, name: str):
        self.name = name

    def __enter__(self):
        print("enter", self.name)
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        print("exit", self.name)


@torch.jit.script
class Held:
    def __init__(self, x: Tensor):
        self.x = x

    def __enter__(self) -> Tensor:
        return self.x * 2

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        print("exit", self.x.dim())

    def __lt__(self, other: "Held") -> bool:
        return bool(self.x.sum() < other.x.sum())


@torch.jit.script
class Fields:
    """What @dataclass makes, written out: dataclasses themselves cannot be saved."""

    def __init__(self, x: Tensor, scale: float = 2.0):
        self.x = x
        self.scale = scale

    def scaled(self) -> Tensor:
        return self.x * self.scale


@torch.jit.interface
class Shape:
    def area(self, scale: float) -> float:
        pass


@torch.jit.script
class Square:
    def __init__(self, side: float):
        self.side = side

    def area(self, scale: float) -> float:
        return self.side * self.side * scale


@torch.jit.script
class Disc:
    def __init__(self, radius: float):
        self.radius = radius

    def area(self, scale: float) -> float:
        return 3.0 * self.radius * self.radius * scale


@family
class Classes(nn.Module):
    def attributes(self, x: Tensor, n: int):
        counter = Counter(n)
        counter.count += 5
        return counter.count, counter.names

    def methods(self, x: Tensor, n: int):
        counter = Counter(n)
        counter.add("a")
        counter.add("b", by=n)
        return counter.count, counter.names

    def static_method(self, x: Tensor, n: int):
        return Counter.twice(n)

    def properties(self, x: Tensor, n: int):
        counter = Counter(n)
        counter.doubled = 10
        return counter.doubled, counter.count

    def shared_object(self, x: Tensor, n: int):
        a = Counter(0)
        b = a
        b.add("b", n)
        return a.count, a is b

    def operators(self, x: Tensor, n: int):
        v = Vector(1.0, float(n))
        w = (v + v * 2.0) - Vector(0.5, 0.5)
        w = -w
        return w.a, w.b, v == v, v < w, len(v)

    def item_operators(self, x: Tensor, n: int):
        v = Vector(1.0, float(n))
        v[1] = v[0] + v[1]
        return v[0], v[1], 1.0 in v, v(3.0)

    def list_of_objects(self, x: Tensor, n: int):
        items = [Vector(3.0, 0.0), Vector(float(n), 1.0), Vector(2.0, 2.0)]
        items.append(items[0] + items[1])
        return [item.a for item in items]

    def sorted_objects(self, x: Tensor, n: int):
        items = [Vector(3.0, 0.0), Vector(float(n), 1.0), Vector(2.0, 2.0)]
        items.sort()
        ranked = sorted([Vector(1.0, 5.0), Vector(-1.0, float(n))])
        items.sort(reverse=True)
        return [item.a for item in items], [item.b for item in ranked]

    def dict_of_objects(self, x: Tensor, n: int):
        d: Dict[str, Counter] = {"a": Counter(1)}
        d["b"] = Counter(n)
        d["a"].add("x", n)
        return d["a"].count + d["b"].count

    def optional_object(self, x: Tensor, n: int):
        node = Node(n)
        if n > 0:
            node.parent = Counter(n)
        parent = node.parent
        if parent is not None:
            return parent.add("child")
        return -1

    def object_with_tensors(self, x: Tensor, n: int):
        node = Node(n)
        node.tensors.append(x)
        node.tensors[0].add_(1)
        return node.tensors, x

    def object_in_a_tuple(self, x: Tensor, n: int):
        pair = (Counter(n), x)
        pair[0].add("p")
        return pair[0].count, pair[1]

    def object_returned(self, x: Tensor, n: int):
        return Vector(1.0, float(n))

    def objects_in_a_loop(self, x: Tensor, n: int):
        v = Vector(1.0, 1.0)
        for i in range(n):
            v = v + Vector(float(i), 0.0)
        return v[0], v[1]

    def object_passed_on(self, x: Tensor, n: int):
        counter = Counter(0)
        self.helper_count(counter, n)
        self.helper_count(counter, n)
        return counter.count, counter.names

    def helper_count(self, counter: Counter, n: int) -> None:
        counter.add("h", n)

    def fields_with_defaults(self, x: Tensor, n: int):
        return Fields(x).scaled(), Fields(x, scale=float(n)).scaled(), Fields(x).scale

    def enum_values(self, x: Tensor, n: int):
        color = Color.RED if n > 0 else Color.GREEN
        return color.value, color.name, color == Color.RED, color != Color.RED, color is Color.RED

    def enum_returned(self, x: Tensor, n: int):
        return Color.GREEN

    def enum_of_text(self, x: Tensor, n: int):
        size = Size.SMALL
        if n == 3:
            size = Size.LARGE
        return size.value + "!", self.helper_size(size)

    def helper_size(self, size: Size) -> int:
        if size == Size.LARGE:
            return 100
        return 1

    def enum_iteration(self, x: Tensor, n: int):
        names: List[str] = []
        for color in Color:
            names.append(color.name)
        return names

    def enum_in_containers(self, x: Tensor, n: int):
        colors = [Color.RED, Color.GREEN]
        return colors[n % 2].value, colors[0] == Color.RED, len(colors)

    def interface_object(self, x: Tensor, n: int):
        return self.helper_area(Square(2.0), n) + self.helper_area(Disc(1.0), n)

    def helper_area(self, shape: Shape, n: int) -> float:
        return shape.area(float(n))

    def interface_list(self, x: Tensor, n: int):
        shapes = torch.jit.annotate(List[Shape], [])
        shapes.append(Square(2.0))
        shapes.append(Disc(2.0))
        total = 0.0
        for shape in shapes:
            total += shape.area(float(n))
        return total

    def with_block(self, x: Tensor, n: int):
        log: List[str] = []
        with Guard(log) as value:
            log.append(str(value + n))
        return log

    def with_blocks_nested(self, x: Tensor, n: int):
        with Loud("outer"):
            with Loud("inner") as inner:
                print("in", inner.name)
        with Loud("a"), Loud("b"):
            y = x + n
        return y

    def with_block_that_holds_a_tensor(self, x: Tensor, n: int):
        with Held(x) as doubled:
            y = doubled + n
        return y

    def sorted_by_tensors(self, x: Tensor, n: int):
        held = [Held(x + n), Held(x - n), Held(x)]
        return [each.x for each in sorted(held)]

    def with_block_and_return(self, x: Tensor, n: int):
        with Loud("r"):
            if n > 0:
                return x + 1
        return x - 1

    def with_block_and_error(self, x: Tensor, n: int):
        with Loud("e"):
            if n > 0:
                raise ValueError("inside")
        return n

    def with_block_in_a_loop(self, x: Tensor, n: int):
        total = 0
        for i in range(4):
            with Loud(str(i)):
                if i != n:
                    total += i
        return total

    def is_instance_of(self, x: Tensor, n: int):
        value: Optional[Counter] = Counter(n)
        return isinstance(value, Counter), isinstance(n, int), isinstance(x, Tensor), isinstance([n], list)
