#!/usr/bin/env python3
"""Times sconce beside eager LibTorch in the situations in which programs run: how many threads call, and what else runs.

    one caller     one thread calls; operators use all cores
    callers        as many threads call one module as there are cores, and operators of each use all cores, as in a server
    busy core      one thread calls, beside a process that keeps a core busy
    half a core    one thread calls, in a container that may use half a core (a quota of a cgroup; needs the right to make one)

Ratios are eager LibTorch's time to sconce's: above 1, sconce is faster. The models are those of the tests; other ones can be
given with their inputs.

    build/venv/bin/python bench/situations.py build/release
    build/venv/bin/python bench/situations.py build/release --situations callers --models model.pt:inputs.pt --json
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Callable, ContextManager, Iterator

from timing import UserError, output_of

OWN_MODELS = ("resnet18", "mlp", "transformer_encoder", "lstm_loop", "conv_bn_small", "decoder_step")
CGROUPS = Path("/sys/fs/cgroup")
Command = list[str]


@contextlib.contextmanager
def alone() -> Iterator[Command]:
    yield []


@contextlib.contextmanager
def busy_core() -> Iterator[Command]:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield []
    finally:
        busy.kill()
        busy.wait()


@contextlib.contextmanager
def half_a_core() -> Iterator[Command]:
    """A command before that of the benchmark, which puts it into a cgroup of its own."""
    old = (CGROUPS / "cpu").is_dir()
    group = (CGROUPS / "cpu" if old else CGROUPS) / f"sconce_bench_{os.getpid()}"
    try:
        group.mkdir()
        if old:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("50000")
        else:
            (group / "cpu.max").write_text("50000 100000")
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        raise UserError(f"no cgroup can be made here: {error}") from error
    try:
        yield ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
    finally:
        group.rmdir()


SITUATIONS: dict[str, tuple[Callable[[], ContextManager[Command]], int]] = {
    "one caller": (alone, 1),
    "callers": (alone, os.cpu_count() or 1),
    "busy core": (busy_core, 1),
    "half a core": (half_a_core, 1),
}


def ratio_of(model: Path, inputs: Path, callers: int, before: Command, options: argparse.Namespace) -> float:
    command = [*before, str(options.build / "bin" / "sconce"), "bench", str(model), f"--inputs={inputs}", "--json",
               "--against=eager", f"--threads={callers}", f"--seconds={options.seconds}"]
    ratios = []
    for _ in range(options.rounds):
        found = output_of(command, may_mismatch=True, timeout=600)
        if "error" in found:
            raise UserError(found["error"])
        times = {each["executor"]: each["median_seconds"] for each in found["calls"][0]["executors"]}
        ratios.append(times["eager"] / times["sconce"])
    return statistics.median(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD", type=Path, help="folder with bin/sconce, such as build/release")
    parser.add_argument("--models", metavar="MODEL:INPUTS", nargs="+", help="files (models of the tests)")
    parser.add_argument("--models-dir", metavar="FOLDER", type=Path, default=Path("build/models"), help="those of the tests")
    parser.add_argument("--situations", metavar="NAME", nargs="+", choices=SITUATIONS, default=list(SITUATIONS))
    parser.add_argument("--rounds", metavar="N", type=int, default=3, help="processes of each model (3)")
    parser.add_argument("--seconds", metavar="S", type=float, default=0.5, help="of each executor in a process (0.5)")
    parser.add_argument("--json", action="store_true", help="print JSON to stdout, for programs")
    options = parser.parse_args()
    models = [tuple(map(Path, each.split(":", 1))) for each in options.models or
              [f"{options.models_dir / name}.pt:{options.models_dir / name}.cases.pt" for name in OWN_MODELS]]
    results: dict[str, dict[str, float]] = {}
    status = 0
    for name in options.situations:
        make, callers = SITUATIONS[name]
        try:
            with make() as before:
                for model, inputs in models:
                    results.setdefault(name, {})[model.stem] = ratio_of(model, inputs, callers, before, options)
                    if not options.json:
                        print(f"{name:12} {model.stem:24} {results[name][model.stem]:6.2f}x", flush=True)
        except UserError as error:
            print(f"situations.py: {name}: {error}", file=sys.stderr)
            status = 1
    if options.json:
        print(json.dumps(results, indent=2))
    return status


if __name__ == "__main__":
    sys.exit(main())
