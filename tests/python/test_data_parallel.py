"""TrainStep on the ranks of torch.distributed, beside a loop of PyTorch's in one process with the whole batch."""
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

PROGRAMS = Path(__file__).parent / "programs"
sys.path.insert(0, str(PROGRAMS))
from train_on_ranks import batch, model  # noqa: E402


def run_on_ranks(program, *arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(PROGRAMS / program)]
    done = subprocess.run(command + list(arguments), capture_output=True, text=True, timeout=300,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Exception ignored" not in done.stderr, done.stderr[-3000:]
    return done.stdout


def test_models_train_on_ranks():
    lines = run_on_ranks("models_on_ranks.py").splitlines()
    assert len([line for line in lines if "by plan" in line]) >= 5  # LibTorch has no LSTM in bfloat16 for some processors


def test_ranks_equal_one_process(tmp_path):
    run_on_ranks("train_on_ranks.py", str(tmp_path))
    ranks = [torch.load(tmp_path / f"rank{i}.pt", weights_only=False) for i in range(2)]

    module = model()
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    for i in range(23):
        optimizer.zero_grad()
        x, y = batch(i)
        # In the last steps, rank 1 has no batch, and rank 0's counts half.
        loss = nn.functional.cross_entropy(module(x), y) / (2 if i >= 20 else 1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
    for a, b, expected in zip(ranks[0]["parameters"], ranks[1]["parameters"], module.parameters()):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, expected.detach(), rtol=1e-4, atol=1e-5)
    assert [each["joined"] for each in ranks] == [0, 3]
    assert ranks[0]["losses"] != ranks[1]["losses"]  # each of its own batch
    assert all(state["step"] == 23 for each in ranks for state in each["adam"]["state"].values())
    explanation = ranks[0]["explanation"]
    assert explanation["updated_by_plan"] == 21  # all but the first of each size
    assert sum(each["parameters"] for each in explanation["reductions"]) == 6
    assert "rank 0 of 2 cannot go on: rank 1" in (tmp_path / "error.txt").read_text()
