"""What the scripts that time sconce beside its peers share."""
import hashlib
import json
import os
import platform
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import torch
from torch import Tensor, nn

Run = Callable[[], Any]
Times = dict[str, float]  # seconds of a call, by who ran it


class UserError(Exception):
    """What the caller has to put right."""


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for element in value for tensor in tensors_in(element)]
    return [] if value is None or isinstance(value, str) else [torch.as_tensor(value)]


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


def cpu_name() -> str:
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return names[0] if names else platform.processor()


def line_of(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()[:100] if lines else ''}"


def output_of(command: list[str], may_mismatch: bool = False, timeout: Optional[float] = None, **environment: str) -> Any:
    """The JSON that one of sconce's programs prints, also about a mismatch or error if that is allowed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise UserError(f"{' '.join(command[:2])} took longer than {timeout:.0f} s") from None
    if may_mismatch and done.returncode in (1, 2) and done.stdout.lstrip().startswith(("[", "{")):
        return json.loads(done.stdout)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        how = f"exit code {done.returncode}" if done.returncode > 0 else signal.Signals(-done.returncode).name
        raise UserError(f"{' '.join(command[:2])} failed with {how}: {lines[-1] if lines else 'no message'}")
    return json.loads(done.stdout)


def times_of_bench(command: list[str], **environment: str) -> Times:
    """The steady medians of a `sconce bench --json` of one model."""
    executors = output_of(command, **environment)["calls"][0]["executors"]
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


class Results:
    """The rows so far, in FOLDER/STEM.json and FOLDER/STEM.md.

    Rows of an earlier run are kept if the machine and settings, sconce's libraries and the row's source, by its name, are
    the same.
    """

    def __init__(self, folder: Path, stem: str, build: Path, machine: dict, resume: Optional[Path],
                 markdown: Callable[[dict], str], source_of: Callable[[str], str] = lambda name: "") -> None:
        self.folder, self.stem, self.markdown = folder, stem, markdown
        digest = hashlib.sha256()
        for library in sorted((build / "lib").glob("libsconce*.so")):
            digest.update(library.read_bytes())
        self.build = digest.hexdigest()[:16]
        self.content: dict = {"machine": machine, "rows": {}, "notes": []}
        self.source_of = source_of
        if resume is not None:
            earlier = json.loads(resume.read_text())
            if earlier.get("machine") == machine:
                self.content["rows"] = {name: row for name, row in earlier["rows"].items()
                                        if row["build"] == self.build and row.get("source", "") == source_of(name)}
                self.content["notes"] = earlier["notes"]
        folder.mkdir(parents=True, exist_ok=True)
        self.write()

    def has(self, name: str) -> bool:
        return name in self.content["rows"]

    def add(self, name: str, row: dict, notes: list[str]) -> None:
        self.content["rows"][name] = row | {"build": self.build, "source": self.source_of(name)}
        self.content["notes"] += notes
        self.write()

    def write(self) -> None:
        text = json.dumps(self.content, indent=1) + "\n"
        for suffix, content in ((".json", text), (".md", self.markdown(self.content))):
            new = self.folder / (self.stem + suffix + ".new")
            new.write_text(content)
            new.replace(self.folder / (self.stem + suffix))
