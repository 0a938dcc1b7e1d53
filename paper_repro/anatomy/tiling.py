"""Disaggregated, aggregated and mixed tiling on the same workload: which carries the most, and where."""

from __future__ import annotations

__all__ = ["ITEM"]

from collections.abc import Sequence
from typing import Any

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, shape

_MODES = ("mixed", "aggregated", "disaggregated")
_TOKENS, _NODES = 1024, 8
_LINK_GBYTES = 25.0


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a share of prompt tokens and a TBT limit (0: none)."""
    return [{"share": s, "tbt_ms": t} for s in settings["shares"] for t in settings["tbt_ms"]]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return the capacity of eight nodes in each mode."""
    from tileq_theory.capacity import Limits
    from tileq_theory.disaggregation import KvLink, compare_modes
    from tileq_theory.hardware import kv_capacity_tokens, load_gpu, load_model, roofline
    from tileq_theory.lengths import Fixed, Independent

    gpu, model = load_gpu("a100-sxm-80gb"), load_model("llama-3.1-8b")
    prompt = round(piece["share"] * _TOKENS)
    law = Independent(Fixed(prompt), Fixed(_TOKENS - prompt))
    demand = law.demand(chunk_tokens=2048, convention="engine", counting="least")
    limits = Limits(
        max_batch_tokens=2048,
        max_num_seqs=256,
        kv_tokens=int(kv_capacity_tokens(gpu, model)),
        nodes=_NODES,
        tbt_s=1e-3 * piece["tbt_ms"] if piece["tbt_ms"] else None,
    )
    answer = compare_modes(demand, roofline(gpu, model), limits, link=KvLink(131_072, _LINK_GBYTES * 1e9))
    return {
        "mixed": answer.mixed_per_s,
        "aggregated": answer.aggregated_per_s,
        "disaggregated": answer.disaggregated_per_s,
        "relaxed": answer.relaxed_per_s,
        "winner": answer.winner,
    }


def _over(mode: str, results: Sequence[Any]) -> str:
    """Return in percent how far mixed is over a mode, from the least to the most."""
    gains = [100 * (r["mixed"] / r[mode] - 1) + 0.0 for r in results if r[mode] > 0]
    return f"{round(min(gains), 1) + 0.0:+.1f} to {round(max(gains), 1) + 0.0:+.1f} %"


def rows(data: Data) -> list[Row]:
    """Mixing carries at least what aggregation does; disaggregation wins only where a limit binds one phase."""
    worst = min(r["mixed"] / r["aggregated"] for r in data.results if r["aggregated"] > 0)
    free = [r for p, r in zip(data.pieces, data.results, strict=True) if not p["tbt_ms"]]
    tight = [(p, r) for p, r in zip(data.pieces, data.results, strict=True) if p["tbt_ms"]]
    bound = _over("aggregated", [r for _, r in tight])
    wins = [(p, r["disaggregated"] / r["mixed"] - 1) for p, r in tight if r["winner"] == "disaggregated"]
    best = max(wins, key=lambda w: w[1], default=None)
    won = "nowhere"
    if best:
        where = f"most at {best[0]['tbt_ms']:g} ms and {best[0]['share']:g} prompt tokens: {100 * best[1]:+.1f} %"
        won = f"ahead in {len(wins)} of {len(tight)} settings under a TBT limit, {where}"
    return [
        claim(
            "mixed against aggregated",
            "never less",
            worst >= 1 - 1e-6,
            f"at least {worst:.4f} of it everywhere; under a TBT limit {bound}",
        ),
        shape(
            "without a TBT limit",
            "mixed tiling is the most flexible",
            all(r["winner"] == "mixed" for r in free),
            f"mixed is {_over('aggregated', free)} over aggregated, {_over('disaggregated', free)} over disaggregated",
            reason=f"never behind, but level with aggregated: only under a TBT limit does mixing gain ({bound})",
        ),
        claim(
            "disaggregation",
            "optimises each phase alone, at the cost of a KV transfer",
            bool(wins),
            won,
            reason="no limit in this grid binds one phase alone",
        ),
    ]


def plot(data: Data, plt: Any) -> Any:
    """Draw the capacities of the three modes over the share of prompt tokens, without and with a limit."""
    limits = data.settings["tbt_ms"]
    figure, panels = plt.subplots(1, len(limits), figsize=(3.4 * len(limits), 3.6), sharey=True, squeeze=False)
    for axes, limit in zip(panels[0], limits, strict=True):
        shares = data.settings["shares"]
        for mode, dash, mark in zip(_MODES, ("-", "--", "-."), "os^", strict=True):
            values = [data.one(share=s, tbt_ms=limit)[mode] for s in shares]
            axes.plot(shares, values, linestyle=dash, marker=mark, markersize=4, label=mode)
        axes.set(
            xlabel="prompt tokens / all tokens", title=f"TBT {limit:g} ms" if limit else "no TBT limit", ylim=(0, None)
        )
    panels[0][0].set_ylabel("requests per second, 8 nodes")
    panels[0][0].legend()
    return figure


ITEM = Item(
    name="anatomy-tiling",
    paper="article on RAD and SLAI (2026), after Bari et al., arXiv 2508.01002",
    where="disaggregation, aggregation and mixed tiling",
    claim="Mixed tiling is the most flexible of the three; disaggregation pays with a KV transfer.",
    simulated="the capacity programs of eight A100 with Llama-3.1-8B, 1024 tokens a request, a link of 25 GB/s.",
    smoke={"shares": [0.3, 0.97], "tbt_ms": [0.0, 12.0]},
    full={"shares": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97], "tbt_ms": [0.0, 20.0, 12.0]},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
