"""The contract every policy signs, as a test battery anyone can run on a policy of his own.

`check_policy(my_policy)` simulates it on small hard instances (tight memory, bursts, ties, one-token outputs, prompts
longer than the budget) and checks, rule by rule:

=====================  ==================================================================================
legal batch            nobody twice, before arrival, after the end, or rejected; one decode or a chunk each
conservation           prefill and decode tokens add up for every request; none lost, none generated twice
capacity               sequences within the slots, blocks within the cache
token budget           (if claimed) prefill within what the decodes leave of the budget
clock                  iterations do not overlap; a request's times are in order
determinism            the same seed gives the same run
one source             compiled, stepped and uncompiled runs take the same decisions
work conservation      (if claimed) the server never idles while an accepted request is in the system
no starvation          (if claimed) a request is served in the end even while favoured ones keep coming
=====================  ==================================================================================
"""

from __future__ import annotations

__all__ = ["ContractError", "ContractReport", "RuleResult", "check_policy"]

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tileq_engine.laws.base import Breach, Law, Replay, replay
from tileq_engine.laws.batches import legal_batches
from tileq_engine.laws.capacity import budget_kept, capacity_kept
from tileq_engine.laws.clock import clock_runs_forward, every_request_ends, never_idle_with_work
from tileq_engine.laws.conservation import tokens_conserved
from tileq_engine.laws.instances import HardCase, hard_cases, overload_case
from tileq_theory.errors import InputError, TileqError, near_matches, positive_int

if TYPE_CHECKING:
    from tileq_engine.policy import Policy
    from tileq_engine.simulator import RawRun

CLAIMS = ("no_starvation", "token_budget", "work_conserving")
ALWAYS: tuple[tuple[str, Law], ...] = (
    ("legal batch", legal_batches),
    ("conservation of tokens", tokens_conserved),
    ("slots and cache blocks", capacity_kept),
    ("clock", clock_runs_forward),
)
CLAIMED: dict[str, tuple[str, Law]] = {
    "token_budget": ("token budget", budget_kept),
    "work_conserving": ("work conservation", never_idle_with_work),
}


class ContractError(TileqError, AssertionError):
    """A policy broke a rule of the contract; the message names policy, rule, request, reason and the case."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """One rule: on how many cases it was tried; all of them kept it (a breach raises instead)."""

    rule: str
    cases: int


@dataclass(frozen=True, slots=True)
class ContractReport:
    """What was checked of a policy, and found kept.

    Parameters
    ----------
    policy
        Its name.
    rules
        One result per rule.
    requests, preemptions, rejections
        How hard the cases were: totals over all of them.
    """

    policy: str
    rules: tuple[RuleResult, ...]
    requests: int
    preemptions: int
    rejections: int

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain data."""
        return {
            "policy": self.policy,
            "rules": {r.rule: r.cases for r in self.rules},
            "requests": self.requests,
            "preemptions": self.preemptions,
            "rejections": self.rejections,
        }

    def __str__(self) -> str:
        kept = ", ".join(f"{r.rule} ({r.cases})" for r in self.rules)
        return f"{self.policy} keeps its contract on {self.requests} requests, {self.preemptions} preemptions: {kept}"


def check_policy(
    policy: Policy,
    *,
    cases: int = 25,
    seed: int = 0,
    claims: Iterable[str] | None = None,
    modes: tuple[str, ...] = ("compiled", "stepped", "python"),
) -> ContractReport:
    """Check `policy` against the contract on `cases` small hard instances.

    Parameters
    ----------
    policy
        Any policy, also a user's own composition.
    cases
        Number of instances, at least 1.
    seed
        Seed of the instances; the same seed gives the same ones.
    claims
        Further promises to hold the policy to: "token_budget", "work_conserving", "no_starvation". None: what
        `policy.claims` says, or the token budget alone where it says nothing.
    modes
        Ways of running that must agree; the first two compiled (with and without jumps), the last uncompiled.

    Returns
    -------
    ContractReport
        Rules and the number of cases each was tried on.

    Raises
    ------
    ContractError
        At the first breach: policy, rule, request, reason, case.
    InputError
        For an unknown claim or fewer than one case.

    Examples
    --------
    >>> from tileq_engine.registry import policy
    >>> check_policy(policy("sarathi"), cases=2, modes=("python",)).rules[0]
    RuleResult(rule='legal batch', cases=2)
    """
    count = positive_int("cases", cases)
    promised = _claims(policy, claims)
    laws = [*ALWAYS, *(CLAIMED[claim] for claim in sorted(promised & CLAIMED.keys()))]
    tried = {name: 0 for name, _ in laws} | {"determinism": 0, "one source": 0}
    totals = [0, 0, 0]
    for case in hard_cases(policy, count, seed):
        runs = {mode: case.simulate(policy, mode) for mode in modes}
        stepped = runs[modes[-1]]
        seen = replay(stepped)
        for name, law in laws:
            _demand(policy, case, law(seen))
            tried[name] += 1
        _demand(policy, case, _same(stepped, case.simulate(policy, modes[-1]), "determinism", "a second run"))
        tried["determinism"] += 1
        for mode in modes[:-1]:
            _demand(policy, case, _same(stepped, runs[mode], "one source", f"mode '{mode}' against '{modes[-1]}'"))
        tried["one source"] += len(modes) > 1
        counters = stepped.counters
        totals = [totals[0] + len(case.requests), totals[1] + counters["preemptions"], totals[2] + counters["rejected"]]
    if "no_starvation" in promised:
        case = overload_case(policy, seed)
        _demand(policy, case, _starved(case, replay(case.simulate(policy, modes[-1]))))
        tried["no starvation"] = 1
    rules = tuple(RuleResult(name, n) for name, n in tried.items() if n)
    return ContractReport(policy.name, rules, *totals)


def _claims(policy: Policy, claims: Iterable[str] | None) -> frozenset[str]:
    promised = frozenset(getattr(policy, "claims", ("token_budget",)) if claims is None else claims)
    for claim in sorted(promised - set(CLAIMS)):
        raise InputError(f"claim is {claim!r}; {near_matches('claims', claim, CLAIMS)}")
    return promised


def _demand(policy: Policy, case: HardCase, breach: Breach | None) -> None:
    if breach is not None:
        raise ContractError(f"policy '{policy.name}': {breach} (case {case.label})")


FATES: tuple[str, ...] = (
    "status", "admit_ps", "prefill_end_ps", "first_token_ps", "finish_ps", "tokens_done", "preemptions",
    "recomputed_tokens", "swapped_tokens", "max_gap_ps",
)  # fmt: skip


def _same(one: RawRun, other: RawRun, rule: str, what: str) -> Breach | None:
    """Return the first request that fared differently in the two runs."""
    for i in range(len(one.requests)):
        for name in FATES:
            a, b = int(getattr(one, name)[i]), int(getattr(other, name)[i])
            if a != b:
                return Breach(rule, f"request {int(one.requests.ids[i])}", -1, f"{what}: {name} is {b}, not {a}")
    return None


def _starved(case: HardCase, seen: Replay) -> Breach | None:
    """Return a breach when the marked request was not served while the favoured ones kept coming."""
    run, marked = seen.run, case.marked
    last_arrival = int(run.requests.arrival_ps[-1])
    finish = int(run.finish_ps[marked])
    if finish < 0:
        return every_request_ends(seen)
    if finish > last_arrival:
        behind = int(((run.finish_ps >= 0) & (run.finish_ps < finish)).sum())
        reason = (
            f"{behind} favoured requests, all but those that came first, overtook it; it ended after the last arrived"
        )
        return Breach("no starvation", seen.name_of(marked), -1, reason)
    return None
