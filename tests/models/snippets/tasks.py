"""fork and wait."""
from typing import List, Tuple

import torch
from torch import Tensor, nn

from . import family


def scaled(x: Tensor, factor: int) -> Tensor:
    return x * factor


def two_results(x: Tensor, n: int) -> Tuple[Tensor, int]:
    return x + n, n * 2


def nested(x: Tensor, depth: int) -> Tensor:
    if depth > 0:
        a = torch.jit.fork(scaled, x, depth)
        b = torch.jit.fork(scaled, x, depth + 1)
        return torch.jit.wait(a) + torch.jit.wait(b)
    return x


def grow(items: List[int], by: int) -> int:
    items.append(by)
    return len(items)


class Worker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


@family
class Tasks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.worker = Worker()

    def function(self, x: Tensor, n: int):
        task = torch.jit.fork(scaled, x, n)
        return torch.jit.wait(task) + x

    def module(self, x: Tensor, n: int):
        task = torch.jit.fork(self.worker, x)
        return torch.jit.wait(task) + self.worker(x)

    def method(self, x: Tensor, n: int):
        task = torch.jit.fork(self.helper_method, x, n)
        return task.wait()

    def helper_method(self, x: Tensor, n: int) -> Tensor:
        return x - n

    def several_results(self, x: Tensor, n: int):
        task = torch.jit.fork(two_results, x, n)
        y, m = torch.jit.wait(task)
        return y * m

    def list_of_tasks(self, x: Tensor, n: int):
        tasks: List[torch.jit.Future[Tensor]] = []
        for i in range(n + 4):
            tasks.append(torch.jit.fork(scaled, x, i))
        total = torch.zeros_like(x)
        for task in tasks:
            total += torch.jit.wait(task)
        return total

    def waits_twice(self, x: Tensor, n: int):
        task = torch.jit.fork(scaled, x, n)
        a = torch.jit.wait(task)
        a.add_(1)
        return a, torch.jit.wait(task)

    def tasks_of_tasks(self, x: Tensor, n: int):
        task = torch.jit.fork(nested, x, n)
        return torch.jit.wait(task) + nested(x, n)

    def shares_a_list(self, x: Tensor, n: int):
        items = [1, 2]
        size = torch.jit.wait(torch.jit.fork(grow, items, n))
        return items, size

    def writes_a_tensor(self, x: Tensor, n: int):
        y = x.clone()
        torch.jit.wait(torch.jit.fork(torch.add, y, 1))
        return y

    def in_a_branch(self, x: Tensor, n: int):
        y = x
        if n > 0:
            task = torch.jit.fork(scaled, x, n)
            y = torch.jit.wait(task)
        return y

    def never_waited(self, x: Tensor, n: int):
        task = torch.jit.fork(scaled, x, n)
        return x * 2
