"""The simulator of bench/scaling.py, in cases whose answers are sums and products."""
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from step_simulation import Link, Step, bound_by, fitted, least, remedies, simulate  # noqa: E402

MS = 1e-3
LINK = Link("link", latency=10e-6, bandwidth=1e9)  # 1 MB takes 1 ms in one direction


def step(*buckets, waits=0.0, ends=None, alone=None):
    ends = waits if ends is None else ends
    return Step(ends if alone is None else alone, buckets, waits, ends)


def seconds(kind, size, ranks, transport="gloo"):
    return replace(LINK, transport=transport).cost(kind, size, ranks).seconds


def test_formulas():
    assert seconds("all_reduce", 8e6, 2) == pytest.approx(2 * 10e-6 + 8 * MS)
    assert seconds("all_reduce", 8e6, 8) == pytest.approx(14 * 10e-6 + 2 * 7 / 8 * 8 * MS)
    assert seconds("reduce_scatter", 8e6, 8) == seconds("all_gather", 8e6, 8) == pytest.approx(7 * 10e-6 + 7 / 8 * 8 * MS)
    assert seconds("all_reduce", 8e6, 1) == 0
    # A few bytes: 2 log2(1024) messages by a tree. gloo has no other way than 2 * 1023 around the ring.
    assert seconds("all_reduce", 8, 1024, "nccl") == pytest.approx(20 * 10e-6, rel=1e-3)
    assert seconds("all_reduce", 8, 1024, "gloo") == pytest.approx(2046 * 10e-6, rel=1e-3)
    assert seconds("all_reduce", 8, 6, "nccl") == pytest.approx(6 * 10e-6, rel=1e-3)  # three levels hold 6 ranks
    # Many bytes on few ranks: a tree sends each of them twice, a ring 2 * 3/4 times.
    assert seconds("all_reduce", 1e9, 4, "nccl") == seconds("all_reduce", 1e9, 4, "gloo") == pytest.approx(1.5, rel=1e-3)
    assert seconds("all_reduce", 8e6, 1024, "any") == pytest.approx(20 * 10e-6 + 2 * 1023 / 1024 * 8 * MS)


def test_a_fit_finds_the_link():
    points = [(size, seconds("all_reduce", size, 4)) for size in (1e3, 1e5, 1e7)]
    assert fitted(points, ranks=4) == pytest.approx((LINK.latency, LINK.bandwidth))


def test_one_bucket_and_no_computing():
    outcome = simulate(step((0.0, 8e6), alone=2 * MS), LINK, 2)
    assert outcome.seconds == outcome.exchange == pytest.approx(8.02 * MS)
    assert outcome.hidden == pytest.approx(0)
    assert outcome.efficiency == pytest.approx(2 / 8.02)


def test_a_hidden_exchange_costs_nothing():
    of_buckets = step((10 * MS, 1e6), (20 * MS, 1e6), waits=50 * MS, ends=60 * MS)
    outcome = simulate(of_buckets, LINK, 64)
    assert outcome.seconds == pytest.approx(60 * MS)
    assert (outcome.hidden, outcome.efficiency) == pytest.approx((1, 1))
    assert bound_by(of_buckets, LINK, 64) == "compute"


def test_the_last_bucket_is_shown():
    outcome = simulate(step((10 * MS, 1e6), (50 * MS, 4e6), waits=50 * MS, ends=60 * MS), LINK, 2)
    assert outcome.seconds == pytest.approx(50 * MS + 4.02 * MS + 10 * MS)  # updates come after all sums
    assert outcome.hidden == pytest.approx(1.02 / 5.04)


def test_exchanges_wait_for_each_other():
    # The second begins 8 ms after the first one, which takes 10.02 ms.
    outcome = simulate(step((2 * MS, 10e6), (10 * MS, 5e6), waits=12 * MS), LINK, 2)
    assert outcome.seconds == pytest.approx(2 * MS + 10.02 * MS + 5.02 * MS)
    # Were it full later, the link would be idle in between.
    outcome = simulate(step((2 * MS, 10e6), (20 * MS, 5e6), waits=20 * MS), LINK, 2)
    assert outcome.seconds == pytest.approx(20 * MS + 5.02 * MS)


@pytest.mark.parametrize("overlap", [1, 0.25, 0, -0.5])
def test_an_exchange_takes_the_core(overlap):
    # 8.02 ms of exchange within 40 ms of computing delay it by the share that is not computed meanwhile.
    outcome = simulate(step((10 * MS, 8e6), waits=50 * MS), LINK.with_overlap(overlap), 2)
    assert outcome.seconds == pytest.approx(50 * MS + (1 - overlap) * 8.02 * MS)
    assert outcome.hidden == pytest.approx(max(0, overlap))


def test_computing_ends_within_an_exchange():
    # At half the speed, the last 2 ms of computing take 4 of the 8.02 ms.
    outcome = simulate(step((10 * MS, 8e6), waits=12 * MS), LINK.with_overlap(0.5), 2)
    assert outcome.seconds == pytest.approx(18.02 * MS)
    # An exchange that is slowed to 12.03 ms is as fast as ever once nothing is computed.
    outcome = simulate(step((10 * MS, 8e6), waits=10 * MS), LINK.with_overlap(-0.5), 2)
    assert outcome.seconds == pytest.approx(18.02 * MS)


def test_shards():
    # Half of an all_reduce before the updates, of which each rank has an eighth, and half after them.
    outcome = simulate(step((50 * MS, 8e6), waits=50 * MS, ends=58 * MS), LINK, 8, sharded=True)
    half = 7 * 10e-6 + 7 * MS
    assert outcome.seconds == pytest.approx(50 * MS + half + 1 * MS + half)
    assert outcome.hidden == pytest.approx(0)


def test_bounds():
    small, large = step((10 * MS, 1e3), waits=10 * MS), step((10 * MS, 100e6), waits=10 * MS)
    assert bound_by(small, LINK, 1024) == "latency"
    assert bound_by(large, LINK, 8) == "bandwidth"
    assert bound_by(small, LINK, 8) == "compute"
    # Copies into buckets are no fault of the link.
    assert bound_by(step((20 * MS, 1e3), waits=20 * MS, alone=10 * MS), LINK, 2) == "compute"


def test_remedies():
    # 20.46 ms of messages behind 10 ms of computing: 90 % need 9 times as much computing as exchange.
    found = remedies(lambda factor: step((10 * MS * factor, 1e3), waits=10 * MS * factor), LINK, 1024)
    assert found["batch"] == pytest.approx(9 * 20.46 / 10, rel=0.02)
    assert found["bandwidth"] is None
    assert found["latency"] == pytest.approx(9 * 20.46 / 10, rel=0.02)
    assert found["seconds_by_halving"] == pytest.approx(10.2 * MS, rel=0.01)
    two = step((10 * MS, 500), (10 * MS, 500), waits=10 * MS)
    assert simulate(two, LINK, 1024).seconds == pytest.approx(50.92 * MS, rel=1e-3)
    assert remedies(lambda factor: two, LINK, 1024)["seconds_in_one_bucket"] == pytest.approx(30.46 * MS, rel=1e-3)
    assert (least(lambda factor: True), least(lambda factor: False)) == (1, None)


def test_batches_between_two_measured_ones():
    small, large = step((6 * MS, 100), waits=10 * MS, ends=12 * MS), step((18 * MS, 100), waits=34 * MS, ends=36 * MS)
    assert small.grown(large, 4, 1) == small
    grown = small.grown(large, 4, 7)
    assert (grown.alone, grown.buckets[0][0], grown.waits) == pytest.approx((60 * MS, 30 * MS, 58 * MS))


def test_the_slowest_rank():
    slow = step((10 * MS, 100), waits=20 * MS, ends=25 * MS).of_slowest(0.1, 2)
    expected = 1 + 0.1 / math.sqrt(math.pi)  # the mean of the larger of two normal variables
    assert (slow.waits, slow.ends) == pytest.approx((20 * MS * expected, 20 * MS * expected + 5 * MS), rel=0.01)
    assert slow.alone == 25 * MS


def test_a_network_behind_the_software():
    software = replace(LINK, latency=50e-6, all_gather=2.0).with_overlap(0)
    wire = Link("wire", latency=10e-6, bandwidth=0.5e9).behind(software)
    cost = wire.cost("all_reduce", 8e6, 2)
    assert (cost.seconds, cost.core) == pytest.approx((2 * 60e-6 + 16 * MS, 2 * 50e-6 + 8 * MS))
    assert wire.cost("all_gather", 8e6, 2).seconds == pytest.approx(2 * cost.seconds / 2)
