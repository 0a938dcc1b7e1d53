"""From kernels of one layer to iterations of a whole model."""

from tileq_profiling.operators.aiconfigurator import aiconfigurator_profile
from tileq_profiling.operators.launch import Launch
from tileq_profiling.operators.layer_tables import llmservingsim_profile
from tileq_profiling.operators.vidur import vidur_profile

__all__ = ["Launch", "aiconfigurator_profile", "llmservingsim_profile", "vidur_profile"]
