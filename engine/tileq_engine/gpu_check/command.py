"""The command line of the check: argparse, as an image has it."""

from __future__ import annotations

__all__ = ["main"]

import argparse
import sys
from collections.abc import Sequence

from tileq_theory.errors import TileqError

_ABOUT = (
    "Logits and tokens, roofline shares, a profile with its fit, a validation of lambda* and a comparison with "
    "transformers' generate on this device, inside ten minutes. Needs torch, numpy and numba alone; the report is "
    "written as it grows."
)
_EXAMPLE = "example: python -m tileq_engine.gpu_check --out docs/measurements/gpu-$(hostname)"


def main(arguments: Sequence[str]) -> int:
    """Run the check; 0 when every part was right, 1 when one was not or could not be run, 2 on bad input."""
    parser = argparse.ArgumentParser(prog="python -m tileq_engine.gpu_check", description=_ABOUT, epilog=_EXAMPLE)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:NUMBER or cpu")
    parser.add_argument("--model", default=None, help="8b, 1b, small, or a folder with config.json; 8b on CUDA")
    parser.add_argument("--dtype", default=None, help="bf16 (CUDA), fp32 (CPU) or fp16")
    parser.add_argument("--kv-tokens", type=int, default=None, help="KV cache; what fits")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds that it may take in all")
    parser.add_argument("--out", default="gpu-check", help="writes OUT.json and OUT.md")
    parser.add_argument("--smoke", action="store_true", help="tiny: shows that it runs")
    given = parser.parse_args(list(arguments))
    from tileq_engine.gpu_check.checking import check

    try:
        document = check(
            device=given.device,
            model=given.model,
            dtype=given.dtype,
            kv_tokens=given.kv_tokens,
            budget_s=given.budget,
            out=given.out,
            smoke=given.smoke,
            say=_say,
        )
    except TileqError as error:
        sys.stderr.write(f"gpu_check: {error}\n")
        return 2
    sys.stdout.write(document["text"])
    return 0 if document["right"] else 1


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
