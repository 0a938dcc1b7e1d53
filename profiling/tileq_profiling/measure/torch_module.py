"""torch, imported where it is used, with a hint where it is not installed."""

from __future__ import annotations

__all__ = ["DTYPES", "device_facts", "import_torch", "pick_device"]

import importlib
import os
import platform
import subprocess
from typing import Any

from tileq_theory.errors import InputError

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def import_torch() -> Any:
    """Return the torch module; raise `InputError` with the way to install it."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise InputError(
            "measuring this machine needs PyTorch, which is not installed; install it with: pip install 'tileq[torch]'"
        ) from None


def pick_device(torch: Any, name: str) -> Any:
    """Return the torch device of that name ("cpu", "cuda", "cuda:1"), or raise `InputError` when it is not there."""
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise InputError(f"device {name!r} is not known; expected 'cpu', 'cuda' or 'cuda:<number>'")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                "device 'cuda' was asked for but PyTorch sees no CUDA device; expected one, or device='cpu'"
            )
        if index and int(index) >= torch.cuda.device_count():
            raise InputError(f"device {name!r} is not there; PyTorch sees {torch.cuda.device_count()} CUDA devices")
    return torch.device(name)


def device_facts(torch: Any, device: Any) -> dict[str, Any]:
    """Return name, clocks in MHz and library versions of the device: what a reader needs to compare measurements."""
    libraries = {"torch": str(torch.__version__), "python": platform.python_version()}
    if device.type == "cuda":
        libraries["cuda"] = str(torch.version.cuda)
        return {
            "device": torch.cuda.get_device_name(device),
            "libraries": libraries,
            "clocks": _cuda_clocks(device.index or 0),
        }
    return {"device": _cpu_name(), "libraries": libraries, "clocks": _cpu_clocks()}


def _cpu_name() -> str:
    for key, value in _cpuinfo():
        if key == "model name":
            return value
    return platform.processor() or platform.machine() or "cpu"


def _cpu_clocks() -> dict[str, float]:
    found = [float(value) for key, value in _cpuinfo() if key == "cpu MHz"]
    return {"cpu_mhz": max(found)} if found else {}


def _cpuinfo() -> list[tuple[str, str]]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - a device file
            return [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    except OSError:
        return []


def _cuda_clocks(index: int) -> dict[str, float]:
    query = "clocks.sm,clocks.mem,clocks.max.sm"
    command = ["nvidia-smi", f"--id={index}", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=dict(os.environ))
        values = [float(field) for field in told.stdout.splitlines()[0].split(",")]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return dict(zip(("sm_mhz", "memory_mhz", "sm_max_mhz"), values, strict=True))
