"""The simulator of clusters: requests and a cluster in, what happened out."""

from __future__ import annotations

__all__ = ["simulate_cluster"]

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tileq_engine.cluster.collecting import collect_cluster
from tileq_engine.cluster.layout import Layout, make_layout
from tileq_engine.cluster.nodes import Cluster
from tileq_engine.cluster.records import MOVE_FIELDS, RULE_SETS, TRANSFER_FIELDS
from tileq_engine.cluster.result import ClusterRun
from tileq_engine.compile import compiled_kernels, entry_point, hook_for, plain_kernels
from tileq_engine.records import STOPS
from tileq_engine.requests import Requests
from tileq_engine.simulator import Mode, cannot_compile, policy_error, try_plain
from tileq_engine.simulator_collect import Pairs
from tileq_theory.errors import InputError, instance, nonnegative_int

_KINDS = ("decodes", "order", "mixing", "admission", "eviction")
_FLUSH, _ERROR, _GROW, _AGAIN = 6, 7, 8, 9
_SLICE = 2_000_000  # events between two looks at progress and interrupts: about a second


def simulate_cluster(
    requests: Requests,
    cluster: Cluster,
    *,
    seed: int = 0,
    mode: Mode = "compiled",
    sessions: Any = None,
    prefixes: Any = None,
    stop_time_s: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ClusterRun:
    """Run `requests` through `cluster`.

    Every node is an engine with the kernels, policies and integer clock of `simulate`; one node behind any router gives
    the same result, to the bit. At one instant iterations end, transfers arrive, nodes fail or come up, requests
    arrive, and then nodes decide.

    Parameters
    ----------
    requests
        Sorted by arrival.
    cluster
        Nodes, routers, link.
    seed
        Of the routers' draws and of the random failures.
    mode
        As for `simulate`; all three give the same result, to the bit.
    sessions, prefixes
        One whole number a request, for the routers session_affinity and prefix_affinity; equal numbers go together.
    stop_time_s
        Bound of the run, seconds; iterations that run then are ended.
    progress
        Called now and then with (requests given to a node, requests).

    Raises
    ------
    InputError
        For settings with which a policy cannot run, or a router without what it looks at.
    PolicyError
        For a batch that cannot be run; names the rule, the request and the reason.

    Examples
    --------
    >>> from tileq_engine.cluster import Node
    >>> from tileq_theory.iteration_time import IterationTime
    >>> asked = Requests.from_arrays(arrival_s=[0.0, 0.0], prompt_tokens=[100, 100], output_tokens=[3, 3])
    >>> two = Cluster([Node("gpu", IterationTime.constant(0.01), count=2)], router="round_robin")
    >>> run = simulate_cluster(asked, two, mode="python")
    >>> run.node.tolist(), run.finish_ps.tolist()
    ([0, 1], [30000000000, 30000000000])
    """
    if not isinstance(mode, str) or mode not in ("compiled", "stepped", "python"):
        raise InputError(f"mode is {mode!r}; expected 'compiled', 'stepped' or 'python'")
    instance("requests", requests, Requests)
    instance("cluster", cluster, Cluster)
    seed = nonnegative_int("seed", seed)
    mode, notes = _own_rules(requests, cluster, mode)
    made = make_layout(
        requests,
        cluster,
        seed=seed,
        mode=mode,
        sessions=_one_each("sessions", sessions, requests),
        prefixes=_one_each("prefixes", prefixes, requests),
        stop_time_s=stop_time_s,
    )
    kernels = compiled_kernels() if mode != "python" else plain_kernels()
    loop = entry_point("simulate_nodes") if mode != "python" else kernels["simulate_nodes"]
    hooks = _hooks(made, kernels)
    pairs = [Pairs() for _ in made.nodes]
    moves: list[np.ndarray] = []
    transfers: list[np.ndarray] = []
    C = made.own[0]
    made.put(C, 0, slice=_SLICE)
    while True:
        code = int(loop(*made.view, *made.own, *hooks))
        at = int(made.get(C, 0, "at_node"))
        if code in (_ERROR, _AGAIN) and made.get(made.view[2], at, "error") > 0:
            policy: Any = made.nodes[at].policy
            raise policy_error(made.node_state(at), policy, requests)
        if code == _GROW:
            made.grow(at)
            continue
        for r, kept in enumerate(pairs):
            kept.flush(made.node_state(r))
        moves.append(_taken(made, 11, "nmoves", MOVE_FIELDS))
        transfers.append(_taken(made, 12, "ntransfers", TRANSFER_FIELDS))
        made.put(C, 0, events=0)
        if progress is not None:
            progress(made.get(C, 0, "next"), len(requests))
        if code not in (_FLUSH, _AGAIN):
            break
    logs = np.concatenate(moves), np.concatenate(transfers)
    run = collect_cluster(made, requests, cluster, seed, mode, STOPS[code], pairs, *logs)
    return replace(run, notes=notes) if notes else run


def _own_rules(requests: Requests, cluster: Cluster, mode: Mode) -> tuple[Mode, tuple[str, ...]]:
    """Try a user's own rules on a few requests; return the mode in which all can run, and why not in the given one."""
    for node in cluster.nodes:
        policy: Any = node.policy
        if not policy.own_rules:
            continue
        try_plain(requests, policy, node.time, policy.settings(node.config))
        reason = cannot_compile(policy) if mode != "python" else ""
        if reason:
            return "python", (reason,)
    return mode, ()


def _one_each(name: str, values: Any, requests: Requests) -> np.ndarray | None:
    """Return the values as int64, one a request; None for None."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.shape != (len(requests),) or array.dtype.kind not in "iu":
        raise InputError(
            f"{name} has shape {array.shape} and holds {array.dtype}; expected {len(requests)} whole numbers, one a "
            "request"
        )
    return array.astype(np.int64)


def _taken(made: Layout, place: int, counter: str, width: int) -> np.ndarray:
    """Take the rows of a log out of its buffer."""
    count = made.get(made.own[0], 0, counter)
    made.put(made.own[0], 0, **{counter: 0})
    rows: np.ndarray = np.array(made.own[place][: count * width], dtype=np.int64).reshape(-1, width)
    return rows


def _hooks(made: Layout, kernels: Any) -> tuple[Any, ...]:
    """Return the hooks of every set of rules, the first set's again for those that are not needed."""
    found: list[Any] = []
    for policy, config in made.policies:
        rules = policy.rules_under(config)
        found += [hook_for(kind, rules[kind], kernels) for kind in _KINDS]
    while len(found) < RULE_SETS * len(_KINDS):
        found += found[: len(_KINDS)]
    return tuple(found)
