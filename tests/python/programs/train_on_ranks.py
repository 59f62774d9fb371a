"""One rank of test_data_parallel.py, started by torchrun: trains, and saves what it has in FOLDER."""
import sys
from pathlib import Path

import sconce
import torch
import torch.distributed as dist
from torch import nn


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))


def batch(step, size=32):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(size, 16, generator=generator), torch.randint(4, (size,), generator=generator)


def buffers_stay_with_another_group():
    """A parameter group that is added makes another step, which leaves each rank its running statistics."""
    torch.manual_seed(dist.get_rank())
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD([*module[0].parameters(), *module[2].parameters()], 1e-2)
    step = sconce.TrainStep(module, nn.MSELoss(), optimizer, process_group=dist.group.WORLD)
    expected = module[0].running_mean.clone()
    for i in range(6):
        if i == 3:
            optimizer.add_param_group({"params": list(module[1].parameters())})
        x = torch.randn(8, 4) + dist.get_rank()
        step(x, torch.zeros(8, 1))
        expected = expected * 0.9 + x.mean(0) * 0.1
    torch.testing.assert_close(module[0].running_mean, expected)


def train(folder):
    dist.init_process_group("gloo")
    buffers_stay_with_another_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank + 5)
    module = model()
    if rank > 0:  # the step begins with rank 0's
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(1)
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    step = sconce.TrainStep(module, nn.CrossEntropyLoss(), optimizer, clip_norm=0.5, process_group=dist.group.WORLD)
    losses = []
    for i in range(20):
        x, y = (each.chunk(world)[rank] for each in batch(i))
        losses.append(step(x, y).item())
        total = torch.tensor(losses[-1])
        dist.all_reduce(total)  # the program's own collectives may stand between steps
    for i in range(20, 23) if rank == 0 else ():  # more batches than the other ranks have
        step(*batch(i))
    joined = step.join()
    saved = {"parameters": [p.detach() for p in module.parameters()], "losses": losses, "joined": joined,
             "explanation": step.explain(), "adam": optimizer.state_dict()}
    torch.save(saved, Path(folder) / f"rank{rank}.pt")
    if rank == 1:
        raise SystemExit(0)
    try:
        step(*batch(23))
    except RuntimeError as error:
        (Path(folder) / "error.txt").write_text(str(error))


if __name__ == "__main__":
    train(sys.argv[1])
