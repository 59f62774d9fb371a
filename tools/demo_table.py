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
    against = ",".join(name for name in EXECUTORS if not ("--train" in more and name == "jit-frozen"))
    command = [sconce, "bench", str(models / f"{model}.pt"), "--against", against, "--json", *more]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {each["executor"]: each["ratio_steady"] for each in report["calls"][0]["executors"]}


def cpu_name() -> str:
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return names[0] if names else "unknown CPU"


def main() -> int:
    sconce, models = sys.argv[1], Path(sys.argv[2])
    print(f"\ntime of a call, as a multiple of sconce's (above 1: sconce is faster), on {cpu_name()}")
    for title, threads in (("all cores", []), ("one thread", ["--intra-op", "1"])):
        print(f"{title:36}" + "".join(f"{name:>12}" for name in EXECUTORS), flush=True)
        for model, more, about in ROWS:
            ratios = measure(sconce, models, model, [*more, *threads])
            columns = [f"{ratios[name]:.2f}" if ratios.get(name) else "-" for name in EXECUTORS]
            print(f"  {model + ': ' + about:34}" + "".join(f"{column:>12}" for column in columns), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
