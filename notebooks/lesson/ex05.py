"""The exercises of notebook 05: calibrations and their error band."""

from __future__ import annotations

__all__ = ["exercise_1", "exercise_2", "exercise_3"]

import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from lesson.answers import Verdict, about, exactly
from lesson.logs import KV_TOKENS, TRUTH, further_batches, write_vllm_log
from tileq.calibrating import Calibrated, calibrate

WANTED_PER_S = 30.0
CHUNK = 512


@cache
def _calibrated(decodes_only: bool) -> Calibrated:
    """Return the calibration of the notebook's log, made anew."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "serve.log"
        write_vllm_log(log, decodes_only=decodes_only)
        return calibrate(log, gpu="rtx-6000-ada", model="llama-3.1-8b", kv_tokens=KV_TOKENS)


def _inside() -> float:
    time, batches = _calibrated(False).time, further_batches()
    ratio = batches["seconds"] / time(batches["tokens"], 0.0, batches["kv_tokens"], batches["sequences"])
    return float(((ratio >= time.error_band.low) & (ratio <= time.error_band.high)).mean())


def _servers(rate_per_s: float) -> int:
    return math.ceil(WANTED_PER_S / rate_per_s)


def _low() -> float:
    rate = _calibrated(False).rate
    assert rate is not None
    return rate.outer_low_per_s


def _factor() -> float:
    return float(TRUTH(CHUNK, 0.0, 0.0, 1.0) / _calibrated(True).time(CHUNK, 0.0, 0.0, 1.0))


def exercise_1(answer: Any) -> Verdict:
    """The share of further batches whose measured / predicted lies in the error band."""
    return about(
        answer,
        _inside,
        rel=0.01,
        why="the band promised at least 90 %, with 95 % confidence, and it kept the promise.",
        hint="measured / predicted of each further batch: which share is at least band.low and at most band.high?",
        traps={"give a share of 1, not percent.": lambda: 100 * _inside()},
    )


def exercise_2(answer: Any) -> Verdict:
    """The servers for 30 requests per second that suffice at the lower end of the band."""
    return exactly(
        answer,
        lambda: _servers(_low()),
        why="the estimate alone would be optimistic half of the time.",
        hint="calibrated.rate.outer_low_per_s is the lower end; a server cannot be bought in parts.",
    )


def exercise_3(answer: Any) -> Verdict:
    """How many times longer a 512-token prefill takes than a log of decodes alone predicts."""
    return about(
        answer,
        _factor,
        rel=0.03,
        why="its band was narrow all the same: a band speaks of batches like those that were measured.",
        hint="calibrate a log written with decodes_only=True; compare TRUTH(512, 0, 0, 1) with its prediction.",
        traps={"the other way round: the truth over the prediction.": lambda: 1 / _factor()},
    )
