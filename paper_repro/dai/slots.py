"""Section 6: with 100 slots and a tile exactly full (point C), only a budget of one tile holds."""

from __future__ import annotations

__all__ = ["ITEM"]

from itertools import pairwise
from typing import Any

import numpy as np

from paper_repro.dai.setting import PAPER, TIME
from paper_repro.framework.item import Data, Item
from paper_repro.framework.statistics import in_system
from paper_repro.framework.verdict import Row, claim

_GAP_PS = 467_500_000_000
_SLOTS, _PROMPT, _OUTPUT = 100, 290, 990
# label: policy, settings, budget, what the source says
_CASES: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "Sarathi-Serve, budget 128": ("sarathi", {}, 128, "locks into 29 prefill + 99 decode tokens"),
    "Orca, budget 128": ("orca", {"chunks": True}, 128, "diverges"),
    "Sarathi-Serve, budget 1024": ("sarathi", {}, 1024, "diverges"),
    "vLLM v0, budget 128": ("vllm_v0", {}, 128, "freezes"),
    "FasterTransformer, budget 128": ("static", {}, 128, "freezes"),
}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a policy and budget."""
    return [{"case": name} for name in _CASES]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Run requests of (290, 990) tokens at a gap of ten one-tile batches; nothing is random."""
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.requests import Requests
    from tileq_engine.simulator import simulate

    horizon_s = settings["horizon_s"]
    count = int(horizon_s * 1e12) // _GAP_PS + 1
    requests = Requests.from_arrays(
        prompt_tokens=np.full(count, _PROMPT),
        output_tokens=np.full(count, _OUTPUT),
        arrival_ps=np.arange(count, dtype=np.int64) * _GAP_PS,
    )
    name, params, budget, _ = _CASES[piece["case"]]
    config = EngineConfig(
        token_budget=budget,
        max_num_seqs=_SLOTS,
        convention="paper",
        stop_time_s=horizon_s,
        sample_limit=1_000_000,
        oversize="wait",
    )
    run = simulate(requests, policy(name, **params), TIME, config, mode="stepped")
    times = np.linspace(0.0, horizon_s, settings["points"])
    late = run.samples.start_ps >= int(0.8 * horizon_s * 1e12)
    pairs = np.stack([run.samples.prefill_tokens[late], run.samples.decode_tokens[late]], axis=1)
    kinds, counts = np.unique(pairs, axis=0, return_counts=True)
    order = np.argsort(-counts)[:5]
    return {
        "times_s": times,
        "in_system": in_system(run, times.tolist()),
        "finished": run.counters["finished"],
        "late_batches": [[*map(int, kinds[i]), int(counts[i])] for i in order],
        "late_kinds": len(kinds),
    }


def _row(data: Data, case: str) -> Row:
    says, d = _CASES[case][3], data.one(case=case)
    count = d["in_system"]
    quarter = [count[round(k * (len(count) - 1) / 4)] for k in range(5)]
    if says == "diverges":
        growing = all(b > a for a, b in pairwise(quarter[1:]))
        return claim(case, says, growing and quarter[-1] > 2 * _SLOTS, f"in system at each quarter: {quarter[1:]}")
    if says == "freezes":
        return claim(case, says, d["finished"] == 0, f"{d['finished']} requests finished, {quarter[-1]} in system")
    batches = ", ".join(f"{p} + {n}" for p, n, _ in d["late_batches"])
    locked = d["late_kinds"] == 1 and d["late_batches"][0][:2] == [29, 99]
    ours = f"every batch of the last fifth: {batches} tokens; {quarter[-1]} in system"
    return claim(case, says, locked and quarter[-1] == quarter[-2], ours)


def rows(data: Data) -> list[Row]:
    """Each case does what the source says."""
    return [_row(data, case) for case in _CASES]


def plot(data: Data, plt: Any) -> Any:
    """Draw the number in system; the locked case stays at the slots."""
    figure, axes = plt.subplots()
    for case, dash, mark in zip(_CASES, ("-", "--", "-.", ":", (0, (5, 1, 1, 1))), "o^Dsv", strict=True):
        d = data.one(case=case)
        axes.plot(
            d["times_s"], d["in_system"], linestyle=dash, marker=mark, markevery=len(d["times_s"]) // 6, label=case
        )
    axes.set(xlabel="time, s", ylabel="requests in system", yscale="log", ylim=(50, 5e4))
    axes.set_title("Requests of (290, 990) tokens, one each 467.5 ms, 100 slots")
    axes.legend()
    return figure


ITEM = Item(
    name="dai-slots",
    paper=PAPER,
    where="section 6, point C",
    claim="With 100 slots and exactly full tiles Sarathi-128 is stable; Orca-128 and Sarathi-1024 diverge.",
    simulated="the engine on the published batch time; arrivals at a fixed gap, nothing random.",
    smoke={"horizon_s": 1000.0, "points": 41},
    full={"horizon_s": 2000.0, "points": 81},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
