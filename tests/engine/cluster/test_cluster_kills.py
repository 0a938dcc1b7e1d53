"""Nodes die at random times in clusters that have everything: caches, tenants, backpressure, control, pools.

Whatever is drawn, every request is counted once, everybody who could be served is, and every token is accounted for.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests
from tileq_engine.backpressure import Backpressure, TbtControl
from tileq_engine.cluster import Cluster, ClusterRun, Failure, Node, outcome, router_names, simulate_cluster
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.tenants import Tenants
from tileq_theory.disaggregation import KvLink
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=3e-4, token_s=2e-5, kv_token_s=1e-8, pair_s=2e-9)
LINK = KvLink(bytes_per_token=1000.0, node_bytes_per_s=2e8, shared_bytes_per_s=3e8, latency_s=2e-4)
RULES = ("vllm_v1", "sarathi", "sglang", "vtc", "slai")
Rng = np.random.Generator


def conversations(rng: Rng) -> tuple[Requests, np.ndarray]:
    """Requests of a dozen conversations under three system prompts, of three tenants; now and then in bursts."""
    count = int(rng.integers(20, 90))
    whose = rng.integers(0, 12, count)
    blocks = [
        [("system", int(c) % 3), *((int(c), k) for k in range(int((whose[:i] == c).sum()) % 4))]
        for i, c in enumerate(whose)
    ]
    requests = Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(1e-3, count) * rng.integers(0, 2, count)),
        prompt_tokens=[16 * len(b) + int(rng.integers(1, 15)) for b in blocks],
        output_tokens=rng.integers(1, 20, count),
        tenant=whose % 3,
        blocks=BlockPaths.from_lists(blocks, 16),
    )
    return requests, whose


def settings(rng: Rng, rule: str, convention: Any, blocks: int) -> EngineConfig:
    """Each feature on in a half or a third of the nodes."""
    changes: dict[str, Any] = {"prefix_cache": bool(rng.integers(2))}
    if rule == "vtc" or rng.integers(2):
        quotas = tuple(int(rng.integers(1, 4)) if rng.integers(2) else None for _ in range(3))
        changes["tenants"] = Tenants(("a", "b", "c"), (3.0, 1.0, 1.0), quotas)
    if rng.integers(2):
        action: Any = ("hold", "reject", "reroute", "shrink")[rng.integers(3 if rule == "sglang" else 4)]
        low = 8 if action == "shrink" else None
        changes["backpressure"] = Backpressure(action, int(rng.integers(1, 5)), float(rng.uniform(0.4, 1)), low)
    if rule != "sglang" and rng.integers(3) == 0:  # whose batches are whole
        changes["control"] = TbtControl(float(rng.uniform(5e-4, 4e-3)), 8, 64)
    if rng.integers(3) == 0:
        changes["queue_limit"] = int(rng.integers(1, 6))
    if rule != "sglang":
        changes["reservation"] = ("policy", "optimistic", "prompt", "conservative")[rng.integers(4)]
    changes["watch"] = bool(rng.integers(2))
    return EngineConfig(
        token_budget=48, max_num_seqs=5, kv_tokens=16 * blocks, convention=convention, check=True, **changes
    )


def draw(rng: Rng) -> tuple[Requests, np.ndarray, Cluster]:
    """A cluster of one pool or of two (and a node that does both), and one to four deaths, a third of them final.

    In one of five a whole group of nodes dies for good.
    """
    requests, whose = conversations(rng)
    convention = ("engine", "paper")[rng.integers(2)]
    split = bool(rng.integers(2))
    roles = ["prefill", "decode", *(["both"] if rng.integers(3) == 0 else [])] if split else ["both", "both"]
    nodes = []
    for k, role in enumerate(roles):
        rule = RULES[rng.integers(len(RULES))]
        config = settings(rng, rule, convention, int(rng.integers(8, 30)))
        one: Any = role
        nodes.append(Node(f"n{k}", TIME, rule, config, role=one, count=int(rng.integers(1, 4))))
    names = [one.name for node in nodes for one in node.replicas]
    failures = []
    for name in rng.choice(names, size=int(rng.integers(1, min(5, len(names) + 1))), replace=False):
        at = float(rng.uniform(0, 0.06))
        failures.append(Failure(str(name), at, None if rng.integers(3) == 0 else at + float(rng.uniform(1e-4, 0.05))))
    if rng.integers(5) == 0:
        failures += [Failure(one.name, 0.03) for one in nodes[rng.integers(len(nodes))].replicas]
    full: Any = ("reject", "reroute", "hold")[rng.integers(3)]
    cluster = Cluster(
        nodes,
        router=router_names()[rng.integers(len(router_names()))],
        link=LINK if split else None,
        on_full=full,
        rebalance_s=5e-3 if rng.integers(3) == 0 else None,
        failures=failures,
    )
    return requests, whose, cluster


def account(run: ClusterRun) -> None:
    """Everybody once; who is left over is stranded; tokens computed or found are those wanted and those lost again."""
    requests, total, what = run.requests, run.counters, outcome(run)
    served, turned_away = run.status == 3, run.status == 4
    assert what.total == len(requests)
    assert what.unserved == what.stranded == int((~served & ~turned_away).sum())
    assert what.finished == int(served.sum()) == sum(n.counters["finished"] for n in run.nodes)
    assert (run.stop_reason == "finished") == (what.stranded == 0)
    assert np.array_equal(run.tokens_done[served], requests.output_tokens[served])
    assert np.all(run.tokens_done <= requests.output_tokens)
    assert np.all(run.first_token_ps[served] > requests.arrival_ps[served])
    assert np.all(run.finish_ps[served] >= run.first_token_ps[served])
    assert np.all(run.finish_ps[~served] == -1)
    assert np.all((run.reject_reason > 0) == turned_away)
    emit = int(run.cluster.replicas[0].config.convention == "engine")
    useful = int((requests.prompt_tokens + requests.output_tokens - emit)[served].sum())
    computed = total["prefill_tokens"] + total["decode_tokens"] + total.get("prefix_hit_tokens", 0)
    assert computed == useful + int(run.recomputed_tokens.sum())
    books = [(n, n.tenants) for n in run.nodes if n.tenants is not None]
    if len(books) == len(run.nodes):
        assert sum(int(t.end_delivered_tokens.sum()) for _, t in books) == int(run.tokens_done.sum())


def one_run(seed: int, mode: Any = "compiled") -> ClusterRun:
    requests, whose, cluster = draw(np.random.default_rng((9, seed)))
    run = simulate_cluster(requests, cluster, seed=seed, sessions=whose, prefixes=whose, mode=mode)
    account(run)
    return run


def seen(runs: list[ClusterRun]) -> Counter[str]:
    """How often what is tested has happened at all."""
    found: Counter[str] = Counter()
    for run in runs:
        found["hit"] += run.counters.get("prefix_hit_tokens", 0) > 0
        found["moved since a node failed"] += bool((run.moves.reason == 0).any())
        found["moved since a node was full"] += bool((run.moves.reason == 1).any())
        found["transfer broken"] += bool((run.transfers.end_ps < 0).any())
        found["rejected"] += run.counters["rejected"] > 0
        found["held"] += run.counters["peak_held_at_router"] > 0
        found["stranded"] += run.counters["stranded"] > 0
        found["preempted"] += bool(run.preemptions.any())
    return found


def test_nobody_is_lost_whatever_is_on() -> None:
    found = seen([one_run(seed) for seed in range(60)])
    assert min(found.values()) > 0, found


@pytest.mark.campaign
def test_nobody_is_lost_over_a_thousand_such_runs() -> None:
    found = seen([one_run(1000 + seed) for seed in range(1000)])
    assert min(found.values()) > 20, found
