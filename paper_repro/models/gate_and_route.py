"""Gate-and-route: the published optimum of the steady-state program, and revenue against load."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, digits

_FLEET: dict[str, Any] = {
    "alpha_s": 0.0174,
    "beta_s": 6.2e-5,
    "chunk_tokens": 256,
    "max_sequences": 16,
    "solo_tokens_per_s": 45.45,
}
_CASE: dict[str, Any] = {
    "prompts_tokens": [300, 3000],
    "outputs_tokens": [1000, 400],
    "patience_rates_per_s": [0.1, 0.1],
    "price_prefill": 0.1,
    "price_decode": 0.2,
}
_PRINTED = {
    "prefill_share": ("share of GPUs that prefill", ("0.0182583", "0.1949531")),
    "mixed_decodes": ("decodes on mixed GPUs", ("0", "3.19817")),
    "solo_decodes": ("decodes on solo GPUs", ("10.30307", "2.28554")),
    "prefill_queue": ("waiting for prefill", ("0.31725", "0")),
    "decode_queue": ("waiting for decode", ("0", "0")),
}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """The published instance, and the same at scaled arrival rates."""
    return [{"scale": scale} for scale in settings["scales"]]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Solve the program at arrival rates (.5, .5) times the scale."""
    from tileq_theory.gate_and_route import Fleet, gate_and_route

    answer = gate_and_route(Fleet(**_FLEET), rates_per_s=[0.5 * piece["scale"]] * 2, **_CASE)
    names = [*_PRINTED, "throughput_per_s", "abandoned_per_s"]
    found = {name: getattr(answer, name) for name in names}
    return {"revenue_per_s": answer.revenue_per_s, "kkt": answer.kkt.worst, **found}


def rows(data: Data) -> list[Row]:
    """Every printed number of the operating point, and its certificate."""
    d = data.one(scale=1.0)
    found = [digits("R*, revenue per second and GPU", "297.70317", d["revenue_per_s"])]
    for name, (title, printed) in _PRINTED.items():
        for k, text in enumerate(printed):
            found.append(digits(f"{title}, class {k + 1}", text, d[name][k]))
    found.append(claim("optimality conditions", "hold", d["kkt"] < 1e-8, f"violated by {d['kkt']:.0e} at most"))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw revenue and shares against the arrival rates' scale."""
    scales = data.settings["scales"]
    found = [data.one(scale=s) for s in scales]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.7))
    left.plot(scales, [d["revenue_per_s"] for d in found], "o-", markersize=4)
    left.plot(1.0, 297.70317, "*", markersize=13, label="published")
    left.set(
        xlabel="arrival rates, times (.5, .5)", ylabel="revenue per second", title="Optimal revenue", ylim=(0, None)
    )
    left.legend(loc="lower right")
    for k, dash in ((0, "-"), (1, "--")):
        right.plot(
            scales, [d["throughput_per_s"][k] for d in found], dash, color="#0b3954", label=f"served, class {k + 1}"
        )
        right.plot(
            scales, [d["abandoned_per_s"][k] for d in found], dash, color="#c8553d", label=f"give up, class {k + 1}"
        )
    right.set(xlabel="arrival rates, times (.5, .5)", ylabel="requests per second", title="Who is served as load grows")
    right.legend()
    return figure


ITEM = Item(
    name="gate-and-route",
    paper="Lin et al., arXiv 2602.02987",
    where="bundled instance of the steady-state program",
    claim="A fleet with impatient requests earns R* = 297.70317 a second and GPU at the published operating point.",
    simulated="the linear program itself, with a certificate of optimality.",
    smoke={"scales": [0.5, 1.0, 2.0]},
    full={"scales": [0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0]},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
