"""Capacities of clusters whose nodes have prefix caches: hits by router, at the rate they allow; words and errors."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

import tileq as tq
from tileq.cli.run import run
from tileq.planning_cluster import plan_cluster

TALKS = "turns=6:system=1000:user=100:answer=200:think=30"


def cluster(router: str, count: int = 4, **node: Any) -> dict[str, Any]:
    return {"router": router, "node": [{"name": "gpu", "count": count, "prefix_cache": True, **node}]}


@cache
def document(router: str, count: int = 4, **node: Any) -> dict[str, Any]:
    return plan_cluster(cluster(router, count, **node), conversations=TALKS).to_dict()


def test_a_router_that_splits_conversations_carries_less() -> None:
    split, kept = document("random"), document("session_affinity")
    assert (split["prefix_cache"]["conversations_together"], kept["prefix_cache"]["conversations_together"]) == (
        False,
        True,
    )
    without = plan_cluster(cluster("random", prefix_cache=False), conversations=TALKS).to_dict()
    assert without["prefix_cache"] is None
    assert split["prefix_cache"]["rate_without_per_s"] == pytest.approx(without["rate_per_s"], rel=1e-6)
    assert without["rate_per_s"] < split["rate_per_s"] < kept["rate_per_s"]
    gain = split["rate_per_s"] / without["rate_per_s"] - 1
    assert split["prefix_cache"]["rate_gain"] == pytest.approx(gain)
    assert split["kkt"]["ok"] and kept["kkt"]["ok"]
    assert any("router random splits conversations" in text for text in split["warnings"])
    assert not any("splits conversations" in text for text in kept["warnings"])


@pytest.mark.parametrize("router", ["random", "session_affinity"])
def test_equal_replicas_and_the_same_cluster_agree(router: str) -> None:
    """`plan --replicas N` takes the hits at its own capacity by another way; budgets differ by what a plan rounds."""
    one = tq.plan(conversations=TALKS, prefix_cache="kv", nodes=4, router=router).to_dict()
    other = document(router)
    assert other["rate_per_s"] == pytest.approx(one["rate_per_s"], rel=0.01)
    assert other["prefix_cache"]["nodes"][0]["hit_share"] == pytest.approx(one["prefix_cache"]["hit_share"], abs=0.01)
    assert one["prefix_cache"]["router"] == router


def test_the_hits_are_those_at_the_capacity() -> None:
    """Solved again at the rate that it gives, the capacity is the same; more nodes split further and find less."""
    from tileq.traffic import make_traffic
    from tileq_theory.prefix_cache import Conversations, at_node

    found = document("random", kv_tokens=60_000)
    node = found["prefix_cache"]["nodes"][0]
    talks = make_traffic(conversations=TALKS).prefixes
    assert isinstance(talks, Conversations)
    law = at_node(talks, 0.25, together=False).hits(60_000.0, found["rate_per_s"] / 4)
    assert node["share"] == pytest.approx(0.25)
    assert node["hit_share"] == pytest.approx(law.hit_share, rel=1e-3)
    shares = [document("random", count)["prefix_cache"]["nodes"][0]["hit_share"] for count in (2, 4, 16)]
    assert shares == sorted(shares, reverse=True)


def test_weights_and_pools() -> None:
    """A node of more weight sees more of a conversation; a prefill node never has the answers."""
    nodes = [{"name": name, "weight": w, "prefix_cache": True} for name, w in (("big", 3.0), ("small", 1.0))]
    big, small = plan_cluster({"router": "random", "node": nodes}, conversations=TALKS).to_dict()["prefix_cache"][
        "nodes"
    ]
    assert (big["share"], small["share"]) == (pytest.approx(0.75), pytest.approx(0.25))
    assert big["hit_share"] > small["hit_share"]
    pools = {
        "router": "session_affinity",
        "link": {"gb_per_s": 50},
        "node": [
            {"name": "p", "role": "prefill", "prefix_cache": True, "count": 2},
            {"name": "d", "role": "decode", "count": 2},
        ],
    }
    apart = plan_cluster(pools, conversations=TALKS).to_dict()
    assert [n["name"] for n in apart["prefix_cache"]["nodes"]] == ["p"]
    assert (
        0
        < apart["prefix_cache"]["nodes"][0]["hit_share"]
        < document("session_affinity")["prefix_cache"]["nodes"][0]["hit_share"]
    )
    assert apart["prefix_cache"]["rate_gain"] > 0


def test_requests_that_share_no_prefix_are_said_to() -> None:
    found = plan_cluster(cluster("jsq"), classes=["512:64"]).to_dict()
    assert found["prefix_cache"] is None
    assert any("do not tell which prompts share a prefix" in text for text in found["warnings"])


def test_the_ring_has_the_parts_that_sessions_get() -> None:
    """Session affinity's shares by arcs against 20 000 sessions hashed to it; and its first full node."""
    from tileq.cluster_caching import _ring
    from tileq.clusters import make_cluster
    from tileq.traffic import make_traffic
    from tileq_engine.cluster.tables import ring_points, routing_keys
    from tileq_engine.requests import Requests

    setting = make_cluster(cluster("session_affinity"), make_traffic(conversations=TALKS))
    count = 20_000
    one_each = Requests.from_arrays(arrival_s=np.arange(count), prompt_tokens=[1] * count, output_tokens=1)
    keys = routing_keys(setting.cluster, one_each, np.arange(count), None, {})
    owner = np.array([r for _, r in ring_points(setting.cluster)])
    found = np.bincount(owner[keys], minlength=4) / count
    ring = _ring(setting.cluster)
    assert ring.sum() == pytest.approx(1)
    assert np.all(np.abs(found - ring) < 5 * np.sqrt(ring * (1 - ring) / count))
    assert setting.caching is not None
    assert setting.caching.ring_rate_per_s == pytest.approx(setting.capacity.rate_per_s / 4 / ring.max(), rel=1e-9)
    assert any("ring gives nodes unequal shares" in text for text in setting.warnings)


def test_the_simulation_stands_beside_the_same_capacity() -> None:
    made = tq.simulate(
        cluster=cluster("session_affinity", 2), conversations=TALKS, load=0.5, requests=300, replications=1
    )
    assert made.setting.caching is not None
    own = plan_cluster(cluster("session_affinity", 2), conversations=TALKS)
    assert made.setting.capacity.rate_per_s == pytest.approx(own.rate_per_s)
    assert made.rate_per_s == pytest.approx(0.5 * own.rate_per_s)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(cluster("random")))
    assert run(["plan", "--cluster", str(file), "--conversations", TALKS]) == 0
    assert "split by router random" in " ".join(capsys.readouterr().out.split())
    arguments = ["plan", "--replicas", "4", "--conversations", TALKS, "--prefix-cache", "kv", "--router", "jsq"]
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prefix_cache"]["router"] == "jsq"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--router", "jqs", "--replicas", "2", "--conversations", TALKS, "--prefix-cache", "kv"], "did you mean jsq"),
        (["--router", "jsq", "--conversations", TALKS, "--prefix-cache", "kv"], "give nodes above 1"),
        (["--router", "jsq", "--replicas", "2", "--conversations", TALKS], "what the caches of several replicas find"),
        (["--router", "jsq", "--replicas", "2", "--prefix-cache", "40%"], "what the caches of several replicas find"),
    ],
)
def test_bad_routers_get_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err
