"""Times a model on sconce and on LibTorch, side by side."""
import dataclasses
import html
import statistics
import time
from typing import Any

import torch

from ._accelerate import accelerate, wait_for_compiles
from ._twin import scalar_of, scripted_module, twin_of

_ROUNDS = 5


@dataclasses.dataclass
class BenchRow:
    """Times of a call in seconds: the first one, the median of the rounds' medians, and of all calls the 99th percentile."""
    executor: str
    first: float
    median: float
    p99: float


def _duration(seconds: float) -> str:
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


@dataclasses.dataclass
class BenchResult:
    """`rows`, sconce first; `ratio` is how many times as fast sconce is as the fastest of the others."""
    rows: list[BenchRow]
    threads: int
    gradients: bool

    @property
    def ratio(self) -> float:
        return min(row.median for row in self.rows[1:]) / self.rows[0].median

    def _cells(self) -> list[list[str]]:
        best = self.rows[0].median
        return [[row.executor, _duration(row.median), f"{row.median / best:.2f}x", _duration(row.p99), _duration(row.first)]
                for row in self.rows]

    _TITLES = ["executor", "a call", "time / sconce's", "p99", "first call"]

    def __str__(self) -> str:
        rows = [self._TITLES] + self._cells()
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._TITLES))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        what = "forward and backward" if self.gradients else "forward"
        return "\n".join(lines) + f"\n{what}, {self.threads} threads; sconce is {self.ratio:.2f} times as fast"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{title}</th>" for title in self._TITLES)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._cells())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def bench(model: Any, *args: Any, seconds: float = 2.0, grad: bool = False, options: dict[str, Any] | None = None,
          **kwargs: Any) -> BenchResult:
    """Times calls of the model with these arguments, on sconce and on torch.jit; of an unscripted module, on eager, too.

    seconds: for each executor, in rounds that take turns. grad: forward and backward. options: as for `accelerate`. Copies of
    the model are called.
    """
    if seconds <= 0:
        raise ValueError(f"seconds must be above 0, not {seconds}")
    is_scripted = isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))
    source = scripted_module(model, "bench")
    executors = {"sconce": accelerate(twin_of(source), **(options or {})), "torch.jit": twin_of(source)}
    if not is_scripted:
        executors["eager"] = model

    def timed(each: Any) -> float:
        begin = time.perf_counter()
        result = each(*args, **kwargs)
        loss = scalar_of(result) if grad else None
        if loss is not None:
            loss.backward()
        elif grad:
            raise ValueError("grad=True: no gradient flows from the result; give the model parameters or arguments that "
                             "require one")
        return time.perf_counter() - begin

    first: dict[str, float] = {}
    times: dict[str, list[list[float]]] = {name: [] for name in executors}
    with torch.set_grad_enabled(grad), torch.random.fork_rng(devices=[]):
        for name, each in executors.items():
            first[name] = timed(each)
            begin = time.perf_counter()
            while time.perf_counter() - begin < seconds / _ROUNDS:
                timed(each)
            if name == "sconce":
                wait_for_compiles(each)
                for _ in range(20):
                    timed(each)
        for _ in range(_ROUNDS):
            for name, each in executors.items():
                begin = time.perf_counter()
                round_times: list[float] = []
                while time.perf_counter() - begin < seconds / _ROUNDS or len(round_times) < 3:
                    round_times.append(timed(each))
                times[name].append(round_times)
    rows = []
    for name, rounds in times.items():
        everything = sorted(t for each in rounds for t in each)
        rows.append(BenchRow(name, first[name], statistics.median(statistics.median(each) for each in rounds),
                             everything[min(len(everything) - 1, int(len(everything) * 0.99))]))
    return BenchResult(rows, torch.get_num_threads(), grad)
