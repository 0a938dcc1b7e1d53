"""THETA: the best number of free slots before a prefill, by the limit, by the exact cycle, and simulated."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, digits
from tileq_engine.intervals import student_interval

_SLOTS, _MEAN = 128, 200


def pieces(settings: Any) -> list[dict[str, Any]]:
    """Limit and exact cycle, and the policy at each threshold."""
    return [{"kind": "theory"}, *({"kind": "run", "threshold": k} for k in settings["thresholds"])]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return theta0, k* and throughputs, or simulated throughputs of replications."""
    if piece["kind"] == "theory":
        return _theory()
    rates = [_rate(settings, piece["threshold"], [seed, r]) for r in range(settings["replications"])]
    return {"rate_per_step": rates}


def _theory() -> dict[str, Any]:
    from tileq_theory.theta import BatchingCosts, best_threshold, exact_cycles, theta_root, threshold_throughput

    costs, p0 = BatchingCosts(alpha_p_s=1.0, alpha_d_s=1.0), 1 / _MEAN
    where: dict[str, Any] = {"slots": _SLOTS, "completion_probability": p0, "costs": costs}
    exact = exact_cycles(slots=_SLOTS, completion_probability=p0).throughput_per_s(costs)
    return {
        "theta0": theta_root(p0),
        "best": best_threshold(**where),
        "exact": exact,
        "limit": [threshold_throughput(theta=k / _SLOTS, **where) for k in range(1, _SLOTS)],
    }


def _rate(settings: Any, threshold: int, seed: list[int]) -> float:
    """Requests per iteration (each lasts 1 s, prefill or decode) while others wait."""
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.requests import Requests
    from tileq_engine.simulator import simulate
    from tileq_theory.iteration_time import IterationTime

    count = settings["requests"]
    outputs = np.random.default_rng(seed).geometric(1 / _MEAN, count)
    asked = Requests.from_arrays(prompt_tokens=np.ones(count), output_tokens=outputs, arrival_s=np.zeros(count))
    config = EngineConfig(token_budget=10_000, max_num_seqs=_SLOTS, convention="paper")
    run = simulate(asked, policy("theta", k=threshold), IterationTime.constant(1.0), config)
    begin, end = np.sort(run.finish_ps)[count // 10], run.admit_ps.max()
    return float(((run.finish_ps > begin) & (run.finish_ps <= end)).sum() / ((end - begin) * 1e-12))


def _tried(data: Data) -> list[int]:
    return list(data.settings["thresholds"])


def rows(data: Data) -> list[Row]:
    """The printed fraction and threshold; the cycle's own best; simulation against the cycle."""
    d = data.one(kind="theory")
    best = int(np.argmax(d["exact"])) + 1
    lost = 100 * (1 - d["exact"][d["best"] - 1] / d["exact"][best - 1])
    also = f"the exact cycle of {_SLOTS} slots is best at {best}; {d['best']} loses {lost:.3f} % there"
    found = [
        digits("theta0", "0.0936781", d["theta0"]),
        digits(f"k* at N = {_SLOTS}", "11", d["best"], also=also),
    ]
    means = {k: student_interval(data.one(kind="run", threshold=k)["rate_per_step"], 0.99) for k in _tried(data)}
    top = max(means, key=lambda k: means[k].estimate)
    good = means[11].high >= 0.99 * means[top].estimate
    ours = ", ".join(f"{means[k].estimate:.4f} at {k}" for k in means) + " requests per step"
    found.append(claim("best of the thresholds simulated, to 1 %", "11", good, ours, reason="too few requests to tell"))
    gap = [abs(means[k].estimate / d["exact"][k - 1] - 1) for k in means if k >= 8]
    one = 100 * (means[1].estimate / d["exact"][0] - 1)
    ours = f"{100 * max(gap):.2f} % apart at most for k of 8 and more, {one:.1f} % at 1"
    title = "simulation against the exact cycle, which refills all free slots where the policy refills k"
    found.append(claim(title, "the same beyond overshoot", max(gap) < 0.03, ours, reason="too few requests to tell"))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw throughput against the threshold."""
    d = data.one(kind="theory")
    figure, axes = plt.subplots()
    most = 64
    axes.plot(range(1, most + 1), d["exact"][:most], label=f"exact cycle, N = {_SLOTS}")
    axes.plot(range(1, most + 1), d["limit"][:most], "--", label="limit of many slots")
    means = [student_interval(data.one(kind="run", threshold=k)["rate_per_step"]) for k in data.settings["thresholds"]]
    axes.plot(data.settings["thresholds"], [m.estimate for m in means], "o", label="simulated")
    axes.axvline(d["best"], color="#6b6b6b", linestyle=":", label="k* published")
    axes.set(xlabel="free slots before a prefill, k", ylabel="requests per iteration", ylim=(0.25, None))
    axes.set_title("Prefilling one by one and too late both cost throughput")
    axes.legend(loc="lower right")
    return figure


ITEM = Item(
    name="theta-threshold",
    paper="Zhang et al., arXiv 2606.00516",
    where="optimal threshold of exclusive batching",
    claim="With 128 slots, mean output 200 and equal constants the best threshold is 11 free slots, 9.37 % of them.",
    simulated="the policy with geometric outputs, every iteration one step long.",
    smoke={"thresholds": [1, 11, 40], "requests": 4000, "replications": 3},
    full={"thresholds": [1, 2, 4, 8, 11, 16, 24, 32, 48, 64], "requests": 20_000, "replications": 6},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
