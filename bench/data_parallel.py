#!/usr/bin/env python3
"""Compares training on several processes: sconce.TrainStep beside PyTorch's DistributedDataParallel, eager and compiled.

    torchrun --nproc-per-node 2 bench/data_parallel.py [--rounds N] [--steps N] [--no-compile]

Each process has one thread. In each round, every way of training takes some steps; the order changes from round to round. The
ratio is the median over rounds. `alone` is sconce's step without the other processes: what reducing costs, and how much of it
is hidden behind backward.
"""
import argparse
import copy
import datetime
import statistics
import time

import sconce
import torch
import torch.distributed as dist
from torch import nn


class Transformer(nn.Module):
    def __init__(self, words=2000, width=256, layers=4):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
                                    for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).flatten(0, 1)


def cnn():
    def block(i, o, stride):
        return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.GroupNorm(8, o), nn.ReLU())
    return nn.Sequential(block(3, 32, 1), block(32, 64, 2), block(64, 64, 1), block(64, 128, 2), block(128, 128, 1),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def mlp(width=1024):
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width),
                         nn.ReLU(), nn.Linear(width, 10))


# The module, a batch of a process, and how many samples it is.
CASES = {
    "mlp": (mlp, lambda: (torch.randn(64, 256), torch.randint(10, (64,))), 64),
    "transformer": (Transformer, lambda: (torch.randint(2000, (4, 64)), torch.randint(2000, (256,))), 256),
    "cnn": (cnn, lambda: (torch.randn(8, 3, 32, 32), torch.randint(10, (8,))), 8),
}


def ways(make, has_compile):
    """Yields names and functions that train a batch. All begin with the same parameters."""
    torch.manual_seed(0)
    start = make()
    loss = nn.CrossEntropyLoss()

    def loop(model, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimizer.step()
            return value.detach()
        return step

    model = nn.parallel.DistributedDataParallel(copy.deepcopy(start))
    yield "ddp", loop(model, torch.optim.Adam(model.parameters(), 1e-3)), model.module
    if has_compile:
        model = nn.parallel.DistributedDataParallel(copy.deepcopy(start))
        yield "ddp compiled", loop(torch.compile(model), torch.optim.Adam(model.parameters(), 1e-3)), model.module
    for name, group in (("sconce", dist.group.WORLD), ("alone", None)):
        model = copy.deepcopy(start)
        step = sconce.TrainStep(model, loss, torch.optim.Adam(model.parameters(), 1e-3), process_group=group)
        call = (lambda step: lambda x, y: step(x, y))(step)
        call.explain = step.explain
        yield name, call, model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--case", choices=CASES, action="append")
    arguments = parser.parse_args()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    torch.set_num_threads(1)
    rank = dist.get_rank()
    for case in arguments.case or CASES:
        make, batch, samples = CASES[case]
        torch.manual_seed(rank + 1)
        batches = [batch() for _ in range(4)]
        each = {name: (step, model) for name, step, model in ways(make, not arguments.no_compile)}
        for name, (step, _) in each.items():
            for i in range(6):
                step(*batches[i % 4])
        parameters = {name: torch.cat([p.detach().flatten() for p in model.parameters()]) for name, (_, model) in each.items()}
        difference = {name: (values - parameters["ddp"]).abs().max().item() for name, values in parameters.items()}
        times = {name: [] for name in each}
        order = list(each)
        for i in range(arguments.rounds):
            for name in order[i % len(order):] + order[:i % len(order)]:
                dist.barrier()
                begin = time.perf_counter()
                for k in range(arguments.steps):
                    each[name][0](*batches[k % 4])
                times[name].append((time.perf_counter() - begin) / arguments.steps)
        if rank == 0:
            print(f"{case}: {dist.get_world_size()} processes, {parameters['ddp'].numel() * 4 / 2**20:.1f} MiB of gradients")
            for name in each:
                median = statistics.median(times[name])
                ratio = statistics.median(a / b for a, b in zip(times[name], times["sconce"]))
                print(f"  {name:14} {median * 1e3:8.2f} ms a step  {dist.get_world_size() * samples / median:9.0f} samples/s  "
                      f"time / sconce's {ratio:5.2f}  parameters after 6 steps differ by {difference[name]:.1e}")
            found = each["sconce"][0].explain()
            print(f"  updated by plan: {found['updated_by_plan']}; buckets: " +
                  ", ".join(f"{b['bytes'] / 2**20:.1f} MiB after {b['begins_after']} of {b['waits_after']}"
                            for b in found["reductions"]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
