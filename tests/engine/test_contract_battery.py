"""The public contract battery: the built-in policies keep it, and planted faults in a run are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tileq_engine.contract import ContractError, check_policy
from tileq_engine.laws import (
    capacity_kept,
    clock_runs_forward,
    every_request_ends,
    legal_batches,
    never_idle_with_work,
    replay,
    tokens_conserved,
)
from tileq_engine.laws.capacity import budget_kept
from tileq_engine.laws.instances import hard_cases, overload_case
from tileq_engine.registry import policy
from tileq_theory.errors import InputError

FCFS = ("static", "vllm_v0", "vllm_v1", "sarathi")


@pytest.mark.parametrize("name", ["static", "orca", "vllm_v0", "vllm_v1", "sarathi", "sjf", "aging", "rad", "slai"])
def test_built_in_policies_keep_the_contract(name: str) -> None:
    claims = ("work_conserving",) if name == "rad" else ("work_conserving", "token_budget")  # RAD's tile is its budget
    report = check_policy(policy(name), cases=15, modes=("python",), claims=claims)
    assert {r.rule for r in report.rules} >= {"conservation of tokens", "determinism", "work conservation"}
    assert report.requests > 50 and report.rejections + report.preemptions > 0


def test_one_source_is_compared_across_modes() -> None:
    report = check_policy(policy("sarathi"), cases=6)
    assert report.to_dict()["rules"]["one source"] == 6  # type: ignore[index]


@pytest.mark.parametrize("name", FCFS)
def test_first_come_policies_starve_nobody(name: str) -> None:
    check_policy(policy(name), cases=1, modes=("stepped",), claims=("no_starvation",))


@pytest.mark.parametrize(("name", "params"), [("sarathi", {"order": "spf"}), ("sjf", {}), ("priority", {})])
def test_starving_policies_are_caught(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match=r"rule 'no starvation' broken: request 400: .*overtook"):
        check_policy(policy(name, **params), cases=1, modes=("stepped",), claims=("no_starvation",))


def test_bad_questions_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean no_starvation"):
        check_policy(policy("sarathi"), claims=("no_starving",))
    with pytest.raises(InputError, match="cases is 0"):
        check_policy(policy("sarathi"), cases=0)


# ------------------------------------------------------------------ every law can fail


@pytest.fixture(scope="module")
def seen() -> Any:
    for case in hard_cases(policy("sarathi"), 40, 5):
        run = case.simulate(policy("sarathi"), "python")
        if run.counters["decode_tokens"] > 40 and run.counters["rejected"] == 0 and case.config.convention == "engine":
            return replay(run)
    raise AssertionError("no case is large enough")


def test_laws_hold_on_a_sound_run(seen: Any) -> None:
    laws = (legal_batches, tokens_conserved, capacity_kept, budget_kept, clock_runs_forward, never_idle_with_work)
    assert [law(seen) for law in (*laws, every_request_ends)] == [None] * 7


def test_a_lost_token_is_named(seen: Any) -> None:
    at = next(i for i, m in enumerate(seen.members) if any(x.decode for x in m))
    lost = replace(seen, members=tuple(() if i == at else m for i, m in enumerate(seen.members)))
    assert "conservation of tokens" in str(tokens_conserved(lost))
    assert "the batch is empty" in str(legal_batches(lost))


def test_a_request_twice_in_a_batch_is_named(seen: Any) -> None:
    doubled = replace(seen, members=(seen.members[0] * 2, *seen.members[1:]))
    breach = legal_batches(doubled)
    assert breach is not None and breach.iteration == 0 and "twice" in breach.reason
    who = int(seen.run.requests.ids[seen.members[0][0].request])
    assert breach.who == f"request {who}"


def test_an_early_start_an_overlap_and_idle_time_are_named(seen: Any) -> None:
    early = replace(seen, start_ps=(-1, *seen.start_ps[1:]))
    assert "before it arrives" in str(legal_batches(early))
    assert "clock" in str(clock_runs_forward(replace(seen, duration_ps=(10**18, *seen.duration_ps[1:]))))
    shift = 10**15
    idle = replace(seen, start_ps=(seen.start_ps[0], *(s + shift for s in seen.start_ps[1:])))
    assert "work conservation" in str(never_idle_with_work(idle))


def test_too_many_sequences_or_tokens_are_named(seen: Any) -> None:
    many = replace(seen, members=(seen.members[0] * 1000, *seen.members[1:]))
    assert "sequences in a batch" in str(capacity_kept(many))
    assert "token budget" in str(budget_kept(many))


def test_an_unfinished_request_is_named(seen: Any) -> None:
    finish = np.array(seen.run.finish_ps)
    finish[0] = -1
    breach = every_request_ends(replace(seen, run=replace(seen.run, finish_ps=finish)))
    assert breach is not None and breach.rule == "no starvation"


def test_a_cut_trace_is_refused() -> None:
    case = overload_case(policy("sarathi"), 0)
    short = replace(case, config=case.config.with_(trace_limit=10))
    with pytest.raises(InputError, match="larger trace_limit"):
        replay(short.simulate(policy("sarathi"), "stepped"))
