"""The steps of a validation: the model, its profile and fit, the cases, the profile again; kept in a folder."""

from __future__ import annotations

__all__ = ["Fitted", "Steps"]

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq_engine.config import EngineConfig
    from tileq_engine.executor.profiling import ProfilePoint
    from tileq_engine.executor.validation_case import Trial
    from tileq_engine.policy import Policy
    from tileq_engine.requests import Requests
    from tileq_profiling.profile import Profile
    from tileq_theory.capacity import TilePlan
    from tileq_theory.iteration_time import IterationTime

_POINTS, _FORMED = 36, 24
_FORMED_SHARE = 0.8  # of the weight of the fit: lambda* is of the batches that policies form
_REHEARSED = 400
_FIT: dict[str, Any] = {"bootstrap": 0, "folds": 5}  # intervals are of `tileq calibrate`; here the runs are the judge
_SESSION = "validation.json"


@dataclass(frozen=True, slots=True)
class Fitted:
    """An iteration time to be judged, and where it came from.

    `raw_time` is fitted to the times as they were measured, without the correction for drift; `calibration` is None
    for one that was loaded.
    """

    time: IterationTime
    raw_time: IterationTime | None
    calibration: Any
    points: int
    median_error: float | None
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Steps:
    """What a validation works on; see `tileq.validating.validate` for the settings."""

    model: Any
    device: str
    dtype: str | None
    threads: int
    kv_tokens: int | None
    max_num_seqs: int
    max_tokens: int
    clock: str
    folder: Path | None
    resume: bool
    seed: int
    say: Callable[[str], None]
    backend: Any = field(init=False)
    probe: Any = field(init=False)
    _before: list[ProfilePoint] = field(init=False, default_factory=list)
    _time: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        from tileq_engine.executor.decoder_backend import gemm_probe, make_backend

        self.backend = make_backend(
            self.model, device=self.device, dtype=self.dtype, kv_tokens=self.kv_tokens, threads=self.threads
        )
        self.kv_tokens = self.backend.blocks * self.backend.block_tokens
        self.probe = gemm_probe(self.backend)

    @property
    def longest(self) -> int | None:
        """Longest request that the model has positions for."""
        longest: int | None = self.backend.max_positions
        return longest

    # ------------------------------------------------------------------ the folder

    def open(self, question: Mapping[str, Any]) -> None:
        """Make the folder, or take up the validation in it; the probe's reference speed is the one it began with."""
        header = {"kind": "tileq validation", "schema_version": 1, **question, **self._settings()}
        if self.folder is None:
            self.probe.set_reference(200)
            return
        from tileq.experiments import ready_folder

        ready_folder(self.folder)
        path = self.folder / _SESSION
        if self.resume and path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            for key, value in json.loads(json.dumps(header)).items():
                if kept.get(key) != value:
                    raise InputError(
                        f"{self.folder} holds a validation with {key} {kept.get(key)!r}, now it is {value!r}; "
                        "give another folder, or begin anew (--no-resume)"
                    )
            self.probe.reference_ns = self.probe.smooth_ns = float(kept["probe_ns"])
            return
        for old in (*self.folder.glob("*.journal.jsonl"), *self.folder.glob("profile-*.jsonl")):
            old.unlink()
        header["probe_ns"] = self.probe.set_reference(200)
        path.write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")

    def _settings(self) -> dict[str, Any]:
        about = self.backend.describe()
        names = ("model", "device", "dtype", "attention", "arithmetic", "threads")
        own = {"max_num_seqs": self.max_num_seqs, "max_tokens": self.max_tokens, "clock": self.clock, "seed": self.seed}
        return {**{n: about[n] for n in names}, "kv_tokens": self.kv_tokens, **own}

    def finish(self, document: dict[str, Any]) -> None:
        """Write the document into the folder."""
        if self.folder is not None:
            (self.folder / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    # ------------------------------------------------------------------ the profile

    def given(self, path: str | PathLike[str]) -> Fitted:
        """Return a calibration file's iteration time."""
        from tileq.validating import calibration_of

        loaded = calibration_of(path)
        return Fitted(loaded.time, None, None, loaded.points, loaded.median_error, loaded.warnings)

    def fitted(self, lengths: Requests, budget_s: float) -> Fitted:
        """Profile the executor, or take the profile from the folder, and fit it.

        Designed batches first; then, on the fit of these, batches as the policies form them, which the final fit is
        mostly made for: seven coefficients cannot follow every batch that there could be.
        """
        self._before = self._profiled("before", lengths, 0.5 * budget_s)
        self._before += self._profiled_formed("formed", lengths, self._fit(self._before).time, 0.5 * budget_s)
        found = self._fit(self._before, raw=True)
        self._time = found.time
        return found

    def after(self, lengths: Requests, budget_s: float) -> IterationTime | None:
        """Profile again after the runs: the other half of the sandwich; return what both halves say together."""
        later = self._profiled("after", lengths, 0.5 * budget_s)
        later += self._profiled_formed("formed-after", lengths, self._time, 0.5 * budget_s)
        return self._fit([*self._before, *later]).time

    def _fit(self, points: Sequence[ProfilePoint], raw: bool = False) -> Fitted:
        from tileq_profiling.fit import fit

        formed = np.array([p.formed for p in points])
        weights = None
        if formed.any():
            weights = np.where(formed, _FORMED_SHARE / formed.sum(), (1 - _FORMED_SHARE) / (~formed).sum())
        made = fit(self._profile(points, "seconds"), weights=weights, **_FIT)
        plain = fit(self._profile(points, "raw_seconds"), weights=weights, **_FIT).time if raw else None
        return Fitted(made.time, plain, made, len(points), made.median_error, made.warnings)

    def _profile(self, points: Sequence[ProfilePoint], seconds: str) -> Profile:
        from tileq_profiling.profile import Conditions, Profile

        about = self.backend.describe()
        names = ("tokens", "pairs", "kv_tokens", "sequences")
        columns: dict[str, Any] = {n: [getattr(p, n) for p in points] for n in names}
        return Profile.of(
            **columns,
            seconds=[getattr(p, seconds) for p in points],
            repeats=[p.repeats for p in points],
            prefill_tokens=[p.prefill_tokens for p in points],
            conditions=Conditions(
                device=about["device"],
                model=about["model"],
                dtype=about["dtype"],
                libraries={"torch": about["torch"]},
                source="the executor's own profile",
            ),
        )

    def _profiled(self, name: str, lengths: Requests, budget_s: float) -> list[ProfilePoint]:
        from tileq_engine.executor.profiling import spread_designs

        longest = int((lengths.prompt_tokens + lengths.output_tokens).max())
        seed = self.seed + (name == "after")
        return self._measured(
            name, spread_designs(self.max_tokens, self.max_num_seqs, longest, _POINTS, seed), budget_s
        )

    def _profiled_formed(
        self, name: str, lengths: Requests, time: IterationTime, budget_s: float
    ) -> list[ProfilePoint]:
        """Measure batches that generalised RAD and Sarathi form, saturated, on a first fit."""
        from tileq.validating import plan_of, policies_of
        from tileq_engine.executor.rehearsal import formed_batches

        plan = plan_of(time, lengths, self, None)
        config = self.config_of(plan, "recompute")
        some = lengths.head(min(len(lengths), _REHEARSED))
        chosen = list(policies_of(("rad_general", "sarathi"), plan).values())
        return self._measured(name, formed_batches(chosen, some, config, time, _FORMED), budget_s)

    def _measured(self, name: str, designs: Sequence[Any], budget_s: float) -> list[ProfilePoint]:
        from tileq_engine.executor.profiling import ProfilePoint, profile_executor
        from tileq_engine.executor.rehearsal import loop_overhead_s

        path = None if self.folder is None else self.folder / f"profile-{name}.jsonl"
        points = [ProfilePoint(**line) for line in _lines(path)]
        designs = designs[len(points) :]
        if not designs:
            return points
        self.say(f"profile, {name}: {len(designs)} batches, {budget_s:.0f} s")
        extra = loop_overhead_s(self.backend, _plain_config(self.max_num_seqs), self.max_num_seqs)

        def keep(point: ProfilePoint) -> None:
            if path is not None:
                with path.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(point.to_dict()) + "\n")

        found = profile_executor(
            self.backend,
            self.probe,
            most_tokens=self.max_tokens,
            most_sequences=self.max_num_seqs,
            longest_context=1,
            budget_s=budget_s,
            extra_s=extra,
            designs=designs,
            on_point=keep,
        )
        return [*points, *found]

    # ------------------------------------------------------------------ the cases

    def trial(self, lengths: Requests, plan: TilePlan, time: IterationTime, preemption: str) -> Trial:
        """Return what all cases share: the plan's budget, and its lambda*."""
        from tileq_engine.executor.validation_case import Trial

        config, rate = self.config_of(plan, preemption), plan.capacity.rate_per_s
        return Trial(self.backend, self.probe, self.clock, config, lengths, rate, time, self.seed, self.folder)

    def config_of(self, plan: TilePlan, preemption: str) -> EngineConfig:
        """Return the engine's settings under a plan."""
        from tileq_engine.config import EngineConfig

        return EngineConfig(
            token_budget=max(plan.token_budget, self.max_num_seqs),
            max_num_seqs=self.max_num_seqs,
            kv_tokens=self.kv_tokens,
            block_tokens=self.backend.block_tokens,
            preemption=preemption,  # type: ignore[arg-type]
            gap_mode="exact",
        )

    def cases(
        self,
        trial: Trial,
        policies: Mapping[str, Policy],
        fractions: Sequence[float] | None,
        budget_s: float,
        live: bool | None,
    ) -> tuple[list[dict[str, Any]], bool]:
        """Run the cases, those in the folder excepted."""
        from tileq_engine.executor.validation import FRACTIONS, run_cases

        def told(document: dict[str, Any], done: int, of: int) -> None:
            load = "saturated" if document["fraction"] is None else f"{document['fraction']:g} lambda*"
            rate = document.get("saturated_per_s")
            edge = "no edge: too few requests" if rate is None else f"{rate:.4g}/s"
            found = edge if document["fraction"] is None else document["measured"]["verdict"]
            self.say(f"{done} of {of}: {document['policy']}, {load}: {found}")

        self.say(f"lambda* {trial.rate_per_s:.4g}/s; runs for {budget_s:.0f} s")
        return run_cases(
            trial,
            policies,
            fractions=tuple(fractions or FRACTIONS),
            budget_s=budget_s,
            on_case=told,
            live=live,
            resume=self.resume,
        )

    def conditions(self, trial: Trial, traffic: str) -> dict[str, Any]:
        """Return under which conditions everything was measured."""
        import platform

        from tileq import __version__
        from tileq_engine.decoder import torch_setup

        about = {k: v for k, v in self.backend.describe().items() if k != "cuda"}
        lengths = trial.lengths
        return {
            **about,
            "torch settings": torch_setup(self.threads).to_dict(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "tileq": __version__,
            "clock": self.clock,
            "probe reference": f"{self.probe.reference_ns / 1e3:.1f} us",
            "requests": f"{len(lengths)} of {traffic}: mean prompt {lengths.prompt_tokens.mean():.1f}, mean output "
            f"{lengths.output_tokens.mean():.1f} tokens",
            "engine": f"token budget {trial.config.token_budget}, {trial.config.max_num_seqs} residents, "
            f"{trial.config.kv_tokens} KV tokens, preemption by {trial.config.preemption}",
        }


def _plain_config(residents: int) -> Any:
    from tileq_engine.config import EngineConfig

    return EngineConfig(token_budget=residents, max_num_seqs=residents)


def _lines(path: Path | None) -> list[dict[str, Any]]:
    """Return the whole lines of a file of JSON lines; none where there is no file."""
    if path is None or not path.is_file():
        return []
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    if len(whole) < len(raw):  # the last line was being written when the process died
        path.write_bytes(whole)
    return [json.loads(line) for line in whole.splitlines()]
