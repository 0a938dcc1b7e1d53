"""Fluid quantities: M*, DeltaT*, n* in closed form, against a simulation of WAIT on the source's own time model."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, digits
from paper_repro.wait.setting import CAPACITY_TOKENS, D0_S, D1_S, PAPER, draw
from tileq_theory.iteration_time import IterationTime

_PROMPT, _OUTPUT = 512, 20
# rate/s: KV token iterations that arrive per second, and M*, as the authors' code prints them
_PRINTED = {
    12: ("131544.0", "1381.7634440"),
    18: ("197316.0", "2121.4231090"),
    22: ("241164.0", "2634.1792470"),
    24: ("263088.0", "2896.7363749"),
}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """Closed forms, and WAIT in overload threshold by threshold."""
    return [{"kind": "fluid"}, *({"kind": "run", "threshold": n} for n in settings["thresholds"])]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return the fluid's numbers, or what an overloaded WAIT settles at."""
    return _fluid() if piece["kind"] == "fluid" else _run(settings, piece["threshold"], seed)


def _fluid() -> dict[str, Any]:
    from tileq_theory.closed_forms import closed_form
    from tileq_theory.closed_forms.wait import wait_fluid

    model: dict[str, Any] = {"d0_s": D0_S, "d1_s": D1_S, "kv_capacity_tokens": CAPACITY_TOKENS}
    lengths: dict[str, Any] = {"prompts_tokens": [_PROMPT], "outputs_tokens": [_OUTPUT]}
    found = {rate: wait_fluid(rates_per_s=[float(rate)], **lengths, **model) for rate in _PRINTED}
    volume = closed_form("wait_volume").evaluate(prompt_tokens=_PROMPT, output_tokens=_OUTPUT)
    capacity = closed_form("wait_capacity").evaluate(prompt_tokens=_PROMPT, output_tokens=_OUTPUT, **model)
    return {
        "load": {str(r): f.kv_load for r, f in found.items()},
        "memory": {str(r): f.memory_tokens for r, f in found.items()},
        "iteration_ms": {str(r): 1e3 * f.iteration_s for r, f in found.items()},
        "requests": {str(r): f.stage_requests[0] for r, f in found.items()},
        "volume": volume,
        "capacity_per_s": capacity,
    }


def _run(settings: Any, threshold: int, seed: int) -> dict[str, Any]:
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.simulator import simulate

    requests = draw(1e5, settings["requests"], [[1.0, _OUTPUT]], np.random.default_rng([seed, threshold]))
    config = EngineConfig(
        token_budget=1_000_000,
        max_num_seqs=10_000,
        kv_tokens=CAPACITY_TOKENS,
        block_tokens=1,
        convention="paper",
        sample_limit=100_000,
    )
    run = simulate(requests, policy("wait", thresholds=[threshold]), IterationTime.wait(d0_s=D0_S, d1_s=D1_S), config)
    middle = slice(len(run.samples.duration_ps) // 4, len(run.samples.duration_ps) // 2)
    return {
        "iteration_ms": float(run.samples.duration_ps[middle].mean() * 1e-9),
        "held_tokens": float(run.samples.kv_blocks_used[middle].mean()),
        "rate_per_s": threshold / float(run.samples.duration_ps[middle].mean() * 1e-12),
        "restarts": int((run.preemptions > 0).sum()),
    }


def rows(data: Data) -> list[Row]:
    """Load and M* to the digits of the authors' code; a full WAIT at the fluid's point; its capacity."""
    f = data.one(kind="fluid")
    found = []
    for rate, (load, memory) in _PRINTED.items():
        found.append(digits(f"KV load at {rate}/s, token iterations/s", load, f["load"][str(rate)]))
        also = f"DeltaT* {f['iteration_ms'][str(rate)]:.3f} ms, n* {f['requests'][str(rate)]:.4f} requests a stage"
        found.append(digits(f"M* at {rate}/s, tokens", memory, f["memory"][str(rate)], also=also))
    for n in data.settings["thresholds"]:
        d = data.one(kind="run", threshold=n)
        expected = 1e3 * (D0_S + D1_S * n * f["volume"])
        if d["restarts"] == 0:
            good = abs(d["iteration_ms"] / expected - 1) < 1e-6
            ours = f"{d['iteration_ms']:.4f} ms, {d['rate_per_s']:.2f} requests/s"
            title = f"WAIT in overload, {n} a stage: an iteration lasts d0 + d1 n v"
            found.append(claim(title, f"{expected:.4f} ms", good, ours, reason="batches were not full throughout"))
    return [*found, _capacity(data, f)]


def _capacity(data: Data, f: Any) -> Row:
    best = max((data.one(kind="run", threshold=n)["rate_per_s"], n) for n in data.settings["thresholds"])
    bound = float(f["capacity_per_s"])
    ours = f"{best[0]:.2f}/s with {best[1]} a stage: {best[0] / bound:.4f} of it"
    title = "no threshold serves more than C/(d0 + d1 C)/v"
    return claim(title, f"{bound:.2f}/s", best[0] <= bound * (1 + 1e-9), ours)


def plot(data: Data, plt: Any) -> Any:
    """Draw the rate of a full WAIT by threshold: fluid line, simulation points, memory's end."""
    f = data.one(kind="fluid")
    figure, axes = plt.subplots()
    most = CAPACITY_TOKENS / f["volume"]
    n = np.linspace(0.2, most, 200)
    axes.plot(n, n / (D0_S + D1_S * n * f["volume"]), label="fluid: n/(d0 + d1 n v)")
    runs = data.settings["thresholds"]
    kept = [(k, data.one(kind="run", threshold=k)) for k in runs]
    axes.plot(
        [k for k, d in kept if not d["restarts"]],
        [d["rate_per_s"] for _, d in kept if not d["restarts"]],
        "o",
        label="simulated",
    )
    axes.axhline(f["capacity_per_s"], linestyle="--", color="#c8553d", linewidth=1.3, label="C/(d0 + d1 C)/v")
    axes.axvline(most, linestyle=":", color="#6b6b6b", label="memory full")
    axes.set(xlabel="requests a stage, n", ylabel="requests per second", xlim=(0, None), ylim=(0, None))
    axes.set_title("WAIT with full thresholds, prompts 512, outputs 20")
    axes.legend(loc="lower right")
    return figure


ITEM = Item(
    name="wait-fluid",
    paper=PAPER,
    where="section 3, fluid equilibrium; authors' code, fluid memory table",
    claim="In the fluid M* = d0 S/(1 - d1 S) tokens are held and an iteration lasts d0/(1 - d1 S).",
    simulated="WAIT on the source's own time model, d0 + d1 KV, offered more than it can serve.",
    smoke={"thresholds": [1, 4], "requests": 600},
    full={"thresholds": [1, 2, 3, 4, 6, 8, 10, 12], "requests": 6000},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
