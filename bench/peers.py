#!/usr/bin/env python3
"""Times sconce beside torch.compile and ONNX Runtime, on one thread, in one run.

Three tables, of ratios to sconce: above 1, sconce is faster.

    groups   the groups of bench/kernels.cpp, beside the operators one by one and a memcpy of the first operand.
             sconce's time is that of the plan with the kernel; the peers are called from Python.
    models   small models of the tests, beside the executors that `sconce bench` measures.
    steps    training steps with Adam: forward, the mean square of the outputs, backward, update. torch.compile has the
             loss and the optimizer's step compiled, too; both are called from Python.

sconce's programs and the peers take turns, so that what else the machine does meets all alike; ratios are taken round by
round, and the median is shown. A peer that cannot run something, or gives another answer than eager PyTorch, is left out
of the row, and a note says why. `make peers` makes the Python environment and runs this.

    build/peers-venv/bin/python bench/peers.py build/release build/models
    build/peers-venv/bin/python bench/peers.py build/release build/models --only gelu_gate dlrm --rounds 9 --json
"""
import argparse
import contextlib
import io
import json
import logging
import math
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

import onnxruntime
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "models"))
import sequence  # noqa: E402,F401  (the families register their recipes)
import serving  # noqa: E402,F401
from recipe import RECIPES  # noqa: E402
from timing import (Run, Times, UserError, adam_step, line_of, output_of, rounds_of, row_of, tensors_in,  # noqa: E402
                    times_of_bench)


# ---- what is timed ---------------------------------------------------------------------------------------------------

def rms_norm(a: Tensor, b: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    x = a + b
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight, x


def lstm_cell(i: Tensor, f: Tensor, g: Tensor, o: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


# As in bench/kernels.cpp: "m" is a square matrix, "r" a vector as long as a row.
GROUPS: dict[str, tuple[str, Callable]] = {
    "gelu_gate": ("mmm", lambda x, w, b: F.gelu(x * w + b) * torch.sigmoid(x)),
    "layer_norm_gelu": ("mrr", lambda x, w, b: F.gelu(F.layer_norm(x, [x.size(1)], w, b, 1e-5))),
    "masked_softmax": ("mm", lambda x, mask: torch.softmax(x * 0.125 + mask, -1)),
    "rms_norm": ("mmr", rms_norm),
    "lstm_cell": ("mmmmm", lstm_cell),
}
ROWS = [32, 256, 1024, 4096]

# Recipes of tests/models, and which of their calls.
MODELS = {"mlp": 1, "dlrm": 0, "lstm_loop": 1, "gru_loop": 0, "small_encoder": 0, "decoder_generate": 0}

# Recipes that `steps` trains, and which of their calls.
STEPS = {"mlp": 1, "lstm_loop": 1, "transformer_encoder_train": 0}


class Function(nn.Module):
    """A function, or a method of a module, as a module: what the exporter takes."""

    def __init__(self, function: Callable, owner: Optional[nn.Module] = None) -> None:
        super().__init__()
        self.owner = owner
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


# ---- the peers -------------------------------------------------------------------------------------------------------

def torch_compile(module: nn.Module, arguments: tuple) -> Run:
    torch._dynamo.reset()
    compiled = torch.compile(module, dynamic=False)
    return lambda: compiled(*arguments)


def onnx_runtime(module: nn.Module, arguments: tuple) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.onnx.export(module, arguments, path, dynamo=True, verbose=False, external_data=False)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = dict(zip((each.name for each in session.get_inputs()),
                     (each.numpy() for each in arguments if isinstance(each, Tensor)), strict=True))
    return lambda: session.run(None, feeds)


PEERS: dict[str, Callable[[nn.Module, tuple], Run]] = {"torch.compile": torch_compile, "ONNX Runtime": onnx_runtime}


def prepare_peers(module: nn.Module, arguments: tuple, notes: list[str], name: str,
                  peers: dict[str, Callable[[nn.Module, tuple], Run]] = PEERS) -> dict[str, Run]:
    """The peers that give eager PyTorch's answer. Says in `notes` what the others do."""
    expected = tensors_in(module(*arguments))
    ready = {}
    for peer, prepare in peers.items():
        try:
            run = prepare(module, arguments)
            torch.testing.assert_close(tensors_in(run()), expected, rtol=1e-3, atol=1e-4)
            ready[peer] = run
        except Exception as error:  # peers fail in many ways; each is shown
            notes.append(f"{name}: {peer}: {line_of(error)}")
    return ready


# ---- sconce's programs -----------------------------------------------------------------------------------------------

def times_of_group(build: Path, name: str, row: int, threads: int) -> Times:
    command = [str(build / "bench" / "kernels"), f"--benchmark_filter=^{name}/{row}/", "--benchmark_format=json"]
    found = output_of(command, **with_threads(threads))["benchmarks"]
    if len(found) != 1:
        raise UserError(f"{command[0]} has no benchmark {name}/{row}")
    return {"sconce": found[0]["kernel_us"] * 1e-6, "operators": found[0]["operators_us"] * 1e-6,
            "memcpy": found[0]["memcpy_us"] * 1e-6}


def spec_of(argument: Any) -> str:
    """The argument as `sconce bench --input` takes it: sizes and dtype count, not the values."""
    if not isinstance(argument, Tensor):
        return "none" if argument is None else str(argument)
    shape = f"{str(argument.dtype).removeprefix('torch.')}{list(argument.shape)}".replace(" ", "")
    return shape if argument.is_floating_point() else f"{shape}=0..{int(argument.max()) + 1}"


def times_of_model(build: Path, models: Path, name: str, method: str, arguments: tuple,
                   seconds: float, threads: int) -> Times:
    command = [str(build / "bin" / "sconce"), "bench", str(models / f"{name}.pt"), "--json",
               f"--seconds={seconds}", f"--method={method}"]
    for argument in arguments:
        command.append(f"--input={spec_of(argument)}")
    times = times_of_bench(command, **with_threads(threads))
    jit = [times[each] for each in ("jit", "jit-legacy", "jit-frozen") if each in times]
    return {"sconce": times["sconce"], "best jit": min(jit), "static": times.get("static"), "eager": times.get("eager")}


def times_of_step(build: Path, models: Path, name: str, arguments: tuple, seconds: float, threads: int) -> Times:
    command = [str(build / "bin" / "sconce"), "bench", str(models / f"{name}.pt"), "--json",
               f"--seconds={seconds}", "--train=adam", "--against=eager,jit"]
    command += [f"--input={spec_of(argument)}" for argument in arguments]
    times = times_of_bench(command, **with_threads(threads))
    return {"sconce": times["sconce-step"], "C++ eager": times["eager"], "jit": times.get("jit")}


# ---- the run ---------------------------------------------------------------------------------------------------------

def measure(name: str, ours: Callable[[], Times], peers: dict[str, Run], options: argparse.Namespace) -> dict:
    return {"name": name} | row_of(list(rounds_of(ours, peers, options.rounds, options.seconds)))


def measure_group(name: str, row: int, options: argparse.Namespace, notes: list[str]) -> dict:
    operands, function = GROUPS[name]
    torch.manual_seed(0)
    arguments = tuple(torch.randn(row, row) if kind == "m" else torch.randn(row) for kind in operands)
    title = f"{name}, {row * row} elements"
    peers = prepare_peers(Function(function), arguments, notes, title)
    return measure(title, lambda: times_of_group(options.build, name, row, options.threads), peers, options)


def measure_model(name: str, options: argparse.Namespace, notes: list[str]) -> dict:
    torch.manual_seed(0)
    sample = RECIPES[name].build()
    module = sample.module.eval()
    arguments = sample.inputs[MODELS[name]]
    peers = prepare_peers(Function(getattr(module, sample.method), module), arguments, notes, name)
    return measure(
        name, lambda: times_of_model(options.build, options.models, name, sample.method, arguments, options.seconds,
                                     options.threads),
        peers, options)


def measure_step(name: str, options: argparse.Namespace, notes: list[str]) -> dict:
    peers = {}
    for peer, compiler in (("Python eager", None), ("torch.compile", partial(torch.compile, dynamic=False))):
        torch.manual_seed(0)
        sample = RECIPES[name].build()
        arguments = sample.inputs[STEPS[name]]
        try:
            torch._dynamo.reset()
            run = adam_step(sample.module.train(), arguments, compiler)
            run()
            peers[peer] = run
        except Exception as error:  # peers fail in many ways; each is shown
            notes.append(f"step of {name}: {peer}: {line_of(error)}")
    return measure(
        name, lambda: times_of_step(options.build, options.models, name, arguments, options.seconds, options.threads),
        peers, options)


def mean_row(rows: list[dict]) -> dict:
    """Geometric means, over the rows that have all of a column."""
    columns = set.intersection(*({*row["ratios"]} for row in rows))
    return {"name": "geometric mean", "sconce_seconds": None,
            "ratios": {who: math.prod(row["ratios"][who] for row in rows) ** (1 / len(rows)) for who in columns}}


def print_table(title: str, rows: list[dict], columns: list[str]) -> None:
    lines = [(title, "sconce", *columns)]
    for row in rows:
        seconds = row["sconce_seconds"]
        lines.append((row["name"], f"{seconds * 1e6:.3g} us" if seconds else "",
                      *(f"{row['ratios'][who]:.2f}x" if who in row["ratios"] else "-" for who in columns)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(text.ljust(width) if i == 0 else text.rjust(width)
                        for i, (text, width) in enumerate(zip(line, widths))).rstrip())
    print()


def parse_turns(parser: argparse.ArgumentParser, rounds: int, seconds: float) -> argparse.Namespace:
    """Adds the options of turns, parses the command line, and makes LibTorch ready: its threads, no warnings."""
    parser.add_argument("--rounds", metavar="N", type=int, default=rounds, help=f"turns of each ({rounds})")
    parser.add_argument("--seconds", metavar="S", type=float, default=seconds, help=f"least time of a turn ({seconds:g})")
    parser.add_argument("--threads", metavar="N", type=int, default=1, help="threads inside an operator (1)")
    parser.add_argument("--json", action="store_true", help="print JSON to stdout, for programs")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds <= 0 or options.threads < 1:
        parser.error("--rounds and --threads must be at least 1, --seconds above 0")
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(options.threads)
    return options


def with_threads(threads: int) -> dict[str, str]:
    """The environment of sconce's programs."""
    return {"OMP_NUM_THREADS": str(threads)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD", type=Path, help="folder of the build, such as build/release")
    parser.add_argument("models", metavar="MODELS", type=Path, help="folder of the models of the tests: build/models")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[*GROUPS, *MODELS, *STEPS],
                        choices=[*GROUPS, *MODELS, *STEPS],
                        help="groups or models: " + ", ".join(dict.fromkeys([*GROUPS, *MODELS, *STEPS])))
    parser.add_argument("--rows", metavar="N", nargs="+", type=int, default=ROWS, choices=ROWS,
                        help="row lengths of the groups' matrices: " + ", ".join(map(str, ROWS)))
    options = parse_turns(parser, rounds=5, seconds=0.3)
    notes: list[str] = []
    groups, models, steps = [], [], []
    try:
        with torch.no_grad():
            for name in (each for each in GROUPS if each in options.only):
                for row in options.rows:
                    groups.append(measure_group(name, row, options, notes))
                    print(f"measured {groups[-1]['name']}", file=sys.stderr)
            for name in (each for each in MODELS if each in options.only):
                models.append(measure_model(name, options, notes))
                print(f"measured {name}", file=sys.stderr)
        for name in (each for each in STEPS if each in options.only):
            steps.append(measure_step(name, options, notes))
            print(f"measured steps of {name}", file=sys.stderr)
    except UserError as failure:
        print(f"peers: error: {failure}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({"groups": groups, "models": models, "steps": steps, "notes": notes}, indent=2))
        return 0
    if groups:
        print_table("group", groups, ["operators", *PEERS, "memcpy"])
    if models:
        print_table("model", [*models, mean_row(models)], ["best jit", "static", "eager", *PEERS])
    if steps:
        print_table("training step", steps, ["C++ eager", "jit", "Python eager", "torch.compile"])
    for note in notes:
        print(f"note: {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
