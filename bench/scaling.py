#!/usr/bin/env python3
"""Predicts training steps on many ranks from a link and steps that were measured on few.

    torchrun --nproc-per-node 2 bench/scaling.py measure --output link.json
    python bench/scaling.py predict link.json --ranks 8 64 1024 --link 10GbE --link mine=5,20,nccl

`measure` times collectives of 1 KB to 64 MB over the default process group (gloo, or NCCL if there are GPUs; that was not
tried), fits latency and bandwidth, and times steps of the models of bench/data_parallel.py in three ways that take turns:
without other ranks, with a process group that says when each bucket is full and exchanges nothing, and with the exchange.
So the times at which buckets begin are those of the step's own plan. It also measures how much of an exchange the computing
core has for itself. Run it over two hosts to measure a network.

`predict` simulates steps (bench/step_simulation.py, which has the formulas). Its links are the measured one and those of
LINKS, which are assumptions: `--link` chooses some, or gives another as NAME=MICROSECONDS,GB/s[,gloo|nccl|any], for one
message and for one direction. If the measurement was of one host over gloo, it stands for the software at the ends of
another link over gloo: latencies add up, the lower bandwidth holds, and the core works as much; `--bare` leaves that out.
Batches grow along the line through two measured sizes.
"""
import argparse
import datetime
import json
import os
import platform
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from step_simulation import KINDS, TRANSPORTS, Link, Step, bound_by, deviations_of_slowest, fitted, remedies, simulate

ETHERNET = "line rate of the standard; the latency of adapters and a switch is a guess"
NCCL = "the latency is what NCCL's own estimate has for a ring's step (src/graph/tuning.cc, hwLat)"
LINKS = {link.name: link for link in (
    Link("10GbE", 10e-6, 1.25e9, "gloo", source=ETHERNET),
    Link("25GbE", 10e-6, 3.125e9, "gloo", source=ETHERNET),
    Link("100GbE", 10e-6, 12.5e9, "gloo", source=ETHERNET),
    Link("NDR", 9.6e-6, 50e9, "nccl", source=f"InfiniBand NDR, 400 Gb/s; {NCCL}"),
    Link("NVLink", 3.4e-6, 450e9, "nccl", source=f"NVLink 4, 900 GB/s in both directions, one host; {NCCL}", most=8),
)}
SIZES = [4 ** i * 1024 for i in range(9)]  # 1 KB to 64 MB
GROWN = 4  # batches are measured at their size and at so many times it


# ---- measuring ------------------------------------------------------------------------------------------------------------

def spread(values: list[float]) -> list[float]:
    """The lower quartile, the median and the upper quartile."""
    ordered = sorted(values)
    return [ordered[len(ordered) // 4], statistics.median(ordered), ordered[-1 - len(ordered) // 4]]


class Machine:
    """The device of a rank, and its clock."""

    def __init__(self) -> None:
        import torch
        self.torch = torch
        self.has_gpu = torch.cuda.is_available()
        if self.has_gpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        self.device = torch.device("cuda" if self.has_gpu else "cpu")

    def now(self) -> float:
        if self.has_gpu:
            self.torch.cuda.synchronize()
        return time.perf_counter()

    def mark(self) -> object:
        """A point in the order of the work, which is not waited for."""
        if not self.has_gpu:
            return time.perf_counter()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, a: object, b: object) -> float:
        return a.elapsed_time(b) / 1e3 if self.has_gpu else b - a


def silent_group(machine: Machine, ranks: int) -> object:
    """A process group of so many ranks that exchanges nothing. It notes when sums begin, and when they are waited for."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import _register_process_group

    class Silent(dist.ProcessGroup):
        group_name = "silent"

        def __init__(self) -> None:
            super().__init__(0, ranks)
            self.begins, self.waits = [], []  # marks, and the bytes of begins

        def getRank(self) -> int:  # noqa: N802: names of c10d
            return 0

        def getSize(self) -> int:  # noqa: N802
            return ranks

        def getGroupName(self) -> str:  # noqa: N802
            return self.group_name

        def getBackendName(self) -> str:  # noqa: N802
            return self.group_name

        def allreduce(self, tensors: list, options: object = None) -> object:
            self.begins.append((machine.mark(), tensors[0].nbytes))
            return Work()

        def broadcast(self, tensors: list, options: object = None) -> object:
            return Work()

    class Work(dist.Work):
        def wait(self, timeout: object = None) -> bool:
            group.waits.append(machine.mark())
            return True

    group = Silent()
    _register_process_group(group.group_name, group)
    return group


def collective(kind: str, size: int, machine: Machine) -> Callable[..., object]:
    """Exchanges tensors of so many bytes: the whole, of which each rank has a part before or after the exchange, or all."""
    import torch.distributed as dist
    zeros = machine.torch.zeros
    ranks = dist.get_world_size()
    count = max(size // 4 // ranks, 1) * ranks
    whole, part = zeros(count, device=machine.device), zeros(count // ranks, device=machine.device)
    if kind == "all_reduce":
        return lambda **options: dist.all_reduce(whole, **options)
    if kind == "reduce_scatter":
        return lambda **options: dist.reduce_scatter_tensor(part, whole, **options)
    return lambda **options: dist.all_gather_into_tensor(whole, part, **options)


def seconds_of(call: Callable[[], object], times: int, machine: Machine) -> list[float]:
    """The time of each call."""
    import torch.distributed as dist
    dist.barrier()
    marks = [machine.now()]
    for _ in range(times):
        call()
        marks.append(machine.now())
    return [end - begin for begin, end in zip(marks, marks[1:])]


def measure_collectives(rounds: int, machine: Machine) -> dict:
    calls = {(kind, size): collective(kind, size, machine) for kind in KINDS for size in SIZES}
    times = {each: [] for each in calls}
    for number in range(rounds + 1):
        for (kind, size), call in calls.items():
            seconds = seconds_of(call, max(2, min(50, 2**22 // size)), machine)
            times[kind, size] += seconds if number > 0 else []
    return {kind: [[size, *spread(times[kind, size])] for size in SIZES] for kind in KINDS}


def measure_overlap(rounds: int, machine: Machine) -> list[float]:
    """The share of an exchange during which the core computes: the least, the median and the largest of three sizes.

    Exchanges and products of matrices run at once and one after another.
    """
    torch = machine.torch
    a = torch.zeros(256, 256, device=machine.device)
    out = torch.empty_like(a)
    found = []
    for size in (2**20, 4 * 2**20, 16 * 2**20):
        exchange = collective("all_reduce", size, machine)
        alone = statistics.median(seconds_of(exchange, 9, machine))
        product = statistics.median(seconds_of(lambda: torch.mm(a, a, out=out), 50, machine))
        # All ranks compute as much, and as long as the exchange takes.
        count = torch.tensor([max(1.0, 1.2 * alone / product)], device=machine.device)
        torch.distributed.broadcast(count, 0)
        products = int(count.item())

        def compute() -> None:
            for _ in range(products):
                torch.mm(a, a, out=out)

        def both() -> None:
            work = exchange(async_op=True)
            compute()
            work.wait()

        def after() -> None:
            exchange()
            compute()

        times = {each: [] for each in (both, after, compute, exchange)}
        for _ in range(2 * rounds):
            for each, seconds in times.items():
                seconds += seconds_of(each, 5, machine)
        together, in_turn, computing, exchanging = (statistics.median(seconds) for seconds in times.values())
        found.append(min(1.0, (in_turn - together) / min(computing, exchanging)))
    return sorted(found)


def measure_model(case: str, rounds: int, steps: int, machine: Machine) -> dict:
    import sconce
    import torch.distributed as dist
    from data_parallel import CASES
    from torch._C._distributed_c10d import _unregister_process_group
    torch, ranks = machine.torch, dist.get_world_size()
    make, batch, samples = CASES[case]
    torch.manual_seed(0)
    start = make().to(machine.device).state_dict()
    silent, group = silent_group(machine, ranks), dist.new_group()

    def step_with(group: object) -> object:
        model = make().to(machine.device)
        model.load_state_dict(start)
        return sconce.TrainStep(model, torch.nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), 1e-3),
                                process_group=group)

    ways = {"alone": step_with(None), "silent": step_with(silent), "ranks": step_with(group)}
    torch.manual_seed(dist.get_rank() + 1)
    batches = {times: [torch.cat(parts).to(machine.device) for parts in zip(*(batch() for _ in range(times)))]
               for times in (1, GROWN)}
    result = {"samples": samples, "batches": {}}
    for times, (x, y) in batches.items():
        for way in ways.values():
            for _ in range(6):
                way(x, y)
            way.wait_for_compiles()
        # As many steps on all ranks: more of short ones.
        count = torch.tensor([0.4 / statistics.median(seconds_of(lambda: ways["alone"](x, y), 5, machine))],
                             device=machine.device)
        dist.broadcast(count, 0)
        in_round = max(steps, min(10, int(count.item())))
        seconds = {name: [] for name in ways}
        begins, waits, sizes = [], [], []
        order = list(ways)
        for number in range(rounds):
            for name in order[number % 3:] + order[:number % 3]:
                for _ in range(in_round):
                    dist.barrier()
                    silent.begins.clear()
                    silent.waits.clear()
                    begin, mark = machine.now(), machine.mark()
                    ways[name](x, y)
                    seconds[name].append(machine.now() - begin)
                    if name == "silent":
                        begins.append([machine.between(mark, each) for each, _ in silent.begins])
                        waits.append(machine.between(mark, silent.waits[0]))
                        sizes = [size for _, size in silent.begins]
        found = ways["silent"].explain()
        if [each["bytes"] for each in found["reductions"]] != sizes or not found["updated_by_plan"]:
            raise RuntimeError(f"{case}: the step is not run by a plan that sums its gradients: {found['reasons']}")
        # Steps of one round are compared with each other, as the machine may be faster in another one. A rank without others
        # does no more work.
        ends = statistics.median(seconds["silent"])
        alone = min(1.0, statistics.median(a / b for a, b in zip(seconds["alone"], seconds["silent"]))) * ends
        full = [statistics.median(each) for each in zip(*begins)]
        step = Step(alone, tuple(zip(full, sizes)), statistics.median(waits), ends)
        of_ranks = [None] * ranks
        dist.all_gather_object(of_ranks, seconds["silent"])
        slowest = statistics.median(max(each) for each in zip(*of_ranks)) / statistics.median(sum(of_ranks, []))
        result["batches"][times] = {"step": asdict(step), "deviation": max(0.0, slowest - 1) / deviations_of_slowest(ranks),
                                    **{name: spread(seconds[name]) for name in ways}}
    result["nodes"] = [[each["begins_after"], each["waits_after"]] for each in found["reductions"]]
    del ways, way
    dist.destroy_process_group(group)
    _unregister_process_group(silent.group_name)
    return result


def measure(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    machine = Machine()
    dist.init_process_group("nccl" if machine.has_gpu else "gloo", timeout=datetime.timedelta(seconds=300))
    torch.set_num_threads(1)
    hosts = [None] * dist.get_world_size()
    dist.all_gather_object(hosts, socket.gethostname())
    found = {"backend": dist.get_backend(), "ranks": dist.get_world_size(), "hosts": len(set(hosts)),
             "cores": os.cpu_count(), "machine": platform.machine(),
             "collectives": measure_collectives(arguments.rounds, machine),
             "overlap": measure_overlap(arguments.rounds, machine), "models": {}}
    for case in arguments.case or CASES_OF_MODELS:
        found["models"][case] = measure_model(case, arguments.rounds, arguments.steps, machine)
    if dist.get_rank() == 0:
        Path(arguments.output).write_text(json.dumps(found, indent=1) + "\n")
        print_measured(found)
        print_validation(found)
    dist.destroy_process_group()


# ---- predicting -----------------------------------------------------------------------------------------------------------

CASES_OF_MODELS = ("mlp", "transformer", "cnn")


def measured_link(found: dict, overlap: float | None = None) -> Link:
    """The link of a measurement. reduce_scatter and all_gather have its latency and bandwidth, and a factor."""
    ranks = found["ranks"]
    medians = {kind: [(row[0], row[2]) for row in rows] for kind, rows in found["collectives"].items()}
    latency, bandwidth = fitted(medians["all_reduce"], ranks)
    source = f"{found['ranks']} ranks on {found['hosts']} host(s)"
    link = Link("measured", latency, bandwidth, found["backend"], source=source)
    factors = {kind: statistics.median(seconds / link.cost(kind, size, ranks).seconds for size, seconds in medians[kind])
               for kind in KINDS[1:]}
    return replace(link.with_overlap(found["overlap"][1] if overlap is None else overlap), **factors)


def step_at(found: dict, case: str, factor: float = 1.0) -> Step:
    """The step of a batch so many times as large as the first one."""
    batches = {int(times): each["step"] for times, each in found["models"][case]["batches"].items()}
    steps = {times: Step(each["alone"], tuple(map(tuple, each["buckets"])), each["waits"], each["ends"])
             for times, each in batches.items()}
    return steps[1].grown(steps[GROWN], GROWN, factor)


def links_of(arguments: argparse.Namespace, found: dict) -> list[Link]:
    measured = measured_link(found, arguments.overlap)
    links = []
    for text in arguments.link or ["measured", *LINKS]:
        name, is_given, figures = text.partition("=")
        if name == "measured" and not is_given:
            links.append(measured)
            continue
        if is_given:
            parts = figures.split(",")
            if len(parts) not in (2, 3) or parts[-1] not in TRANSPORTS and len(parts) == 3:
                raise ValueError(f"--link {text} is not NAME=MICROSECONDS,GB/s[,{'|'.join(TRANSPORTS)}]")
            latency, bandwidth, transport = (parts + [measured.transport])[:3]
            link = Link(name, float(latency) / 1e6, float(bandwidth) * 1e9, transport, source="--link")
        elif name in LINKS:
            link = LINKS[name]
        else:
            raise ValueError(f"there is no link {name}; there are measured, {', '.join(LINKS)}, and NAME=MICROSECONDS,GB/s")
        if link.transport == "gloo" == measured.transport and found["hosts"] == 1 and not arguments.bare:
            link = link.behind(measured)
        elif arguments.overlap is not None:
            link = link.with_overlap(arguments.overlap)
        links.append(link)
    return links


def predictions(arguments: argparse.Namespace, found: dict) -> list[dict]:
    rows = []
    for case in arguments.case or found["models"]:
        for link in links_of(arguments, found):
            for ranks in arguments.ranks:
                if link.most and ranks > link.most:
                    continue

                def step_of(factor: float, case: str = case, ranks: int = ranks) -> Step:
                    step = step_at(found, case, factor * arguments.batch).faster(arguments.faster)
                    return step.of_slowest(arguments.skew, ranks)
                outcome = simulate(step_of(1.0), link, ranks, arguments.sharded)
                rows.append({"model": case, "link": link.name, "ranks": ranks, **asdict(outcome),
                             "bound_by": bound_by(step_of(1.0), link, ranks, arguments.sharded),
                             "samples": found["models"][case]["samples"] * arguments.batch,
                             **{f"for_90_percent_{name}" if "seconds" not in name else name: value for name, value in
                                remedies(step_of, link, ranks, arguments.sharded).items()}})
    return rows


def validation(found: dict) -> list[dict]:
    """The measured steps with exchange beside what the measured link and the steps without exchange predict."""
    link, ranks, rows = measured_link(found), found["ranks"], []
    for case, model in found["models"].items():
        for times, batch in model["batches"].items():
            low, median, high = batch["ranks"]
            step = step_at(found, case, int(times))
            predicted = simulate(step.of_slowest(batch["deviation"], ranks), link, ranks).seconds
            rows.append({"model": case, "samples": int(times) * model["samples"], "without_exchange": step.ends,
                         "deviation": batch["deviation"], "measured": median, "low": low, "high": high,
                         "predicted": predicted, "error": predicted / median - 1})
    return rows


def print_measured(found: dict) -> None:
    link = measured_link(found)
    print(f"{found['ranks']} ranks on {found['hosts']} host(s), {found['backend']}: {link.latency * 1e6:.1f} us a message, "
          f"{link.bandwidth / 1e9:.2f} GB/s; reduce_scatter takes {link.reduce_scatter:.2f} and all_gather "
          f"{link.all_gather:.2f} of the formula's time")
    print("  {:>10}".format("bytes") + "".join(f"  {kind + ' ms':>24}" for kind in KINDS) + "   fit / all_reduce")
    for rows in zip(*(found["collectives"][kind] for kind in KINDS)):
        size = rows[0][0]
        texts = [f"{row[2] * 1e3:.3f} ({row[1] * 1e3:.3f}-{row[3] * 1e3:.3f})" for row in rows]
        print(f"  {size:10}" + "".join(f"  {text:>24}" for text in texts) +
              f"   {link.cost('all_reduce', size, found['ranks']).seconds / rows[0][2]:.2f}")
    print("  the core computes during {1:.0%} of an exchange ({0:.0%} to {2:.0%})".format(*found["overlap"]))


def print_validation(found: dict) -> None:
    print(f"\nsteps of {found['ranks']} ranks, ms  samples  no exchange  deviation   measured (quartiles)     "
          "predicted  error")
    for row in validation(found):
        quartiles = f"{row['measured'] * 1e3:8.1f} ({row['low'] * 1e3:.1f}-{row['high'] * 1e3:.1f})"
        print(f"  {row['model']:20} {row['samples']:6}  {row['without_exchange'] * 1e3:11.1f}  {row['deviation']:9.1%}  "
              f"{quartiles:24} {row['predicted'] * 1e3:9.1f}  {row['error']:+5.0%}")
    if found["backend"] == "gloo" and found["hosts"] == 1 and found["ranks"] > found["cores"]:
        print(f"  {found['ranks']} ranks share {found['cores']} cores: computing and exchanges are slower than on cores of "
              "their own")


def print_predictions(rows: list[dict], links: list[Link]) -> None:
    for link in links:
        print(f"{link.name}: {link.latency * 1e6:.1f} us, {link.bandwidth / 1e9:.2f} GB/s, {link.transport}"
              f"{'' if link.name == 'measured' else ' (assumed)'}: {link.source}")
    last = None

    def times(value: float | None) -> str:
        return "never" if value is None else "-" if value == 1 else f"x{value:.3g}"
    for row in rows:
        if (row["model"], row["samples"]) != last:
            last = row["model"], row["samples"]
            print(f"\n{row['model']}, {row['samples']:g} samples per rank"
                  "                              90 % at       by itself             ms in one  ms by\n"
                  "  link      ranks   step ms  efficiency  hidden  bound by       batch  bandwidth  1/latency  bucket     "
                  "halving")
        print(f"  {row['link']:9} {row['ranks']:5}  {row['seconds'] * 1e3:8.1f}  {row['efficiency']:10.0%}  "
              f"{row['hidden']:6.0%}  {row['bound_by']:9}  {times(row['for_90_percent_batch']):>9}  "
              f"{times(row['for_90_percent_bandwidth']):>9}  "
              f"{times(row['for_90_percent_latency']):>9}  {row['seconds_in_one_bucket'] * 1e3:9.1f}  "
              f"{row['seconds_by_halving'] * 1e3:7.1f}")


def predict(arguments: argparse.Namespace) -> None:
    found = json.loads(Path(arguments.file).read_text())
    links, rows = links_of(arguments, found), predictions(arguments, found)
    if arguments.json:
        described = [{**asdict(link), "is_measured": link.name == "measured"} for link in links]
        print(json.dumps({"links": described, "predictions": rows, "validation": validation(found)}, indent=1))
        return
    print_measured(found)
    print_validation(found)
    print()
    print_predictions(rows, links)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("measure", help="under torchrun")
    command.add_argument("--output", required=True)
    command.add_argument("--rounds", type=int, default=9)
    command.add_argument("--steps", type=int, default=3)
    command.add_argument("--case", choices=CASES_OF_MODELS, action="append")
    command.set_defaults(run=measure)
    command = commands.add_parser("predict", help="alone")
    command.add_argument("file")
    command.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 1024])
    command.add_argument("--link", action="append",
                         help="measured, a name of LINKS, or NAME=MICROSECONDS,GB/s[,gloo|nccl|any]")
    command.add_argument("--overlap", type=float, help="the share of each exchange during which the core computes")
    command.add_argument("--bare", action="store_true", help="other links as they are, without the measured software")
    command.add_argument("--sharded", action="store_true", help="states sharded by reduce_scatter and all_gather")
    command.add_argument("--batch", type=float, default=1.0, help="so many times the measured batch per rank")
    command.add_argument("--faster", type=float, default=1.0, help="ranks that compute so many times as fast")
    command.add_argument("--skew", type=float, default=0.0,
                         help="the relative standard deviation of ranks' computing times: a step waits for the slowest one")
    command.add_argument("--case", choices=CASES_OF_MODELS, action="append")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=predict)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except ValueError as error:
        sys.exit(f"scaling.py: {error}")


if __name__ == "__main__":
    main()
