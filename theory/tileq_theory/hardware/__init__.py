"""GPUs, models, and what their datasheets promise: iteration time and KV capacity."""

from tileq_theory.hardware.gpu import Gpu
from tileq_theory.hardware.gpu_catalog import gpu_names, load_gpu
from tileq_theory.hardware.kv_capacity import kv_bytes_on_gpu, kv_capacity_tokens
from tileq_theory.hardware.model import Model
from tileq_theory.hardware.model_catalog import load_model, model_names
from tileq_theory.hardware.roofline import roofline
from tileq_theory.hardware.tables import catalog_rows

__all__ = [
    "Gpu",
    "Model",
    "catalog_rows",
    "gpu_names",
    "kv_bytes_on_gpu",
    "kv_capacity_tokens",
    "load_gpu",
    "load_model",
    "model_names",
    "roofline",
]
