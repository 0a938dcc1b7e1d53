"""What a scheduler inside vLLM tells of itself: counters, a line in vLLM's log, a file for the Prometheus endpoint."""

from __future__ import annotations

__all__ = ["Reporter", "report_path"]

import atexit
import json
import os
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from tileq_engine.clock import PS_PER_S
from tileq_engine.vllm.asked import Asked
from tileq_engine.vllm.machine import plan_limits
from tileq_engine.vllm.mirror import Mirror
from tileq_engine.vllm.online import refit
from tileq_engine.vllm.settings import VllmSettings

_KEPT = 4096  # iterations kept for a fit
_WRITE_EVERY_S = 1.0


def report_path(instance: str, rank: int) -> Path:
    """Return the file through which the scheduler of vLLM's `instance` tells the API server of itself."""
    return Path(tempfile.gettempdir()) / f"tileq-vllm-{instance}-{rank}.json"


class Reporter:
    """Counts decisions and iterations; writes them down now and then."""

    def __init__(self, settings: VllmSettings, vllm_config: Any, mirror: Mirror) -> None:
        self.settings = settings
        self.mirror = mirror
        self.decisions = 0
        self.stock_decisions = 0
        self.rejected = 0
        self.unreachable = 0
        self.decide_ns = 0
        self.vllm_ns = 0
        self.iterations = 0
        self.busy_ps = 0
        self.recent: deque[tuple[int, int, int, int, int]] = deque(maxlen=_KEPT)  # shape, picoseconds
        self._last_end_ps = 0
        self._idle = True
        self._floor_s = 0.0 if settings.plan is None else plan_limits(settings.plan)
        self._warned: set[str] = set()
        self._arrived: deque[float] = deque(maxlen=_KEPT)
        rank = int(getattr(vllm_config.parallel_config, "data_parallel_index", 0) or 0)
        self._path = report_path(str(vllm_config.instance_id), rank)
        self._tidied = False
        self._written = self._logged = self._refitted = time.monotonic()
        self._fitted_iterations = self.refits = 0
        self._promised = 0.0 if settings.plan is None else float(settings.plan["rate_per_s"])
        limits = vllm_config.scheduler_config
        self.most_tokens = int(getattr(limits, "max_num_scheduled_tokens", None) or limits.max_num_batched_tokens)

    def warn_once(self, logger: Any, line: str, kind: str = "") -> None:
        """Write `line` to the log, the first time, or the first of its `kind` where clients can make it another."""
        if (kind or line) not in self._warned:
            self._warned.add(kind or line)
            logger.warning("tileq: %s", line)

    def saw_limit(self, logger: Any, asked: Asked) -> None:
        """Note a request's arrival, and its TBT limit where no iteration can be that short."""
        self._arrived.append(time.monotonic())
        if asked.tbt_limit_s < self._floor_s:
            self.unreachable += 1
            self.warn_once(
                logger,
                f"a TBT limit of {asked.tbt_limit_s:g} s cannot be met (the shortest iteration takes "
                f"{self._floor_s:.4g} s); such requests are served as soon as they can be",
                kind="unreachable",
            )

    def decided(self, ours_ns: int, vllm_ns: int, stock: bool) -> None:
        """Count a decision: nanoseconds spent in Tileq, and in vLLM's `schedule`."""
        self.decisions += 1
        self.stock_decisions += int(stock)
        self.decide_ns += ours_ns
        self.vllm_ns += vllm_ns

    def ran(self, now_ps: int, decided_ps: int, shape: tuple[int, int, int, int]) -> int:
        """Count an iteration that has its output now; return the picoseconds that it took.

        It began when the one before had its own, since what the engine does in between holds it up; after an idle
        engine it began when it was decided.
        """
        began = max(self._last_end_ps, min(decided_ps, now_ps)) if self._idle else self._last_end_ps
        duration = max(1, now_ps - began)
        self._last_end_ps, self._idle = now_ps, not len(self.mirror)
        self.iterations += 1
        self.busy_ps += duration
        self.recent.append((*shape, duration))
        return duration

    def idles(self) -> None:
        """Note that the engine has nothing to run."""
        self._idle = True

    def begin_anew(self) -> None:
        """Forget the iterations so far: the clock is another one from here on."""
        self.recent.clear()
        self._last_end_ps, self._idle = 0, True

    def rate_per_s(self) -> float:
        """Return the rate at which the last requests came, requests/s."""
        if len(self._arrived) < 2:
            return 0.0
        span = time.monotonic() - self._arrived[0]
        return len(self._arrived) / span if span > 0 else 0.0

    def to_dict(self) -> dict[str, float]:
        """Return the metrics by name."""
        plan = self.settings.plan
        count = max(1, self.decisions)
        found: dict[str, float] = {
            "decisions_total": self.decisions,
            "stock_decisions_total": self.stock_decisions,
            "repaired_decisions_total": self.mirror.repaired,
            "rejected_requests_total": self.rejected,
            "unreachable_limits_total": self.unreachable,
            "decide_seconds_total": self.decide_ns * 1e-9,
            "decide_seconds_mean": self.decide_ns * 1e-9 / count,
            "vllm_schedule_seconds_mean": self.vllm_ns * 1e-9 / count,
            "iterations_total": self.iterations,
            "busy_seconds_total": self.busy_ps / PS_PER_S,
            "token_budget": self.mirror.state.scalar("budget"),
            "theta": self.mirror.state.scalar("theta_lo") / 1000.0,
            "arrival_rate_per_s": self.rate_per_s(),
        }
        if plan is not None:
            rate = float(plan["rate_per_s"])
            found |= {"planned_rate_per_s": rate, "refits_total": self.refits, "refitted_rate_per_s": self._promised}
            found["headroom_per_s"] = self._promised - found["arrival_rate_per_s"]
        return found

    def tick(self, logger: Any, scheduler: Any) -> None:
        """Write the file, once a second, and a line in the log, every `log_every_s`."""
        now = time.monotonic()
        if now - self._written < _WRITE_EVERY_S:
            return
        self._refit(logger, now)
        self._written = now
        found = self.to_dict()
        self._write({**found, **self.mirror.counts()})
        if self.settings.log_every_s and now - self._logged >= self.settings.log_every_s:
            self._logged = now
            line = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
            logger.info("tileq: %s", line)

    def _refit(self, logger: Any, now: float) -> None:
        """Fit anew and move budget and offset, where the settings ask for it and the plan's demand is known."""
        online, plan = self.settings.online, self.settings.plan
        if not online.enabled or plan is None or "workload" not in plan or now - self._refitted < online.every_s:
            return
        if self.iterations - self._fitted_iterations < online.least_iterations:
            return
        self._refitted, self._fitted_iterations = now, self.iterations
        limit = min(tier.tbt_limit_s for tier in self.settings.tiers.values())
        try:
            found = refit(list(self.recent), plan["workload"]["demand"], online, limit)
        except Exception as error:  # whatever is wrong with a fit is no reason to stop serving
            self.warn_once(logger, f"refitting failed ({error!r}); budget and offset stay", kind="refit")
            return
        self.refits += 1
        if abs(found.rate_per_s - self._promised) < online.least_change * self._promised:
            return
        logger.info(
            "tileq: refitted from %d iterations (median error %.1f %%): %.4g requests/s, budget %d, Theta %.3g",
            len(self.recent),
            100 * found.median_error,
            found.rate_per_s,
            found.token_budget,
            found.theta,
        )
        self._promised = found.rate_per_s
        budget = min(found.token_budget, self.most_tokens)
        values: dict[str, float] = {"budget": budget}
        if self.mirror.state.scalar("deadline") == 1:
            values |= {"theta_lo": round(1000 * found.theta), "theta_hi": round(2000 * found.theta)}
        self.mirror.set_scalars(values)

    def _write(self, found: dict[str, float]) -> None:
        if not self._tidied:
            self._tidied = True
            atexit.register(self._path.unlink, missing_ok=True)
        temporary = self._path.with_suffix(f".{os.getpid()}")
        try:
            temporary.write_text(json.dumps(found), encoding="utf-8")
            temporary.replace(self._path)
        except OSError:  # a full disk is no reason to stop serving
            temporary.unlink(missing_ok=True)
