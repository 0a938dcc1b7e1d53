"""The cluster's program against closed forms, against the vertices of the nodes' regions, and its own conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.capacity import Limits, capacity, stability_region
from tileq_theory.cluster import ClusterCapacity, NodeGroup, cluster_capacity
from tileq_theory.demand import Demand
from tileq_theory.disaggregation import KvLink, Pool, best_split, rate_of
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Independent, Uniform

QUICK = IterationTime(launch_s=1e-3, weight_floor_s=4e-3, tile_s=2e-3, tile_tokens=64, pair_s=1e-9, kv_token_s=2e-8)
WIDE = IterationTime(launch_s=1e-3, weight_floor_s=2e-3, tile_s=4e-3, tile_tokens=64, pair_s=1e-9, kv_token_s=1e-8)
DAI = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)


def demand(low: int, high: int, few: int, many: int) -> Demand:
    return Independent(Uniform(low, high), Uniform(few, many)).demand(chunk_tokens=512, counting="least")


TALK, READ, WRITE = demand(100, 300, 200, 400), demand(1000, 3000, 10, 40), demand(20, 60, 500, 900)
SMALL, LARGE = Limits(max_batch_tokens=512, kv_tokens=40_000), Limits(max_batch_tokens=512, kv_tokens=90_000)


def by_vertices(groups: list[NodeGroup], demands: list[Demand], shares: np.ndarray) -> float:
    """Maximise over convex combinations of the corners of each node's region: no facet is used."""
    from scipy.optimize import linprog

    corners = []
    for group in groups:
        own = stability_region(group.time, demands, group.limits).vertices * group.count
        corners.append(np.vstack([own, np.zeros(len(demands))]))
    width = sum(len(own) for own in corners) + 1
    flows, weights = np.zeros((len(demands), width)), np.zeros((len(groups), width))
    at = 0
    for g, own in enumerate(corners):
        flows[:, at : at + len(own)] = own.T
        weights[g, at : at + len(own)] = 1
        at += len(own)
    flows[:, -1] = -shares / shares.sum()
    cost = np.zeros(width)
    cost[-1] = -1
    # classes may be served below what corners say: the region is closed downwards
    found = linprog(cost, -flows, np.zeros(len(demands)), weights, np.ones(len(groups)), method="highs")
    return float(found.x[-1])


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.05, 0.95), (1.0, 0.0)])
@pytest.mark.parametrize("counts", [(1, 1), (3, 2)])
def test_two_kinds_of_nodes_against_their_corners(shares: tuple[float, float], counts: tuple[int, int]) -> None:
    groups = [NodeGroup("quick", QUICK, SMALL, counts[0]), NodeGroup("wide", WIDE, LARGE, counts[1])]
    answer = cluster_capacity(groups, [TALK, READ], shares)
    assert answer.kkt.ok(1e-7)
    assert answer.rate_per_s == pytest.approx(by_vertices(groups, [TALK, READ], np.array(shares)), rel=1e-6)
    flows = sum(group.rates_per_s for group in answer.groups)
    assert flows == pytest.approx(answer.rate_per_s * np.array(shares), rel=1e-7, abs=1e-9)
    assert float(answer.class_prices @ flows) == pytest.approx(1, rel=1e-7)
    assert answer.equal_shares_rate_per_s <= answer.same_mix_rate_per_s * (1 + 1e-9)
    assert answer.same_mix_rate_per_s <= answer.rate_per_s * (1 + 1e-7)


def test_three_classes_on_three_kinds() -> None:
    groups = [NodeGroup("a", QUICK, SMALL, 2), NodeGroup("b", WIDE, LARGE), NodeGroup("c", DAI, SMALL, 2)]
    shares = np.array([0.5, 0.3, 0.2])
    answer = cluster_capacity(groups, [TALK, READ, WRITE], shares)
    assert answer.kkt.ok(1e-7)
    assert answer.rate_per_s == pytest.approx(by_vertices(groups, [TALK, READ, WRITE], shares), rel=1e-6)


@settings(max_examples=10)
@given(count=st.integers(1, 50), tbt=st.sampled_from([None, 0.02, 0.1]), memory=st.integers(5000, 200_000))
def test_equal_nodes_are_the_node_times_their_number(count: int, tbt: float | None, memory: int) -> None:
    limits = Limits(max_batch_tokens=512, kv_tokens=memory, tbt_s=tbt)
    answer = cluster_capacity([NodeGroup("all", QUICK, limits, count)], [TALK])
    one = capacity(QUICK, TALK, limits)
    assert answer.rate_per_s == pytest.approx(count * one.rate_per_s, rel=1e-9)
    assert answer.groups[0].node_price_per_s == pytest.approx(one.rate_per_s, rel=1e-9)
    assert answer.groups[0].binding == one.binding


@settings(max_examples=12)
@given(
    prefill=st.integers(1, 6), decode=st.integers(1, 6),
    port=st.floats(1e7, 1e12), shared=st.one_of(st.just(float("inf")), st.floats(1e7, 1e12)),
)  # fmt: skip
def test_pools_are_the_closed_form_of_their_split(prefill: int, decode: int, port: float, shared: float) -> None:
    link = KvLink(131072, node_bytes_per_s=port, shared_bytes_per_s=shared)
    first, second = Pool(QUICK, LARGE), Pool(QUICK, LARGE)
    split = best_split(TALK, nodes=prefill + decode, prefill=first, decode=second, link=link)
    groups = [NodeGroup("p", QUICK, LARGE, prefill, "prefill"), NodeGroup("d", QUICK, LARGE, decode, "decode")]
    answer = cluster_capacity(groups, [TALK], link=link)
    assert answer.kkt.ok(1e-7)
    expected = rate_of(split, TALK, link, prefill, decode)
    assert answer.rate_per_s == pytest.approx(expected, rel=1e-7)
    assert split.rates_per_s[prefill - 1] == pytest.approx(expected, rel=1e-9)
    rows = {
        "p": prefill * split.prefill.rate_per_s,
        "d": decode * split.decode.rate_per_s,
        "link": min(prefill, decode) / link.node_s(TALK.prompt_tokens),
        "fabric": link.shared_rate_per_s(TALK.prompt_tokens),
    }
    tight = {name for name, rate in rows.items() if rate <= expected * (1 + 1e-6)}
    assert set(answer.binding) <= tight
    assert answer.binding


def test_pools_beside_mixing_nodes_and_long_prompts_where_they_fit() -> None:
    """Whoever does not fit anywhere else goes where it does; the three ways in add up."""
    tight = Limits(max_batch_tokens=512, kv_tokens=2000)
    link = KvLink(131072, node_bytes_per_s=50e9)
    groups = [
        NodeGroup("mixing", QUICK, tight, 2),
        NodeGroup("p", QUICK, LARGE, 1, "prefill"),
        NodeGroup("d", QUICK, LARGE, 1, "decode"),
    ]
    answer = cluster_capacity(groups, [TALK, READ], [0.9, 0.1], link=link)
    assert answer.kkt.ok(1e-7)
    assert answer.group("mixing").rates_per_s[1] == 0, "prompts of 3000 tokens do not fit 2000"
    assert answer.group("mixing").rates_per_s[0] > 0
    assert answer.group("p").rates_per_s == pytest.approx(answer.group("d").rates_per_s, rel=1e-9)
    assert answer.same_mix_rate_per_s is None


def test_nodes_kept_for_classes() -> None:
    groups = [NodeGroup("all", QUICK, LARGE, 1), NodeGroup("talk only", QUICK, LARGE, 1, classes=(0,))]
    free = cluster_capacity([NodeGroup("all", QUICK, LARGE, 2)], [TALK, READ], [0.2, 0.8])
    kept = cluster_capacity(groups, [TALK, READ], [0.2, 0.8])
    assert kept.rate_per_s < free.rate_per_s
    assert kept.binding == ("all",), "the other has room, but may not take what there is too much of"
    assert kept.group("talk only").load < 1
    assert kept.group("talk only").node_price_per_s == 0


def test_prices_are_finite_differences() -> None:
    def solve(quick: int, wide: int) -> ClusterCapacity:
        groups = [NodeGroup("quick", QUICK, SMALL, quick), NodeGroup("wide", WIDE, LARGE, wide)]
        return cluster_capacity(groups, [TALK, READ], [0.7, 0.3])

    base = solve(300, 200)
    for name, more in (("quick", (301, 200)), ("wide", (300, 201))):
        gained = solve(*more).rate_per_s - base.rate_per_s
        assert base.group(name).node_price_per_s == pytest.approx(gained, rel=1e-3)
    link = KvLink(131072, node_bytes_per_s=1e8)
    faster = KvLink(131072, node_bytes_per_s=1.01e8)
    pools = [NodeGroup("p", QUICK, LARGE, 2, "prefill"), NodeGroup("d", QUICK, LARGE, 5, "decode")]
    slow = cluster_capacity(pools, [READ], link=link)
    assert slow.binding == ("link",)
    gained = cluster_capacity(pools, [READ], link=faster).rate_per_s - slow.rate_per_s
    assert slow.group("p").link_price_per_s == pytest.approx(gained, rel=1e-6)
    assert slow.group("p").link_use == pytest.approx(1)


def test_one_more_node_brings_its_port_too() -> None:
    """Where the two ports of the prefill nodes stop everything, a third node brings half as much again."""
    link = KvLink(131072, node_bytes_per_s=1e8)

    def solve(prefill: int) -> ClusterCapacity:
        pools = [NodeGroup("p", QUICK, LARGE, prefill, "prefill"), NodeGroup("d", QUICK, LARGE, 5, "decode")]
        return cluster_capacity(pools, [READ], link=link)

    two, three = solve(2), solve(3)
    assert three.rate_per_s == pytest.approx(1.5 * two.rate_per_s, rel=1e-7)
    assert two.group("p").node_price_per_s == pytest.approx(three.rate_per_s - two.rate_per_s, rel=1e-6)
    assert two.group("d").node_price_per_s == 0


def test_what_routers_reach_that_do_not_tell_classes_apart() -> None:
    """One class: weights reach the sum of the nodes' own rates, equal shares the slowest node's times their number."""
    quick, wide = (capacity(t, TALK, m).rate_per_s for t, m in ((QUICK, SMALL), (WIDE, LARGE)))
    answer = cluster_capacity([NodeGroup("a", QUICK, SMALL, 3), NodeGroup("b", WIDE, LARGE, 2)], [TALK])
    assert answer.same_mix_rate_per_s == pytest.approx(3 * quick + 2 * wide, rel=1e-7)
    assert answer.equal_shares_rate_per_s == pytest.approx(5 * min(quick, wide), rel=1e-7)
    # pools: ports of 1e8 bytes/s, and a fabric that carries less than the two of them
    for shared, rate in ((float("inf"), 2e8), (1.5e8, 1.5e8)):
        link = KvLink(131072, node_bytes_per_s=1e8, shared_bytes_per_s=shared)
        pools = [NodeGroup("p", QUICK, LARGE, 2, "prefill"), NodeGroup("d", QUICK, LARGE, 5, "decode")]
        found = cluster_capacity(pools, [READ], link=link)
        assert found.rate_per_s == pytest.approx(rate / (131072 * READ.prompt_tokens), rel=1e-7)
        assert found.same_mix_rate_per_s == pytest.approx(found.rate_per_s, rel=1e-7)
    assert found.binding == ("fabric",)
    assert found.fabric_use == pytest.approx(1)
    more = KvLink(131072, node_bytes_per_s=1e8, shared_bytes_per_s=1.01 * 1.5e8)
    gained = cluster_capacity(pools, [READ], link=more).rate_per_s - found.rate_per_s
    assert found.fabric_price_per_s == pytest.approx(gained, rel=1e-6)
    assert found.group("p").link_use == pytest.approx(0.75)


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_order_does_not_matter_and_more_is_never_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet([1, 1])
    groups = [
        NodeGroup("quick", QUICK, SMALL, int(rng.integers(1, 4))),
        NodeGroup("wide", WIDE, LARGE, int(rng.integers(1, 4))),
    ]
    one = cluster_capacity(groups, [TALK, READ], shares).rate_per_s
    other = cluster_capacity(groups[::-1], [READ, TALK], shares[::-1]).rate_per_s
    assert one == pytest.approx(other, rel=1e-7)
    more = cluster_capacity([*groups, NodeGroup("more", DAI, SMALL)], [TALK, READ], shares).rate_per_s
    assert more >= one * (1 - 1e-9)


def test_bad_clusters_get_one_line() -> None:
    link = KvLink(131072)
    node = NodeGroup("a", QUICK, LARGE)
    cases = [
        (lambda: cluster_capacity([], [TALK]), "0 groups"),
        (lambda: cluster_capacity([node, node], [TALK]), "two groups of nodes are called 'a'"),
        (lambda: cluster_capacity([NodeGroup("p", QUICK, LARGE, 1, "prefill")], [TALK], link=link), "no decode nodes"),
        (lambda: cluster_capacity([node], [TALK], [-1.0]), "shares are"),
        (lambda: cluster_capacity([node], [TALK, READ], [0.0, 0.0]), "not all 0"),
        (lambda: cluster_capacity([NodeGroup("a", QUICK, Limits(kv_tokens=100))], [READ]), "can be served by no node"),
        (lambda: NodeGroup("a", QUICK, LARGE, 0), "count of group a is 0"),
    ]  # fmt: skip
    pools = [NodeGroup("p", QUICK, LARGE, 1, "prefill"), NodeGroup("d", QUICK, LARGE, 1, "decode")]
    cases.append((lambda: cluster_capacity(pools, [TALK]), "without a link"))
    for make, words in cases:
        with pytest.raises(InputError) as error:
            make()
        assert words in str(error.value)
        assert "\n" not in str(error.value)
