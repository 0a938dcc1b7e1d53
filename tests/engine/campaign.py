"""One instance through everything: reference, stepped, compiled (and uncompiled) engine, and the laws of conservation.

The seeded campaign is `campaign(policy, seeds)`; a hypothesis test draws its instances from the same space.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from differential import decisions_of, engine_run, reference_decisions, smaller
from differential_draw import Instance, draw_instance

_EVENTS = ("preemptions", "recomputed_tokens", "swapped_tokens", "rejected")
_PREFIX_EVENTS = ("prefix_hit_tokens", "prefix_evicted_blocks", "prefix_merged_blocks")


@dataclass
class Tally:
    """What a campaign has seen: how runs ended, what happened in them, and the first instances that failed."""

    instances: int = 0
    uncompiled: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def look(self, x: Instance, run: Any) -> None:
        self.instances += 1
        self.seen[f"stop {run.stop_reason}"] += 1
        self.seen[x.convention] += 1
        self.seen[x.preemption] += 1
        for name in (*_EVENTS, *_PREFIX_EVENTS):
            self.seen[name] += run.counters.get(name, 0) > 0
        self.seen["iterations"] += run.counters["iterations"]


def campaign(policy: str, seeds: Iterable[int], uncompiled_every: int = 20, most_failures: int = 3) -> Tally:
    """Check one instance of `policy` a seed; stop after a few failures."""
    tally = Tally()
    for seed in seeds:
        x = instance(policy, seed)
        uncompiled = seed % uncompiled_every == 0
        tally.uncompiled += uncompiled
        problem = fault(x, uncompiled, tally)
        if problem:
            tally.failures.append(f"{policy} seed {seed}: {problem}")
            if len(tally.failures) >= most_failures:
                break
    return tally


def instance(policy: str, seed: int) -> Instance:
    """The campaign's instance of that policy and seed."""
    return draw_instance(random.Random(f"campaign {policy} {seed}").randint, policy)


def fault(x: Instance, uncompiled: bool = False, tally: Tally | None = None) -> str:
    """'' when everything agrees and adds up on `x`, else what does not."""
    reference = reference_decisions(x)
    stepped = engine_run(x, "stepped")
    if tally is not None:
        tally.look(x, stepped)
    apart = reference.first_difference(decisions_of(stepped))
    if apart:
        return f"reference against stepped, {apart}"
    leapt = engine_run(x, "compiled")
    jumped = decisions_of(leapt)
    apart = replace(reference, iterations=()).first_difference(replace(jumped, iterations=()))
    if apart:
        return f"reference against compiled, {apart}"
    apart = totals_differ(stepped, leapt)
    if apart:
        return f"stepped against compiled, {apart}"
    if uncompiled:
        plain = engine_run(x, "python")
        apart = decisions_of(stepped).first_difference(decisions_of(plain)) or totals_differ(stepped, plain)
        if apart:
            return f"stepped against uncompiled, {apart}"
    return broken_law(x, stepped)


def described(x: Instance, uncompiled: bool = True) -> str:
    """The fault of `x` with as few requests as still show it, for a report."""
    x = smaller(x, lambda y: bool(fault(y, uncompiled)))
    return f"{fault(x, uncompiled)}\n{x}"


def totals_differ(a: Any, b: Any) -> str:
    """Where two runs' areas, gap sums, samples or counters differ, to the bit; '' when nowhere."""
    if a.stop_reason != b.stop_reason or a.end_ps != b.end_ps:
        return f"{a.stop_reason} at {a.end_ps} against {b.stop_reason} at {b.end_ps}"
    if a.integrals != b.integrals:
        return f"areas {a.integrals} against {b.integrals}"
    for name, value in a.counters.items():
        if name != "jumped_iterations" and value != b.counters[name]:
            return f"{name} {value} against {b.counters[name]}"
    if a.gaps.sums != b.gaps.sums or not np.array_equal(a.gaps.count, b.gaps.count):
        return "gap distributions"
    names = ("kv_blocks_used", "prefix_lookup_tokens", "prefix_hit_tokens", "prefix_idle_blocks")
    apart = [n for n in names if not np.array_equal(getattr(a.samples, n), getattr(b.samples, n))]
    for name in ("prefilled_tokens", "delivered_tokens", "present", "waiting", "counter"):
        if a.tenants is not None and not np.array_equal(getattr(a.tenants, name), getattr(b.tenants, name)):
            apart.append(f"tenants' {name}")
    return f"samples of {', '.join(apart)}" if apart else ""


def broken_law(x: Instance, run: Any) -> str:
    """The first law of conservation of requests, tokens, blocks or time that `run` breaks, '' when none."""
    asked, n = run.requests, len(x.requests)
    status = np.bincount(run.status, minlength=5)
    done, refused = run.status == 3, run.status == 4
    c = run.counters
    emitted = int(x.convention == "engine")
    served = c["prefill_tokens"] + c["decode_tokens"] + c.get("prefix_hit_tokens", 0)
    whole = asked.prompt_tokens + asked.output_tokens - emitted
    laws = {
        "requests: none is lost": status.sum() == n and c["finished"] == status[3] and c["rejected"] == status[4],
        "requests: rejected ones have a reason and got nothing": bool(
            np.array_equal(refused, run.reject_reason > 0) and not run.tokens_done[refused].any()
        ),
        "tokens: everybody who ended has all of his, nobody more": bool(
            np.array_equal(run.tokens_done[done], asked.output_tokens[done])
            and np.all(run.tokens_done <= asked.output_tokens)
        ),
        "tokens: preemptions and recomputed tokens are the sum over requests": (
            c.get("prefix_hit_tokens", 0) == run.prefix_hit_tokens.sum()
            and c["preemptions"] == run.preemptions.sum()
            and c["recomputed_tokens"] == run.recomputed_tokens.sum()
        ),
        "blocks: never more than there are": c["peak_kv_blocks"] <= x.kv_blocks,
        "slots: never more than there are": c["peak_running"] <= x.max_seqs,
    }
    if run.stop_reason == "finished":
        first, last = run.first_token_ps[done], run.finish_ps[done]
        laws |= {
            "requests: a finished run has nobody left": status[3] + status[4] == n,
            "tokens: computed or found cached = asked + computed again": served
            == whole[done].sum() + c["recomputed_tokens"],
            "time: area under the number in system = sum of sojourns (Little)": (
                run.integrals["in_system_ps"] == int((run.finish_ps - run.arrival_ps)[done].sum())
            ),
            "time: gaps add up to last token - first": (
                sum(g.sum_ps for g in run.gaps.sums) == int((last - first).sum())
                and sum(g.count for g in run.gaps.sums) == int((asked.output_tokens[done] - 1).sum())
            ),
            "time: busy at most the span": run.integrals["busy_ps"] <= run.end_ps,
        }
    elif run.stop_reason == "stalled":
        laws["a stall has a cause: no preemption, or a prompt that may wait for ever"] = (
            x.preemption == "none" or x.oversize == "wait"
        )
    else:
        laws["nothing loops"] = False
    return "; ".join(law for law, kept in laws.items() if not kept)
