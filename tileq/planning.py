"""`tileq.plan`: one question, one answer that carries its reasons, its error band and the flags to set."""

from __future__ import annotations

__all__ = ["Plan", "check_question", "plan"]

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq.caching import CacheAnswer, PrefixCache, cached_plan, parse_prefix_cache
from tileq.flags import EngineFlags, EngineSettings, engine_flags, known_engine
from tileq.setting import Setting, Times, make_setting
from tileq.splitting import SplitAnswer, plan_split
from tileq.traffic import Traffic, make_traffic
from tileq.words import number
from tileq_theory.capacity import Limits, TilePlan, tile_plan
from tileq_theory.capacity.limits import MOST_BATCH_TOKENS
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError, near_matches, nonnegative, positive, positive_int
from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq_theory.hardware import Gpu, Model
    from tileq_theory.prefix_cache import Conversations
    from tileq_theory.request_class import RequestClass
    from tileq_theory.workload import Workload

_LINK_GB_PER_S = 50.0
_SAME_MEMORY = 1e-3  # relative change of the KV capacity below which the plan is not made again


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plan:
    """The answer of `plan`.

    Parameters
    ----------
    setting, traffic
        What was asked about.
    tile
        The tile plan of the theory: capacity, levels, prices, budget, ratio, residents.
    flags
        What to set on the engine.
    convention, ttft_s
        Token convention and limit on the time to first token of the question.
    warnings
        What to know before relying on the numbers.
    cache
        What a prefix cache does to it; None without one.
    split
        The same nodes as prefill and decode pools, where that was asked for.
    """

    setting: Setting
    traffic: Traffic
    tile: TilePlan
    flags: EngineFlags
    convention: TokenConvention
    ttft_s: float | None
    warnings: tuple[str, ...]
    cache: CacheAnswer | None = None
    split: SplitAnswer | None = None

    @property
    def rate_per_s(self) -> float:
        """Capacity: the largest rate that any policy can sustain, requests per second over all nodes."""
        return self.tile.capacity.rate_per_s

    @property
    def token_budget(self) -> int:
        """Tokens of an iteration to set on the engine, prefill and decode together."""
        return self.tile.token_budget

    @property
    def binding(self) -> str:
        """The constraint that decides the capacity."""
        return self.tile.capacity.binding

    def __repr__(self) -> str:
        s = self.setting
        where = f"{s.model.name} on {s.tp} x {s.gpu.name}" if s.tp > 1 else f"{s.model.name} on {s.gpu.name}"
        return (
            f"<Plan of {where}, {self.traffic.label}: {number(self.rate_per_s)} requests/s, {self.binding} binds, "
            f"token_budget {self.token_budget}, max_num_seqs {self.tile.max_num_seqs}>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq plan --json` prints."""
        from tileq.plan_document import plan_document

        return plan_document(self)

    def check(self, *, requests: int = 4000, seed: int = 0) -> dict[str, Any]:
        """Simulate the plan (generalised RAD and Sarathi with this budget) and hold it against lambda*."""
        from tileq.checking import check_plan

        if self.cache is not None:
            raise InputError("check and prefix_cache are both given; the check simulates prompts without a cache")
        return check_plan(self, requests=requests, seed=seed)

    def figure(self) -> Any:
        """Return a matplotlib figure: capacity against the token budget."""
        from tileq.plan_document import budget_curve
        from tileq.plots.budget import draw_budget

        return draw_budget(budget_curve(self))

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw capacity against the token budget and write it to `path` (.png, .svg or .pdf)."""
        from tileq.plan_document import budget_curve
        from tileq.plots.budget import plot_budget

        plot_budget(budget_curve(self), Path(path))


def plan(
    *,
    gpu: str | PathLike[str] | Gpu = "h100-sxm",
    model: str | PathLike[str] | Model = "llama-3.1-8b",
    tp: int = 1,
    nodes: int = 1,
    dtype: str = "bf16",
    kv_dtype: str | None = None,
    memory_utilisation: float = 0.9,
    times: Times = "corrected",
    calibration: str | PathLike[str] | IterationTime | None = None,
    trace: str | PathLike[str] | Any | None = None,
    workload: str | Workload | None = None,
    classes: Sequence[str | RequestClass] | None = None,
    rate: float | None = None,
    convention: TokenConvention = "engine",
    tbt: float | None = None,
    ttft: float | None = None,
    max_num_seqs: int | None = None,
    max_tokens: int = 8192,
    engine: str = "vllm",
    conversations: str | Conversations | None = None,
    prefix_cache: str | float | PrefixCache | None = None,
    router: str | None = None,
    disaggregate: bool = False,
    link: float | None = None,
    fabric: float | None = None,
) -> Plan:
    """Return the throughput-optimal tile of a model on a GPU for a workload, and everything that explains it.

    Parameters
    ----------
    gpu, model
        Catalogue names, files, or objects.
    tp, nodes
        GPUs that share one copy of the model; equal copies among which requests are split.
    dtype, kv_dtype, memory_utilisation
        Number formats of weights and KV cache (None: 16 bits), share of GPU memory that the engine may use.
    times
        Without a calibration: the datasheet's roofline "corrected" by what was measured on that GPU, or "datasheet".
    calibration
        Measured iteration time in place of the datasheet's: a file or an `IterationTime`.
    trace, workload, classes
        One of: a trace (file or `Trace`), a named mix or `Workload`, classes ("P:O" or `RequestClass`). None of them:
        the shipped chat mix.
    rate
        Requests per second to serve over all nodes; None: the trace's own rate where it has one.
    convention
        "engine": the last prefill chunk emits the first token (O - 1 decodes); "paper": O decodes.
    tbt, ttft
        Limits in seconds: longest iteration, first token of a mean prompt in an empty system.
    max_num_seqs, max_tokens
        Most sequences in a batch (None: what memory allows), largest batch considered.
    engine
        Whose flags to write: vllm, sglang or sarathi.
    conversations
        Instead of a trace: multi-turn sessions, "turns=4:system=1000:user=100:answer=200:think=60".
    prefix_cache
        What a prefix cache finds: "infinite", "kv" (the KV memory beside the residents), a number of tokens, or a
        share of the prompts, "40%". None: no cache.
    router
        With `prefix_cache` and several nodes: which node is sent which request, a router of the engine. None:
        session_affinity, which keeps a conversation on its node.
    disaggregate
        Also split the nodes into prefill and decode pools; with a rate and one node, as many as the rate needs.
    link, fabric
        With `disaggregate`: 10^9 bytes a second that a node's port carries (None: 50, a 400 Gbit/s network), and that
        all transfers together may take (None: no limit).

    Raises
    ------
    InputError
        Whatever cannot be used, in one line: what was given, what was expected, what to do.

    Examples
    --------
    >>> answer = plan(gpu="h100-sxm", model="llama-3.1-8b", classes=["1024:128"], tbt=0.05)
    >>> answer.token_budget <= 8192 and answer.rate_per_s > 0
    True
    """
    check_question(convention=convention, tbt=tbt, max_tokens=max_tokens)
    known_engine(engine)
    offered = None if rate is None else nonnegative("rate", rate)
    if ttft is not None:
        positive("ttft", ttft)
    for name, given in (("link", link), ("fabric", fabric)):
        if given is not None and not disaggregate:
            raise InputError(f"{name} is {given!r} without disaggregate; only nodes apart send KV to each other")
    setting = make_setting(
        gpu,
        model,
        tp=tp,
        dtype=dtype,
        kv_dtype=kv_dtype,
        memory_utilisation=memory_utilisation,
        times=times,
        calibration=calibration,
    )
    traffic = make_traffic(trace, workload, classes, conversations)
    cache = parse_prefix_cache(prefix_cache)
    chosen = _router(router, cache, nodes)
    offered = traffic.rate_per_s if offered is None else offered

    def solve(where: Setting, traffic: Traffic = traffic) -> TilePlan:
        limits = Limits(
            max_batch_tokens=max_tokens,
            max_num_seqs=max_num_seqs,
            kv_tokens=where.kv_tokens,
            tbt_s=tbt,
            nodes=nodes,
        )
        return tile_plan(where.time, traffic.workload, limits, rate_per_s=offered, ttft_s=ttft, convention=convention)

    tile = solve(setting)
    exact = setting.for_batch(tile.token_budget, tile.max_num_seqs)
    if abs(exact.kv_tokens / setting.kv_tokens - 1) > _SAME_MEMORY:
        setting, tile = exact, solve(exact)
    answer = None
    if cache is not None:
        traffic, tile, answer = cached_plan(
            traffic,
            cache,
            tile,
            rate_per_s=offered,
            kv_tokens=setting.kv_tokens,
            router=chosen,
            solve=lambda found: solve(setting, found),
        )
    split = None
    if disaggregate:
        split = plan_split(
            setting,
            traffic,
            tile.capacity.limits,
            rate_per_s=offered,
            convention=convention,
            link_gb_per_s=_LINK_GB_PER_S if link is None else link,
            fabric_gb_per_s=fabric,
        )
    flags = engine_flags(engine, _engine_settings(setting, tile, cache is not None))
    told = (*_warnings(setting, traffic, tile), *(answer.warnings if answer is not None else ()))
    if cache is not None and engine == "sarathi":
        told = (*told, "Sarathi-Serve has no prefix cache: its flags do not bring the hits that the plan counts on")
    return Plan(setting, traffic, tile, flags, convention, ttft, told, answer, split)


def _router(given: str | None, cache: PrefixCache | None, nodes: int) -> str:
    """Return the router's name; raise `InputError` for an unknown one, or where it makes no difference."""
    from tileq_engine.cluster import router_names

    if given is None:
        return "session_affinity"
    name = given.strip().replace("-", "_")
    if name not in router_names():
        raise InputError(f"router {given!r} is unknown; {near_matches('routers', name, router_names())}")
    if cache is None or cache.kind == "share" or nodes == 1:
        raise InputError(
            f"router is {given!r}, which only decides what the caches of several replicas find; give nodes above 1 and "
            "a prefix_cache of infinite, kv or tokens, or leave it out"
        )
    return name


def check_question(*, convention: str, tbt: float | None, max_tokens: int) -> None:
    """Raise `InputError` under the caller's own names, before anything is read or solved."""
    if convention not in ("engine", "paper"):
        raise InputError(f"convention is {convention!r}; expected 'engine' or 'paper'")
    if tbt is not None:
        positive("tbt", tbt)
    if positive_int("max_tokens", max_tokens) > MOST_BATCH_TOKENS:
        raise InputError(f"max_tokens is {max_tokens}; expected at most {MOST_BATCH_TOKENS}")


def _engine_settings(setting: Setting, tile: TilePlan, prefix_cache: bool) -> EngineSettings:
    model = setting.model
    return EngineSettings(
        model=model.hf_id or model.name,
        token_budget=tile.token_budget,
        token_budget_reason="smallest whole-tile budget within 1 % of the best: least latency for the rate",
        max_num_seqs=tile.max_num_seqs,
        max_num_seqs_reason=tile.max_num_seqs_reason,
        memory_utilisation=setting.memory_utilisation,
        static_share=setting.static_share,
        tensor_parallel=setting.tp,
        dtype=setting.dtype,
        kv_dtype=setting.kv_dtype or "bf16",
        prefix_cache=prefix_cache,
    )


def _warnings(setting: Setting, traffic: Traffic, tile: TilePlan) -> tuple[str, ...]:
    found = [*setting.warnings, *traffic.warnings, *tile.warnings]
    if setting.time.provenance.kind == "datasheet":
        found.append("times are a datasheet's promise, which is optimistic: the error band says by how much")
    elif setting.time.provenance.kind == "fitted" and not setting.own_times:
        found.append("times are not measured on your machine: a calibration narrows the error band")
    longest = tile.capacity.demand.longest_context_tokens
    window = setting.model.context_tokens
    if window is not None and longest != float("inf") and longest > window:
        found.append(f"the longest request has {longest:,.0f} tokens, the model's context is {window:,}")
    return tuple(found)
