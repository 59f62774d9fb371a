"""Calls that run when they are waited for, once, or never."""
import torch
from torch import Tensor, nn

from . import family


def delayed(x: Tensor, n: int) -> Tensor:
    print("delayed", n)
    if n < 0:
        raise ValueError("a negative factor")
    return x * n


@family
class Awaitables(nn.Module):
    def runs_when_waited_for(self, x: Tensor, n: int):
        late = torch.jit._awaitable(delayed, x, n)
        print("before")
        return torch.jit._awaitable_wait(late) + 1

    def runs_once(self, x: Tensor, n: int):
        late = torch.jit._awaitable(delayed, x, n)
        return torch.jit._awaitable_wait(late) + torch.jit._awaitable_wait(late)

    def never_waited_for(self, x: Tensor, n: int):
        late = torch.jit._awaitable(delayed, x, n)
        return x + n

    def already_there(self, x: Tensor, n: int):
        return torch.jit._awaitable_wait(torch.jit._awaitable_nowait(x))

    def sees_later_writes(self, x: Tensor, n: int):
        y = x.clone()
        late = torch.jit._awaitable(delayed, y, n)
        y.add_(1)
        return torch.jit._awaitable_wait(late)

    def of_an_awaitable(self, x: Tensor, n: int):
        late = torch.jit._awaitable(delayed, x, n)
        later = torch.jit._awaitable(delayed, torch.jit._awaitable_wait(late), n + 1)
        return torch.jit._awaitable_wait(later)

    def raises_when_waited_for(self, x: Tensor, n: int):
        late = torch.jit._awaitable(delayed, x, n - 100)
        return torch.jit._awaitable_wait(late)
