"""Random small clusters, engine against the plain-Python referee: the same fate of every request, transfer and node."""

from __future__ import annotations

import pytest
from cluster_peers import Setting, difference, draw_rich, draw_setting, referee

from tileq_engine.cluster import simulate_cluster


def agree(x: Setting, mode: str) -> None:
    try:
        theirs = referee(x)
    except AssertionError as outside:
        if "not in the referee" in str(outside):
            return
        raise
    ours = simulate_cluster(x.requests, x.cluster, seed=x.seed, prefixes=x.keys, mode=mode)  # type: ignore[arg-type]
    assert (found := difference(ours, theirs)) is None, f"seed {x.seed}: {found}"


@pytest.mark.parametrize("block", range(4))
def test_small_clusters(block: int) -> None:
    for seed in range(40 * block, 40 * block + 40):
        agree(draw_setting(seed), "stepped")


def test_small_clusters_uncompiled() -> None:
    for seed in range(1000, 1030):
        agree(draw_setting(seed), "python")


@pytest.mark.parametrize("block", range(4))
def test_clusters_with_tenants_reservations_backpressure_and_control(block: int) -> None:
    """Together with failures, some of them for good, full nodes, pools and rebalancing."""
    for seed in range(40 * block, 40 * block + 40):
        agree(draw_rich(seed), ("stepped", "compiled")[seed % 2])


def test_such_clusters_uncompiled() -> None:
    for seed in range(1000, 1030):
        agree(draw_rich(seed), "python")


@pytest.mark.campaign
def test_many_such_clusters() -> None:
    for seed in range(2000, 7000):
        agree(draw_rich(seed), "compiled")


@pytest.mark.campaign
def test_many_small_clusters() -> None:
    for seed in range(2000, 7000):
        agree(draw_setting(seed), "compiled")
