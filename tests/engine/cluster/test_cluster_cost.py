"""What a request costs in counted work, which no noise touches: nodes looked at, and comparisons.

tests/bench/test_cluster_speed.py asks the same of up to 1024 nodes, and for the time that it takes.
"""

from __future__ import annotations

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests
from tileq_engine.cluster import Cluster, Node, simulate_cluster
from tileq_theory.iteration_time import IterationTime

COUNT = 4_000


def work(router: str, nodes: int) -> tuple[float, float]:
    """(nodes looked at, comparisons) a request, beside the one look at each node at the end."""
    rng = np.random.default_rng(nodes)
    requests = Requests.from_arrays(
        arrival_s=rng.exponential(1 / (0.7 * nodes), COUNT).cumsum(),
        prompt_tokens=np.maximum(np.rint(rng.exponential(1e6, COUNT)), 1),
        output_tokens=1,
    )
    config = EngineConfig(token_budget=2**31 - 2, max_num_seqs=1, sample_limit=2, gap_mode="histogram")
    cluster = Cluster([Node("s", IterationTime(token_s=1e-6), "sarathi", config, count=nodes)], router=router)
    given = np.arange(COUNT) % 101
    total = simulate_cluster(requests, cluster, sessions=given, prefixes=given).counters
    assert total["finished"] == COUNT
    return (total["touches"] - nodes) / COUNT, total["comparisons"] / COUNT


@pytest.mark.parametrize("router", ["power_of_two", "session_affinity", "tenant", "prefix_affinity"])
def test_work_does_not_grow_with_the_nodes(router: str) -> None:
    touched, compared = zip(*(work(router, nodes) for nodes in (1, 16, 256)), strict=True)
    assert max(touched) <= 4.0
    assert max(touched[1:]) <= min(touched[1:]) + 0.1
    assert max(compared) <= 3.1


@pytest.mark.parametrize("router", ["random", "round_robin", "jsq", "least_work", "most_free"])
def test_work_grows_with_the_logarithm_at_most(router: str) -> None:
    """A request is an arrival and an end: two changes of two trees, log2(nodes) comparisons each."""
    for nodes in (1, 16, 256):
        touched, compared = work(router, nodes)
        assert touched <= 3.1
        assert compared <= 6.5 * np.log2(nodes) + 8
