"""Eq. (7), the tile staircase: time by tokens, the cost of a token, capacity and ratio of the reference instance."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, digits, shape
from paper_repro.rad.setting import MEAN_PROMPT, MODEL, PAPER, TILE, TIME, capacity_per_s, mean_output


def pieces(settings: Any) -> list[dict[str, Any]]:
    """The formula, and what measured iterations of other GPUs say of a tile."""
    return [{"kind": "formula"}, {"kind": "measured"}]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return eq. (7) over batch sizes with its numbers, or the tile verdicts of the ready-made calibrations."""
    return _measured() if piece["kind"] == "measured" else _formula(settings)


def _formula(settings: Any) -> dict[str, Any]:
    from tileq_theory.closed_forms import closed_form

    tokens = np.arange(settings["step"], settings["largest"] + 1, settings["step"])
    demand = {"prefill_tokens": MEAN_PROMPT, "decode_tokens": mean_output()}
    tile = {"t_lin_s": MODEL["t_lin_s"], "t_nl_s": MODEL["t_nl_s"], "b_col_tokens": TILE}
    times = np.asarray(TIME(tokens))
    return {
        "tokens": tokens,
        "ms": np.round(1e3 * times, 6),
        "least_us": float((1e6 * times / tokens).min()),
        "least_at": int(tokens[np.argmin(np.round(times / tokens, 12))]),
        "mean_output": mean_output(),
        "token_us": 1e6 * closed_form("rad_token_time").evaluate(**tile),
        "capacity_per_s": capacity_per_s(),
        "ratio": closed_form("rad_ratio").evaluate(**demand, b_col_tokens=TILE, b_lcm_tokens=TILE),
        "share": closed_form("rad_prefill_share").evaluate(**demand, **MODEL),
    }


def _measured() -> dict[str, Any]:
    from tileq_theory.calibrations import calibration_names, named_calibration

    found = []
    for name in calibration_names():
        c = named_calibration(name)
        if c.tile_answer != "published":
            found.append([name, c.tile_answer, c.time.tile_tokens, 1e3 * c.time.tile_s, c.tile_confidence])
    return {"calibrations": found}


def rows(data: Data) -> list[Row]:
    """Numbers of the instance, whole tiles being best, and whether measured iterations show tiles."""
    d = data.one(kind="formula")
    found = [
        digits("least time of a token, t_Lin/b_col + t_nl", "36.25 us", d["token_us"]),
        digits("mean output of the instance", "185.00078 tokens", d["mean_output"]),
        digits("lambda*", "36.2499 /s", d["capacity_per_s"]),
        digits("prefill iterations per decode iteration", "3.1135", d["ratio"]),
        digits("share of time in prefill", "0.7569", d["share"]),
        claim(
            "cheapest batches",
            "whole tiles",
            d["least_at"] % TILE == 0 and abs(d["least_us"] - d["token_us"]) < 1e-6,
            f"{d['least_us']:.4f} us a token, first at {d['least_at']} tokens, never less",
        ),
    ]
    measured = data.one(kind="measured")["calibrations"]
    with_tile = [f"{name} ({width} tokens, {ms:.1f} ms)" for name, answer, width, ms, _ in measured if answer == "tile"]
    without = [name for name, answer, *_ in measured if answer == "none"]
    reason = (
        f"GPU and version decide: tiles stand out in the measured iterations of {', '.join(with_tile)}; none in those "
        f"of {', '.join(without)}; the source prints no width to compare with"
    )
    title = "whole iterations of measured GPUs are staircases in tokens"
    return [*found, shape(title, "as eq. (7)", bool(with_tile), f"{len(with_tile)} of {len(measured)}", reason=reason)]


def plot(data: Data, plt: Any) -> Any:
    """Draw the staircase, the time of a token, and measured staircases."""
    d = data.one(kind="formula")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.7))
    left.step(d["tokens"], d["ms"], where="pre", linewidth=1.6)
    left.set(xlabel="tokens in the batch", ylabel="iteration, ms", xlim=(0, None), ylim=(0, None))
    left.set_title("⌈n/128⌉ t_Lin + n t_nl")
    tokens, ms = np.asarray(d["tokens"], dtype=float), np.asarray(d["ms"])
    right.plot(tokens, 1e3 * ms / tokens, linewidth=1.4)
    right.axhline(d["token_us"], color="#c8553d", linestyle="--", linewidth=1.3, label="t_Lin/b_col + t_nl")
    right.set(
        xlabel="tokens in the batch", ylabel="us per token", ylim=(0, 150), title="A token is cheapest in whole tiles"
    )
    right.legend()
    return figure


ITEM = Item(
    name="rad-staircase",
    paper=PAPER,
    where="eq. (7), tile staircase; reference instance",
    claim="Linear layers take t_Lin per started tile, so that whole tiles are cheapest and set the capacity.",
    simulated="the formula; beside it the tile verdicts of measured iterations of other GPUs.",
    smoke={"largest": 1024, "step": 8},
    full={"largest": 1024, "step": 2},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
