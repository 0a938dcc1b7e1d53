"""`tileq calibrate`: measured iteration times in, a cost model with its errors and its lambda* out."""

from __future__ import annotations

__all__ = ["Calibrated", "calibrate"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq.latencies import EngineOptions, fit_file, holds_latencies
from tileq.setting import make_setting
from tileq.traffic import Traffic, make_traffic
from tileq_theory.errors import InputError, TileqError, positive, positive_int

if TYPE_CHECKING:
    from tileq_engine.policy import Policy
    from tileq_profiling.calibration import Calibration, RateBand
    from tileq_profiling.inverse import InverseFit
    from tileq_profiling.profile import Profile
    from tileq_profiling.replay import Comparison
    from tileq_profiling.steps import MeasuredRun
    from tileq_theory.capacity import Limits
    from tileq_theory.hardware import Gpu, Model
    from tileq_theory.iteration_time import IterationTime
    from tileq_theory.request_class import RequestClass
    from tileq_theory.workload import Workload

_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A fit with what it was made from and what it says of a workload.

    Parameters
    ----------
    calibration
        Coefficients, tile verdict, held-out errors, intervals.
    profile
        The measured iterations; None where latencies were fitted.
    rate, limits
        lambda* with its band and the limits it holds under; `rate` is None where there is none (a warning says why).
    traffic
        The workload of lambda*.
    warnings
        What is missing or doubtful, the fit's own warnings first.
    comparison
        The measured run beside its replay, where one was given.
    inverse
        What latencies determined, where there were no step times to fit.
    """

    calibration: Calibration
    profile: Profile | None
    rate: RateBand | None
    limits: Limits
    traffic: Traffic
    warnings: tuple[str, ...]
    comparison: Comparison | None = None
    inverse: InverseFit | None = None

    @property
    def time(self) -> IterationTime:
        """The fitted iteration time, as `tq.plan(calibration=...)` takes it."""
        return self.calibration.time

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the calibration as the file that `--calibration` takes."""
        where = writable(path)
        self.calibration.save(where)
        return where

    def report(self, path: str | PathLike[str]) -> Path:
        """Write the report with its plots as one HTML file."""
        from tileq_profiling.report import html_report, latency_report

        where = writable(path)
        if self.inverse is not None:
            page = latency_report(self.inverse, self.rate)
        elif self.profile is not None:
            page = html_report(self.calibration, self.profile, self.rate)
        where.write_text(page, encoding="utf-8")
        return where

    def text(self) -> str:
        """Return the report for a terminal of 80 columns."""
        from dataclasses import replace
        from textwrap import wrap

        from tileq_profiling.report import text_report

        text = text_report(replace(self.calibration, warnings=self.warnings), self.rate)
        if self.inverse is not None:
            text += "\n" + self.inverse.text()
        kept = self.profile.conditions.notes if self.profile is not None else ()
        notes = [wrap(f"Note: {note}", _WIDTH, subsequent_indent="  ") for note in kept]
        told = "".join("\n" + "\n".join(lines) + "\n" for lines in notes)
        return text + told + ("" if self.comparison is None else "\n" + self.comparison.text())

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq calibrate --json` prints; it is a calibration file itself."""
        from tileq.plain import plain

        document: dict[str, Any] = plain(
            {
                "schema_version": 1,
                **self.calibration.to_dict(),
                "median_error": self.calibration.median_error,
                "phases": {} if self.profile is None else _phases(self.profile),
                "latencies": None if self.inverse is None else self.inverse.to_dict(),
                "lambda_star": None if self.rate is None else self.rate.to_dict(),
                "workload": {"name": self.traffic.label, "source": self.traffic.source},
                "limits": {"max_batch_tokens": self.limits.max_batch_tokens, "kv_tokens": self.limits.kv_tokens},
                "replay": None if self.comparison is None else self.comparison.to_dict(),
                "warnings": self.warnings,
            }
        )
        return document


def calibrate(
    file: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the word users look for
    where: Mapping[str, str] | None = None,
    model: str | PathLike[str] | Model | None = None,
    gpu: str | PathLike[str] | Gpu | None = None,
    tp: int = 1,
    launch: float | None = None,
    kv_tokens: int | None = None,
    replay: str | PathLike[str] | MeasuredRun | None = None,
    policy: str | None = None,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
    rate: float | None = None,
    concurrency: int | None = None,
    chars_per_token: float | None = None,
    trace: str | PathLike[str] | Any | None = None,
    workload: str | Workload | None = None,
    classes: Sequence[str | RequestClass] | None = None,
    max_tokens: int | None = None,
    out: str | PathLike[str] | None = None,
    report: str | PathLike[str] | None = None,
) -> Calibrated:
    """Return the iteration time fitted to what was measured, judged on what the fit did not see.

    A file with latencies and no step times (the results of a load generator, a sweep, a folder of them) is fitted
    through the simulator.

    Parameters
    ----------
    file
        A log, a table or a folder in any format of `tileq catalog profiles`.
    format
        Its format; chosen by content when None.
    where
        Which engine or condition of a file that holds several: {"engine": "0"}.
    model, gpu, tp
        What was measured, for files that do not say it; kernel profiles need the model.
    launch
        Seconds of launch and host time an iteration, added to kernel profiles, which lack it.
    kv_tokens
        KV cache of the engine, tokens; None: what fits the GPU beside the model where both are known.
    replay
        A measured run of the same engine (file, folder or `MeasuredRun`): the fit is made for the batches that its
        requests form, and its latencies and paths are compared with those of its requests simulated on the fit.
    policy, token_budget, max_num_seqs
        The engine of that run, or of the latencies, where the files do not say; vLLM's defaults else, and the answer
        says so.
    rate, concurrency
        How the requests of latencies came, where the file does not say: requests per second, or clients that each
        send their next request when the last one is done.
    chars_per_token
        For latencies whose output length is in characters (BurstGPT replays).
    trace, workload, classes
        The workload of lambda*, as in `tileq.plan`.
    max_tokens
        Largest batch of lambda*; None: the largest that was measured.
    out, report
        Where the calibration file and the HTML report go.

    Raises
    ------
    InputError
        Whatever cannot be used, in one line: an empty or unknown file, NaN, too few batches.
    """
    from tileq_profiling.operators import Launch
    from tileq_profiling.steps import read_profile
    from tileq_theory.hardware import load_gpu, load_model

    for path in (out, report):
        if path is not None:
            writable(path)
    traffic = make_traffic(trace, workload, classes)
    if max_tokens is not None:
        positive_int("max_tokens", max_tokens)
    run = None if replay is None else _run(replay)
    if run is not None and kv_tokens is None and run.kv_capacity_tokens:
        kv_tokens = int(run.kv_capacity_tokens)
    shape = load_model(model) if isinstance(model, str | PathLike) else model
    device = load_gpu(gpu) if isinstance(gpu, str | PathLike) else gpu
    tp = positive_int("tp", tp)
    if holds_latencies(Path(file), format):
        if launch is not None:
            raise InputError("launch is for kernel profiles; latencies tell the launch time themselves: leave it out")
        engine = EngineOptions(policy, token_budget, max_num_seqs, kv_tokens, rate, concurrency, chars_per_token)
        inverse = fit_file(Path(file), format, where, shape, device, tp, engine)
        calibration = inverse.calibration
        beside = None if run is None else _beside(calibration, run, policy, token_budget, max_num_seqs, kv_tokens)
        answer = _judged(calibration, None, traffic, kv_tokens, max_tokens, beside, inverse)
    else:
        _refuse_idle(
            "the file holds step times, and only latencies need to be told how requests came",
            rate=rate,
            concurrency=concurrency,
            chars_per_token=chars_per_token,
        )
        if run is None:
            engine_too = "the file holds step times, and only latencies or a replayed run have an engine to describe"
            _refuse_idle(engine_too, policy=policy, token_budget=token_budget, max_num_seqs=max_num_seqs)
        profile = read_profile(
            Path(file),
            format,
            where=where,
            model=shape,
            gpu=device,
            launch=None if launch is None else Launch(iteration_s=positive("launch", launch)),
            tp=tp,
            kv_capacity_tokens=kv_tokens,
        )
        calibration, comparison = _fitted(profile, run, policy, token_budget, max_num_seqs, kv_tokens)
        answer = _judged(calibration, profile, traffic, kv_tokens, max_tokens, comparison, None)
    if out is not None:
        answer.save(out)
    if report is not None:
        answer.report(report)
    return answer


def _refuse_idle(why: str, **given: object) -> None:
    """Raise `InputError` for an option that would be ignored: its user believes that it counted."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} is {value!r}, but {why}; leave it out")


def _run(given: str | PathLike[str] | MeasuredRun) -> MeasuredRun:
    from tileq_profiling.steps import read_run

    return read_run(Path(given)) if isinstance(given, str | PathLike) else given


def _fitted(
    profile: Profile,
    run: MeasuredRun | None,
    policy: str | None,
    token_budget: int | None,
    max_num_seqs: int | None,
    kv_tokens: int | None,
) -> tuple[Calibration, Comparison | None]:
    """Return the fit, and the replay of a run on it."""
    from dataclasses import replace as changed

    from tileq_profiling.fit import fit
    from tileq_profiling.replay import focused_fit, settings_of

    if run is None:
        return fit(profile), None
    config = settings_of(run, token_budget=token_budget, max_num_seqs=max_num_seqs, kv_tokens=kv_tokens)
    if np.isnan(profile.prefill_tokens).any():
        made = fit(profile)
        plainly = "the profile does not tell prefill from decode tokens, so the fit is not made for the run's batches"
        calibration = changed(made, warnings=(*made.warnings, plainly))
    else:
        calibration = focused_fit(profile, run, config=config, policy=_policy(policy))
    return calibration, _beside(calibration, run, policy, token_budget, max_num_seqs, kv_tokens)


def _beside(
    calibration: Calibration,
    run: MeasuredRun,
    policy: str | None,
    token_budget: int | None,
    max_num_seqs: int | None,
    kv_tokens: int | None,
) -> Comparison:
    """Return the replay of a run on a calibration."""
    from tileq_profiling.replay import replay, settings_of

    config = settings_of(run, token_budget=token_budget, max_num_seqs=max_num_seqs, kv_tokens=kv_tokens)
    return replay(run, calibration.time, config=config, policy=_policy(policy))


def _policy(text: str | None) -> Policy | None:
    from tileq.policy_text import parse_policy

    return None if text is None else parse_policy(text)


def _judged(
    calibration: Calibration,
    profile: Profile | None,
    traffic: Traffic,
    kv_tokens: int | None,
    max_tokens: int | None,
    comparison: Comparison | None,
    inverse: InverseFit | None,
) -> Calibrated:
    from tileq_theory.capacity import Limits

    room, told = (kv_tokens, ()) if kv_tokens is not None else _room(calibration)
    largest = 1
    if profile is not None:
        largest = max(1, int(profile.tokens.max()))
    elif inverse is not None:
        largest = inverse.largest_tokens
    asked = largest if max_tokens is None else max_tokens
    limits = Limits(max_batch_tokens=asked, kv_tokens=room)
    warnings = [*calibration.warnings, *traffic.warnings, *told]
    if asked > largest:
        warnings.append(f"lambda* uses batches of up to {asked} tokens; none beyond {largest} was measured")
    rate = None
    try:
        rate = calibration.lambda_band(traffic.workload, limits)
    except TileqError as error:
        warnings.append(f"no lambda* for the {traffic.label}: {error}")
    return Calibrated(calibration, profile, rate, limits, traffic, tuple(warnings), comparison, inverse)


def _room(calibration: Calibration) -> tuple[float | None, tuple[str, ...]]:
    """Return the KV tokens that fit the device that was measured; None with the reason where nobody can tell."""
    from tileq_theory.hardware import gpu_names, model_names

    c = calibration.conditions
    without = "lambda* is without a limit of memory"
    if c.device not in gpu_names() or c.model not in model_names():
        return None, (f"{without}: the KV cache is not known; give it, or the GPU and the model by name",)
    try:
        made = make_setting(
            c.device, c.model, tp=c.tp, dtype=c.dtype, kv_dtype=c.kv_dtype, calibration=calibration.time
        )
    except InputError as error:
        return None, (f"{without}: {error}",)
    return float(made.kv_tokens), ()


def _phases(profile: Profile) -> dict[str, dict[str, float]]:
    """Return the rows, and the smallest and largest batch and time, of each phase."""
    found = {}
    for name in sorted(set(profile.phase.tolist())):
        part = profile.take(profile.phase == name)
        found[name] = {
            "points": len(part),
            "least_tokens": float(part.tokens.min()),
            "most_tokens": float(part.tokens.max()),
            "shortest_s": float(part.seconds.min()),
            "longest_s": float(part.seconds.max()),
        }
    return found


def writable(path: str | PathLike[str]) -> Path:
    """Return the path of a file that can be written; raise `InputError` for a folder or a missing one."""
    where = Path(path)
    if where.is_dir():
        raise InputError(f"{where} is a folder; expected the name of a file to write")
    if not where.parent.is_dir():
        raise InputError(f"{where}: there is no folder {where.parent}; make it first")
    return where
