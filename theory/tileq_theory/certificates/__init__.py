"""Foster-Lyapunov certificates of fluid models, proved in exact arithmetic."""

from tileq_theory.certificates.answer import Certificate, Cycle, Verdict
from tileq_theory.certificates.certify import certify
from tileq_theory.certificates.modes import FluidModes, Mode
from tileq_theory.certificates.policy_modes import (
    backlog_drift_tokens,
    exclusive_modes,
    rad_modes,
    work_conserving_modes,
)
from tileq_theory.certificates.priority_network import PriorityNetwork, ServiceClass, lu_kumar, rybko_stolyar

__all__ = [
    "Certificate",
    "Cycle",
    "FluidModes",
    "Mode",
    "PriorityNetwork",
    "ServiceClass",
    "Verdict",
    "backlog_drift_tokens",
    "certify",
    "exclusive_modes",
    "lu_kumar",
    "rad_modes",
    "rybko_stolyar",
    "work_conserving_modes",
]
