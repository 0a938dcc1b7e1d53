"""Is this the machine that the plan was made for?"""

from __future__ import annotations

__all__ = ["Machine", "differences", "plan_limits"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHAPE = {  # of a plan's model, and of a config.json
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "vocab": "vocab_size",
}
_LEAST_KV = 0.9


@dataclass(frozen=True, slots=True)
class Machine:
    """What vLLM runs on: the model's shape by config.json's names, the device's name, GPUs a copy, KV tokens."""

    model: str
    shape: Mapping[str, int]
    device: str
    tensor_parallel: int
    kv_tokens: int


def differences(plan: Mapping[str, Any], machine: Machine) -> list[str]:
    """Return what of the plan does not hold on `machine`, a phrase each; none when it was made for it.

    Examples
    --------
    >>> here = Machine("m", {"num_hidden_layers": 2}, "NVIDIA H100 80GB HBM3", 1, 1000)
    >>> differences({"model": {"name": "llama", "layers": 32}, "tp": 1}, here)
    ['the plan is for llama with 32 layers, m has 2']
    """
    found = []
    model = plan.get("model") or {}
    for ours, theirs in _SHAPE.items():
        planned, here = model.get(ours), machine.shape.get(theirs)
        if planned is not None and here is not None and int(planned) != int(here):
            found.append(
                f"the plan is for {model.get('name', 'a model')} with {planned} {ours}, {machine.model} has {here}"
            )
    gpu = plan.get("gpu") or {}
    name = gpu.get("name") if isinstance(gpu, Mapping) else gpu
    if name and not _same_device(str(name), machine.device):
        found.append(f"the plan is for a {name}, this is {machine.device}")
    if plan.get("tp") is not None and int(plan["tp"]) != machine.tensor_parallel:
        found.append(f"the plan has {plan['tp']} GPUs a copy, vLLM runs with {machine.tensor_parallel}")
    planned_kv = plan.get("kv_tokens")
    if planned_kv and machine.kv_tokens < _LEAST_KV * float(planned_kv):
        found.append(f"the plan counts on {planned_kv:.0f} KV tokens, vLLM has {machine.kv_tokens}")
    return found


def _same_device(planned: str, device: str) -> bool:
    """Return whether the catalogue's name and the driver's are of one product: 'h100-sxm', 'NVIDIA H100 80GB HBM3'."""
    words = device.lower().replace("-", " ").replace("_", " ").split()
    family = planned.lower().replace("_", "-").split("-")[0]
    return any(word.startswith(family) for word in words)


def plan_limits(plan: Mapping[str, Any], least_tokens: int = 1) -> float:
    """Return the shortest iteration of the plan's iteration time, seconds: no TBT limit below it can be met."""
    time = plan.get("iteration_time") or {}
    tile = float(time.get("tile_s", 0.0))
    floor = max(float(time.get("weight_floor_s", 0.0)), tile + least_tokens * float(time.get("token_s", 0.0)))
    return float(time.get("launch_s", 0.0)) + floor
