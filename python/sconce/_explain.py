"""What sconce did with a model, and why."""
import html
import json
from typing import Any

import torch

from ._accelerate import call
from ._library import ops
from ._training import captured_step_of


class Explanation:
    """An account of the methods of a model that have run. `str` is a page for people, `methods` are the same as data."""

    def __init__(self, text: str, methods: list[dict]):
        self._text = text
        self.methods = methods

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        names = ", ".join(f"{each['method']}: {each['counters']['invocations']} calls" for each in self.methods)
        return f"<sconce.Explanation of {names or 'no call'}>"

    def __getitem__(self, method: str) -> dict:
        for each in self.methods:
            if each["method"] == method:
                return each
        raise KeyError(method)

    @property
    def refusals(self) -> list[str]:
        """What could not be done, with the reasons."""
        return [f"{each['what']}: {each['reason']}" for method in self.methods for each in method["refusals"]]

    def _repr_html_(self) -> str:
        rows = ""
        for method in self.methods:
            counters = method["counters"]
            plans = sum(plan["tier"] != "tier0" for plan in method["plans"])
            rows += (f"<tr><td>{html.escape(method['method'])}</td><td>{counters['invocations']}</td><td>{plans}</td>"
                     f"<td>{method['recorded']['by_plan']}</td><td>{len(method['refusals'])}</td></tr>")
        return ("<table><thead><tr><th>method</th><th>calls</th><th>specialized plans</th><th>calls by recordings</th>"
                f"<th>refusals</th></tr></thead><tbody>{rows}</tbody></table>"
                f"<details><summary>everything</summary><pre>{html.escape(self._text)}</pre></details>")


def explain(model: Any) -> Any:
    """Explains an accelerated model: its plans, what runs by kernels, what was refused. RuntimeError if it is not one.

    Of an optimizer that was captured, returns a dict: `steps`, `captured_steps`, and the `reasons` of the others.
    """
    if isinstance(model, torch.optim.Optimizer):
        captured = captured_step_of(model)
        if captured is None:
            raise RuntimeError("sconce: the optimizer is not captured; sconce.capture(optimizer) does it")
        return captured.explain()
    return Explanation(call("explain", model, False), json.loads(call("explain", model, True)))


def status() -> dict:
    """What sconce does in this process. Reading it does not disturb calls.

    `methods` sums what all methods of one name did, also those of models that are gone: `calls` are their `invocations`.
    `packed_bytes`, `arena_bytes`: memory that sconce holds. `compiles_waiting`: for the thread that compiles. `accelerated`:
    the methods and functions that were called since they were accelerated, each with `function` (its qualified name),
    `calls` and `refusal` (why LibTorch runs it; empty if it does not).
    """
    return json.loads(ops.status())


def capabilities() -> dict:
    """Versions, the processor, and why there are no compiled kernels (`why_no_kernels`) or no GPU (`why_no_cuda`): None where
    there are."""
    return json.loads(ops.capabilities())
