"""The trace itself: what it says of itself, what it refuses to hold, the workload it becomes."""

from __future__ import annotations

import numpy as np
import pytest

from tileq_profiling.readers import Label, PrefixBlocks, Trace
from tileq_theory.errors import InputError


def trace(prompts=(10, 20, 30), outputs=(1, 2, 3), times=(0.0, 1.0, 4.0), **more):
    arrival = None if times is None else np.array(times, float)
    return Trace(np.array(prompts, int), np.array(outputs, int), arrival, "x.csv (csv)", "csv", (), (), **more)


def test_rate_and_gaps():
    assert (trace().count, trace().duration_s, trace().rate_per_s) == (3, 4.0, 0.5)
    assert trace().interarrival_cv == pytest.approx(0.5)  # gaps 1 and 3: standard deviation 1, mean 2
    assert "0.5/s" in trace().describe() and "no arrivals" in trace(times=None).describe()


@pytest.mark.parametrize("times", [None, (0.0, 0.0, 0.0)])
def test_no_rate_without_time(times):
    assert trace(times=times).rate_per_s is None
    assert trace(times=times).interarrival_cv is None
    assert trace(times=times).to_workload().arrivals is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompts": (), "outputs": (), "times": None},
        {"prompts": (10, 0, 30)},
        {"outputs": (1, -2, 3)},
        {"times": (1.0, 2.0, 3.0)},
        {"times": (0.0, 2.0, 1.0)},
    ],
)
def test_refuses_what_is_no_trace(wrong):
    with pytest.raises(InputError):
        trace(**wrong)


def test_spread_needs_arrivals_and_is_reproducible():
    with pytest.raises(InputError, match="no arrivals"):
        trace(times=None).spread_arrivals(1)
    ticks = trace(times=(0.0, 0.0, 3.0))
    first, again = ticks.spread_arrivals(1), ticks.spread_arrivals(1)
    assert first.arrival_s.tolist() == again.arrival_s.tolist()
    assert first.arrival_s[0] == 0 and np.all(np.diff(first.arrival_s) > 0)


def test_spread_is_uniform_within_ticks():
    # 2000 requests per tick of 3 s: positions within a tick are uniform. Kolmogorov-Smirnov at 1e-6 false alarms.
    from scipy.stats import kstest

    times = np.repeat(np.arange(0, 30, 3.0), 2000)
    spread = trace(np.ones(20_000, int), np.ones(20_000, int), times).spread_arrivals(7).arrival_s
    assert kstest(spread / spread[-1], "uniform").pvalue > 1e-6


def test_prefix_blocks_follow_a_selection():
    blocks = PrefixBlocks(np.array([1, 2, 3, 4]), np.array([0, 2, 2, 4]), 16)
    taken = blocks.take(np.array([2, 0, 1]))
    assert [taken.of(i).tolist() for i in range(3)] == [[3, 4], [1, 2], []]


def test_workload_keeps_pairs_and_gaps():
    workload = trace().to_workload()
    assert workload.rate_per_s == pytest.approx(0.5)
    demand = workload.demand(chunk_tokens=8, convention="paper")
    assert demand.prefill_tokens == pytest.approx(20.0)
    assert trace().to_workload(arrivals=False).arrivals is None
    assert workload.provenance.kind == "measured"


def test_classes_by_label():
    label = Label("model", ("a", "", "unused"), np.array([0, 1, 0]))
    workload = trace(labels=(label,)).to_workload(by="model")
    assert [c.name for c in workload.classes] == ["a", "no model"]
    assert workload.shares.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert workload.rate_per_s == pytest.approx(0.5)
    with pytest.raises(InputError, match="model"):
        trace(labels=(label,)).to_workload(by="tenant")
