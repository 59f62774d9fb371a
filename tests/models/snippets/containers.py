"""Lists, tuples, dicts: builtins, mutation, aliasing, errors."""
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from . import family


class Point(NamedTuple):
    x: float
    y: float
    label: str = "origin"


class Pair(NamedTuple):
    first: Tensor
    rest: List[Tensor]


@family
class Containers(nn.Module):
    def list_literal(self, x: Tensor, n: int):
        return [n, 2, 3], [1.5, float(n)], ["a", str(n)], [n > 0, True], [x, x + 1]

    def list_empty(self, x: Tensor, n: int):
        empty: List[Tensor] = []
        numbers: List[int] = torch.jit.annotate(List[int], [])
        return empty, numbers, len(empty)

    def list_index(self, x: Tensor, n: int):
        return [10, 20, 30][n]

    def list_index_out_of_range(self, x: Tensor, n: int):
        return [1, 2][n - 3], [1, 2, 3][n]

    def list_set_item(self, x: Tensor, n: int):
        values = [1, 2, 3, 4]
        values[n] = 50
        values[-1] += 7
        return values

    def list_slices(self, x: Tensor, n: int):
        values = [0, 1, 2, 3, 4, 5]
        return values[n:], values[:n], values[1:-1], values[::2], values[n:5:2], values[::-1]

    def list_append_extend_insert(self, x: Tensor, n: int):
        values = [n]
        values.append(4)
        values.extend([5, 6])
        values.insert(1, 9)
        values.insert(-1, 8)
        values += [7]
        return values

    def list_pop(self, x: Tensor, n: int):
        values = [1, 2, 3, 4]
        last = values.pop()
        at = values.pop(n)
        return last, at, values

    def list_pop_of_nothing(self, x: Tensor, n: int):
        values: List[int] = []
        return values.pop()

    def list_remove(self, x: Tensor, n: int):
        values = [3, 0, 3, 5]
        values.remove(n)
        return values

    def list_reverse_clear_copy(self, x: Tensor, n: int):
        values = [1, n, 3]
        kept = values.copy()
        values.reverse()
        reversed_ = values.copy()
        values.clear()
        return kept, reversed_, values

    def list_delete(self, x: Tensor, n: int):
        values = [1, 2, 3, 4]
        del values[n]
        return values

    def list_sort(self, x: Tensor, n: int):
        values = [3, n, 2, -5]
        values.sort()
        up = values.copy()
        values.sort(reverse=True)
        words = ["pear", "apple", "fig"]
        words.sort()
        return up, values, words, sorted([2.5, -1.0, float(n)])

    def list_of_tensors_sorted(self, x: Tensor, n: int):
        return sorted([torch.tensor(3), torch.tensor(n), torch.tensor(2)])

    def list_index_and_count(self, x: Tensor, n: int):
        values = [0, 3, 0, -1]
        return values.index(n), values.count(n)

    def list_index_of_nothing(self, x: Tensor, n: int):
        return ["a", "b"].index(str(n))

    def list_contains(self, x: Tensor, n: int):
        return n in [1, 2, 3], n not in [0], "a" in ["a"], 0.5 in [0.25 * n]

    def list_compare(self, x: Tensor, n: int):
        return [1, n] == [1, 3], [1, n] != [1, 3], ["a"] == ["a"]

    def list_add_and_repeat(self, x: Tensor, n: int):
        return [1, 2] + [n], [1, 2] * 2, [0] * n, [x] * 2

    def list_reductions(self, x: Tensor, n: int):
        return sum([1, 2, n]), min([3, n]), max([3.5, float(n)]), any([n > 0, False]), all([n > 0, True]), len([n])

    def list_of_lists(self, x: Tensor, n: int):
        grid = [[0] * 3 for _ in range(2)]
        grid[1][n % 3] = 7
        row = grid[0]
        row.append(n)
        return grid

    def list_aliases(self, x: Tensor, n: int):
        a = [1, 2]
        b = a
        b.append(n)
        pair = (a, b)
        pair[0].append(9)
        return a, b, a is b

    def list_of_aliased_tensors(self, x: Tensor, n: int):
        y = x.clone()
        items = [y, y]
        items[0].add_(n)
        return items

    def list_unpacked(self, x: Tensor, n: int):
        a, b, c = [1, n, 3]
        first, *middle, last = (1, 2, n, 4)
        return a + b * c, first, middle, last

    def list_unpacked_to_too_few(self, x: Tensor, n: int):
        values = [1] * (n + 2)
        a, b = values
        return a + b

    def list_from_others(self, x: Tensor, n: int):
        return list("abc"), list((1, n)), list({"k": 1}.keys()), list([1, n]), list(range(n))

    def list_of_optionals(self, x: Tensor, n: int):
        values: List[Optional[int]] = [1, None, n]
        total = 0
        for value in values:
            if value is not None:
                total += value
        return values, total

    def tuple_index_and_slice(self, x: Tensor, n: int):
        t = (n, 2.5, "three", x)
        return t[0], t[-2], t[1:3], t[:-3], len(t)

    def tuple_index_at_run_time(self, x: Tensor, n: int):
        return (10, 20, 30)[n]

    def tuple_unpacked(self, x: Tensor, n: int):
        (a, (b, c)), d = ((n, (2, 3)), 4)
        a, b = b, a
        return a, b, c, d

    def tuple_nested(self, x: Tensor, n: int):
        return (((x, n), [x]), {"k": (x + 1, "v")})

    def tuple_added(self, x: Tensor, n: int):
        return (1, n) + ("x", 2.0)

    def tuple_in_a_loop(self, x: Tensor, n: int):
        state = (x, 0)
        for i in range(n):
            state = (state[0] * 2, state[1] + i)
        return state

    def named_tuple(self, x: Tensor, n: int):
        p = Point(1.0, float(n), "p")
        q = Point(y=2.0, x=p.y)
        return p, q, p.x + q.y, p[1], q.label

    def named_tuple_of_tensors(self, x: Tensor, n: int):
        pair = Pair(x, [x * 2, x + n])
        first, rest = pair
        rest.append(first)
        return pair

    def dict_literal(self, x: Tensor, n: int):
        return {"a": n, "b": 2}, {n: "x", 7: "y"}, {1.5: True}, {True: 1.5}

    def dict_of_tensors(self, x: Tensor, n: int):
        d = {"x": x}
        d["y"] = d["x"] + n
        d["x"].mul_(2)
        return d

    def dict_key_error(self, x: Tensor, n: int):
        return {0: "zero", 3: "three"}[n]

    def dict_key_error_of_strings(self, x: Tensor, n: int):
        return {"0": 1}[str(n)]

    def dict_get(self, x: Tensor, n: int):
        d = {0: "zero"}
        return d.get(n), d.get(n, "none"), d.setdefault(n, "set"), d

    def dict_pop(self, x: Tensor, n: int):
        d = {0: 1.0, 3: 2.0}
        value = d.pop(n)
        return value, d

    def dict_pop_default(self, x: Tensor, n: int):
        d = {0: 1.0, 3: 2.0}
        return d.pop(n, -1.0), d

    def dict_popitem(self, x: Tensor, n: int):
        d = {n: 1.0}
        item = d.popitem()
        return item, len(d)

    def dict_delete(self, x: Tensor, n: int):
        d = {0: 1.0, 3: 2.0}
        del d[n]
        return d

    def dict_views(self, x: Tensor, n: int):
        d = {"b": 1, "a": n}
        return d.keys(), d.values(), d.items(), len(d), "a" in d, "c" not in d

    def dict_update_copy_clear(self, x: Tensor, n: int):
        d = {"a": 1}
        e = d.copy()
        d.update({"b": n, "a": 5})
        f = d.copy()
        d.clear()
        return d, e, f

    def dict_from_pairs(self, x: Tensor, n: int):
        return dict([("a", 1), ("b", n)]), dict({"k": n})

    def dict_nested(self, x: Tensor, n: int):
        d: Dict[str, Dict[int, List[Tensor]]] = {}
        d["x"] = {n: [x]}
        d["x"][n].append(x + 1)
        return d

    def dict_order(self, x: Tensor, n: int):
        d: Dict[int, int] = {}
        for i in [5, n, 1, 5]:
            d[i] = len(d)
        del d[1]
        d[1] = 9
        return list(d.keys()), list(d.values())

    def dict_any(self, x: Tensor, n: int):
        d: Dict[str, Any] = {"i": n, "t": x}
        d["s"] = "text"
        value = d["i"]
        return isinstance(value, int), len(d)

    def optional_list(self, x: Tensor, n: int):
        items: Optional[List[int]] = None
        if n > 0:
            items = [n]
        if items is None:
            items = []
        items.append(1)
        return items

    def equal_objects_are_two(self, x: Tensor, n: int):
        a = [x]
        b = [x]
        y = x + 1
        z = x + 1
        names = {y: n}
        return a is b, a is a, y is z, z in names, y in names

    def lists_of_iterations_are_several(self, x: Tensor, n: int):
        previous = [0]
        same = 0
        for i in range(3):
            current = [x.size(0)]
            if current is previous:
                same += 1
            previous = current
        return same
