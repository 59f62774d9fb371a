"""Exceptions: raised by scripts, by operators, inside calls, loops and tasks."""
from typing import Dict, List, Optional

import torch
from torch import Tensor, nn

from . import family


class ModelError(Exception):
    pass


class Failing(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        if n > 0:
            raise RuntimeError("submodule says {}".format(n))
        return x


def fails(x: Tensor, n: int) -> Tensor:
    if n > 0:
        raise KeyError("task " + str(n))
    return x * n


@family
class Errors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.failing = Failing()
        self.register_buffer("written", torch.zeros(3))

    def value_error(self, x: Tensor, n: int):
        if n > 0:
            raise ValueError("n is too large")
        return n

    def formatted(self, x: Tensor, n: int):
        if n != 0:
            raise RuntimeError(f"n is {n}, shape {x.shape}")
        return n

    def without_message(self, x: Tensor, n: int):
        if n > 0:
            raise NotImplementedError
        return n

    def own_class(self, x: Tensor, n: int):
        if n > 0:
            raise ModelError("from the model")
        return n

    def class_by_branch(self, x: Tensor, n: int):
        if n < 0:
            raise IndexError("below")
        elif n == 0:
            raise TypeError("zero")
        else:
            raise StopIteration("above")
        return n

    def always(self, x: Tensor, n: int):
        raise AssertionError("never returns")

    def without_parentheses(self, x: Tensor, n: int):
        if n == 0:
            raise ValueError
        return x

    def in_a_submodule(self, x: Tensor, n: int):
        return self.failing(x, n)

    def in_a_helper(self, x: Tensor, n: int):
        return self.helper_outer(x, n)

    def helper_outer(self, x: Tensor, n: int) -> Tensor:
        return self.helper_inner(x, n) + 1

    def helper_inner(self, x: Tensor, n: int) -> Tensor:
        assert n < 3, "inner"
        return x

    def after_writes(self, x: Tensor, n: int):
        x.add_(100)
        self.written += 1
        if n > 0:
            raise ValueError("too late")
        return self.written.clone()

    def in_a_loop(self, x: Tensor, n: int):
        items: List[int] = []
        for i in range(5):
            items.append(i)
            if i == n:
                raise ValueError("at " + str(items))
        return items

    def shape_mismatch(self, x: Tensor, n: int):
        return x + torch.ones(n + 2)

    def matrix_mismatch(self, x: Tensor, n: int):
        return x @ torch.ones(n + 3, 2)

    def index_of_tensor(self, x: Tensor, n: int):
        return x[n]

    def bad_dimension(self, x: Tensor, n: int):
        return x.sum(dim=n)

    def bad_reshape(self, x: Tensor, n: int):
        return x.reshape(n + 1, -1)

    def bad_view(self, x: Tensor, n: int):
        return x.t().view(6)

    def type_of_operator(self, x: Tensor, n: int):
        return torch.embedding(x, torch.tensor([n], dtype=torch.int64)) @ torch.ones(3, dtype=torch.float64)

    def unwrapped_none(self, x: Tensor, n: int):
        value: Optional[Tensor] = None
        if n > 0:
            value = x
        assert value is not None
        return value + 1

    def unwrapped_by_builtin(self, x: Tensor, n: int):
        value: Optional[int] = None
        if n > 0:
            value = n
        return torch.jit._unwrap_optional(value)

    def key_missing(self, x: Tensor, n: int):
        table: Dict[str, int] = {"3": 1}
        return table[str(n)]

    def in_a_task(self, x: Tensor, n: int):
        task = torch.jit.fork(fails, x, n)
        return torch.jit.wait(task)

    def in_a_task_nobody_waits_for(self, x: Tensor, n: int):
        task = torch.jit.fork(fails, x, n)
        return x

    def in_one_of_two_tasks(self, x: Tensor, n: int):
        good = torch.jit.fork(fails, x, 0)
        bad = torch.jit.fork(fails, x, n)
        return torch.jit.wait(good) + torch.jit.wait(bad)

    def empty_max(self, x: Tensor, n: int):
        return torch.zeros(0).max()

    def random_of_bad_size(self, x: Tensor, n: int):
        return torch.zeros([n])

    def item_of_many(self, x: Tensor, n: int):
        return x.item()

    def if_of_many(self, x: Tensor, n: int):
        if x > 0:
            return 1
        return 0

    def wrong_dtype_in_place(self, x: Tensor, n: int):
        i = torch.arange(3)
        i += 0.5
        return i
