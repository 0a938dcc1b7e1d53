"""Bad input of a cluster: one clear line that says what was given and what is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jaxtyping
import numpy as np
import pytest

from tileq_engine import EngineConfig, PolicyError, Requests
from tileq_engine.cluster import Cluster, Failure, Node, router, simulate_cluster
from tileq_engine.registry import policy
from tileq_theory.disaggregation import KvLink
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime.constant(0.01)
ONE = Node("a", TIME)
PREFILL, DECODE = Node("p", TIME, role="prefill"), Node("d", TIME, role="decode")
LINK = KvLink(1000.0)
ASKED = Requests.from_arrays(
    arrival_s=[0.0, 0.1, 0.2], prompt_tokens=[5, 6, 7], output_tokens=[2, 2, 2], tenant=[0, 1, 2]
)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Cluster([]), "no nodes"),
        (lambda: Cluster([ONE, ONE]), "two nodes of the cluster are called 'a'"),
        (lambda: Cluster([Node("a", TIME, count=2), Node("a-1", TIME)]), "called 'a-1'"),
        (lambda: Cluster([PREFILL], link=LINK), "prefill nodes and no decode node"),
        (lambda: Cluster([ONE, DECODE], link=LINK), "decode nodes and no prefill node"),
        (lambda: Cluster([PREFILL, DECODE]), "has no link"),
        (lambda: KvLink(1000.0, node_bytes_per_s=0.0), "node_bytes_per_s"),
        (lambda: Node("a", TIME, weight=-1.0), "weight of node a"),
        (lambda: Node("a", TIME, weight=0.0), "weight of node a"),
        (lambda: Node("a", TIME, count=0), "count of node a"),
        (lambda: Node("", TIME), "a node's name"),
        (lambda: Node("a", TIME, role="encode"), "role of node a is 'encode'"),
        (lambda: Node("a", TIME, "sarathy"), "sarathi"),
        (lambda: Node("a", 0.01), "time of node a"),
        (lambda: Node("a", TIME, warm_factor=0.5), "warm_factor of node a"),
        (lambda: Node("a", TIME, mttr_s=3.0), "without mtbf_s"),
        (lambda: Node("a", TIME, config=EngineConfig(stop_time_s=1.0)), "config of node a sets stop_time_s"),
        (lambda: Cluster([ONE], router="jsg"), "jsq"),
        (lambda: router("jsq", choices=3), "router jsq has no parameter 'choices'"),
        (lambda: router("power_of_two", choices=0), "choices"),
        (lambda: router("power_of_two", choices=65), "at most 64"),
        (lambda: router("power_of_two", by="length"), "expected 'queue' or 'work'"),
        (lambda: Cluster([PREFILL, DECODE], link=LINK, decode_router="tenant"), "decode_router is 'tenant'"),
        (lambda: Cluster([ONE], on_full="drop"), "on_full is 'drop'"),
        (lambda: Cluster([ONE], rebalance_s=0.0), "rebalance_s"),
        (lambda: Cluster([ONE], rebalance_s=1.0, rebalance_gap=1), "rebalance_gap is 1"),
        (lambda: Cluster([ONE], failures=[Failure("b", 1.0)]), "failure of node 'b'"),
        (lambda: Failure("a", 2.0, 1.0), "expected after 2.0"),
        (lambda: Cluster([ONE, Node("b", TIME, config=EngineConfig(convention="paper"))]), "differ in convention"),
        (lambda: Cluster([ONE]).with_(routers="jsq"), "router"),
        (lambda: simulate_cluster(ASKED, Cluster([ONE], router="session_affinity")), "needs sessions="),
        (lambda: simulate_cluster(ASKED, Cluster([ONE], router="prefix_affinity")), "needs prefixes="),
        (
            lambda: simulate_cluster(ASKED, Cluster([ONE], router="session_affinity"), sessions=[1, 2]),
            "expected 3 whole numbers",
        ),
        (
            lambda: simulate_cluster(ASKED, Cluster([Node("a", TIME, tenants=(0, 1))], router="tenant")),
            "no node serves tenant 2",
        ),
        (lambda: simulate_cluster(ASKED, [ONE]), "expected an object of Cluster"),
        (lambda: simulate_cluster(ASKED, Cluster([ONE]), mode="fast"), "mode is 'fast'"),
        (lambda: simulate_cluster(ASKED, Cluster([ONE]), seed=-1), "seed"),
    ],
)
def test_bad_input_gets_one_clear_line(make: Callable[[], Any], says: str) -> None:
    jaxtyping.config.update("jaxtyping_disable", True)  # some of these are wrong by type: the user's run has no checker
    try:
        with pytest.raises((InputError, ValueError)) as told:
            make()
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    assert says in str(told.value)
    assert "\n" not in str(told.value)


def test_a_policy_that_cannot_run_names_itself() -> None:
    def greedy(R: Any, B: Any, S: Any, P: Any, i: int) -> int:
        raise ZeroDivisionError("asked too much")

    node = Node("a", TIME, policy("sarathi").with_rule(admission=greedy))
    with pytest.raises(PolicyError, match="asked too much"):
        simulate_cluster(ASKED, Cluster([node]))


def test_a_rule_of_the_users_own_runs_compiled_or_plain() -> None:
    def shortest(R: Any, S: Any, P: Any, i: int) -> float:
        return float(R[i].prompt)

    names = {"shortest": 1}

    def odd(R: Any, S: Any, P: Any, i: int) -> float:
        return float(len(str(sorted(names, key=str)))) * 0.0 + R[i].prompt

    rule = policy("sarathi")
    runs = []
    for own in (shortest, odd):
        nodes = [Node("a", TIME, rule.with_rule(order=own), count=2)]
        runs.append(simulate_cluster(ASKED, Cluster(nodes, router="round_robin")))
    assert runs[0].mode == "compiled"
    assert runs[1].mode == "python"
    assert "runs uncompiled" in runs[1].notes[0]
    assert np.array_equal(runs[0].finish_ps, runs[1].finish_ps)


def test_no_requests_at_all() -> None:
    nobody = ASKED.head(0)
    run = simulate_cluster(nobody, Cluster([Node("a", TIME, count=3)]), mode="python")
    assert (run.stop_reason, run.end_ps, run.counters["iterations"]) == ("finished", 0, 0)
    assert len(run.transfers) == len(run.moves) == 0
