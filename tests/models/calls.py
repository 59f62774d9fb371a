"""Models whose graph has nodes that may record gradients whatever the caller does: blocks, forks, calls of interfaces.

Operators that record keep their operands, so a plan must not compute the next call's values into the memory of these."""
from typing import List, Tuple

import torch
from torch import Tensor, nn

from recipe import Sample, recipe


class NoGradMetrics(nn.Module):
    """A gated layer; what it logs, and a moving mean, are computed in blocks without gradients."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        with torch.no_grad():
            scale = torch.rsqrt(x.square().mean(-1, True) + 1e-5)
            centered = (x - self.mean) * scale
            scores = torch.sigmoid(centered * 0.5 + x)
        hidden = torch.tanh(self.gate(x)) * scores + torch.exp(-scores)
        out = torch.sigmoid(self.value(hidden) * scores) * hidden
        with torch.no_grad():
            entropy = -(out.detach().abs() + 0.1).log() * scores
            self.mean.mul_(0.9).add_(out.mean(0), alpha=0.1)
            if entropy.mean() > 1e3:
                out = out * 2
        return out, entropy.sum(-1)


@recipe
def no_grad_metrics() -> Sample:
    """blocks of torch.no_grad() among recorded operators"""
    return Sample(NoGradMetrics(16), [(torch.randn(rows, 16),) for rows in (4, 1, 7)])


class ForkedBranches(nn.Module):
    """Two branches run as tasks; what they return is multiplied by what the caller computes meanwhile."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Linear(width, width)
        self.right = nn.Linear(width, width)

    def branch(self, x: Tensor, times: int) -> Tensor:
        y = x
        for i in range(times):
            y = torch.tanh(self.left(y)) * torch.sigmoid(y) + x * float(i)
        return y

    def forward(self, x: Tensor) -> Tensor:
        task = torch.jit.fork(self.branch, x, 2)
        other = torch.jit.fork(self.branch, x * 0.5 + 1.0, 1)
        own = torch.exp(-x.square()) * torch.cos(x) + torch.sigmoid(self.right(x))
        joined = torch.jit.wait(task) * own - torch.jit.wait(other)
        return torch.tanh(joined) * own


@recipe
def forked_branches() -> Sample:
    """branches of recorded operators that run as tasks"""
    return Sample(ForkedBranches(12), [(torch.randn(rows, 12),) for rows in (5, 2, 5)])


@torch.jit.interface
class Expert(nn.Module):
    def forward(self, x: Tensor, scale: float) -> Tensor:
        pass


class GatedExpert(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor, scale: float) -> Tensor:
        a, b = self.up(x).chunk(2, -1)
        return torch.sigmoid(a * scale) * b + x


class NormExpert(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, scale: float) -> Tensor:
        y = self.norm(x * scale)
        return torch.tanh(y) * y + x.detach().abs()


class InterfaceMixture(nn.Module):
    """Two experts of one interface type: a weighted sum of their results, then calls of one after the other."""

    first: Expert
    second: Expert

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = GatedExpert(width)
        self.second = NormExpert(width)
        self.router = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(self.router(x), -1)
        results: List[Tensor] = [self.first.forward(x, 0.5), self.second.forward(x, 2.0)]
        mixed = torch.zeros_like(x)
        for i, result in enumerate(results):
            mixed = mixed + result * weights[:, i : i + 1]
        for _ in range(2):
            mixed = self.second.forward(torch.tanh(mixed) * 0.5, 1.5) - mixed
        return mixed * torch.sigmoid(x)


@recipe
def interface_mixture() -> Sample:
    """methods of interface objects between recorded operators"""
    return Sample(InterfaceMixture(8), [(torch.randn(rows, 8),) for rows in (6, 3, 6)])
