"""Modules that live on between calls: statistics, windows and buffers of a stream, each with methods to reset it."""
from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

from recipe import Sample, recipe


class RunningStatistics(nn.Module):
    """Mean and variance of all rows so far, by Welford's method for batches (Chan, Golub, LeVeque 1979)."""

    limits: Dict[str, float]

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("squares", torch.zeros(width))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.limits = {}
        self.skipped: int = 0

    @torch.jit.export
    def reset(self) -> None:
        self.mean.zero_()
        self.squares.zero_()
        self.count.zero_()
        self.limits.clear()
        self.skipped = 0

    @torch.jit.export
    def update(self, x: Tensor) -> None:
        rows = x[torch.isfinite(x).all(1)]
        self.skipped += x.size(0) - rows.size(0)
        if rows.size(0) == 0:
            return
        before = int(self.count)
        after = before + rows.size(0)
        offset = rows.mean(0) - self.mean
        self.mean += offset * (rows.size(0) / after)
        self.squares += (rows - rows.mean(0)).pow(2).sum(0) + offset * offset * (before * rows.size(0) / after)
        self.count.fill_(after)
        self.limits["low"] = min(self.limits.get("low", float("inf")), float(rows.min()))
        self.limits["high"] = max(self.limits.get("high", float("-inf")), float(rows.max()))

    def forward(self, x: Tensor) -> Tuple[Tensor, Dict[str, float], int]:
        self.update(x.detach())
        deviation = (self.squares / self.count.clamp(min=1)).sqrt()
        return (x - self.mean) / (deviation + 1e-5), self.limits, self.skipped


def rows_with_gaps(rows: int, gaps: List[int]) -> tuple:
    x = torch.randn(rows, 4) * 2 + 1
    x[gaps, 1] = float("nan")
    return (x,)


@recipe
def running_statistics() -> Sample:
    """normalizes by statistics of all rows so far: buffers, a dict and an int grow with each call"""
    return Sample(RunningStatistics(4), [rows_with_gaps(5, []), rows_with_gaps(3, [1]), rows_with_gaps(2, [0, 1]),
                                         rows_with_gaps(1, [])])


class Window(nn.Module):
    """The newest `length` frames of a stream in a ring buffer, and a convolution over them."""

    last: Optional[Tensor]
    log: List[str]

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.length = length
        self.register_buffer("ring", torch.zeros(length, width))
        self.position: int = 0
        self.filled: bool = False
        self.counters: Dict[str, int] = {"frames": 0, "calls": 0, "resets": 0}
        self.last = None
        self.log = []
        self.convolution = nn.Conv1d(width, 5, 3)

    @torch.jit.export
    def reset(self, note: str) -> Dict[str, int]:
        self.ring.zero_()
        self.position = 0
        self.filled = False
        self.last = None
        self.counters["resets"] += 1
        self.log.append("reset {}: {}".format(self.counters["resets"], note))
        return self.counters

    @torch.jit.export
    def push(self, frames: Tensor) -> int:
        for frame in frames.unbind(0):
            self.ring[self.position] = frame
            self.position = (self.position + 1) % self.length
            if self.position == 0:
                self.filled = True
        self.counters["frames"] += frames.size(0)
        return self.position

    def newest(self) -> Tensor:
        if self.filled:
            return torch.roll(self.ring, -self.position, 0)
        return self.ring[:self.position]

    def forward(self, frames: Tensor) -> Tuple[Tensor, Tensor, List[str]]:
        self.counters["calls"] += 1
        if self.counters["calls"] % 4 == 0:
            self.reset("call " + str(self.counters["calls"]))
        self.push(frames)
        window = self.newest()
        if window.size(0) < 3:
            window = torch.nn.functional.pad(window, [0, 0, 3 - window.size(0), 0])
        features = self.convolution(window.t().unsqueeze(0)).amax(2).squeeze(0)
        last = self.last
        smooth = features if last is None else 0.5 * (features + last)
        self.last = smooth.detach()
        return smooth, window.clone(), self.log


@recipe
def ring_buffer() -> Sample:
    """a window over a stream: ring buffer, counters in a dict, a log of strings, a reset every fourth call"""
    return Sample(Window(6, 3), [(torch.randn(2, 3),), (torch.randn(1, 3),), (torch.randn(9, 3),), (torch.randn(0, 3),)])


@recipe
def ring_buffer_push() -> Sample:
    """the same module's `push`: only its state changes, and an int comes out"""
    return Sample(Window(6, 3), [(torch.randn(4, 3),), (torch.randn(7, 3),)], method="push")


@recipe
def ring_buffer_reset() -> Sample:
    """the same module's `reset`, after frames were pushed: a dict attribute comes out as it is"""
    module = Window(6, 3)
    module.push(torch.randn(8, 3))
    return Sample(module, [("first",), ("",)], method="reset")


class OverlapAdd(nn.Module):
    """Filters audio block by block: a spectral gate with overlapping windows, the tail kept for the next block."""

    def __init__(self, block: int = 32) -> None:
        super().__init__()
        self.block = block
        self.gate = nn.Parameter(torch.rand(block + 1) + 0.5)
        self.register_buffer("window", torch.hann_window(2 * block))
        self.register_buffer("before", torch.zeros(1, block))
        self.register_buffer("tail", torch.zeros(1, block))

    def forward(self, audio: Tensor) -> Tensor:
        if self.before.size(0) != audio.size(0):
            self.before = audio.new_zeros(audio.size(0), self.block)
            self.tail = audio.new_zeros(audio.size(0), self.block)
        results: List[Tensor] = []
        before, tail = self.before, self.tail
        for block in audio.split(self.block, 1):
            spectrum = torch.fft.rfft(torch.cat([before, block], 1) * self.window)
            filtered = torch.fft.irfft(spectrum * torch.sigmoid(self.gate))
            results.append(tail + filtered[:, :self.block])
            before = block
            tail = filtered[:, self.block:]
        self.before = before.detach()
        self.tail = tail.detach()
        return torch.cat(results, 1)


@recipe
def overlap_add() -> Sample:
    """streaming audio filter: FFT of overlapping blocks, buffers rebound to slices, new ones for a new batch size"""
    return Sample(OverlapAdd(), [(torch.randn(1, 96),), (torch.randn(3, 64),), (torch.randn(2, 32),)])
