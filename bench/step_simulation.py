"""Simulates a training step on any number of ranks: when each bucket is exchanged, and how long the step waits for it.

An exchange of B bytes between n ranks takes

    all_reduce, ring               2 (n-1) latency       + 2 (n-1)/n B / bandwidth
    all_reduce, halving-doubling   2 ceil(log2 n) latency + 2 (n-1)/n B / bandwidth
    all_reduce, double tree        2 ceil(log2 n) latency + 2 B / bandwidth
    reduce_scatter, all_gather     half of a ring's all_reduce

where `latency` is that of one message and `bandwidth` that of a rank in one direction. The first two are of Thakur,
Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), and Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009); the third is the limit for long messages of
Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009). gloo takes the ring
unless its caller names another algorithm (gloo/allreduce.cc), and c10d names none. NCCL estimates ring and tree by such
formulas and takes the faster one (src/graph/tuning.cc); for reduce_scatter and all_gather it has the ring.
"""
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

# Messages in a row, and the share of the bytes that a rank sends.
ALGORITHMS: dict[str, Callable[[int], tuple[float, float]]] = {
    "ring": lambda ranks: (2 * (ranks - 1), 2 * (ranks - 1) / ranks),
    "halving": lambda ranks: (2 * math.ceil(math.log2(ranks)), 2 * (ranks - 1) / ranks),
    "tree": lambda ranks: (2 * math.ceil(math.log2(ranks)), 2),
}
TRANSPORTS = {"gloo": ("ring",), "nccl": ("ring", "tree"), "any": tuple(ALGORITHMS)}  # what each chooses from
KINDS = ("all_reduce", "reduce_scatter", "all_gather")


@dataclass(frozen=True)
class Cost:
    seconds: float     # of an exchange
    core: float = 0.0  # how long it keeps the core that computes from computing


@dataclass(frozen=True)
class Link:
    name: str
    latency: float                  # seconds of a message
    bandwidth: float                # bytes per second of a rank in one direction
    transport: str = "gloo"
    core_latency: float = 0.0       # seconds of the core that computes: for a message,
    core_per_byte: float = 0.0      # and for a byte that a rank sends
    reduce_scatter: float = 1.0     # its time to that of the formula
    all_gather: float = 1.0         # the same
    source: str = ""
    most: int = 0                   # ranks that it connects; 0 for any number

    def cost(self, kind: str, size: float, ranks: int) -> Cost:
        if ranks == 1:
            return Cost(0.0)
        factor = 1.0 if kind == "all_reduce" else getattr(self, kind) / 2
        names = TRANSPORTS[self.transport] if kind == "all_reduce" else ("ring",)
        costs = []
        for name in names:
            messages, share = ALGORITHMS[name](ranks)
            costs.append(Cost(factor * (messages * self.latency + share * size / self.bandwidth),
                              factor * (messages * self.core_latency + share * size * self.core_per_byte)))
        return min(costs, key=lambda each: each.seconds)

    def with_overlap(self, overlap: float) -> "Link":
        """The core computes during this share of each exchange."""
        return replace(self, core_latency=(1 - overlap) * self.latency, core_per_byte=(1 - overlap) / self.bandwidth)

    def scaled(self, latency: float = 1.0, bandwidth: float = 1.0) -> "Link":
        """A link with so many times the latency and the bandwidth, in the core's work, too."""
        return replace(self, latency=self.latency * latency, core_latency=self.core_latency * latency,
                       bandwidth=self.bandwidth * bandwidth, core_per_byte=self.core_per_byte / bandwidth)

    def behind(self, software: "Link") -> "Link":
        """This link, where the ends are those of another one, which was measured without a network."""
        return replace(software, name=self.name, source=self.source, most=self.most, latency=software.latency + self.latency,
                       bandwidth=min(software.bandwidth, self.bandwidth))


def fitted(points: list[tuple[float, float]], ranks: int, factor: float = 1.0) -> tuple[float, float]:
    """Latency and bandwidth of a ring from (bytes, seconds) of all_reduce, by least squares of relative errors."""
    messages, share = ALGORITHMS["ring"](ranks)
    rows = [(factor * messages / seconds, factor * share * size / seconds) for size, seconds in points]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(r[i] for r in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    latency, per_byte = (a * bb - b * ab) / determinant, (aa * b - ab * a) / determinant
    if latency < 0:
        latency, per_byte = 0.0, b / bb
    return latency, 1 / per_byte if per_byte > 0 else math.inf


def deviations_of_slowest(ranks: int) -> float:
    """The expected maximum of so many normal variables, in standard deviations (Blom, 1958)."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


@dataclass(frozen=True)
class Step:
    """A step without exchange. Times are in seconds of computing since its begin."""
    alone: float                         # the whole step of a rank that has no others
    buckets: tuple[tuple[float, int], ...]  # of each one, when it is full, and its bytes
    waits: float                         # when backward is complete and the step waits for all sums
    ends: float                          # with the updates; more than `alone` by the copies into buckets

    def grown(self, other: "Step", times: float, factor: float) -> "Step":
        """The step of a batch `factor` times as large, on the line through this one and `other`, whose batch is `times`."""
        def at(a: float, b: float) -> float:
            return max(0.0, a + (b - a) * (factor - 1) / (times - 1))
        return Step(at(self.alone, other.alone),
                    tuple((at(a, b), size) for (a, size), (b, _) in zip(self.buckets, other.buckets)),
                    at(self.waits, other.waits), at(self.ends, other.ends))

    def faster(self, factor: float) -> "Step":
        return Step(self.alone / factor, tuple((begin / factor, size) for begin, size in self.buckets), self.waits / factor,
                    self.ends / factor)

    def of_slowest(self, deviation: float, ranks: int) -> "Step":
        """The step of the slowest rank, where times until the sums are complete have this relative standard deviation."""
        factor = 1 + deviation * deviations_of_slowest(ranks)
        buckets = tuple((begin * factor, size) for begin, size in self.buckets)
        return replace(self, buckets=buckets, waits=self.waits * factor,
                       ends=self.ends + self.waits * (factor - 1))

    def in_one_bucket(self) -> "Step":
        return replace(self, buckets=((max(begin for begin, _ in self.buckets), sum(size for _, size in self.buckets)),))


@dataclass(frozen=True)
class Outcome:
    seconds: float
    efficiency: float  # the time of a rank alone to this
    exchange: float    # seconds of all exchanges
    hidden: float      # the share of them that does not lengthen the step


def end_of_sums(step: Step, costs: list[Cost]) -> float:
    """When backward and all exchanges are complete. They go on one after another, in the order of the buckets."""
    now = done = 0.0  # the clock, and how much is computed
    for (begins, _), cost in zip(step.buckets, costs):
        if done < begins:
            now, done = now + begins - done, begins
        slowed = max(cost.seconds, cost.core)  # the exchange while the core computes
        left = step.waits - done
        both = 0.0
        if left > 0 and slowed > 0:
            rate = 1 - cost.core / slowed  # of computing meanwhile
            both = slowed if rate * slowed <= left else left / rate
            done += rate * both
        now += both + (cost.seconds * (1 - both / slowed) if slowed > 0 else 0.0)
    return now + step.waits - done


def simulate(step: Step, link: Link, ranks: int, sharded: bool = False) -> Outcome:
    """`sharded`: each rank sums and updates a part (ZeRO-1), and all gather the parts after the updates."""
    if ranks == 1:
        return Outcome(step.alone, 1.0, 0.0, 1.0)
    costs = [link.cost("reduce_scatter" if sharded else "all_reduce", size, ranks) for _, size in step.buckets]
    update = (step.ends - step.waits) / (ranks if sharded else 1)
    gathers = sum(link.cost("all_gather", size, ranks).seconds for _, size in step.buckets) if sharded else 0.0
    seconds = end_of_sums(step, costs) + update + gathers
    exchange = sum(cost.seconds for cost in costs) + gathers
    shown = seconds - (step.waits + update)
    return Outcome(seconds, step.alone / seconds, exchange, max(0.0, 1 - shown / exchange) if exchange > 0 else 1.0)


def bound_by(step: Step, link: Link, ranks: int, sharded: bool = False, goal: float = 0.9) -> str:
    """compute, if the step reaches the goal or an infinitely fast link would not help; else what would help more."""
    base = simulate(step, link, ranks, sharded)
    without_latency, without_bytes, without_both = (
        simulate(step, each, ranks, sharded).seconds
        for each in (link.scaled(latency=0), link.scaled(bandwidth=math.inf), link.scaled(0, math.inf)))
    if base.efficiency >= goal or base.seconds - without_both < (1 - goal) / 2 * base.seconds:
        return "compute"
    return "latency" if without_latency < without_bytes else "bandwidth"


def least(reaches: Callable[[float], bool], most: float = 1e6) -> float | None:
    """The least factor from 1 on that reaches the goal, to one percent; None if `most` does not."""
    if reaches(1.0):
        return 1.0
    high = 2.0
    while not reaches(high):
        high *= 2
        if high > most:
            return None
    low = high / 2
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def remedies(step_of: Callable[[float], Step], link: Link, ranks: int, sharded: bool = False, goal: float = 0.9) -> dict:
    """What would reach the goal: factors of the batch per rank, the bandwidth and 1 / latency, each by itself; None if it
    cannot. And the step's seconds with one bucket for all gradients, and with halving-doubling."""
    step = step_of(1.0)

    def efficiency(step: Step, link: Link) -> float:
        return simulate(step, link, ranks, sharded).efficiency
    return {
        "batch": least(lambda factor: efficiency(step_of(factor), link) >= goal),
        "bandwidth": least(lambda factor: efficiency(step, link.scaled(bandwidth=factor)) >= goal),
        "latency": least(lambda factor: efficiency(step, link.scaled(latency=1 / factor)) >= goal),
        "seconds_in_one_bucket": simulate(step.in_one_bucket(), link, ranks, sharded).seconds,
        "seconds_by_halving": simulate(step, replace(link, transport="any"), ranks, sharded).seconds,
    }
