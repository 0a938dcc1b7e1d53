"""`tileq validate --executor vllm`: vLLM itself profiled, fitted, predicted, driven around lambda* and compared."""

from __future__ import annotations

__all__ = ["validate_vllm"]

import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tileq.validating import DEFAULT_CLASS, Validated, _lengths, plan_of
from tileq.validating_vllm_bench import (
    BLOCK_TOKENS,
    ROUNDS,
    Bench,
    Fitted,
    edge_of,
    model_folder,
    over_edges,
    sequence,
)
from tileq_theory.errors import InputError, nonnegative_int, positive, positive_int

if TYPE_CHECKING:
    from tileq.validation_kept import Kept
    from tileq_engine.requests import Requests

FRACTIONS = (0.7, 0.9, 1.1)


def validate_vllm(
    *,
    model: str | PathLike[str] = "small",
    device: str = "cpu",
    classes: Sequence[Any] | None = None,
    workload: Any = None,
    trace: Any = None,
    policies: Sequence[str] = ("sarathi",),
    fractions: Sequence[float] | None = None,
    requests: int = 800,
    max_num_seqs: int = 32,
    token_budget: int | None = None,
    max_tokens: int | None = None,
    kv_tokens: int | None = None,
    clock: str | None = None,
    server: bool = True,
    folder: str | PathLike[str] | None = None,
    resume: bool = True,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> Validated:
    """Profile vLLM, predict lambda*, measure its edge and its latencies around it; needs an environment with vLLM.

    Parameters
    ----------
    model
        "small" (a Llama of two layers, dummy weights), or a folder with config.json; weights are drawn where it has
        none.
    policies
        Of `sarathi`, `slai`, `rad_general`, `aging`.
    clock
        Of the offline engine: "cpu" (the default on a CPU: processor time of one thread) or "wall" (the default
        elsewhere). A server's is real time.
    server
        Beside the offline engine with timed arrivals, drive an OpenAI-compatible server on the loopback with
        `vllm bench serve`. True is the default, since a server is what runs in production and the offline engine
        cannot show what its API and its client cost, and on a GPU deciding ahead; False takes minutes less.
    folder, resume
        Every finished step is kept in the folder, and with `resume` taken from there.
    """
    from tileq.traffic import make_traffic
    from tileq.validation_kept import Kept

    names = sequence(policies)
    nonnegative_int("seed", seed)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise InputError(f"device is {device!r}; expected cpu, cuda or cuda:NUMBER")
    clock = clock or ("cpu" if device == "cpu" else "wall")
    if clock not in ("cpu", "wall"):
        raise InputError(f"clock is {clock!r}; with vLLM expected cpu or wall")
    wanted = [positive("fraction", fraction) for fraction in fractions or FRACTIONS]
    given = trace is not None or workload is not None or bool(classes)
    traffic = make_traffic(trace, workload, classes) if given else make_traffic(classes=[DEFAULT_CLASS])
    lengths: Requests = _lengths(traffic, positive_int("requests", requests), seed, None)
    longest = int((lengths.prompt_tokens + lengths.output_tokens).max())
    seats = positive_int("max_num_seqs", max_num_seqs)
    most = max(16 * seats if max_tokens is None else positive_int("max_tokens", max_tokens), seats)
    if token_budget is not None and positive_int("token_budget", token_budget) > most:
        raise InputError(f"token_budget is {token_budget}; max_tokens is {most}, and a batch holds no more")
    blocks = _blocks(kv_tokens, seats, longest)
    bench = Bench(model_folder(model), device, most, seats, blocks, longest, clock, say or _quietly)
    steps = SimpleNamespace(max_tokens=most, max_num_seqs=seats, kv_tokens=float(blocks * BLOCK_TOKENS))
    conditions = {
        "model": str(model),
        "device": device,
        "clock": clock,
        "vllm": bench.version,
        "requests": len(lengths),
        "traffic": traffic.label,
        "max_num_seqs": seats,
        "kv_tokens": steps.kv_tokens,
    }
    question = {
        **conditions,
        "executor": "vllm",
        "schema_version": 2,
        "max_tokens": most,
        "token_budget": token_budget,
        "seed": seed,
    }
    question["fractions"] = wanted
    kept = Kept(None if folder is None else Path(folder), question, resume)
    with _terminable():
        document = _document(bench, kept, steps, lengths, names, wanted, token_budget, seed, server)
    document = {**document, "conditions": conditions}
    kept.finish(document)
    return Validated(document, complete=True)


def _blocks(kv_tokens: int | None, seats: int, longest: int) -> int:
    """Return the blocks of the KV cache: those asked for, else as many as all seats can fill."""
    if kv_tokens is None:
        return seats * (longest + BLOCK_TOKENS) // BLOCK_TOKENS
    blocks, least = positive_int("kv_tokens", kv_tokens) // BLOCK_TOKENS, -(-(longest + 1) // BLOCK_TOKENS)
    if blocks < least:
        raise InputError(
            f"kv_tokens is {kv_tokens}; the longest request has {longest} tokens, which need {least * BLOCK_TOKENS}. "
            "Give more, or shorter requests (--class)"
        )
    return blocks


def _document(
    bench: Bench,
    kept: Kept,
    steps: Any,
    lengths: Requests,
    names: Sequence[str],
    fractions: Sequence[float],
    token_budget: int | None,
    seed: int,
    server: bool,
) -> dict[str, Any]:
    from tileq.plain import plain
    from tileq.validating_vllm_server import ServerBench, replays_of

    served = ServerBench(bench, kept, lengths, seed) if server else None
    tables = [_profile(bench, kept, "profile", bench.engine("sarathi", None), lengths)]
    plan = plan_of(Fitted.to(tables[0]).time, lengths, steps, token_budget)
    budget = int(plan.token_budget)
    rounds = {name: _rounds(bench, kept, name, plan, lengths, seed, tables) for name in names}
    fitted = Fitted.to(np.concatenate(tables))
    rate = bench.rate_per_s(fitted.time, lengths, budget)
    rates = [bench.rate_per_s(Fitted.to(table).time, lengths, budget) for table in tables]
    cases = [_case(bench, kept, name, plan, fitted, lengths, fractions, seed, rounds[name]) for name in names]
    edges = {c["policy"]: c["edge_per_s"] for c in cases if c["edge_per_s"]}
    best = max(edges.values(), default=None)
    online = None if served is None else served.document(names, plan, fractions)
    bench.close()
    replays = [replay for case in cases for replay in replays_of(case)]
    replays += [] if online is None else [case["replay"] for case in online["cases"]]
    document: dict[str, Any] = plain(
        {
            "schema_version": 1,
            "title": "vLLM around lambda*",
            "executor": "vllm",
            "complete": True,
            "fit": fitted.to_dict(),
            "plan": {"token_budget": plan.token_budget, "rate_per_s": plan.capacity.rate_per_s},
            "cases": cases,
            "server": online,
            "summary": {
                "rate_per_s": rate,
                "rates_by_profile_per_s": rates,
                "edges_per_s": edges,
                "rate_over_best_edge": None if best is None else rate / best - 1.0,
                "rate_over_edge": over_edges(rate, rates, cases[0]["edges_per_s"]),
                "server_rate_per_s": None if online is None else online["rate_per_s"],
                "server_rate_over_best_edge": None if online is None else online["rate_over_best_edge"],
                "server_rate_over_edge": None if online is None else online["rate_over_edge"],
                "replays_same": all(replay["same"] for replay in replays),
                "iterations_replayed": sum(replay["iterations"] for replay in replays),
            },
        }
    )
    return document


def _profile(bench: Bench, kept: Kept, key: str, engine: Any, lengths: Requests) -> Float[np.ndarray, "iteration 5"]:
    found = kept.or_made(key, lambda: {"iterations": bench.profile(engine, lengths).tolist()})
    return np.asarray(found["iterations"], dtype=float)


def _rounds(
    bench: Bench, kept: Kept, name: str, plan: Any, lengths: Requests, seed: int, tables: list[Any]
) -> list[dict[str, Any]]:
    """Return a policy's saturated runs; after each of the first policy's another profile is appended to `tables`."""
    found = []
    profiled = len(tables) == 1
    for k in range(ROUNDS):
        found.append(kept.or_made(f"{name}-saturated-{k}", partial(bench.edge, name, plan, lengths, 100 * seed + k)))
        if profiled:
            tables.append(_profile(bench, kept, f"profile-{k}", bench.engine(name, plan), lengths))
    return found


def _case(
    bench: Bench,
    kept: Kept,
    name: str,
    plan: Any,
    fitted: Fitted,
    lengths: Requests,
    fractions: Sequence[float],
    seed: int,
    rounds: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return a policy's edge, and its loads."""
    case: dict[str, Any] = {"policy": name, "describes": bench.policy(name, plan).describe()}
    case |= edge_of([found["edge_per_s"] for found in rounds])
    case["edge_simulated_per_s"] = bench.simulated_edge(name, plan, fitted.time, lengths)
    case["replays"] = [found["replay"] for found in rounds]
    case["loads"] = []
    for fraction in fractions:
        load = kept.or_made(
            f"{name}-{fraction:g}",
            partial(bench.load, name, plan, fitted, lengths, fraction, seed),
        )
        load["load"] = None if not case["edge_per_s"] else load["rate_per_s"] / case["edge_per_s"]
        case["loads"].append(load)
    return case


def _quietly(line: str) -> None:
    """Say nothing."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does, so that a server is stopped and what is done is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
