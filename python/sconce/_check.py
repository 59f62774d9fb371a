"""Compares sconce with LibTorch on one model."""
import dataclasses
import html
from typing import Any

import torch

from ._accelerate import accelerate, wait_for_compiles
from ._twin import copies_of, scalar_of, scripted_module, tensors_in, twin_of


@dataclasses.dataclass
class CheckResult:
    """`differences` is empty if sconce and LibTorch agree."""
    calls: int
    gradients: bool
    largest_difference: float
    differences: list[str]
    errors: list[str] = dataclasses.field(default_factory=list)  # that sconce and LibTorch both raised

    def __bool__(self) -> bool:
        """Whether they agree, and not only because each call raises."""
        return not self.differences and len(self.errors) < self.calls

    def __str__(self) -> str:
        what = "results, buffers and gradients" if self.gradients else "results and buffers"
        if self.errors:
            what += f" ({len(self.errors)} calls raise on both: {self.errors[0]})"
        if not self.differences:
            return f"{what} of {self.calls} calls agree with LibTorch (largest difference {self.largest_difference:.2g})"
        return f"{len(self.differences)} differences in {self.calls} calls:\n  " + "\n  ".join(self.differences[:20])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclasses.dataclass
class _Raised:
    text: str

    @staticmethod
    def of(error: Exception) -> "_Raised":
        """The type, and the last line: before it stands the script's stack."""
        name = type(error).__name__
        line = (str(error).strip().splitlines() or ["?"])[-1]
        return _Raised(f"{name}: {line.removeprefix(name + ': ')}")


def _outcome(result: Any) -> str:
    return f"raises {result.text}" if isinstance(result, _Raised) else "returns a result"


class _Comparison:
    def __init__(self, rtol: float, atol: float):
        self.rtol, self.atol = rtol, atol
        self.largest = 0.0
        self.differences: list[str] = []

    def compare(self, what: str, got: Any, expected: Any) -> None:
        ours, theirs = tensors_in(got), tensors_in(expected)
        if len(ours) != len(theirs):
            self.differences.append(f"{what}: {len(ours)} tensors instead of {len(theirs)}")
            return
        for i, (a, b) in enumerate(zip(ours, theirs)):
            name = what if len(ours) == 1 else f"{what}[{i}]"
            if a.shape != b.shape or a.dtype != b.dtype:
                self.differences.append(f"{name}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}")
                continue
            x, y = (t.detach().double() if not t.is_complex() else torch.view_as_real(t.detach().resolve_conj()).double()
                    for t in (a, b))
            difference = (x - y).abs().nan_to_num(0).max().item() if x.numel() else 0.0
            self.largest = max(self.largest, difference if difference != float("inf") else 0.0)
            if not torch.allclose(x, y, self.rtol, self.atol, equal_nan=True):
                self.differences.append(f"{name}: differs by up to {difference:.3g}")
        if not ours and got != expected:
            self.differences.append(f"{what}: {got!r} instead of {expected!r}")


def check(model: Any, *args: Any, calls: int = 5, grad: bool = False, seed: int = 0, rtol: float = 1e-3, atol: float = 1e-4,
          options: dict[str, Any] | None = None, **kwargs: Any) -> CheckResult:
    """Calls two copies of the model, one on sconce and one on LibTorch, and compares what they return and change.

    args, kwargs: of each call; copies are passed. grad: compare gradients of the parameters and arguments, too. options: as
    for `accelerate`. The model itself is not called.
    """
    if calls < 1:
        raise ValueError(f"calls must be at least 1, not {calls}")
    source = scripted_module(model, "check")
    ours, theirs = accelerate(twin_of(source), **(options or {})), twin_of(source)
    comparison = _Comparison(rtol, atol)
    with torch.random.fork_rng(devices=[]):
        errors = _compare_calls(comparison, ours, theirs, args, kwargs, calls, grad, seed)
    return CheckResult(calls, grad, comparison.largest, comparison.differences, errors)


def _compare_calls(comparison: _Comparison, ours: Any, theirs: Any, args: Any, kwargs: Any, calls: int, grad: bool,
                   seed: int) -> list[str]:
    """Returns the errors that both raise."""
    errors: list[str] = []
    for number in range(1, calls + 1):
        if number == 3:
            wait_for_compiles(ours)
        results = []
        for each in (ours, theirs):
            given, named = copies_of(args), copies_of(kwargs)
            each.zero_grad()
            torch.manual_seed(seed)
            with torch.set_grad_enabled(grad):
                try:
                    result = each(*given, **named)
                    loss = scalar_of(result) if grad else None
                    if loss is not None:
                        loss.backward()
                except Exception as error:
                    results.append((_Raised.of(error), {}, [], {}))
                    continue
            gradients = {name: p.grad for name, p in each.named_parameters()} if grad else {}
            results.append((result, dict(each.named_buffers()), [given, named],
                            {**gradients, **{f"argument {i}": t.grad for i, t in enumerate(tensors_in([given, named]))}}))
        (result, buffers, given, gradients), (expected, their_buffers, their_given, their_gradients) = results
        if isinstance(result, _Raised) or isinstance(expected, _Raised):
            if isinstance(expected, _Raised) and result == expected:
                errors.append(expected.text)
            else:
                comparison.differences.append(f"call {number}: {_outcome(result)}, where LibTorch {_outcome(expected)}")
            continue
        comparison.compare(f"call {number}: result", result, expected)
        comparison.compare(f"call {number}: arguments afterwards", given, their_given)
        for name, buffer in their_buffers.items():
            comparison.compare(f"call {number}: buffer {name}", buffers.get(name), buffer)
        for name, gradient in their_gradients.items():
            comparison.compare(f"call {number}: gradient of {name}", gradients.get(name), gradient)
    return errors
