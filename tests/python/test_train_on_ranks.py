"""`sconce train` under torchrun: as one process trains, whatever happens to its ranks."""
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

SCONCE = str(Path(os.environ["SCONCE_BIN_DIR"]) / "sconce")
KILLS = Path(__file__).parent / "programs" / "kill_ranks.py"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def files(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 2))
    torch.jit.script(model).save(tmp_path / "model.pt")
    x = torch.randn(200, 8)
    torch.save((x, x[:, :2].argmax(1)), tmp_path / "data.pt")
    torch.save((x[:50], x[:50, :2].argmax(1)), tmp_path / "validation.pt")
    return tmp_path


def train(folder, output, processes, *options):
    prefix = [] if processes == 1 else [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python",
                                         "--nproc-per-node", str(processes)]
    return [*prefix, SCONCE, "train", str(folder / "model.pt"), "--data", str(folder / "data.pt"), "--loss", "cross_entropy",
            "--optimizer", "adam", "--lr", "0.01", "--output", str(folder / output), *options]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def parameters(folder):
    return torch.jit.load(folder / "model.pt").state_dict()


def losses(folder):
    return [[float(row["loss"]), float(row["validation_loss"] or 0)] for row in csv.DictReader((folder / "loss.csv").open())]


@pytest.mark.parametrize("more", [[], ["--accumulate", "2", "--no-shuffle", "--clip-norm", "0.5", "--shard-optimizer"]])
def test_processes_equal_one_with_the_whole_batch(files, more):
    options = ["--epochs", "3", "--validation", str(files / "validation.pt"), "--metric", "accuracy", "--metric", "auc", *more]
    one = run(train(files, "one", 1, "--batch", "24", *options))
    two = run(train(files, "two", 2, "--batch", "12", "--sync-batch-norm", *options))
    assert two.count("epoch 1/3") == one.count("epoch 1/3") == 1
    # 200 examples are 8 batches of 24, and 8 examples: four for each.
    torch.testing.assert_close(torch.tensor(losses(files / "two")), torch.tensor(losses(files / "one")), rtol=1e-3, atol=1e-4)
    found, expected = parameters(files / "two"), parameters(files / "one")
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-2, atol=2e-3)
    assert ("optimizer states" in two) == ("--shard-optimizer" in more)


def test_goes_on_with_other_numbers_of_processes(files):
    options = ["--batch", "10", "--shard-optimizer"]
    run(train(files, "begun", 2, *options, "--epochs", "4", "--max-steps", "15"))
    for processes in (1, 3):
        output = json.loads(run(train(files, f"by{processes}", processes, "--resume", str(files / "begun" / "checkpoint.pt"),
                                      "--json")))
        assert output["steps_done"] == output["steps"]


def test_termination_ends_all_after_the_same_step(files):
    options = ["--batch", "2", "--epochs", "40", "--sync-batch-norm"]
    run(train(files, "whole", 2, *options))
    agent = subprocess.Popen(train(files, "parts", 2, *options), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True)
    while not (files / "parts" / "checkpoint.pt").exists() and agent.poll() is None:
        time.sleep(0.05)
    agent.send_signal(signal.SIGTERM)
    agent.communicate(timeout=120)
    assert (files / "parts" / "checkpoint.pt").exists()
    assert not (files / "parts" / "model.pt").exists(), "it was not interrupted"
    run(train(files, "parts", 2, "--resume", "auto"))
    found, expected = parameters(files / "parts"), parameters(files / "whole")
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


def test_killed_ranks_start_again(tmp_path):
    command = [sys.executable, str(KILLS), SCONCE, str(tmp_path), "--runs", "2", "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill" in done.stdout


def test_batch_norms_need_an_example_in_each_process(files):
    command = train(files, "refused", 3, "--batch", "11", "--epochs", "1", "--sync-batch-norm")  # 200 = 6 * 33 + 2
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    assert done.returncode != 0
    assert "fewer examples than there are processes" in done.stderr
