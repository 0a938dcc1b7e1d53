"""`tileq plan --cluster FILE`: what a cluster of a file can carry, which nodes serve whom, and what binds."""

from __future__ import annotations

__all__ = ["ClusterPlan", "plan_cluster"]

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from tileq.clusters import ClusterSetting, make_cluster
from tileq.traffic import make_traffic
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import nonnegative

if TYPE_CHECKING:
    from tileq_engine.cluster import Cluster


@dataclass(frozen=True, slots=True, eq=False)
class ClusterPlan:
    """Capacity of a cluster.

    Parameters
    ----------
    setting
        The cluster, its requests and its capacity.
    offered_per_s
        The rate asked for, or the trace's own; None without one.
    """

    setting: ClusterSetting
    offered_per_s: float | None

    @property
    def rate_per_s(self) -> float:
        """Requests per second that no router and no policy exceeds."""
        return self.setting.capacity.rate_per_s

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq plan --cluster FILE --json` prints."""
        from tileq.plain import plain

        found = self.setting.capacity
        bands = [node.time.error_band.of_rate(found.rate_per_s) for node in self.setting.cluster.nodes]
        warnings = list(self.setting.warnings)
        if self.offered_per_s is not None and self.offered_per_s >= found.rate_per_s:
            warnings.append(
                f"the offered rate {self.offered_per_s:g}/s is at or above the capacity {found.rate_per_s:g}/s: no "
                "policy is stable"
            )
        document: dict[str, Any] = plain(
            {
                "schema_version": 1,
                "cluster": self.setting.to_dict(),
                "workload": self.setting.traffic.label,
                "classes": [c.name for c in self.setting.traffic.workload.classes],
                **found.to_dict(),
                "prefix_cache": None if self.setting.caching is None else self.setting.caching.to_dict(),
                "error_band": {"low": min(low for low, _ in bands), "high": max(high for _, high in bands)},
                "offered_rate_per_s": self.offered_per_s,
                "utilisation": None if self.offered_per_s is None else self.offered_per_s / found.rate_per_s,
                "provenance": {
                    "iteration_time": {node.name: node.time.provenance for node in self.setting.cluster.nodes},
                    "workload": self.setting.traffic.source,
                },
                "warnings": warnings,
            }
        )
        return document


def plan_cluster(
    cluster: str | PathLike[str] | Mapping[str, Any] | Cluster,
    *,
    rate: float | None = None,
    trace: Any = None,
    workload: Any = None,
    classes: Any = None,
    conversations: Any = None,
    convention: TokenConvention = "engine",
) -> ClusterPlan:
    """Return what a cluster can carry, which of its nodes serve which class, and what stops it.

    Parameters
    ----------
    cluster
        A file, a mapping of the same layout, or an engine's `Cluster`.
    rate
        Requests per second to serve; None: the trace's own rate where it has one.
    trace, workload, classes, conversations, convention
        The requests, as in `tileq.plan`.

    Examples
    --------
    >>> two = {"node": [{"name": "old", "gpu": "a100-sxm-80gb"}, {"name": "new", "gpu": "h100-sxm"}]}
    >>> answer = plan_cluster(two, classes=["512:64"])
    >>> answer.setting.capacity.group("new").rates_per_s > answer.setting.capacity.group("old").rates_per_s
    array([ True])
    """
    offered = None if rate is None else nonnegative("rate", rate)
    traffic = make_traffic(trace, workload, classes, conversations)
    setting = make_cluster(cluster, traffic, convention=convention)
    return ClusterPlan(setting, traffic.rate_per_s if offered is None else offered)
