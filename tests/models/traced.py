"""Models that torch.jit.trace wrote, alone and inside of scripts. Their archives hold the inputs of the trace, too."""
from typing import Tuple

import torch
from torch import Tensor, nn

from recipe import Sample, recipe
from vision import settle_batch_norms


def small_network() -> nn.Module:
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                            nn.Linear(32, 5))
    settle_batch_norms(network)
    return network.eval()


@recipe
def traced_network() -> Sample:
    """a traced convolutional network, called with other sizes than it was traced with"""
    traced = torch.jit.trace(small_network(), torch.randn(1, 3, 8, 8))
    return Sample(traced, [(torch.randn(2, 3, 8, 8),), (torch.randn(1, 3, 12, 6),)])


@recipe
def traced_lstm() -> Sample:
    """a traced nn.LSTM: outputs and a tuple of states"""
    traced = torch.jit.trace(nn.LSTM(6, 5, 2, batch_first=True).eval(), torch.randn(2, 4, 6))
    return Sample(traced, [(torch.randn(2, 4, 6),)])


class AroundATrace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = torch.jit.trace(small_network(), torch.randn(1, 3, 8, 8))

    def forward(self, x: Tensor, rounds: int) -> Tuple[Tensor, int]:
        y = self.features(x)
        for _ in range(rounds):
            if bool(y.sum() > 0):
                y = y - self.features(x)
            else:
                y = y + 1
        return y, rounds


@recipe
def traced_inside_script() -> Sample:
    """a script with control flow that calls a traced submodule"""
    return Sample(AroundATrace().eval(), [(torch.randn(2, 3, 8, 8), 3), (torch.randn(1, 3, 8, 8), 0)])


TABLE = torch.zeros(3)


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * (TABLE * 2)


class Counted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        TABLE.add_(1)
        return x + TABLE


class HandedOut(nn.Module):
    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        return TABLE, x * (TABLE * 2)


class AroundATable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        x = torch.ones(3)
        self.scaled = torch.jit.trace(Scaled(), x)
        self.counted = torch.jit.trace(Counted(), x, check_trace=False)
        self.as_callers_tensors = torch.jit.trace(HandedOut(), x)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        before = self.scaled(x)
        counted = self.counted(x)
        table, _ = self.as_callers_tensors(x)
        table.mul_(2)
        _, after = self.as_callers_tensors(x)
        return before, counted, self.scaled(x), after


@recipe
def traced_shared_table() -> Sample:
    """a tensor that traces caught, read and written by several submodules and by their caller"""
    TABLE.copy_(torch.tensor([1.0, 2.0, 3.0]))
    module = AroundATable().eval()
    TABLE.copy_(torch.tensor([1.0, 2.0, 3.0]))
    return Sample(module, [(torch.tensor([4.0, 5.0, 6.0]),)])
