"""What the scripts that time sconce beside its peers share."""
import json
import os
import statistics
import subprocess
import time
from typing import Any, Callable, Iterator, Optional

import torch
from torch import Tensor, nn

Run = Callable[[], Any]
Times = dict[str, float]  # seconds of a call, by who ran it


class UserError(Exception):
    """What the caller has to put right."""


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, (list, tuple)):
        return [tensor for element in value for tensor in tensors_in(element)]
    return [torch.as_tensor(value)]


def adam_step(module: nn.Module, arguments: Any, compiler: Optional[Callable] = None) -> Run:
    """A training step: forward, the mean square of the outputs, backward, update. `compiler` compiles the loss."""

    def loss_of(*inputs: Any) -> Tensor:
        outputs = [each for each in tensors_in(module(*inputs)) if each.is_floating_point()]
        return sum(each.float().pow(2).mean() for each in outputs)

    rate = 1e-6
    optimizer = torch.optim.Adam(module.parameters(), lr=rate if compiler is None else torch.tensor(rate))
    loss, update = loss_of, optimizer.step
    if compiler is not None:
        loss, update = compiler(loss_of), torch.compile(optimizer.step)

    def step() -> None:
        optimizer.zero_grad()
        loss(*arguments).backward()
        update()

    return step


def line_of(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()[:100] if lines else ''}"


def output_of(command: list[str], **environment: str) -> Any:
    """The JSON that one of sconce's programs prints."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"{command[0]} failed with exit code {done.returncode}: {lines[-1] if lines else 'no message'}")
    return json.loads(done.stdout)


def times_of_bench(command: list[str], **environment: str) -> Times:
    """The steady medians of a `sconce bench --json` of one model."""
    executors = output_of(command, **environment)[0]["executors"]
    return {each["executor"]: each["median_seconds"] for each in executors if each.get("median_seconds")}


def seconds_of_call(run: Run, seconds: float, wait: Callable[[], Any]) -> float:
    run()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        wait()
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def rounds_of(ours: Callable[[], Times], peers: dict[str, Run], rounds: int, seconds: float,
              wait: Callable[[], Any] = lambda: None) -> Iterator[Times]:
    """Takes turns. `wait` waits for a device to end the work of a peer's call."""
    for number in range(rounds):
        peers_begin = number % 2 == 1
        times = {} if peers_begin else ours()
        times |= {peer: seconds_of_call(run, seconds, wait) for peer, run in peers.items()}
        yield times | (ours() if peers_begin else {})


def row_of(rounds: list[Times]) -> dict:
    """Medians over the rounds: sconce's time, and the ratios of the others' times to it."""
    others = sorted({who for times in rounds for who, seconds in times.items() if seconds} - {"sconce"})
    return {"sconce_seconds": statistics.median(times["sconce"] for times in rounds),
            "ratios": {who: statistics.median(times[who] / times["sconce"] for times in rounds if times.get(who))
                       for who in others}}
