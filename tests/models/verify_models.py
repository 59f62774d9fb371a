#!/usr/bin/env python3
"""Checks written models with LibTorch's own default executor: an account of how to read a CASES file, and a proof
that the recorded answers are reproducible.

    python verify_models.py OUTDIR [--only NAME ...] [--calls N]

Each case is called several times, on one freshly loaded module that lives on between the calls, beside a twin that
gets the same calls with optimization off. The first call is compared with the recorded answer, all calls with the
twin's. Also something must be found wrong with every file in bad/, and every argument file must load. The exit code
is 1 if anything differs.
"""
import argparse
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bad_files
import detection
import operators
import language  # noqa: F401  (Python makes objects of a script class only if it has seen the class)
from cases import call, parameter_gradients, tensors_in

# Where LibTorch's optimizing executor, from its second call on, gives another answer than eager LibTorch. The recorded
# answers are the eager ones. A failure of a later call that contains the text doesn't count.
DEVIATIONS = {
    "autocast_to_float": ("twin: other outputs require grad",
                          "a product that needs no grad comes out of a differentiable group as if it did"),
    "operators": ("complex_numbers, gradient", "the gradient of a complex product lacks the conjugate"),
    "rng": ("twin[0]: off by", "dropout, once differentiated, draws its mask in another way"),
}


def difference(got: Any, expected: Any, rtol: float, atol: float, where: str = "") -> str:
    """The first place where the two differ in structure, type or value; empty if none."""
    if isinstance(expected, Tensor):
        if not isinstance(got, Tensor):
            return f"{where}: {type(got).__name__} instead of a tensor"
        if got.layout != expected.layout:
            return f"{where}: {got.layout} instead of {expected.layout}"
        if expected.layout != torch.strided:
            return difference(got.detach().to_dense(), expected.detach().to_dense(), rtol, atol, where)
        if got.is_quantized and expected.is_quantized:
            return difference([got.q_scale(), got.q_zero_point(), got.int_repr().float()],
                              [expected.q_scale(), expected.q_zero_point(), expected.int_repr().float()], rtol, atol, where)
        if got.dtype != expected.dtype or got.shape != expected.shape:
            return f"{where}: {got.dtype}{list(got.shape)} instead of {expected.dtype}{list(expected.shape)}"
        if not torch.allclose(got.detach(), expected.detach(), rtol, atol, equal_nan=True):
            return f"{where}: off by up to {(got.detach() - expected.detach()).abs().max()}"
        return ""
    if isinstance(expected, (list, tuple, dict)):
        if len(got) != len(expected):
            return f"{where}: {len(got)} elements instead of {len(expected)}"
        if isinstance(expected, dict):
            if list(got) != list(expected):
                return f"{where}: keys {list(got)} instead of {list(expected)}"
            got, expected = list(got.values()), list(expected.values())
        for index, (a, b) in enumerate(zip(got, expected)):
            found = difference(a, b, rtol, atol, f"{where}[{index}]")
            if found:
                return found
        return ""
    if hasattr(expected, "__dict__"):  # an object of a script class
        return difference(vars(got), vars(expected), rtol, atol, where)
    if isinstance(expected, float):
        same = got == expected or abs(got - expected) <= atol + rtol * abs(expected)
    else:
        same = type(got) is type(expected) and got == expected
    return "" if same else f"{where}: {got!r} instead of {expected!r}"


def state_of(module: torch.jit.ScriptModule) -> dict[str, Tensor]:
    return dict(module.named_buffers())


def check_model(model: str, cases: torch.jit.ScriptModule, calls: int) -> list[str]:
    method, seed, rtol, atol = cases.method, cases.seed, cases.rtol, cases.atol
    optimized_reference = getattr(cases, "optimized", False)
    failures = []

    def compare(what: str, got: Any, expected: Any) -> None:
        found = difference(got, expected, rtol, atol)
        if found:
            failures.append(f"{what}{found}")

    for index, (arguments, expected) in enumerate(zip(cases.inputs, cases.outputs, strict=True)):
        module, twin = torch.jit.load(model), torch.jit.load(model)
        assert module.training == (cases.mode == "train")
        for number in range(calls):
            got = call(module, method, arguments, seed, optimized=True)
            want = call(twin, method, arguments, seed, optimized=optimized_reference)
            what = f"case {index}, call {number + 1}"
            if number == 0:
                compare(what, got, expected)
                if index == 0 and hasattr(cases, "buffer_names"):
                    compare(f"{what}, buffers", state_of(module), dict(zip(cases.buffer_names, cases.buffers_after)))
                if index == 0:
                    grads = parameter_gradients(module, got)
                    recorded = dict(zip(cases.grad_names, cases.grads)) if hasattr(cases, "grad_names") else {}
                    compare(f"{what}, gradients", {name: grads[name] for name in recorded}, recorded)
            compare(f"{what}, twin", got, want)
            compare(f"{what}, twin's buffers", state_of(module), state_of(twin))
            if [t.requires_grad for t in tensors_in(got)] != [t.requires_grad for t in tensors_in(want)]:
                failures.append(f"{what}, twin: other outputs require grad")
    return failures


def check_operators(suite: torch.jit.ScriptModule, calls: int) -> list[str]:
    failures = []
    for name, method, inputs, needs_grad, outputs, grads, rtol, atol in zip(
            suite.names, suite.methods, suite.inputs, suite.needs_grad, suite.outputs, suite.grads, suite.rtol,
            suite.atol):
        for _ in range(calls):
            got_outputs, got_grads = operators.run_operator(suite, method, inputs, needs_grad, optimized=True)
            for what, got, expected in (("output", got_outputs, outputs), ("gradient", got_grads, grads)):
                found = difference(got, expected, rtol, atol)
                if found:
                    failures.append(f"{name}, {what}{found}")
    return failures


def is_refused(path: Path) -> bool:
    """Whether LibTorch, or the archive's checksums, which LibTorch doesn't compare, find the model damaged."""
    try:
        torch.jit.load(str(path))
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is not None
    except Exception:  # whatever kind it is
        return True


def is_found_wrong(cases_path: Path, model: Path) -> bool:
    cases = torch.jit.load(str(cases_path))
    try:
        if hasattr(cases, "methods"):
            return bool(check_operators(cases, calls=1))
        return bool(check_model(str(model), cases, calls=1))
    except Exception:  # such as a method that isn't there
        return True


def check_bad_files(out: Path) -> list[str]:
    models = [*bad_files.DAMAGED_MODELS, *(name for name in bad_files.OTHER_FILES if ".cases." not in name)]
    accepted = [name for name in models if not is_refused(out / "bad" / name)]
    for name in bad_files.FILES:
        model = bad_files.WRONG_CASES[name][0] if name in bad_files.WRONG_CASES else "mlp"
        if ".cases." in name and not is_found_wrong(out / "bad" / name, out / f"{model}.pt"):
            accepted.append(name)
    return accepted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUTDIR", type=Path)
    parser.add_argument("--only", metavar="NAME", nargs="+")
    parser.add_argument("--calls", metavar="N", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    import torchvision  # noqa: F401  (its operators)

    failed = 0
    for path in [*sorted(options.out.glob("*.cases.pt")), *sorted((options.out / detection.FOLDER).glob("*.cases.pt"))]:
        name = path.name.removesuffix(".cases.pt")
        if options.only and name not in options.only:
            continue
        start = time.monotonic()
        cases = torch.jit.load(str(path))
        if hasattr(cases, "methods"):
            count, failures = len(cases.names), check_operators(cases, options.calls)
        else:
            count, failures = len(cases.inputs), check_model(str(path.with_name(f"{name}.pt")), cases, options.calls)
        grads = len(cases.grads) if hasattr(cases, "grads") else 0
        deviation, reason = DEVIATIONS.get(name, (None, ""))
        known = [failure for failure in failures if deviation and deviation in failure and "call 1" not in failure]
        failures = [failure for failure in failures if failure not in known]
        print(f"{'failed' if failures else 'good  '} {name}: {count} cases, {grads} gradients, "
              f"{time.monotonic() - start:.1f} s")
        for failure in failures:
            print(f"    {failure}")
        if known:
            print(f"    LibTorch differs from itself {len(known)} times: {reason}")
        failed += bool(failures)

    if not options.only:
        for name in check_bad_files(options.out):
            print(f"failed bad/{name}: nothing is found wrong with it")
            failed += 1
        for path in sorted((options.out / "inputs").glob("*.inputs.pt")):
            torch.load(path, weights_only=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
