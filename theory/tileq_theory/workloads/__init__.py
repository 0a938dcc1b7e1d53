"""Named workloads, and the compact joint table in which they are kept."""

from tileq_theory.workloads.fit_error import FitError, fit_error
from tileq_theory.workloads.named import named_workload, workload_facts, workload_names
from tileq_theory.workloads.table import JointTable, fit_joint_table

__all__ = [
    "FitError",
    "JointTable",
    "fit_error",
    "fit_joint_table",
    "named_workload",
    "workload_facts",
    "workload_names",
]
