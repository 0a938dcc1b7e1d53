"""Capacity of clusters: unequal nodes behind one router, prefill and decode pools, links."""

from tileq_theory.cluster.answer import ClusterCapacity, ClusterKkt, GroupUse
from tileq_theory.cluster.groups import ROLES, NodeGroup, Role
from tileq_theory.cluster.program import cluster_capacity

__all__ = ["ROLES", "ClusterCapacity", "ClusterKkt", "GroupUse", "NodeGroup", "Role", "cluster_capacity"]
