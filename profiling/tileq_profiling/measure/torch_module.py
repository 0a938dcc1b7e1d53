"""torch, imported where it is used, with a hint where it is not installed."""

from __future__ import annotations

__all__ = ["DTYPES", "check_dtype", "device_facts", "import_torch", "memory_told", "pick_device"]

import importlib
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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


def check_dtype(torch: Any, device: Any, dtype: str) -> None:
    """Raise `InputError` for arithmetic that is not measured, or that the device only emulates."""
    if dtype not in DTYPES:
        raise InputError(f"dtype {dtype!r} cannot be measured; expected one of {', '.join(DTYPES)}")
    if device.type == "cuda" and dtype == "bf16":
        with torch.cuda.device(device):
            if not torch.cuda.is_bf16_supported(including_emulation=False):
                name = torch.cuda.get_device_name(device)
                raise InputError(f"{name} has no bf16 arithmetic, only an emulation of it; give dtype='fp16'")


@contextmanager
def memory_told(torch: Any, what: str) -> Iterator[None]:
    """Turn a device that runs out of memory into an `InputError` that says what to make smaller."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise InputError(
            f"the device ran out of memory while {what} was measured; free it, or give fewer layers, a smaller "
            "most_tokens or longest_context; what was measured so far is kept"
        ) from None


def device_facts(torch: Any, device: Any) -> dict[str, Any]:
    """Return name, clocks in MHz and library versions of the device: what a reader needs to compare measurements."""
    libraries = {"torch": str(torch.__version__), "python": platform.python_version()}
    if device.type == "cuda":
        libraries["cuda"] = str(torch.version.cuda)
        return {
            "device": torch.cuda.get_device_name(device),
            "libraries": libraries,
            "clocks": _cuda_clocks(_smi_id(torch, device)),
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


def _smi_id(torch: Any, device: Any) -> str:
    """Return the device's UUID: nvidia-smi counts every GPU, torch only those that CUDA_VISIBLE_DEVICES leaves."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else str(device.index or 0)


def _cuda_clocks(index: str) -> dict[str, float]:
    query = "clocks.sm,clocks.mem,clocks.max.sm"
    command = ["nvidia-smi", f"--id={index}", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=dict(os.environ))
        values = [float(field) for field in told.stdout.splitlines()[0].split(",")]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return dict(zip(("sm_mhz", "memory_mhz", "sm_max_mhz"), values, strict=True))
