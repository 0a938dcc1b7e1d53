"""vLLM's periodic stats lines, V0 and V1, and V0's preemption warnings: a run's paths over time.

Averages over about ten seconds are no step times, but an interval that admitted nobody and lost nobody gives the
mean decode step exactly (see `series.steady_decodes`); that is all `read_profile` takes from such a log.
"""

from __future__ import annotations

__all__ = ["PROFILE_READERS", "RUN_READERS"]

import re
from collections import Counter

import numpy as np

from tileq_profiling.profile import Profile
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, RunOptions, RunReader
from tileq_profiling.steps.log_lines import LogClock, entries, process_of
from tileq_profiling.steps.make_run import make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_profiling.steps.run import MeasuredRun
from tileq_profiling.steps.series import SeriesBuilder, steady_decodes
from tileq_profiling.steps.vllm_facts import kv_capacity, vllm_conditions
from tileq_theory.errors import InputError

_N = rb"(\d+(?:\.\d+)?)"
_LINE = re.compile(
    rb"Avg prompt throughput: " + _N + rb" tokens/s, Avg generation throughput: " + _N + rb" tokens/s, "
    rb"Running: (\d+) reqs?, (?:Swapped: (\d+) reqs?, )?(?:Waiting|Pending): (\d+) reqs?"
    rb"(?:, Preemptions: (\d+))?(?:, GPU KV cache usage: " + _N + rb"%)?"
)
_MARKER = b"Avg prompt throughput:"
_SNIFF = rb"Avg prompt throughput: [\d.]+ tokens/s, Avg generation throughput"
_PREEMPTED = re.compile(rb"total_num_cumulative_preemption=(\d+)")


def _builders(source: Source) -> tuple[dict[str, SeriesBuilder], Counter[str], int]:
    """Return the reports of each engine, what was left out, and how many requests V1 reports as preempted."""
    clock, found, left, preempted = LogClock(), dict[str, SeriesBuilder](), Counter[str](), 0
    for entry in entries(source, _MARKER, _LINE):
        if entry is None:
            left["truncated or overwritten stats lines"] += 1
            continue
        prompt, output, running, swapped, waiting, preemptions, usage = entry.match.groups()
        preempted += int(preemptions or 0)
        builder = found.setdefault(process_of(entry.before), SeriesBuilder())
        queued = float(waiting) + float(swapped or 0)  # a swapped request waits for memory to come back
        share = float(usage) / 100 if usage is not None else float("nan")
        builder.add(clock.seconds(entry.before), float(running), queued, share, float(prompt), float(output))
    if not found:
        told = "; ".join(f"{count} {reason}" for reason, count in left.items()) or "no stats line in it"
        raise InputError(f"{source.name} holds no complete stats line ({told})")
    return found, left, preempted


def _read_run(place: Place, options: RunOptions) -> MeasuredRun:
    source = place.text()
    found, left, preempted = _builders(source)
    warnings = [line for builder in found.values() for line in builder.warnings()]
    if len(found) > 1:
        warnings.append(f"{len(found)} engines, each with its own series")
    warned = _preemptions(source)
    if warned is not None:
        warnings.append("preemptions are the highest count that V0 warned of; it warns of every fiftieth")
    return make_run(
        source.name,
        "vllm-stats",
        None,
        series=[builder.series(engine) for engine, builder in found.items()],
        preemptions=warned if warned is not None else preempted or None,
        conditions=vllm_conditions(source),
        kv_capacity_tokens=kv_capacity(source),
        skipped=list(left.items()),
        warnings=warnings,
    )


def _preemptions(source: Source) -> int | None:
    """Return V0's cumulative count, or None where it warned of none; a restart begins a new count."""
    total, last, any_found = 0, 0, False
    for entry in entries(source, b"total_num_cumulative_preemption=", _PREEMPTED):
        if entry is None:
            continue
        count, any_found = int(entry.match.group(1)), True
        if count < last:
            total += last
        last = count
    return total + last if any_found else None


def _read_profile(place: Place, options: ProfileOptions) -> ProfileReading:
    source = place.text()
    found, left, _ = _builders(source)
    capacity = kv_capacity(source) if options.kv_capacity_tokens is None else options.kv_capacity_tokens
    conditions = vllm_conditions(source)
    parts = []
    for engine, builder in found.items():
        steps = steady_decodes(builder.series(engine))
        if len(steps):
            words = engine.split()
            kv_known = capacity is not None and bool(np.all(np.isfinite(steps[:, 1])))
            parts.append(
                Part(
                    dict(zip(words[::2], words[1::2], strict=True)),
                    Profile.of(
                        tokens=steps[:, 0],
                        prefill_tokens=np.zeros(len(steps)),
                        kv_tokens=steps[:, 1] * (capacity or 0.0) if kv_known else None,
                        sequences=steps[:, 0],
                        seconds=steps[:, 2],
                        conditions=conditions,
                    ),
                )
            )
    if not parts:
        raise InputError(
            f"{source.name} holds stats lines but no step times, and no interval in which only decodes of an unchanged "
            "batch ran; start vLLM with --enable-logging-iteration-details, or use read_run for the paths over time"
        )
    total = sum(len(builder) for builder in found.values())
    used = sum(len(part.profile) for part in parts)
    warnings = [f"mean decode steps out of {used} of {total} stats intervals, those in which no request came or left"]
    return finish(
        "vllm-stats", parts, joinable=True, left_out=[f"{n} {why}" for why, n in left.items()], warnings=warnings
    )


def _sniff(place: Place) -> float:
    return 5.0 if place.marked(_SNIFF) else 0.0


PROFILE_READERS = (
    ProfileReader("vllm-stats", "vLLM stats lines (text; steady decode intervals only)", _sniff, _read_profile),
)
RUN_READERS = (
    RunReader(
        "vllm-stats", "vLLM stats lines of V0 or V1, with preemptions (text; paths over time)", _sniff, _read_run
    ),
)
