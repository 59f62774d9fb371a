#!/usr/bin/env python3
"""Trains under torchrun while ranks are killed or stopped at random times, and compares with an undisturbed training.

    kill_ranks.py SCONCE FOLDER [--runs N] [--processes N] [--seed N]

SCONCE is the command line program; FOLDER gets the model, the data and what the trainings write. Each run ends trained, with
the bits of the undisturbed one, whatever happened to its ranks; or it says, in its log, which rank failed. Prints a line a run.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn


def write_files(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.Dropout(0.1), nn.ReLU(), nn.Linear(256, 5))
    torch.jit.script(model).save(folder / "model.pt")
    x = torch.randn(4000, 32)
    torch.save((x, (x[:, :5]).argmax(1)), folder / "data.pt")


def command(sconce, folder, output, processes, restarts):
    return [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", str(processes), "--max-restarts",
            str(restarts), "--monitor-interval", "0.1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
            sconce, "train", str(folder / "model.pt"), "--data", str(folder / "data.pt"), "--loss", "cross_entropy",
            "--optimizer", "adam", "--batch", "10", "--epochs", "3", "--checkpoint-every", "20", "--shard-optimizer",
            "--output", str(output), "--resume", "auto"]


def children_of(pid):
    """The ranks that the agent has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(each) for each in task.read_text().split()]
    return found


def parameters(folder):
    return torch.jit.load(folder / "model.pt").state_dict()


def run(arguments, number, whole, seconds, rng):
    folder = Path(arguments.folder)
    output = folder / f"run{number}"
    log = (folder / f"run{number}.log").open("w")
    agent = subprocess.Popen(command(arguments.sconce, folder, output, arguments.processes, restarts=3), stdout=log, stderr=log,
                             env=os.environ | {"OMP_NUM_THREADS": "1"})
    happened = []
    for event in range(rng.randint(1, 2)):
        while not children_of(agent.pid) and agent.poll() is None:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 0.4 * seconds))
        ranks = children_of(agent.pid)
        if not ranks:
            break  # it has ended
        victim = rng.randrange(len(ranks))
        what = "kill" if event == 0 else rng.choice(["kill", "pause"])
        try:
            if what == "kill":
                os.kill(ranks[victim], signal.SIGKILL)
            else:
                os.kill(ranks[victim], signal.SIGSTOP)
                time.sleep(rng.uniform(0.1, 1))
                os.kill(ranks[victim], signal.SIGCONT)
        except ProcessLookupError:
            continue
        happened.append(f"{what} {victim}")
    try:
        code = agent.wait(timeout=180)
    except subprocess.TimeoutExpired:
        agent.kill()
        return f"HANGS: {happened}"
    if code != 0:
        return f"ends with {code}: {happened}"
    found = parameters(output)
    equal = all(torch.equal(found[name], whole[name]) for name in whole)
    return f"{'equal' if equal else 'DIFFERS'}: {happened}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sconce")
    parser.add_argument("folder")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = Path(arguments.folder)
    write_files(folder)
    begin = time.monotonic()
    with (folder / "whole.log").open("w") as log:
        subprocess.run(command(arguments.sconce, folder, folder / "whole", arguments.processes, restarts=0), check=True,
                       stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"})
    seconds = time.monotonic() - begin
    whole = parameters(folder / "whole")
    rng = random.Random(arguments.seed)
    bad = 0
    for number in range(arguments.runs):
        outcome = run(arguments, number, whole, seconds, rng)
        bad += not outcome.startswith("equal")
        print(number, outcome, flush=True)
    print(f"{arguments.runs - bad} of {arguments.runs} runs end with the parameters of the undisturbed one")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
