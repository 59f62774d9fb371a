"""What sconce did with a model, and why."""
import html
import json
from typing import Any

from ._accelerate import call
from ._library import ops


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


def explain(model: Any) -> Explanation:
    """Explains an accelerated model: its plans, what runs by kernels, what was refused. RuntimeError if it is not one."""
    return Explanation(call("explain", model, False), json.loads(call("explain", model, True)))


def status() -> dict:
    """What runs on sconce in this process: `accelerated`, a list of methods and functions that were called, each with
    `function` (its qualified name), `calls` and `refusal` (why LibTorch runs it; empty if it does not)."""
    return json.loads(ops.status())
