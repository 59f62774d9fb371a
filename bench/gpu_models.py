#!/usr/bin/env python3
"""Times sconce on a GPU beside eager LibTorch, torch::jit and torch.compile, in one run.

Four tables, of ratios to sconce: above 1, sconce is faster.

    kernel     one or a few operators over a large tensor, without gradients
    forward    forward without gradients
    step       training steps with Adam: forward, the mean square of the outputs, backward, update. `sconce` has the forward
               and the backward plan, `sconce-step` one plan for the whole step; ratios are to the faster of the two
    pointwise  one kernel over 64M elements, and a copy of as many bytes: the share of the copy's bandwidth

All wait for the GPU after each call. sconce's program and the peers take turns; ratios are taken round by round, and the
median is shown. Results go to FOLDER/gpu_models.json and FOLDER/gpu_models.md after each row. What tells most comes first, and
no row begins that would not end in time, if it took as long as the longest so far. A run that is resumed from such a JSON file
measures only what it lacks for this build of sconce and this GPU.

    bench/gpu_models.py build/gpu-carry --out bench/results
    bench/gpu_models.py build/gpu-carry --out bench/results --only mlp lstm_loop --budget 300
"""
import argparse
import logging
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from timing import Results, Run, Times, adam_step, line_of, rounds_of, row_of, times_of_bench

WIDE = 64 << 20  # elements


# ---- what is timed ---------------------------------------------------------------------------------------------------

def mlp() -> tuple[nn.Module, list[str]]:
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers), ["float32[32,64]"]


class LstmLoop(nn.Module):
    """One layer, written as a loop over steps."""

    def __init__(self, size: int) -> None:
        super().__init__()
        bound = size ** -0.5
        self.of_input = nn.Parameter(torch.empty(4 * size, size).uniform_(-bound, bound))
        self.of_state = nn.Parameter(torch.empty(4 * size, size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(4 * size))

    def forward(self, inputs: Tensor, h: Tensor, c: Tensor) -> Tensor:
        outputs: list[Tensor] = []
        for t in range(inputs.size(0)):
            gates = torch.mm(inputs[t], self.of_input.t()) + torch.mm(h, self.of_state.t()) + self.bias
            i, f, g, o = gates.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs)


class CudnnLstm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.LSTM(size, size)

    def forward(self, inputs: Tensor, h: Tensor, c: Tensor) -> Tensor:
        return self.layer(inputs, (h[None], c[None]))[0]


def lstm_loop() -> tuple[nn.Module, list[str]]:
    return LstmLoop(512), ["float32[32,16,512]", "float32[16,512]", "float32[16,512]"]


class EncoderLayer(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(size, 3 * size)
        self.merge = nn.Linear(size, size)
        self.first = nn.LayerNorm(size)
        self.second = nn.LayerNorm(size)
        self.widen = nn.Linear(size, 4 * size)
        self.narrow = nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        parts = self.project(x).view(batch, length, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = self.first(x + self.merge(mixed.transpose(1, 2).reshape(batch, length, size)))
        return self.second(x + self.narrow(F.gelu(self.widen(x))))


def small_encoder() -> tuple[nn.Module, list[str]]:
    return nn.Sequential(EncoderLayer(128, 4), EncoderLayer(128, 4)), ["float32[4,64,128]"]


def bert() -> tuple[nn.Module, list[str]]:
    return nn.Sequential(*(EncoderLayer(768, 12) for _ in range(12))), ["float32[1,128,768]"]


def resnet50() -> tuple[nn.Module, list[str]]:
    import torchvision
    return torchvision.models.resnet50(weights=None), ["float32[1,3,224,224]"]


def bert_bf16_batch() -> tuple[nn.Module, list[str]]:
    return bert()[0].bfloat16(), ["bfloat16[16,128,768]"]


def resnet50_batch() -> tuple[nn.Module, list[str]]:
    return resnet50()[0], ["float32[32,3,224,224]"]


MODELS = {each.__name__: each for each in (mlp, lstm_loop, small_encoder, bert, resnet50, bert_bf16_batch, resnet50_batch)}


class Lines(nn.Module):
    """Some operators, named by which."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.which = which

    def forward(self, x: Tensor) -> Tensor:
        if self.which == "gelu":
            return F.gelu(x * 1.5) + 1
        if self.which == "softmax":
            return F.softmax(x * 0.125, -1)
        if self.which == "layer_norm":
            return F.layer_norm(x * 2, [x.size(-1)])
        if self.which == "row_sum":
            return (x * x).sum(-1)
        if self.which == "column_sum":
            return (x * x).sum(0)
        return (x * x).sum()


# By name: what is computed, of which tensor.
KERNELS = {f"{which}_{short}": (which, f"{dtype}[{sizes}]")
           for which, sizes in (("gelu", "8192,4096"), ("softmax", "16384,1024"), ("layer_norm", "16384,1024"),
                                ("row_sum", "16384,1024"), ("column_sum", "8192,768"), ("sum", "8192,4096"))
           for short, dtype in (("f32", "float32"), ("bf16", "bfloat16"))}
MODULES: dict[str, Callable[[], tuple[nn.Module, list[str]]]] = {
    **MODELS, **{name: lambda which=which, spec=spec: (Lines(which), [spec]) for name, (which, spec) in KERNELS.items()}}
# Library functions that compute the same, but for the order of the sums, from weights of their own.
RIVALS: dict[str, tuple[str, Callable[[], nn.Module]]] = {"lstm_loop": ("cuDNN", lambda: CudnnLstm(512))}


class Pointwise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x * 1.5 + 0.5) * torch.tanh(x)


# ---- the peers -------------------------------------------------------------------------------------------------------

def tensor_of(spec: str, device: torch.device) -> Tensor:
    """A random tensor for a SPEC such as float32[2,3]."""
    dtype, sizes = spec.rstrip("]").split("[")
    return torch.randn([int(size) for size in sizes.split(",")], dtype=getattr(torch, dtype), device=device)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forward_of(module: Callable, arguments: list[Tensor]) -> Run:
    def run() -> Any:
        with torch.no_grad():
            return module(*arguments)

    return run


COMPILERS: dict[str, Optional[Callable]] = {
    "Python eager": None,
    "torch.compile": partial(torch.compile, dynamic=False),
    "reduce-overhead": partial(torch.compile, dynamic=False, mode="reduce-overhead"),
}


def peers_of(name: str, trains: bool, options: argparse.Namespace, notes: list[str]) -> dict[str, Run]:
    makers = {peer: (MODULES[name], compiler) for peer, compiler in COMPILERS.items() if peer in options.against}
    if name in RIVALS:
        peer, make = RIVALS[name]
        makers[peer] = (lambda: (make(), MODELS[name]()[1]), None)
    device = torch.device(options.device)
    ready = {}
    for peer, (make_model, compiler) in makers.items():
        torch._dynamo.reset()
        torch.manual_seed(0)
        module, specs = make_model()
        module = module.to(device).train(trains)
        arguments = [tensor_of(spec, device) for spec in specs]
        try:
            run = adam_step(module, arguments, compiler) if trains else forward_of(
                compiler(module) if compiler else module, arguments)
            for _ in range(3):
                run()
            wait(device)
            ready[peer] = run
        except Exception as error:  # peers fail in many ways; each is shown
            notes.append(f"{name}: {peer}: {line_of(error)}")
    return ready


# ---- sconce's program ------------------------------------------------------------------------------------------------

def times_of_sconce(model: Path, specs: list[str], trains: bool, options: argparse.Namespace) -> Times:
    command = [str(options.build / "bin" / "sconce"), "bench", str(model), "--json", f"--device={options.device}",
               f"--seconds={options.seconds}", "--against=eager,jit", *(f"--input={spec}" for spec in specs)]
    if trains:
        command.append("--train=adam")
    times = {"C++ eager" if who == "eager" else who: seconds for who, seconds in times_of_bench(command).items()}
    times["sconce"] = min(times[who] for who in ("sconce", "sconce-step") if who in times)
    return times


# ---- the run ---------------------------------------------------------------------------------------------------------

def measure(ours: Callable[[], Times], peers: dict[str, Run], options: argparse.Namespace) -> dict:
    return row_of(list(rounds_of(ours, peers, options.rounds, options.seconds, lambda: wait(torch.device(options.device)))))


def measure_model(name: str, trains: bool, options: argparse.Namespace, notes: list[str]) -> dict:
    peers = peers_of(name, trains, options, notes)
    torch.manual_seed(0)
    module, specs = MODULES[name]()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{name}.pt"
        torch.jit.script(module.train(trains)).save(path)
        return measure(lambda: times_of_sconce(path, specs, trains, options), peers, options)


def measure_pointwise(options: argparse.Namespace) -> dict:
    source, target = (torch.randn(options.elements, device=options.device) for _ in range(2))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "pointwise.pt"
        torch.jit.script(Pointwise()).save(path)
        return measure(lambda: times_of_sconce(path, [f"float32[{options.elements}]"], False, options),
                       {"copy": lambda: target.copy_(source)}, options)


def markdown(content: dict) -> str:
    machine = content["machine"]
    lines = [f"# sconce on {machine['gpu']}", "",
             f"PyTorch {machine['torch']}. Ratios to sconce: above 1, sconce is faster.", ""]
    for table in ("pointwise", "kernel", "forward", "step"):
        rows = {name.split(" ", 1)[1]: row for name, row in content["rows"].items() if name.startswith(table + " ")}
        columns = sorted({who for row in rows.values() for who in row["ratios"]})
        if rows:
            lines += ["| " + " | ".join([table, "sconce", *columns]) + " |", "|---" * (len(columns) + 2) + "|"]
        for name, row in rows.items():
            cells = [f"{row['ratios'][who]:.2f}" if who in row["ratios"] else "-" for who in columns]
            lines.append("| " + " | ".join([name, f"{row['sconce_seconds'] * 1e6:.4g} us", *cells]) + " |")
        lines += [""] if rows else []
    return "\n".join(lines + [f"- {note}" for note in content["notes"]]).rstrip() + "\n"


def main() -> int:
    tasks = ["pointwise kernel", *(f"forward {name}" for name in MODELS), *(f"kernel {name}" for name in KERNELS),
             *(f"step {name}" for name in MODELS)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD", type=Path, help="folder with bin/sconce and lib/, such as build/gpu-carry")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path("."), help="where the results go")
    parser.add_argument("--resume", metavar="FILE", type=Path, help="an earlier gpu_models.json")
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=[*MODULES, "pointwise"], default=[*MODULES, "pointwise"],
                        help="some of " + ", ".join([*MODULES, "pointwise"]))
    parser.add_argument("--against", metavar="PEER", nargs="*", choices=[*COMPILERS], default=[*COMPILERS],
                        help="Python's peers, some of " + ", ".join(COMPILERS))
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try this program (cuda)")
    parser.add_argument("--elements", metavar="N", type=int, default=WIDE, help=f"of the pointwise kernel ({WIDE})")
    parser.add_argument("--rounds", metavar="N", type=int, default=3, help="turns of each (3)")
    parser.add_argument("--seconds", metavar="S", type=float, default=0.3, help="least time of a turn (0.3)")
    parser.add_argument("--budget", metavar="S", type=float, default=480, help="seconds, after which no row is begun (480)")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds must be at least 1, --seconds above 0")
    if torch.device(options.device).type == "cuda" and not torch.cuda.is_available():
        print("gpu_models: error: PyTorch finds no GPU; --device cpu tries this program without one", file=sys.stderr)
        return 2
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    is_gpu = torch.device(options.device).type == "cuda"
    machine = {"gpu": torch.cuda.get_device_name() if is_gpu else "none: the CPU", "torch": torch.__version__,
               "threads": torch.get_num_threads()}
    results = Results(options.out, "gpu_models", options.build, machine, options.resume, markdown)
    end = time.monotonic() + options.budget
    failed = unfinished = 0
    longest = 0.0
    for task in tasks:
        table, name = task.split(" ")
        if (name if table != "pointwise" else table) not in options.only or results.has(task):
            continue
        start = time.monotonic()
        if start + longest > end:
            unfinished += 1
            continue
        notes: list[str] = []
        try:
            row = (measure_pointwise(options) if table == "pointwise"
                   else measure_model(name, table == "step", options, notes))
            results.add(task, row, notes)
            print(f"{task}: {row['sconce_seconds'] * 1e6:.4g} us, " +
                  ", ".join(f"{who} {ratio:.2f}x" for who, ratio in row["ratios"].items()), flush=True)
        except Exception as error:  # the other rows are measured all the same
            failed += 1
            print(f"{task}: error: {error}", file=sys.stderr, flush=True)
        longest = max(longest, time.monotonic() - start)
    if unfinished:
        print(f"{unfinished} rows are unfinished; run again with --resume {options.out / 'gpu_models.json'}")
    return 1 if failed or unfinished else 0


if __name__ == "__main__":
    sys.exit(main())
