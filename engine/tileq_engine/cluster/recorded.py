"""A cluster as plain data, and back: what a saved run tells about its nodes, policies, routers and link."""

from __future__ import annotations

__all__ = ["RecordedPolicy", "cluster_facts", "cluster_from"]

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NoReturn

from tileq_engine.backpressure import Backpressure, TbtControl
from tileq_engine.cluster.nodes import Cluster, Failure, Node
from tileq_engine.cluster.routers import Router
from tileq_engine.config import EngineConfig
from tileq_engine.policy import RULE_KINDS, Policy
from tileq_engine.run_raw import plain
from tileq_engine.tenants import Tenants
from tileq_theory.disaggregation import KvLink
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import ErrorBand, Provenance

_OF_NODE = ("name", "role", "count", "weight", "start_s", "warm_s", "warm_factor", "mtbf_s", "mttr_s", "tenants")
_PARTS: dict[str, Any] = {"tenants": Tenants, "backpressure": Backpressure, "control": TbtControl}


@dataclass(frozen=True, slots=True)
class RecordedPolicy(Policy):
    """A policy of a saved run that holds functions of the user's: known by its facts, and not to be run again."""

    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return what was recorded."""
        return dict(self.facts)


def cluster_facts(cluster: Cluster) -> dict[str, Any]:
    """Return everything a cluster was made with, as plain JSON data without infinities."""
    link: dict[str, Any] | None = None
    if cluster.link is not None:
        link = {k: v if math.isfinite(v) else None for k, v in asdict(cluster.link).items()}
    facts = {
        "nodes": [_node_facts(node) for node in cluster.nodes],
        "router": asdict(cluster.router),
        "decode_router": asdict(cluster.decode_router),
        "link": link,
        "on_full": cluster.on_full,
        "rebalance_s": cluster.rebalance_s,
        "rebalance_gap": cluster.rebalance_gap,
        "failures": [asdict(failure) for failure in cluster.failures],
    }
    made: dict[str, Any] = plain(facts)
    return made


def _node_facts(node: Node) -> dict[str, Any]:
    made = {name: getattr(node, name) for name in _OF_NODE}
    return {**made, "time": node.time, "policy": node.policy, "config": asdict(node.config)}


def cluster_from(facts: Mapping[str, Any]) -> Cluster:
    """Return the cluster of `cluster_facts`; one that cannot be made again raises `InputError`."""
    given = dict(facts)
    try:
        link = given["link"]
        if link is not None:
            given["link"] = KvLink(**{k: math.inf if v is None else v for k, v in link.items()})
        for name in ("router", "decode_router"):
            given[name] = Router(**given[name])
        given["failures"] = [Failure(**failure) for failure in given["failures"]]
        return Cluster([_node(node) for node in given.pop("nodes")], **given)
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"its cluster cannot be made again ({error}); the file is damaged or of another make"
        ) from None


def _node(facts: Mapping[str, Any]) -> Node:
    time, config = dict(facts["time"]), dict(facts["config"])
    origin, band = time.pop("provenance"), time.pop("error_band")
    source = Provenance(origin["kind"], origin["source"], tuple(origin["notes"]))
    for name, kind in _PARTS.items():
        if config[name] is not None:
            config[name] = kind(**{k: _tuples(v) for k, v in config[name].items()})
    return Node(
        **{name: _tuples(facts[name]) for name in _OF_NODE},
        time=IterationTime(**time, provenance=source, error_band=ErrorBand(**band)),
        policy=_policy(facts["policy"]),
        config=EngineConfig(**config),
    )


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _policy(facts: Mapping[str, Any]) -> Policy:
    """Return the policy that the registry makes of these facts, if it is the same; else one that only tells them."""
    from tileq_engine.registry import policy, policy_maker

    settings, params = facts["settings"], {k: _tuples(v) for k, v in facts["params"].items()}
    limits = {name: settings.get(name) for name in ("token_budget", "max_num_seqs")}
    try:
        known = {*inspect.signature(inspect.unwrap(policy_maker(facts["name"]))).parameters, "tenant_quota"}
        given = {k: v for k, v in {**params, **limits}.items() if k in known and v is not None}
        made = policy(facts["name"], **given)
        if plain(made) == facts:
            return made
    except (InputError, TypeError):
        pass  # a name or a parameter of the user's own
    return RecordedPolicy(
        name=facts["name"],
        params=params,
        scalars={k: v for k, v in settings.items() if k not in limits},
        prepare=_refuse,
        macro=False,
        facts=dict(facts),
        **limits,
        **{kind: facts["rules"][kind] for kind in RULE_KINDS},
    )


def _refuse(policy: Policy, *_: Any) -> NoReturn:
    raise InputError(
        f"policy {policy.name} comes from a saved run and held functions of its own, which a file does not keep; "
        "make it again, or take the requests and the other nodes"
    )


assert {f.name for f in fields(KvLink)} == {"bytes_per_token", "node_bytes_per_s", "shared_bytes_per_s", "latency_s"}
