#!/usr/bin/env python3
"""Prints one table of several `sconce bench` runs: how many times as long LibTorch's executors take, and by what they run.

    tools/demo_table.py SCONCE MODELS_DIR
"""
import json
import subprocess
import sys
from pathlib import Path

EXECUTORS = ["jit", "jit-frozen", "eager"]

# What is run: the model, more arguments of `sconce bench`, and what the reader learns from it.
ROWS = [
    ("mlp", [], "a small model"),
    ("lstm_loop", [], "a loop in the script"),
    ("mlp", ["--train", "adam"], "a training step with Adam"),
    ("resnet18", [], "large convolutions"),
]


def measure(sconce: str, models: Path, model: str, more: list[str]) -> dict[str, float]:
    """Returns the time of a call by executor, in steady state, as a multiple of sconce's."""
    against = ",".join(name for name in EXECUTORS if not (more and name == "jit-frozen"))
    command = [sconce, "bench", str(models / f"{model}.pt"), "--against", against, "--json", *more]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {each["executor"]: each["ratio_steady"] for each in report[0]["executors"]}


def main() -> int:
    sconce, models = sys.argv[1], Path(sys.argv[2])
    print("\ntime of a call, as a multiple of sconce's (above 1: sconce is faster)")
    print(f"{'':32}" + "".join(f"{name:>12}" for name in EXECUTORS), flush=True)
    for model, more, about in ROWS:
        ratios = measure(sconce, models, model, more)
        columns = [f"{ratios[name]:.2f}" if ratios.get(name) else "-" for name in EXECUTORS]
        print(f"{model + ': ' + about:32}" + "".join(f"{column:>12}" for column in columns), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
