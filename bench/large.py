#!/usr/bin/env python3
"""Times large models, frozen, beside torch::jit's frozen form, torch.compile and ONNX Runtime, in one run.

Weights are random; nothing is downloaded. Ratios are to frozen sconce: above 1, sconce is faster. `unfrozen` is sconce
without `--frozen`, `best jit` the best mode of torch::jit that is not frozen. torch.compile runs with Inductor's freezing.

All take turns; ratios are taken round by round, and the median is shown. A peer that cannot run a model, or gives another
answer than eager PyTorch, is left out of the row, and a note says why. `make large` makes the Python environment and runs
this.

    build/peers-venv/bin/python bench/large.py build/release
    build/peers-venv/bin/python bench/large.py build/release --threads 2 --only resnet50 gpt2 --rounds 5 --json
"""
import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Callable

import torch
from torch import nn

from peers import mean_row, onnx_runtime, parse_turns, prepare_peers, print_table, with_threads
from timing import Run, Times, UserError, cpu_name, output_of, rounds_of, row_of

VOCABULARY = 30000
BERT = {"vocab_size": VOCABULARY, "num_attention_heads": 12}


def vision(name: str) -> Callable[[], tuple[nn.Module, tuple]]:
    def build() -> tuple[nn.Module, tuple]:
        import torchvision
        return torchvision.models.get_model(name, weights=None), (torch.randn(1, 3, 224, 224),)
    return build


class HiddenStates(nn.Module):
    """The last hidden states alone, of what a model returns as an object."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens)[0]


def language(name: str, length: int, **fields: int) -> Callable[[], tuple[nn.Module, tuple]]:
    def build() -> tuple[nn.Module, tuple]:
        import transformers
        config = getattr(transformers, f"{name}Config")(**fields)
        return HiddenStates(getattr(transformers, f"{name}Model")(config)), (torch.randint(1, VOCABULARY, (1, length)),)
    return build


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple]]] = {
    "resnet50": vision("resnet50"),
    "mobilenet_v3_large": vision("mobilenet_v3_large"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "bert, 128 tokens": language("Bert", 128, **BERT),
    "minilm, 128 tokens": language("Bert", 128, **BERT, hidden_size=384, num_hidden_layers=6, intermediate_size=1536),
    "gpt2, 32 tokens": language("GPT2", 32, vocab_size=VOCABULARY, use_cache=False),
    "vit_b_16": vision("vit_b_16"),
    "swin_t": vision("swin_t"),
}


def frozen_compile(module: nn.Module, arguments: tuple) -> Run:
    torch._dynamo.reset()
    with torch._inductor.config.patch(freezing=True):
        compiled = torch.compile(module, dynamic=False)
        compiled(*arguments)
    return lambda: compiled(*arguments)


def times_of(build: Path, model: Path, inputs: Path, seconds: float, threads: int) -> Times:
    command = [str(build / "bin" / "sconce"), "bench", str(model), f"--inputs={inputs}", "--json", f"--seconds={seconds}"]
    times = {}
    for frozen, others in ((True, "jit-frozen"), (False, "jit,jit-legacy")):
        found = output_of([*command, f"--against={others}", *(["--frozen"] if frozen else [])], **with_threads(threads))["calls"][0]["executors"]
        medians = {each["executor"]: each["median_seconds"] for each in found if each.get("median_seconds")}
        times["sconce" if frozen else "unfrozen"] = medians.pop("sconce")
        times["jit frozen" if frozen else "best jit"] = min(medians.values(), default=0.0)
    return times


def measure(name: str, options: argparse.Namespace, notes: list[str]) -> dict:
    torch.manual_seed(0)
    module, arguments = MODELS[name]()
    module = module.eval()
    with tempfile.TemporaryDirectory() as scratch:
        model, inputs = Path(scratch) / "model.pt", Path(scratch) / "inputs.pt"
        try:
            script = torch.jit.script(module)
        except Exception:  # written for tracing; what cannot be scripted is traced
            script = torch.jit.trace(module, arguments, check_trace=False)
        script.save(str(model))
        torch.save(arguments, inputs)
        peers = prepare_peers(module, arguments, notes, name, {"torch.compile": frozen_compile, "ONNX Runtime": onnx_runtime})
        rounds = rounds_of(lambda: times_of(options.build, model, inputs, options.seconds, options.threads), peers,
                           options.rounds, options.seconds)
        return {"name": name} | row_of(list(rounds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD", type=Path, help="folder of the build, such as build/release")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[*MODELS], choices=[*MODELS],
                        help="models: " + "; ".join(MODELS))
    options = parse_turns(parser, rounds=3, seconds=4.0)  # packed weights take some calls
    notes: list[str] = []
    rows = []
    try:
        with torch.no_grad():
            for name in options.only:
                rows.append(measure(name, options, notes))
                print(f"measured {name}: {rows[-1]['ratios']}", file=sys.stderr)
    except UserError as failure:
        print(f"large: error: {failure}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({"models": rows, "notes": notes}, indent=2))
        return 0
    print(f"{cpu_name()}, {options.threads} threads inside an operator")
    print_table("frozen model", [*rows, mean_row(rows)], ["jit frozen", "torch.compile", "ONNX Runtime", "unfrozen", "best jit"])
    for note in notes:
        print(f"note: {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
