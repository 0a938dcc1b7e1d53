"""Fig. 8: five requests through four schedulers, batch by batch, by hand."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

from paper_repro.dai.setting import PAPER
from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim

# label: policy, its settings, budget, printed batches ("p" marks a prefill token)
_FIGURE: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "vLLM": ("vllm_v0", {}, 4, "[ABC][DpEp][ABCD][BCE][B]"),
    "Orca": ("orca", {"chunks": True}, 5, "[ABC][ABCDpEp][BCDE][B]"),
    "FasterTransformer": ("static", {}, 4, "[ABC][ABC][BC][B][DpEp][DE]"),
    "Sarathi-Serve": ("sarathi", {}, 4, "[ABC][ABCDp][BCDEp][BE]"),
}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a policy."""
    return [{"policy": name} for name in _FIGURE]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Trace one policy: A, B, C start prefilled with 2, 4, 3 tokens left; D and E (1 + 1) arrive during batch 1."""
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.requests import Requests
    from tileq_engine.simulator import simulate
    from tileq_theory.iteration_time import IterationTime

    asked = Requests.from_arrays(
        arrival_s=[0.0, 0.0, 0.0, 0.5, 0.5],
        prompt_tokens=[1] * 5,
        output_tokens=[2, 4, 3, 1, 1],
        prefilled_tokens=[1, 1, 1, 0, 0],
    )
    name, params, budget, _ = _FIGURE[piece["policy"]]
    config = EngineConfig(token_budget=budget, convention="paper", trace_limit=100, check=True)
    run = simulate(asked, policy(name, **params), IterationTime.constant(1.0), config, mode=settings["mode"])
    batches = ["".join("ABCDE"[i] + ("p" if chunk else "") for i, chunk, _ in b) for b in run.trace.batches()]
    return {"batches": batches, "finish": [int(f) // 10**12 for f in run.finish_ps]}


def _shown(batches: list[str]) -> str:
    return "".join(f"[{b}]" for b in batches)


def rows(data: Data) -> list[Row]:
    """The batches must be the printed ones."""
    found = []
    for label, (_, _, _, printed) in _FIGURE.items():
        ours = _shown(data.one(policy=label)["batches"])
        found.append(claim(f"batches of {label}", printed, ours == printed, ours))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw each batch as a column of cells, prefill tokens hatched."""
    figure, panels = plt.subplots(1, len(_FIGURE), figsize=(10.5, 2.7), sharey=True)
    colours = dict(zip("ABCDE", ("#0b3954", "#c8553d", "#588b8b", "#8f6c9f", "#b08900"), strict=True))
    for axes, label in zip(panels, _FIGURE, strict=True):
        batches = data.one(policy=label)["batches"]
        for column, batch in enumerate(batches):
            members = [c for c in batch if c != "p"]
            chunks = [batch[i + 1 : i + 2] == "p" for i, c in enumerate(batch) if c != "p"]
            for row, (member, chunk) in enumerate(zip(members, chunks, strict=True)):
                face = "white" if chunk else colours[member]
                axes.bar(
                    column + 1,
                    0.9,
                    bottom=row,
                    width=0.86,
                    color=face,
                    edgecolor=colours[member],
                    hatch="//" if chunk else "",
                )
                axes.text(
                    column + 1, row + 0.45, member, ha="center", va="center", color=colours[member] if chunk else "w"
                )
        axes.set(
            title=label, xlabel="batch", xticks=range(1, len(batches) + 1), yticks=[], xlim=(0.4, 6.6), ylim=(0, 5)
        )
        axes.grid(False)
        axes.spines["left"].set_visible(False)
    panels[0].set_ylabel("tokens (hatched: prefill)")
    return figure


ITEM = Item(
    name="dai-traces",
    paper=PAPER,
    where="Figure 8",
    claim="Orca and Sarathi-Serve finish five requests in four batches, vLLM in five, FasterTransformer in six.",
    simulated="the engine itself: the traces have no cost model in them.",
    smoke={"mode": "compiled"},
    full={"mode": "compiled"},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
