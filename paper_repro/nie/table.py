"""Table 1: service rates by the formula, on the GPU as printed, and of simulated policies under the same memory."""

from __future__ import annotations

__all__ = ["ITEM"]

from fractions import Fraction
from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, digits
from paper_repro.nie.setting import CHUNK, KV_TOKENS, PAPER, ROWS, config, draw, policy_of
from tileq_engine.intervals import student_interval

_G = {"1:1": "1079151.3", "1:2": "1339675.4"}
_MIXED, _EIGHT = "3.385", "25.808"


def pieces(settings: Any) -> list[dict[str, Any]]:
    """The formulas, and one saturated run a row, policy and replication."""
    runs = [
        {"kind": "run", "row": row, "policy": p, "replication": r}
        for row in ROWS
        for p in settings["policies"]
        for r in range(settings["replications"])
    ]
    return [{"kind": "formula", "row": row} for row in ROWS] + runs


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return E[g] and the rate of a row, or the rate at which a policy ends requests while others wait."""
    row = ROWS[piece["row"]]
    if piece["kind"] == "formula":
        return _formula(row)
    from tileq_engine.simulator import simulate
    from tileq_theory.iteration_time import IterationTime

    requests = draw(piece["row"], settings["requests"], np.random.default_rng([seed, piece["replication"]]))
    run = simulate(
        requests,
        policy_of(piece["policy"]),
        IterationTime.constant(float(row["batch_s"])),
        config(sample_limit=100_000),
    )
    begin, end = int(np.sort(run.finish_ps)[len(requests) // 5]), int(run.admit_ps.max())
    inside = (run.finish_ps > begin) & (run.finish_ps <= end)
    s, o = (x[inside].astype(float) for x in (requests.prompt_tokens, requests.output_tokens))
    volume = float((((1 + s / CHUNK) * s + 2 * o * s + (1 + o) * o) / 2).mean())
    rate = int(inside.sum()) / ((end - begin) * 1e-12)
    held = run.samples.kv_blocks_used[(run.samples.start_ps > begin) & (run.samples.start_ps <= end)]
    return {
        "rate_per_s": rate,
        "share": rate * float(row["batch_s"]) * volume / KV_TOKENS,
        "memory_share": float(held.mean()) / KV_TOKENS,
        "computed_twice": run.counters["recomputed_tokens"] / (requests.prompt_tokens + requests.output_tokens).sum(),
    }


def _formula(row: Any) -> dict[str, Any]:
    from tileq_theory.closed_forms import closed_form

    low, high = row["prompt"], row["output"]
    volume = closed_form("nie_mean_g_uniform").exact(
        prompt_low=low[0], prompt_high=low[1], output_low=high[0], output_high=high[1], chunk_tokens=CHUNK
    )
    where = {
        "nodes": 1,
        "kv_capacity_tokens": KV_TOKENS,
        "batch_s": row["batch_s"],
        "memory_iterations": Fraction(int(volume.p), int(volume.q)),
    }
    longest = row["prompt"][1] + row["output"][1]
    return {
        "mean_g": float(volume),
        "rate_per_s": closed_form("nie_capacity").evaluate(**where),
        "sufficient_per_s": closed_form("nie_sufficient").evaluate(**where, longest_tokens=longest),
    }


def rows(data: Data) -> list[Row]:
    """The formula to its digits, the gaps to the GPU, the two rows that do not follow, and the simulation."""
    rate = {row: float(data.one(kind="formula", row=row)["rate_per_s"]) for row in ROWS}
    found = [digits(f"E[g] at {row}", text, data.one(kind="formula", row=row)["mean_g"]) for row, text in _G.items()]
    for row, d in ROWS.items():
        found.append(digits(f"rate by the formula at {row}", f"{d['theory']} /s", rate[row], reason=_why(row, rate)))
    for row, d in ROWS.items():
        gap = 100 * abs(rate[row] / float(d["gpu"]) - 1)
        found.append(
            claim(f"formula against the GPU's {d['gpu']}/s at {row}", "within 10 %", gap < 10, f"{gap:.2f} % off")
        )
    mixed = 2 / (1 / rate["2:1"] + 1 / rate["1:2"])
    printed = 2 / (1 / float(ROWS["2:1"]["theory"]) + 1 / float(ROWS["1:2"]["theory"]))
    why = f"does not follow from the printed inputs: the two printed rates combine to {printed:.3f}/s"
    found.append(digits("mixed, 2:1 then 1:2", f"{_MIXED} /s", mixed, reason=why))
    eight = 8 * rate["1:1"]
    why = (
        f"does not follow from the printed inputs: eight times the printed {ROWS['1:1']['theory']} are {eight:.3f}/s, "
        f"the printed number is {float(_EIGHT) / 8:.3f} a GPU"
    )
    found.append(digits("eight GPUs, 1:1", f"{_EIGHT} /s", eight, reason=why))
    return found + _simulated(data, rate)


def _why(row: str, rate: dict[str, float]) -> str:
    return f"the printed lengths and batch time at {row} give {rate[row]:.4f}/s"


def _simulated(data: Data, rate: dict[str, float]) -> list[Row]:
    """Rates as shares of M/(b g), g that of the very requests that ended: the necessary rate is never passed."""
    found = []
    for row in ROWS:
        enough = float(data.one(kind="formula", row=row)["sufficient_per_s"]) / rate[row]
        for policy in data.settings["policies"]:
            seen = data.where(kind="run", row=row, policy=policy)
            share = student_interval([r["share"] for r in seen], 0.99)
            held, twice = (100 * np.mean([r[key] for r in seen]) for key in ("memory_share", "computed_twice"))
            ours = f"{share.estimate:.4f} [{share.low:.4f}, {share.high:.4f}] of it (99 %)"
            title = f"simulated {policy} at {row}"
            found.append(claim(f"{title}: no more than the formula", "at most 1", share.low <= 1, ours))
            why = (
                f"{held:.1f} % of the memory is held, but evictions compute again {twice:.1f} % as many tokens as asked"
            )
            level = f"at least {enough:.4f}"
            found.append(claim(f"{title}: the sufficient rate", level, share.high >= enough, ours, reason=why))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw formula, GPU and simulation side by side."""
    figure, axes = plt.subplots(figsize=(7.6, 4.2))
    series = {
        "formula": [data.one(kind="formula", row=row)["rate_per_s"] for row in ROWS],
        "printed formula": [float(d["theory"]) for d in ROWS.values()],
        "measured on the GPU": [float(d["gpu"]) for d in ROWS.values()],
    }
    for policy in data.settings["policies"]:
        means = [np.mean([r["rate_per_s"] for r in data.where(kind="run", row=row, policy=policy)]) for row in ROWS]
        series[f"simulated {policy}"] = [float(m) for m in means]
    width = 0.8 / len(series)
    hatches = ("", "//", "", "..", "xx")
    for k, ((name, values), hatch) in enumerate(zip(series.items(), hatches, strict=False)):
        places = [i + (k - (len(series) - 1) / 2) * width for i in range(len(ROWS))]
        axes.bar(places, values, width=0.9 * width, label=name, hatch=hatch, edgecolor="white")
    axes.set_xticks(range(len(ROWS)), [f"prompt:output {row}" for row in ROWS])
    axes.set(ylabel="requests per second", ylim=(0, 5.6))
    axes.set_title("Service rate under 131,000 tokens of KV memory")
    axes.legend(ncols=2, loc="upper center")
    axes.grid(axis="x", visible=False)
    return figure


ITEM = Item(
    name="nie-table",
    paper=PAPER,
    where="Table 1",
    claim="The rate M/(b E[g]) predicts the GPU's service rate within 10 %.",
    simulated="the measured rates are the source's; policies run on a constant batch time with its memory and lengths.",
    smoke={"policies": ["sarathi", "vllm_v1"], "requests": 800, "replications": 3},
    full={"policies": ["sarathi", "vllm_v1"], "requests": 4000, "replications": 10},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
