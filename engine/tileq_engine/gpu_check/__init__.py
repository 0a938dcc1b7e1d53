"""One command for a GPU: correctness, profile, roofline shares, validation, and the same model in transformers.

    python -m tileq_engine.gpu_check --out report

It needs torch, numpy and numba, what a CUDA image carries; transformers is used where it is there. Nothing else of the
project's dependencies is imported; see `stand_in`. On a CPU: `--device cpu --smoke`.
"""

from __future__ import annotations

__all__ = ["check"]

from typing import Any


def check(**settings: Any) -> dict[str, Any]:
    """Run the check and return its document; settings as in `checking.check`."""
    from tileq_engine.gpu_check.checking import check as run

    return run(**settings)
