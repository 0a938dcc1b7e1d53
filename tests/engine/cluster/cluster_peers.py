"""Random small clusters for the engine and for the plain-Python referee, and what both must agree on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from differential import cost_of
from tileq_reference import POLICIES, Config, Request
from tileq_reference.cluster_node import Node as PlainNode
from tileq_reference.cluster_parts import Link
from tileq_reference.clusters import ClusterReference

from tileq_engine.backpressure import Backpressure, TbtControl
from tileq_engine.cluster import Cluster, ClusterRun, Failure, Node, router
from tileq_engine.cluster.planning import planned_events
from tileq_engine.cluster.result import NodeRun
from tileq_engine.config import EngineConfig
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.tenants import Tenants
from tileq_theory.disaggregation import KvLink
from tileq_theory.iteration_time import IterationTime

Pick = Callable[[int, int], int]
ENTRY = ("random", "round_robin", "jsq", "least_work", "power_of_two", "tenant", "prefix_affinity")
DECODE = ("random", "round_robin", "jsq", "least_work", "most_free", "power_of_two")
RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vllm_v1", {}),
    ("sarathi", {}),
    ("sarathi", {"order": "spf"}),
    ("vllm_v0", {}),
    ("orca", {"chunks": True}),
    ("sjf", {}),
)


@dataclass(frozen=True)
class Setting:
    """One instance: what both simulators are told."""

    requests: Requests
    cluster: Cluster
    seed: int
    keys: np.ndarray


def seeded(seed: int) -> Pick:
    return random.Random(seed).randint


def draw_requests(pick: Pick, count: int) -> Requests:
    clock, arrivals = 0, []
    for _ in range(count):
        clock += 0 if pick(0, 2) == 0 else pick(0, 30) * 10**8
        arrivals.append(clock)
    return Requests.from_arrays(
        arrival_ps=arrivals,
        prompt_tokens=[pick(1, 70) for _ in range(count)],
        output_tokens=[1 if pick(0, 4) == 0 else pick(1, 24) for _ in range(count)],
        tenant=[pick(0, 2) for _ in range(count)],
    )


def draw_node(pick: Pick, name: str, role: Any, convention: Any, tight: bool) -> Node:
    rule, params = RULES[pick(0, len(RULES) - 1)] if role != "decode" else RULES[pick(0, 1)]
    blocks = pick(7, 14) if tight and role != "decode" else 400
    return Node(
        name,
        IterationTime(
            launch_s=pick(1, 30) * 1e-5, tile_s=pick(0, 4) * 1e-4, tile_tokens=pick(1, 16), token_s=pick(0, 3) * 1e-5,
            pair_s=pick(0, 3) * 1.7e-9, kv_token_s=pick(0, 3) * 1.3e-8, sequence_s=pick(0, 2) * 1e-6,
        ),
        policy(rule, **params),
        EngineConfig(
            token_budget=pick(72, 96) if rule in ("vllm_v0",) else pick(8, 48),
            max_num_seqs=pick(2, 6),
            kv_tokens=blocks * 16,
            convention=convention,
            queue_limit=None if pick(0, 2) else pick(1, 4),
            check=True,
            gap_mode="exact",
        ),
        role=role,
        count=pick(1, 2),
        weight=(1.0, 1.0, 2.0, 0.5)[pick(0, 3)],
        start_s=0.0 if pick(0, 4) else pick(1, 20) * 1e-3,
    )  # fmt: skip


def draw_extras(pick: Pick, node: Node) -> EngineConfig:
    """The node's settings with reservation, tenants with quotas, backpressure and control, each in part of them."""
    config, rule = node.config, node.policy
    assert not isinstance(rule, str)
    blocks = (config.kv_tokens or 0) // 16
    chunked = rule.name not in ("vllm_v0",)
    changes: dict[str, Any] = {
        "reservation": ("policy", "policy", "optimistic", "prompt", "conservative")[pick(0, 4)],
    }
    if pick(0, 1):
        weights = tuple((1.0, 3.0, 0.5)[pick(0, 2)] for _ in range(3))
        changes["tenants"] = Tenants(("a", "b", "c"), weights, tuple(pick(1, 3) if pick(0, 1) else None for _ in "abc"))
    least = config.max_num_seqs if rule.mixing == "mix_in_order" else 1
    if pick(0, 2) == 0:
        action = ("reject", "reroute", "shrink" if chunked else "reject")[pick(0, 2)]
        low = pick(least, max(least, config.token_budget)) if action == "shrink" else None
        changes["backpressure"] = Backpressure(action, pick(1, 4), (pick(1, min(blocks, 12)) - 0.5) / blocks, low)  # type: ignore[arg-type]
    if chunked and pick(0, 2) == 0:
        low = pick(least, max(least, config.token_budget))
        changes["control"] = TbtControl(pick(1, 40) * 1e-4, low, low + pick(0, 2 * config.token_budget))
    return config.with_(**changes)


def draw_rich(seed: int) -> Setting:
    """A setting whose nodes have those as well, and, behind router "tenant", tenants of their own."""
    x, pick = draw_setting(seed), seeded(seed + 10**6)
    nodes = []
    for node in x.cluster.nodes:
        own = tuple({pick(0, 2) for _ in range(pick(1, 3))}) if nodes and pick(0, 1) else ()
        nodes.append(replace(node, config=draw_extras(pick, node), tenants=own))
    return replace(x, cluster=x.cluster.with_(nodes=nodes))


def draw_setting(seed: int) -> Setting:
    """A cluster with or without pools, failures, queue limits, rebalancing."""
    pick = seeded(seed)
    requests = draw_requests(pick, pick(1, 24))
    convention = ("engine", "paper")[pick(0, 1)]
    tight, split = bool(pick(0, 1)), bool(pick(0, 1))
    roles = ["prefill", "decode", *(["both"] if pick(0, 2) == 0 else [])] if split else ["both"] * pick(1, 3)
    nodes = [draw_node(pick, f"n{k}", role, convention, tight) for k, role in enumerate(roles)]
    names = [one.name for node in nodes for one in node.replicas]
    failures = []
    for _ in range(pick(0, 3)):
        at, name = pick(0, 60) * 1e-3, names[pick(0, len(names) - 1)]
        never = pick(0, 3) == 0
        failures.append(Failure(name, at, None if never else at + pick(1, 30) * 1e-3))
    entry = ENTRY[pick(0, len(ENTRY) - 1)]
    params: dict[str, Any] = {"power_of_two": {"choices": pick(1, 3), "by": ("queue", "work")[pick(0, 1)]}}.get(
        entry, {}
    )
    params = {"prefix_affinity": {"slack": pick(0, 3)}, "tenant": {"choices": pick(1, 2)}}.get(entry, params)
    slow = pick(0, 2)
    link = KvLink(
        bytes_per_token=1000.0,
        node_bytes_per_s=(np.inf, 1e9, 2e7)[slow],
        shared_bytes_per_s=(np.inf, 1e8, 1e7)[pick(0, 2)],
        latency_s=pick(0, 2) * 1e-3,
    )
    cluster = Cluster(
        nodes,
        router=router(entry, **params),
        decode_router=DECODE[pick(0, len(DECODE) - 1)],
        link=link if split else None,
        on_full=("reject", "reroute", "hold")[pick(0, 2)],
        rebalance_s=None if pick(0, 2) else pick(3, 20) * 1e-3,
        rebalance_gap=pick(2, 3),
        failures=failures,
    )
    keys = np.array([pick(0, 3) for _ in range(len(requests))], dtype=np.int64)
    return Setting(requests, cluster, seed, keys)


def plain_node(node: Node) -> PlainNode:
    rule: Any = node.policy
    config = rule.settings(node.config)
    extra = dict(rule.params)
    name = rule.name
    if name == "orca":
        extra = {"whole": False}
    if name == "sjf":
        extra, name = {"order": "sjf"}, rule.params.get("base", "vllm_v1")
    if name == "vllm_v0":
        extra = {"whole_budget": config.token_budget}
    plain = Config(
        policy=name,
        budget=config.token_budget,
        max_seqs=config.max_num_seqs,
        kv_blocks=config.kv_tokens // 16,
        engine_convention=config.convention == "engine",
        queue_limit=config.queue_limit,
        extra=extra,
        **plain_extras(config, node.role),
    )
    return PlainNode(plain, cost_of(node.time), POLICIES[name], node.role, node.weight)


def plain_extras(config: EngineConfig, role: str) -> dict[str, Any]:
    """Reservation, tenants, backpressure and control as the referee has them; a prefill node makes no answers."""
    extras: dict[str, Any] = {"reservation": config.reservation}
    if role == "prefill" and config.reservation == "conservative":
        extras["reservation"] = "prompt"
    if config.tenants is not None:
        top = max(config.tenants.weights)
        extras["tenants"] = tuple(
            (round(2**19 * top / w), round(2**20 * top / w), q or 0, 0)
            for w, q in zip(config.tenants.weights, config.tenants.quotas, strict=True)
        )
    asked, control = config.backpressure, config.control
    if asked is not None:
        assert asked.waiting is not None and asked.kv_share is not None
        used = int(-(-asked.kv_share * config.kv_blocks // 1))
        extras["pressure"] = (asked.action, asked.waiting, used, asked.shrunk_tokens or 0)
    if control is not None:
        extras["control"] = (round(control.tbt_s * 1e12), control.least_tokens, control.most_tokens)
    return extras


def referee(x: Setting) -> ClusterReference:
    """The setting, run by the plain simulator."""
    asked = [
        Request(id=i, arrival=int(a), prompt=int(p), output=int(o), predicted=int(g), tenant=int(t))
        for i, (a, p, o, g, t) in enumerate(
            zip(
                x.requests.arrival_ps, x.requests.prompt_tokens, x.requests.output_tokens,
                x.requests.predicted_output_tokens, x.requests.tenant, strict=True,
            )
        )
    ]  # fmt: skip
    replicas = x.cluster.replicas
    nodes = [plain_node(node) for node in replicas]
    for plain, node in zip(nodes, replicas, strict=True):
        plain.up = node.start_s == 0
    chosen = x.cluster.router
    keys = x.requests.tenant if chosen.name == "tenant" else x.keys
    entry = [k for k, node in enumerate(replicas) if node.role != "decode"]
    groups = [[k for k in entry if not replicas[k].tenants or t in replicas[k].tenants] for t in range(3)]
    link = x.cluster.link
    events = planned_events(x.cluster, x.requests, x.seed).reshape(-1, 3).tolist()
    draws = np.random.default_rng(np.random.SeedSequence(x.seed, spawn_key=(7,))).integers(1, 4294944443, size=6)
    return ClusterReference(
        asked,
        nodes,
        {"name": chosen.name, **chosen.params, "groups": groups},
        draws.tolist(),
        decode_router={"name": x.cluster.decode_router.name, **x.cluster.decode_router.params},
        link=None if link is None else Link(
            link.bytes_per_token / link.node_bytes_per_s * 1e12,
            link.bytes_per_token / link.shared_bytes_per_s * 1e12,
            round(link.latency_s * 1e12),
        ),
        on_full=x.cluster.on_full,
        planned=[tuple(e) for e in events],
        keys=keys.tolist(),
        gap=x.cluster.rebalance_gap,
    ).run()  # fmt: skip


def tenant_books(node: NodeRun) -> list[tuple[int, ...]]:
    """By tenant: prefilled and delivered tokens, virtual counter."""
    t = node.tenants
    assert t is not None
    rows = zip(t.end_prefilled_tokens, t.end_delivered_tokens, t.end_counter, strict=True)
    return [tuple(int(v) for v in row) for row in rows]


def difference(ours: ClusterRun, theirs: ClusterReference) -> str | None:
    """None when both agree on every request's fate, every transfer and what every node has done."""
    for i, r in enumerate(sorted(theirs.requests, key=lambda r: r.id)):
        fate = theirs.fate[i]
        told = {
            "node": fate.node,
            "prefill_node": fate.source,
            "routed": fate.routed,
            "prefill_end_ps": -1 if r.prefill_end is None else r.prefill_end,
            "first_token_ps": r.tokens_at[0] if r.tokens_at else -1,
            "finish_ps": -1 if r.done_at is None else r.done_at,
            "tokens_done": r.generated,
            "preemptions": r.preemptions,
            "recomputed_tokens": r.recomputed,
            "max_gap_ps": max(r.gaps, default=0),
            "reject_reason": r.reason,
        }
        for name, value in told.items():
            if int(getattr(ours, name)[i]) != value:
                return f"request {i}: {name} {getattr(ours, name)[i]} against {value}"
    t = ours.transfers
    rows = [t.request, t.source, t.target, t.ready_ps, t.start_ps, t.end_ps, t.tokens, t.blocks]
    own = sorted(zip(*(c.tolist() for c in rows), strict=True))
    if own != sorted(theirs.transfers):
        return f"transfers {own} against {sorted(theirs.transfers)}"
    if ours.counters["stranded"] != len(theirs.stranded):
        return f"stranded {ours.counters['stranded']} against {len(theirs.stranded)}"
    for k, (a, b) in enumerate(zip(ours.nodes, theirs.nodes, strict=True)):
        if (a.counters["aborted_tokens"], a.counters["lost_tokens"]) != (b.aborted, b.lost):
            return f"node {k}: aborted and lost {a.counters} against {b.aborted}, {b.lost}"
        for own_books, other in zip(tenant_books(a), b.accounts, strict=True) if a.tenants else ():
            if own_books != (told_books := (other.prefilled, other.delivered, other.counter)):
                return f"node {k}: tenant {own_books} against {told_books}"
    return None
