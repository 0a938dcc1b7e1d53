"""The catalogues as tables of plain values, for printing."""

from __future__ import annotations

__all__ = ["catalog_rows"]

from tileq_theory.errors import InputError
from tileq_theory.hardware.gpu import COMPUTE_FORMATS, Gpu
from tileq_theory.hardware.gpu_catalog import gpu_names, load_gpu
from tileq_theory.hardware.model import Model
from tileq_theory.hardware.model_catalog import load_model, model_names


def catalog_rows(kind: str) -> list[dict[str, object]]:
    """Return one row a GPU (`kind` "gpus") or a model ("models"), the same keys in every row, sorted by name.

    Examples
    --------
    >>> catalog_rows("models")[0]["name"]
    'codellama-34b-instruct'
    """
    if kind == "gpus":
        return [_gpu_row(load_gpu(name)) for name in gpu_names()]
    if kind == "models":
        return [_model_row(load_model(name)) for name in model_names()]
    raise InputError(f"catalogue is {kind!r}; expected 'gpus' or 'models'")


def _gpu_row(gpu: Gpu) -> dict[str, object]:
    link = gpu.link_bytes_per_s
    return {
        "name": gpu.name,
        "arch": gpu.arch,
        **{f"{k}_tflops": gpu.peak_flops[k] / 1e12 if k in gpu.peak_flops else None for k in COMPUTE_FORMATS},
        "memory_gib": round(gpu.memory_bytes / 2**30, 2),
        "bandwidth_gb_s": gpu.bandwidth_bytes_per_s / 1e9,
        "link_gb_s": None if link is None else link / 1e9,
        "tdp_w": gpu.tdp_w,
        "unverified": ", ".join(gpu.unverified),
    }


def _model_row(model: Model) -> dict[str, object]:
    return {
        "name": model.name,
        "hf_id": model.hf_id,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "experts": model.experts,
        "experts_per_token": model.experts_per_token,
        "params_b": round(model.params_total / 1e9, 3),
        "active_params_b": round(model.params_active / 1e9, 3),
        "kv_bytes_per_token_bf16": int(model.kv_bytes_per_token("bf16")),
    }
