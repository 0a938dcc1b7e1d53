r"""What a measured run says of iteration times, made ready for the simulator.

Three ways in which requests came:

* open: at moments that the file states, or drawn from the rate that it states (gamma gaps of its burstiness); drawn
  ones can be compared in figures over all requests only. Where in an iteration a request arrives decides much of its
  TTFT and is beyond any model, so several replications move each arrival by up to a typical iteration, and their
  geometric mean is what is predicted;
* together: all at the start (a rate of infinity);
* closed: C clients, each sends its next request when the last one is done. A first-come engine then runs the same
  batches as with all requests queued from the start and at most C of them inside, so that is simulated, and request j
  is counted from the (j - C)-th completion on.

A target is one measured figure (or one column of them) with the rule that makes it from the simulated requests.
"""

from __future__ import annotations

__all__ = ["LATENCIES", "Evidence", "Target", "evidence_of"]

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.requests import Requests
from tileq_profiling.inverse.engine import EngineGiven, engine_of
from tileq_profiling.replay.settings import vllm_policy
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError

LATENCIES = ("ttft_s", "tpot_s", "e2e_s")
_STATISTIC = re.compile(r"(mean|median|p\d+(?:\.\d+)?)_(ttft_s|tpot_s|itl_s|e2e_s)")
_REPLICATIONS = 4
_MOST_DRAWN = 1000
# requests simulated of a longer run: the first ones; a prefix is a run of its own but for what came after it
_MOST = 4000
_QUANTILES = ("mean", "p25", "median", "p75", "p90")
_LOWEST, _HIGHEST = 5.0, 99.0  # percentiles beyond are single requests
_RATE_SAYS = 0.93  # a throughput below this share of the rate tells of times, above it of the rate


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Measured figures of one kind.

    Parameters
    ----------
    name
        "ttft_s", "tpot_s", "itl_s", "e2e_s", "request_throughput_per_s" or "output_tokens_per_s".
    statistic
        "each": one value a request (NaN: none); else "mean", "median", "p90", ... over the requests, or "rate".
    measured
        The values.
    """

    name: str
    statistic: str
    measured: Float[np.ndarray, "value"]


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """One run made ready.

    Parameters
    ----------
    source
        Which run.
    requests
        What to simulate, one a replication.
    clients
        Clients of a closed loop; None: the requests' own arrivals.
    policy, config
        The engine.
    targets
        What was measured.
    assumed
        What the file does not say, and what was taken for it.
    """

    source: str
    requests: tuple[Requests, ...]
    clients: int | None
    policy: Policy
    config: EngineConfig
    targets: tuple[Target, ...]
    assumed: tuple[str, ...]

    @property
    def values(self) -> int:
        """Measured values."""
        return sum(int(np.isfinite(t.measured).sum()) for t in self.targets)


def evidence_of(
    run: MeasuredRun,
    given: EngineGiven,
    *,
    policy: Policy | None = None,
    rate: float | None = None,
    clients: int | None = None,
    seed: int = 0,
) -> Evidence:
    """Return the run made ready.

    Parameters
    ----------
    run
        Its requests, or its totals.
    given
        The engine as far as the caller knows it.
    policy
        Scheduler; None: vLLM's of the run's version.
    rate, clients
        How requests came where the file does not say: requests per second, or clients of a closed loop.
    seed
        Of drawn arrivals.

    Raises
    ------
    InputError
        No latency in it, or nobody says how its requests arrived.
    """
    config, assumed = engine_of(run, given)
    if len(run.series) > 1:
        raise InputError(
            f"{run.source} has {len(run.series)} engines and does not say which served what; fit one engine's run"
        )
    asked, ordered, closed = _requests(run, rate, clients, seed, assumed)
    targets = _targets(run, ordered, rate)
    if not targets:
        raise InputError(
            f"{run.source} tells no latency (TTFT, TPOT or end to end) of any request; an iteration time cannot be "
            "fitted to it"
        )
    chosen = policy or vllm_policy(run)
    if policy is None:
        assumed.append(f"scheduler {chosen.name}, as the file does not name another")
    return Evidence(run.source, asked, closed, chosen, config, targets, tuple(assumed))


def _requests(
    run: MeasuredRun, rate: float | None, clients: int | None, seed: int, assumed: list[str]
) -> tuple[tuple[Requests, ...], bool, int | None]:
    """Return what to simulate, whether its requests are the file's one by one, and the clients of a closed loop."""
    if run.count and run.arrival_s is not None and clients is None:
        if run.count > _MOST:
            assumed.append(f"the first {_MOST} of {run.count} requests are fitted")
        if not run.arrival_s[:_MOST].any():
            return (_made(run.arrival_s, run.prompt_tokens, run.output_tokens),), True, None
        return _moved(run, seed), True, None
    prompt, output = _lengths(run, assumed)
    told = run.totals.get("max_concurrency")
    closed = clients if clients is not None else (int(told) if told else None)
    offered = rate if rate is not None else run.totals.get("request_rate_per_s")
    if closed is not None and (offered is None or _throughput(run) < _RATE_SAYS * offered):
        return (_made(np.zeros(prompt.size), prompt, output),), bool(run.count), closed
    if offered is not None:
        assumed.append(f"arrivals are not in the file: {_REPLICATIONS} draws at {offered:g}/s stand for them")
        shape = run.totals.get("burstiness", 1.0) or 1.0
        return _drawn(offered, shape, prompt, output, seed), False, None
    if run.format in ("vllm-bench", "sglang-bench"):  # they write no finite rate when they send everything at once
        return (_made(np.zeros(prompt.size), prompt, output),), bool(run.count), None
    raise InputError(
        f"{run.source} does not tell when its requests arrived; give their rate in requests per second, or the number "
        "of concurrent clients"
    )


def _throughput(run: MeasuredRun) -> float:
    return float(run.totals.get("request_throughput_per_s", 0.0))


def _made(arrival_s: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> Requests:
    """Return the first requests, sorted by arrival; their ids are their places in the run."""
    order = np.argsort(arrival_s[:_MOST], kind="stable")
    return Requests.from_arrays(
        arrival_s=arrival_s[order], prompt_tokens=prompt[order], output_tokens=output[order], ids=order
    )


def _moved(run: MeasuredRun, seed: int) -> tuple[Requests, ...]:
    """Return replications of the run's requests, each arrival moved by up to a typical iteration."""
    width = _iteration_s(run)
    out = []
    for replication in range(_REPLICATIONS):
        rng = np.random.default_rng([seed, replication])
        moved = np.asarray(run.arrival_s) + rng.uniform(-width, width, run.count)
        out.append(_made(moved - moved.min(), run.prompt_tokens, run.output_tokens))
    return tuple(out)


def _iteration_s(run: MeasuredRun) -> float:
    """Return a typical iteration: the median time per output token, or a tenth of a latency where there is none."""
    for name, share in (("tpot_s", 1.0), ("ttft_s", 0.1), ("e2e_s", 0.01)):
        values = getattr(run, name)
        if values is not None and np.isfinite(values).any():
            return share * float(np.nanmedian(values))
    return 0.0


def _drawn(rate: float, shape: float, prompt: np.ndarray, output: np.ndarray, seed: int) -> tuple[Requests, ...]:
    out = []
    for replication in range(_REPLICATIONS):
        rng = np.random.default_rng([seed, replication])
        gaps = rng.gamma(shape, 1 / (shape * rate), prompt.size)
        out.append(_made(np.cumsum(gaps) - gaps[0], prompt, output))
    return tuple(out)


def _lengths(run: MeasuredRun, assumed: list[str]) -> tuple[np.ndarray, np.ndarray]:
    if run.count:
        return run.prompt_tokens, run.output_tokens
    done = run.totals.get("completed")
    found = [run.totals.get(name) for name in ("prompt_tokens", "output_tokens")]
    if not done or not all(found):
        raise InputError(
            f"{run.source} tells neither its requests nor their number and total tokens; record the run with "
            "per-request details"
        )
    count = int(min(done, _MOST_DRAWN))
    means = [max(1, round(float(total or 0) / done)) for total in found]
    assumed.append(f"lengths are not in the file: every request has the mean {means[0]} + {means[1]} tokens")
    return np.full(count, means[0]), np.full(count, means[1])


def _targets(run: MeasuredRun, ordered: bool, rate: float | None) -> tuple[Target, ...]:
    columns = {name: getattr(run, name) for name in LATENCIES if getattr(run, name) is not None}
    columns = {name: np.where(v[:_MOST] > 0, v[:_MOST], np.nan) for name, v in columns.items()}
    columns = {name: v for name, v in columns.items() if np.isfinite(v).any()}
    if {"ttft_s", "tpot_s"} <= columns.keys():
        columns.pop("e2e_s", None)  # it is made of the two others
    if columns and ordered:
        return tuple(Target(name, "each", values) for name, values in columns.items())
    if columns:
        return tuple(
            Target(name, statistic, np.array([of_statistic(statistic, values)]))
            for name, values in columns.items()
            for statistic in _QUANTILES
        )
    return (*_told(run), *_rates(run, rate))


def _told(run: MeasuredRun) -> list[Target]:
    found = []
    for key, value in run.totals.items():
        match = _STATISTIC.fullmatch(key)
        if match is not None and value > 0 and _central(match.group(1), run.totals, match.group(2)):
            found.append(Target(match.group(2), match.group(1), np.array([float(value)])))
    if any(t.name == "ttft_s" for t in found) and any(t.name == "tpot_s" for t in found):
        found = [t for t in found if t.name != "e2e_s"]
    return found


def _central(statistic: str, totals: Mapping[str, float], name: str) -> bool:
    """Return whether a statistic says something of its own: not an extreme, and not the median twice."""
    if statistic in ("mean", "median"):
        return True
    share = float(statistic[1:])
    return _LOWEST <= share <= _HIGHEST and not (share == 50 and f"median_{name}" in totals)


def _rates(run: MeasuredRun, rate: float | None) -> list[Target]:
    """Return the throughputs that tell of times: where the engine, not the arrivals, set them."""
    offered = rate if rate is not None else run.totals.get("request_rate_per_s")
    told = run.totals.get("request_throughput_per_s")
    if not told or (offered is not None and told >= _RATE_SAYS * offered):
        return []
    return [Target("request_throughput_per_s", "rate", np.array([float(told)]))]


def of_statistic(statistic: str, values: Float[np.ndarray, "value"]) -> float:
    """Return the statistic of the finite values; NaN where there is none."""
    known = values[np.isfinite(values)]
    if not known.size:
        return float("nan")
    if statistic == "mean":
        return float(known.mean())
    return float(np.percentile(known, 50.0 if statistic == "median" else float(statistic[1:])))


def runs_named(evidence: Sequence[Evidence]) -> list[str]:
    """Return a name for each run: its source, numbered where several share it."""
    names: list[Any] = [e.source for e in evidence]
    return [f"{name} #{i + 1}" if names.count(name) > 1 else name for i, name in enumerate(names)]
