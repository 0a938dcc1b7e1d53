"""The arrays of a cluster's run: the engine's, node behind node, and the cluster's own."""

from __future__ import annotations

__all__ = ["Layout", "make_layout"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_engine.clock import PS_PER_S, to_ps
from tileq_engine.cluster.nodes import Cluster, Node
from tileq_engine.cluster.planning import planned_events
from tileq_engine.cluster.records import CLUSTER_FIELDS, NODE_FIELDS, PLACE_FIELDS, POOL_FIELDS
from tileq_engine.cluster.tables import routing_keys, routing_table
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.records import Records, make_records
from tileq_engine.requests import Requests
from tileq_engine.simulator_state import State, make_state, request_records
from tileq_theory.errors import InputError

_FAR = 2**62
_PAIRS = 4096  # exact gaps that a node keeps between two flushes
_ROOM = 64  # requests that a node has room for at first, waiting twice: what many nodes use should lie close together
_SMALL = 4096
_LOG = 4096
_POOLED = {"both": 0, "prefill": 0, "decode": 1}
_ON_FULL = {"reject": 0, "reroute": 1, "hold": 2}
_RESTING = 2
_REROUTES = 3  # code of backpressure that sends requests elsewhere


@dataclass(slots=True)
class Layout:
    """Everything the loop works on: the arguments `view`, `own`, and what each node was prepared with."""

    nodes: tuple[Node, ...]
    configs: list[EngineConfig]
    view: list[Any]
    own: list[Any]
    policies: list[tuple[Policy, EngineConfig]]  # one a set of rules
    compiled: bool

    @property
    def offsets(self) -> Int[np.ndarray, "kind edge"]:
        """Where each node's part of each array begins."""
        flat: np.ndarray = self.view[14]
        return flat.reshape(-1, len(self.nodes) + 1)

    def get(self, table: Records, place: int, name: str) -> Any:
        """Return one field of one record."""
        return table[name][place].item() if self.compiled else getattr(table[place], name)

    def put(self, table: Records, place: int, **fields: Any) -> None:
        """Set fields of one record."""
        for name, value in fields.items():
            if self.compiled:
                table[name][place] = value
            else:
                setattr(table[place], name, value)

    def column(self, table: Records, name: str) -> Int[np.ndarray, "record"]:
        """Return one field of all records, int64."""
        if self.compiled:
            return np.ascontiguousarray(table[name], dtype=np.int64)
        return np.array([getattr(record, name) for record in table], dtype=np.int64)

    def node_state(self, r: int) -> State:
        """Return the arrays of node `r`, requests excepted, as a single engine has them."""
        V, at = self.view, self.offsets

        def part(array: Any, kind: int) -> Any:
            return array[at[kind][r] : at[kind][r + 1]]

        return State(
            R=V[0],
            B=part(V[1], 0),
            S=V[2][r : r + 1],
            H=part(V[3], 1),
            O=part(V[4], 0),
            W=part(V[5], 2),
            P=part(V[6], 3),
            GS=part(V[7], 4),
            GP=part(V[8], 5),
            GH=part(V[9], 6),
            GC=part(V[10], 7),
            SA=part(V[11], 8),
            TR=part(V[12], 9),
            D=V[13],
            compiled=self.compiled,
        )

    def grow(self, r: int) -> None:
        """Give node `r` twice the room for waiting requests; those not at the policy yet stand at its end.

        While rooms are small, all nodes that had as much are given as much: one that grows alone moves all the others'.
        """
        rooms = self.column(self.own[1], "room")
        grown = (rooms == rooms[r]) if rooms[r] < _SMALL else np.arange(len(rooms)) == r
        old, offsets = self.view[3], self.offsets.copy()
        begins = offsets[1].copy()
        rooms = np.where(grown, 2 * rooms, rooms)
        offsets[1] = np.concatenate([[0], np.cumsum(rooms)])
        fresh = np.zeros(int(offsets[1][-1]), dtype=np.int64)
        S = self.view[2]
        for k, (waiting, pending) in enumerate(zip(self.column(S, "nwait"), self.column(S, "pending"), strict=True)):
            at, end = offsets[1][k], offsets[1][k + 1]
            fresh[at : at + waiting] = old[begins[k] : begins[k] + waiting]
            fresh[end - pending : end] = old[begins[k + 1] - pending : begins[k + 1]]
        self.view[3] = fresh
        self.view[14] = offsets.reshape(-1)
        for k in np.flatnonzero(grown).tolist():
            self.put(self.own[1], k, room=int(rooms[k]))


def _prepared(node: Node, requests: Requests, mode: str) -> tuple[State, EngineConfig, Requests]:
    """Return the arrays of one node of a kind, its settings, and the requests as its policy sees them."""
    rule = node.policy
    assert isinstance(rule, Policy)
    config = rule.settings(node.config)
    compiled = mode != "python"
    macro = mode == "compiled" and rule.macro and not rule.own_rules
    told = requests
    if rule.prepare is not None:
        told = rule.prepare(rule, requests, node.time, config).requests
    state = make_state(requests, rule, node.time, config, compiled=compiled, macro=macro, records=False)
    return state, config, told


def _tiled(states: list[State], name: str, lengths: list[int]) -> Any:
    """Return one array of all nodes: each state's, of the given length, behind the last.

    Room that is empty at first (samples, gaps) is not touched: it costs memory only where it comes to be used.
    """
    out = np.zeros(sum(lengths), dtype=np.int64)
    begun: dict[int, np.ndarray] = {}  # what a node of each kind begins with
    at = 0
    for state, length in zip(states, lengths, strict=True):
        if id(state) not in begun:
            whole = np.asarray(getattr(state, name), dtype=np.int64)
            begun[id(state)] = whole[: int(np.flatnonzero(whole)[-1]) + 1 if whole.any() else 0]
        source = begun[id(state)][:length]
        out[at : at + len(source)] = source
        at += length
    return out


def _rows(states: list[State], name: str, compiled: bool, fresh: Any) -> Any:
    if compiled:
        parts = [getattr(state, name) for state in states]
        rows, at = np.empty(sum(map(len, parts)), dtype=parts[0].dtype), 0
        for part in parts:  # numpy's own concatenation compares every field of every part's type
            rows[at : at + len(part)] = part
            at += len(part)
        return rows
    return [record for state in states for record in fresh(state)]


def _copied(records: list[Any]) -> list[Any]:
    import copy

    return [copy.copy(record) for record in records]


def make_layout(
    requests: Requests,
    cluster: Cluster,
    *,
    seed: int,
    mode: str,
    sessions: Int[np.ndarray, "request"] | None,
    prefixes: Int[np.ndarray, "request"] | None,
    stop_time_s: float | None,
) -> Layout:
    """Return the arrays at time 0."""
    compiled = mode != "python"
    replicas = cluster.replicas
    states, configs, told = [], [], []
    for node in cluster.nodes:
        state, config, lengths = _prepared(node, requests, mode)
        states += [state] * node.count
        configs += [config] * node.count
        told += [lengths] * node.count
    n, m = len(requests), len(replicas)
    exact = [int(s.scalar("gap_mode")) == 0 for s in states]
    slots = [len(s.B) for s in states]
    room = [max(_ROOM, 2 * k + 2) if m > 1 else 2 * max(n, k) + 2 for k in slots]
    pairs = [3 * (_PAIRS + 2 * k) if e else 3 for k, e in zip(slots, exact, strict=True)]
    lengths_of = {
        "B": slots,
        "H": room,
        **{k: [len(getattr(s, k)) for s in states] for k in ("W", "P", "GS")},
        "GP": pairs,
        **{k: [len(getattr(s, k)) for s in states] for k in ("GH", "GC", "SA", "TR")},
    }
    offsets = np.array([np.concatenate([[0], np.cumsum(v)]) for v in lengths_of.values()], dtype=np.int64)
    parts = {name: _tiled(states, name, lengths_of[name]) for name in ("W", "P", "GS", "GP", "GH", "GC", "SA", "TR")}
    O = np.concatenate([np.arange(k, dtype=np.int64) for k in slots])  # noqa: E741
    view = [
        request_records(told[0], n, compiled),
        _rows(states, "B", compiled, lambda s: _copied(s.B)),
        _rows(states, "S", compiled, lambda s: _copied(s.S)),
        np.zeros(int(offsets[1][-1]), dtype=np.int64),
        O,
        *(parts[name] for name in ("W", "P", "GS", "GP", "GH", "GC", "SA", "TR")),
        np.zeros(4096, dtype=np.int64),
        offsets.reshape(-1),
    ]
    made = Layout(replicas, configs, view, [], [], compiled)
    _set_nodes(made, cluster, requests, stop_time_s, pairs)
    made.own = _own(made, cluster, requests, told, seed, sessions, prefixes, room, stop_time_s)
    return made


def _set_nodes(made: Layout, cluster: Cluster, requests: Requests, stop_time_s: float | None, pairs: list[int]) -> None:
    """Set what a node of a cluster has beyond a single engine."""
    S = made.view[2]
    last = int(requests.arrival_ps[-1]) if len(requests) else 0
    failing = bool(cluster.failures) or any(node.mtbf_s is not None for node in cluster.nodes)
    for r, node in enumerate(made.nodes):
        never = node.role == "decode" or failing or cluster.rebalance_s is not None
        up = node.start_s == 0
        made.put(
            S,
            r,
            n=0,
            state=_RESTING,
            rested=-1,
            pairs_cap=pairs[r] // 3,
            closing=_FAR if never else last,
            hand=int(node.role == "prefill"),
            warm=1 if node.role == "decode" else made.get(S, r, "warm"),
            stop_time=_FAR if stop_time_s is None else to_ps("stop_time_s", stop_time_s),
            slow=round(1000 * (node.warm_factor - 1)),
            slow_until=round(node.warm_s * PS_PER_S) if up and node.warm_factor > 1 else 0,
        )


def _own(
    made: Layout,
    cluster: Cluster,
    requests: Requests,
    told: list[Requests],
    seed: int,
    sessions: np.ndarray | None,
    prefixes: np.ndarray | None,
    room: list[int],
    stop_time_s: float | None,
) -> list[Any]:
    """Return the cluster's arrays in the order of the kernels' K."""
    compiled, m, n = made.compiled, len(made.nodes), len(requests)
    size = 1 << max(1, (m - 1).bit_length())
    C, N = make_records(CLUSTER_FIELDS, 1, compiled), make_records(NODE_FIELDS, m, compiled)
    Q, X = make_records(POOL_FIELDS, 2, compiled), make_records(PLACE_FIELDS, n, compiled)
    Z, where = routing_table(cluster, requests, told, prefixes)
    events = planned_events(cluster, requests, seed)
    keys = routing_keys(cluster, requests, sessions, prefixes, where)
    routers = (cluster.router, cluster.decode_router)
    for pool, chosen in enumerate(routers):
        kind, choices, by, slack = chosen.code
        made.put(Q, pool, kind=kind, choices=choices, by=by, slack=slack)
    told_at = {id(array): k for k, array in reversed(list(enumerate(told)))}
    order = sorted(set(told_at.values()))
    sets = _rule_sets(made)
    revives = {int(r): k for k, (_, kind, r) in enumerate(events.reshape(-1, 3).tolist()) if kind == 0}
    for r, node in enumerate(made.nodes):
        mark = 2 * order.index(told_at[id(told[r])]) * n if len(order) > 1 else -1
        limit = made.configs[r].queue_limit
        made.put(
            N,
            r,
            up=int(node.start_s == 0),
            pool=_POOLED[node.role],
            rules=sets[r],
            told=mark,
            limit=limit or 0,
            room=room[r],
            at=_FAR,
            decides=1,
            warm=round(node.warm_s * PS_PER_S) if node.warm_factor > 1 else 0,
            weight=node.weight,
            revives=revives.get(r, -1),
            budget=made.get(made.view[2], r, "budget"),
        )
    _set_places(made, X, keys)
    pressed = [0 if config.backpressure is None else config.backpressure.code for config in made.configs]
    limited = any(config.queue_limit is not None for config in made.configs) or max(pressed) > 1
    split = cluster.disaggregated
    fine = split or (cluster.on_full == "hold" and limited)
    elsewhere = max(pressed) == _REROUTES or (limited and cluster.on_full != "reject")  # others may be looked at
    lazy = cluster.router.lazy and not fine and not elsewhere
    seats = sum(made.get(made.view[2], r, "max_seqs") for r, node in enumerate(made.nodes) if node.role == "decode")
    flights = min(n, seats)
    made.put(C, 0, **_cluster_scalars(made, cluster, requests, size, seed, stop_time_s))
    made.put(C, 0, lazy=int(lazy), fine=int(fine), nplan=len(events) // 3, **where)
    made.put(C, 0, moves_cap=_LOG, transfers_cap=_LOG + flights)
    trees = np.full(4 * size, -1, dtype=np.int64), np.full(2 * size, -1, dtype=np.int64)
    UP, CW = np.zeros(2 * m, dtype=np.int64), np.zeros(2 * m)
    FT = np.zeros(2 * flights + 2, dtype=np.int64)
    MV, TF = np.zeros(7 * _LOG, dtype=np.int64), np.zeros(8 * (_LOG + flights), dtype=np.int64)
    return [C, N, Q, X, *trees, UP, CW, Z, events, FT, MV, TF]


def _set_places(made: Layout, X: Records, keys: np.ndarray) -> None:
    blank = {"node": -1, "source": -1, "target": -1, "follow": -1, "reason": -1, "ready": -1, "begin": -1}
    if made.compiled:
        X["key"] = keys
        for name, value in blank.items():
            X[name] = value
        return
    for place, key in zip(X, keys.tolist(), strict=True):
        place.key = key
        for name, value in blank.items():
            setattr(place, name, value)


def _cluster_scalars(
    made: Layout, cluster: Cluster, requests: Requests, size: int, seed: int, stop_time_s: float | None
) -> dict[str, Any]:
    S = made.view[2]
    decoding = [r for r, node in enumerate(made.nodes) if node.role == "decode"]
    largest = max((made.get(S, r, "total_blocks") * made.get(S, r, "block") for r in decoding), default=0)
    link = cluster.link
    start = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(7,))).integers(1, 4294944443, size=6)
    state = dict(zip(("a0", "a1", "a2", "b0", "b1", "b2"), start.tolist(), strict=True))
    return {
        "n": len(requests),
        "nodes": len(made.nodes),
        "size": size,
        "full": _ON_FULL[cluster.on_full],
        "split": int(cluster.disaggregated),
        "emit": int(made.nodes[0].config.convention == "engine"),
        "gap": cluster.rebalance_gap,
        "stop_time": _FAR if stop_time_s is None else to_ps("stop_time_s", stop_time_s),
        "largest": largest,
        "ready": -1,
        "port_ps": 0.0 if link is None else link.bytes_per_token / link.node_bytes_per_s * PS_PER_S,
        "fabric_ps": 0.0 if link is None else link.bytes_per_token / link.shared_bytes_per_s * PS_PER_S,
        "latency": 0 if link is None else to_ps("latency_s of the link", link.latency_s),
        **state,
    }


def _rule_sets(made: Layout) -> list[int]:
    """Return each node's set of rules by number; the sets' policies are kept in `made`."""
    from tileq_engine.cluster.records import RULE_SETS

    seen: dict[Any, int] = {}
    sets = []
    for node, config in zip(made.nodes, made.configs, strict=True):
        rule = node.policy
        assert isinstance(rule, Policy)
        key = tuple(rule.rules_under(config).values())
        if key not in seen:
            seen[key] = len(seen)
            made.policies.append((rule, config))
        sets.append(seen[key])
    if len(seen) > RULE_SETS:
        raise InputError(
            f"the nodes' policies are {len(seen)} different compositions of rules; expected {RULE_SETS} at most"
        )
    return sets
