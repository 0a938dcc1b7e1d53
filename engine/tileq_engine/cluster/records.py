"""The records of a cluster's run, beside the engine's own three: the cluster, its nodes, its two pools, its requests.

Compiled they are rows of structured arrays, uncompiled plain objects, as in `tileq_engine.records`. Times are
picoseconds.
"""

from __future__ import annotations

__all__ = [
    "CLUSTER_FIELDS",
    "MOVE_FIELDS",
    "NODE_FIELDS",
    "PLACE_FIELDS",
    "POOL_FIELDS",
    "RULE_SETS",
    "STATES",
    "TRANSFER_FIELDS",
]

RULE_SETS = 8  # different compositions of rules that one compiled loop can run
STATES = ("due", "open", "resting", "stopped")  # of a node: to decide now, batch running, nothing to do, at a bound
MOVE_FIELDS, TRANSFER_FIELDS = 7, 8  # integers of a row

CLUSTER_FIELDS: tuple[tuple[str, str], ...] = (
    *((name, "i8") for name in ("n", "nodes", "size", "next", "now", "lazy", "fine", "full", "split", "emit")),
    # planned events; requests to be routed at once, held at the router, handed over and without a decode node
    *((name, "i8") for name in ("plan", "nplan", "due_first", "due_last", "due_count")),
    *((name, "i8") for name in ("hold_first", "hold_last", "hold_count", "peak_hold")),
    *((name, "i8") for name in ("wait_first", "wait_last", "wait_count", "peak_wait")),
    *((name, "i8") for name in ("flying", "nmoves", "moves_cap", "ntransfers", "transfers_cap")),
    *((name, "i8") for name in ("events", "slice", "at_node", "balancing", "gap", "stop_time", "stopped", "largest")),
    # counted work, requests turned away by the router, the turn of the latest routing, candidates drawn
    *((name, "i8") for name in ("touches", "comparisons", "rejected", "turn", "ncand", "ready", "begun")),
    # most tokens that a decode node still to be had can hold; who is set aside, on a node, and yet to come in the end
    *((name, "i8") for name in ("reach", "stranded", "on_nodes", "to_come")),
    # where things stand in Z
    *((name, "i8") for name in ("cand", "ring", "points", "home", "groups", "told")),
    *((name, "i8") for name in ("fabric_free", "latency")),
    *((name, "i8") for name in ("a0", "a1", "a2", "b0", "b1", "b2")),  # the random numbers' state
    *((name, "f8") for name in ("port_ps", "fabric_ps")),  # of one token
)

NODE_FIELDS: tuple[tuple[str, str], ...] = (
    *((name, "i8") for name in ("up", "pool", "rules", "told", "limit", "room", "coming", "stamp")),
    *((name, "i8") for name in ("at", "decides", "sender", "receiver", "warm", "since", "up_ps", "passes")),
    *((name, "i8") for name in ("routed", "handed", "received", "failures", "aborted", "lost")),
    *((name, "i8") for name in ("revives", "budget")),  # the last planned event that brings it up; its first budget
    *((name, "f8") for name in ("weight", "load")),
)

POOL_FIELDS: tuple[tuple[str, str], ...] = tuple((name, "i8") for name in ("kind", "choices", "by", "slack", "up"))

PLACE_FIELDS: tuple[tuple[str, str], ...] = (
    ("key", "i8"),  # place on the ring, tenant or prefix
    ("ready", "i8"),  # handed over
    ("begin", "i8"),  # transfer begun
    ("node", "i4"),
    ("source", "i4"),  # prefill node
    ("target", "i4"),  # decode node of the transfer; where a rebalanced request is to go
    ("routed", "i4"),
    ("follow", "i4"),  # the next in the queue it stands in
    ("reason", "i4"),  # why it is to be routed again
)
