#!/usr/bin/env python3
"""Times sconce on a corpus of models beside torch::jit and eager LibTorch, and prints how the ratios are distributed.

The models are those of bench/corpus: modules of timm, torchvision, torchaudio and transformers with random weights,
layers of torch.nn, and loops and control flow in the styles that projects publish. sconce is not tuned for them.

Ratios are to sconce: above 1, sconce is faster. `best jit` is the fastest mode of torch::jit that does not freeze the model,
`best` the fastest of these and eager execution. Executors take turns in one process (`sconce bench`); with several rounds,
each ratio is the median over processes. A training step is forward, the mean square of the outputs, backward and Adam's
update. Its ratios are to `sconce-step`, which runs the step as one plan; `plain` is `best` to sconce without that, and `loop`
the same of forward and backward alone.

A model that sconce cannot run, or whose result differs from eager LibTorch's, is listed as such and not among the
ratios; the exit code is 1 then.
Results go to FOLDER/corpus.json and FOLDER/corpus.md after each model. `make corpus` makes the Python environment and runs
this.

    build/corpus-venv/bin/python bench/corpus.py build/release --out build/corpus
    build/corpus-venv/bin/python bench/corpus.py build/release --out build/corpus --resume --train --threads 1 2
    build/venv/bin/python bench/corpus.py build/release --only recurrent layers --quick --profile
"""
import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from corpus.record import FAMILIES, MODELS, Example, Model, load_families, missing_packages
from corpus.report import TROUBLES, markdown, profile_of, summary
from timing import Results, UserError, cpu_name, line_of, output_of, tensors_in

PACKAGES = ("torch", "torchvision", "timm", "torchaudio", "transformers")
AGAINST = {"inference": "jit,jit-legacy,eager", "training": "jit,eager"}


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def machine_of(options: argparse.Namespace) -> dict:
    return {"cpu": cpu_name(), "cores": os.cpu_count(),
            **{package: version_of(package) for package in PACKAGES},
            **{name: getattr(options, name) for name in ("seconds", "rounds", "batch", "profile", "check")}}


# ---- one model -------------------------------------------------------------------------------------------------------

class CorpusError(Exception):
    """LibTorch itself cannot run what the corpus builds."""


def build(model: Model, trains: bool, options: argparse.Namespace) -> Example:
    """Builds the model and calls it as the executors will."""
    batch = options.batch or (4 if trains else 1)
    try:
        example = model.build(batch)
        example.module.train(trains)
        with torch.set_grad_enabled(trains), torch.jit.optimized_execution(False):
            outputs = example.module(*example.inputs)
        if trains and not any(each.requires_grad for each in tensors_in(outputs)):
            raise ValueError("no output requires a gradient")
        return example
    except Exception as error:  # packages fail in many ways; each is shown
        if options.verbose:
            traceback.print_exc()
        raise CorpusError(line_of(error)) from error


def rounds_of_bench(path: Path, inputs: Path, mode: str, threads: int, options: argparse.Namespace) -> list[dict]:
    command = [str(options.build / "bin" / "sconce"), "bench", str(path), f"--inputs={inputs}", "--json",
               f"--intra-op={threads}", f"--seconds={options.seconds}", f"--against={AGAINST[mode]}"]
    if mode == "training":
        command.append("--train=adam")
    if options.profile:
        command.append("--profile")
    rounds = []
    for _ in range(options.rounds):
        found = output_of(command, may_mismatch=True, timeout=options.timeout, OMP_NUM_THREADS=str(threads))
        if "error" in found:
            raise UserError(found["error"])
        rounds.append(found["calls"][0])
    return rounds


def times_of(round_: dict) -> dict[str, float]:
    """The steady medians by executor, with those of the fastest peers."""
    times = {each["executor"]: each["median_seconds"] for each in round_["executors"] if each.get("median_seconds")}
    jit = [times[who] for who in ("jit", "jit-legacy") if who in times]
    peers = jit + [times[who] for who in ("eager",) if who in times]
    if any(each["executor"] == "sconce-step" for each in round_["executors"]):
        renamed = {"plain": times.pop("sconce", None), "sconce": times.pop("sconce-step", None)}
        times |= {who: seconds for who, seconds in renamed.items() if seconds}
    return times | ({"best jit": min(jit)} if jit else {}) | ({"best": min(peers)} if peers else {})


def plain_loops_of(round_: dict) -> float | None:
    """The forward and backward of the fastest peer to those of a plain loop with sconce."""
    both = {each["executor"]: each["forward_seconds"] + each["backward_seconds"] for each in round_["executors"]
            if "forward_seconds" in each}
    peers = [both[who] for who in ("jit", "eager") if who in both]
    return min(peers) / both["sconce"] if peers and "sconce" in both else None


def row_of_rounds(rounds: list[dict]) -> dict:
    executors = {each["executor"]: each for each in rounds[0]["executors"]}
    row: dict[str, Any] = {"ratios": {}}
    for who in ("sconce", "sconce-step"):
        reasons = [executors[who][key] for key in ("not_available", "wrong") if executors.get(who, {}).get(key)]
        if reasons:
            row["failure" if "not_available" in executors[who] else "wrong"] = f"{who}: {reasons[0]}"
        if executors.get(who, {}).get("remark"):
            row["remark"] = executors[who]["remark"]
    row["peer_failures"] = [f"{who}: {each[key]}" for who, each in executors.items() if not who.startswith("sconce")
                            for key in ("not_available", "wrong") if each.get(key)]
    times = [times_of(each) for each in rounds]
    if not all("sconce" in each for each in times):
        return row
    row["sconce_seconds"] = statistics.median(each["sconce"] for each in times)
    row["spread"] = executors["sconce"].get("spread")
    for who in sorted(set.intersection(*map(set, times)) - {"sconce", "plain"}):
        row["ratios"][who] = statistics.median(each[who] / each["sconce"] for each in times)
    if all("plain" in each and "best" in each for each in times):
        row["ratios"]["plain"] = statistics.median(each["best"] / each["plain"] for each in times)
    loops = [plain_loops_of(each) for each in rounds]
    if all(loops):
        row["ratios"]["loop"] = statistics.median(loops)
    if "profile" in rounds[-1]:
        row["profile"] = profile_of(rounds[-1]["profile"])
    return row


def check(path: Path, inputs: Path, trains: bool, options: argparse.Namespace) -> dict[str, str]:
    """Says how outputs (and gradients) differ from LibTorch's, and what sconce left out, by `sconce check`."""
    command = [str(options.build / "bin" / "sconce"), "check", str(path), f"--inputs={inputs}", "--json"]
    found = output_of(command + (["--grad"] if trains else []), may_mismatch=True, timeout=options.timeout)
    if "error" in found:
        raise UserError(f"sconce check: {found['error']}")
    texts: dict[str, list[str]] = {"wrong": [], "left_out": []}
    for each in found["failures"]:
        text = f"{each['path']}: {each['what']} (call {each['call']}, plan {each['plan']}, against {each['against']})"
        texts["left_out" if each["path"] == "left out" else "wrong"].append(" ".join(text.split()))
    return {key: "; ".join(found[:2]) for key, found in texts.items() if found}


def in_double(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: in_double(each) for key, each in value.items()}
    return type(value)(map(in_double, value)) if isinstance(value, (list, tuple)) else value


def agrees_in_double(path: Path, inputs: Path, mode: str, options: argparse.Namespace) -> bool:
    """Tells a difference by rounding, which training steps with batch norms enlarge, from a wrong result."""
    wide, wide_inputs = path.with_name("wide.pt"), inputs.with_name("wide_inputs.pt")
    torch.jit.load(path).double().save(str(wide))
    torch.save(in_double(torch.load(inputs)), wide_inputs)
    command = [str(options.build / "bin" / "sconce"), "bench", str(wide), f"--inputs={wide_inputs}", "--json",
               "--intra-op=1", "--seconds=0.05", "--against=eager", *(["--train=adam"] if mode == "training" else [])]
    try:
        found = output_of(command, may_mismatch=True, timeout=options.timeout)
    except UserError:
        return False
    return "error" not in found and not any("wrong" in each or "not_available" in each for each in found["calls"][0]["executors"])


def blame(path: Path, inputs: Path, options: argparse.Namespace) -> str:
    """Says whether sconce alone runs what `sconce bench` failed on, so that another executor may be the cause."""
    command = [str(options.build / "bin" / "sconce"), "run", str(path), f"--inputs={inputs}", "--json", "--repeat=10"]
    try:
        output_of([*command, "--no-grad"], timeout=options.timeout)
    except UserError:
        return ""
    return "; sconce run does not fail"


def measure(model: Model, mode: str, threads: list[int], options: argparse.Namespace) -> dict[str, dict]:
    """Measures the model with these numbers of threads. Returns the rows by their names."""
    trains = mode == "training"
    rows: dict[str, dict] = {}
    names = {name_of(mode, count, model.name): count for count in threads}
    empty = {"family": model.family, "ratios": {}}
    try:
        example = build(model, trains, options)
    except CorpusError as error:
        return {name: empty | {"libtorch_failure": str(error)} for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        path, inputs = Path(scratch) / f"{model.name}.pt", Path(scratch) / "inputs.pt"
        example.module.save(str(path))
        torch.save(example.inputs, inputs)
        del example
        found = None
        for name, count in names.items():
            try:
                row = row_of_rounds(rounds_of_bench(path, inputs, mode, count, options))
                if options.check and found is None and "failure" not in row:
                    found = check(path, inputs, trains, options)
                row |= found or {}
                if "wrong" in row and agrees_in_double(path, inputs, mode, options):
                    row["rounding"] = row.pop("wrong")
            except UserError as failure:
                row = {"failure": f"{failure}{blame(path, inputs, options)}", "ratios": {}}
            rows[name] = empty | row
    return rows


# ---- the run ---------------------------------------------------------------------------------------------------------

def name_of(mode: str, threads: int, model: str) -> str:
    return f"{mode} {threads} {model}"


def source_of(name: str) -> str:
    """What a row depends on beside the build: the file of its family."""
    model = MODELS.get(name.split(" ")[2])
    return model.source if model else "gone"


class Progress:
    """One line on a terminal, else a line per model."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.start = total, 0, time.monotonic()
        self.is_terminal = sys.stderr.isatty()

    def begin(self, model: Model, mode: str) -> None:
        if self.is_terminal:
            seconds = time.monotonic() - self.start
            left = f", {seconds / self.done * (self.total - self.done) / 60:.0f} min left" if self.done else ""
            print(f"\r\033[K[{self.done + 1}/{self.total}{left}] {mode} {model.family}: {model.name}", end="",
                  file=sys.stderr, flush=True)

    def end(self, rows: dict[str, dict]) -> None:
        self.done += 1
        if self.is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        for name, row in rows.items():
            trouble = [f"{key}: {row[key]}" for key in TROUBLES if key in row]
            if trouble or not self.is_terminal:
                ratios = ", ".join(f"{who} {ratio:.2f}x" for who, ratio in row["ratios"].items())
                text = "; ".join([ratios, *trouble] if ratios else trouble)
                print(f"[{self.done}/{self.total}] {name}: {text}", flush=True)


def chosen(only: list[str]) -> list[Model]:
    unknown = [each for each in only if each not in MODELS and each not in FAMILIES]
    if unknown:
        raise UserError(f"--only: no model or family {unknown[0]}; --list shows them")
    models = [each for each in MODELS.values() if not only or each.name in only or each.family in only]
    for family, packages in missing_packages(models).items():
        raise UserError(f"family {family} needs {', '.join(packages)}; run `make corpus`, or choose others with --only")
    return models


def run(options: argparse.Namespace) -> int:
    models = chosen(options.only)
    mode = "training" if options.train else "inference"
    if options.train:
        models = [each for each in models if each.trains]
    file = options.out / "corpus.json"
    results = Results(options.out, "corpus", options.build, machine_of(options),
                      file if options.resume and file.exists() else None, markdown, source_of)
    tasks = [(model, [count for count in options.threads if not results.has(name_of(mode, count, model.name))])
             for model in models]
    tasks = [(model, threads) for model, threads in tasks if threads]
    progress = Progress(len(tasks))
    for model, threads in tasks:
        progress.begin(model, mode)
        rows = measure(model, mode, threads, options)
        for name, row in rows.items():
            results.add(name, row, [])
        progress.end(rows)
    wanted = {name_of(mode, count, model.name) for model in models for count in options.threads}
    rows = {name: row for name, row in results.content["rows"].items() if name in wanted}
    print(summary(rows))
    print(f"\nEverything is in {options.out / 'corpus.md'} and {file}.")
    return 1 if any(key in row for row in rows.values() for key in TROUBLES) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD", type=Path, help="folder with bin/sconce and lib/, such as build/release")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path("build/corpus"),
                        help="where the results go (build/corpus)")
    parser.add_argument("--resume", action="store_true", help="measure only what FOLDER lacks for this build and settings")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[], help="models or families")
    parser.add_argument("--list", action="store_true", help="list the models by family, and end")
    parser.add_argument("--train", action="store_true", help="time training steps, not inference")
    parser.add_argument("--threads", metavar="N", nargs="+", type=int, default=[1], help="threads inside an operator (1)")
    parser.add_argument("--batch", metavar="N", type=int, help="examples in a batch (1; 4 with --train)")
    parser.add_argument("--profile", action="store_true",
                        help="also record the share of time in steps that are not prepared")
    parser.add_argument("--rounds", metavar="N", type=int, default=3, help="processes of each model (3)")
    parser.add_argument("--seconds", metavar="S", type=float, default=0.5,
                        help="steady time of an executor in a process (0.5)")
    parser.add_argument("--quick", action="store_true", help="one round of 0.25 s, compared by `sconce bench` alone")
    parser.add_argument("--timeout", metavar="S", type=float, default=300,
                        help="seconds, after which a process is ended (300)")
    parser.add_argument("--verbose", action="store_true", help="show where a model that cannot be built fails")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.25
    options.check = not options.quick
    if options.rounds < 1 or options.seconds <= 0 or min(options.threads) < 1:
        parser.error("--rounds and --threads must be at least 1, --seconds above 0")
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    load_families()
    if options.list:
        for model in MODELS.values():
            print(f"{model.family:22} {model.name}{'' if model.trains else '  (inference alone)'}")
        return 0
    try:
        return run(options)
    except UserError as failure:
        print(f"corpus: error: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\ncorpus: interrupted; --resume goes on from {options.out}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
