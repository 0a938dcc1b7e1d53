"""Bad input: one clear error each; overload ends by a bound; what cannot run is rejected and counted."""

from __future__ import annotations

import pickle
from typing import Any

import jaxtyping
import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.policy import PolicyError
from tileq_engine.registry import policy, policy_doc, policy_names
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.request_class import parse_class
from tileq_theory.workload import Workload

TICK = IterationTime.constant(0.01)


def one(**changes: Any) -> Requests:
    given: dict[str, Any] = {"arrival_s": [0.0, 1.0], "prompt_tokens": [10, 20], "output_tokens": [5, 5]}
    return Requests.from_arrays(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arrival_s": [1.0, 0.5]}, "not sorted"),
        ({"ids": [7, 7]}, "7 is given 2 times"),
        ({"prompt_tokens": [10, 0]}, "prompt_tokens of request 1 is 0"),
        ({"output_tokens": [0, 5]}, "output_tokens of request 0 is 0"),
        ({"prompt_tokens": [10, -3]}, "request 1 is -3"),
        ({"prompt_tokens": [10.5, 3]}, "10.5 at place 0"),
        ({"prompt_tokens": [10, np.nan]}, "nan at place 1"),
        ({"prompt_tokens": ["a", "b"]}, "whole numbers"),
        ({"arrival_s": [0.0, np.inf]}, "arrival_s"),
        ({"arrival_s": [-1.0, 0.0]}, "arrival_s"),
        ({"prompt_tokens": [1, 2, 3]}, "expected one value, or 3"),
        ({"prefilled_tokens": [5, 0]}, "expected 0 or its whole prompt"),
        ({"tbt_limit_s": [0.1, -0.1]}, "tbt_limit_s"),
        ({"arrival_ps": [0, 1]}, "in seconds and in picoseconds"),
    ],
)
def test_requests(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        one(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"token_budget": 0}, "token_budget"),
        ({"token_budget": 2**40}, "token_budget"),
        ({"max_num_seqs": 1.5}, "max_num_seqs"),
        ({"kv_tokens": 8}, "at least one block of 16"),
        ({"watermark": 1.0}, "watermark"),
        ({"convention": "mine"}, "convention is 'mine'"),
        ({"preemption": "drop"}, "recompute, swap, none"),
        ({"stop_time_s": float("inf")}, "stop_time_s"),
        ({"swap_token_s": -1.0}, "swap_token_s"),
        ({"sample_limit": 1}, "sample_limit"),
    ],
)
def test_config(settings: dict[str, Any], says: str) -> None:
    jaxtyping.config.update("jaxtyping_disable", True)  # some of these are wrong by type: the user's run has no checker
    try:
        with pytest.raises(InputError, match=says):
            EngineConfig(**settings)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(
    ("name", "params", "says"),
    [
        ("sarathy", {}, "did you mean sarathi"),
        ("sarathi", {"ordr": "spf"}, "did you mean order"),
        ("sarathi", {"order": "best"}, "order 'best' is unknown"),
        ("slai", {"theta": "big"}, "theta is 'big'"),
        ("rad", {"b_col": 0}, "b_col is 0"),
        ("rad_general", {}, "plan"),
        ("rad_general", {"levels": [(8, 8, 8, 1.0)]}, "in a batch of 8"),
        ("sjf", {"predictor": "crystal"}, "predictor 'crystal'"),
        ("sjf", {"base": "orca"}, "base 'orca'"),
        ("nested_wait", {"boundaries": [5, 3]}, "increasing"),
        ("theta", {"k": 0}, "k is 0"),
    ],
)
def test_policies(name: str, params: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        policy(name, **params)


def test_every_policy_says_what_it_is() -> None:
    for name in policy_names():
        assert len(policy_doc(name)) > 200, name


def test_a_budget_below_the_residents() -> None:
    with pytest.raises(InputError, match="at least one token a resident"):
        simulate(one(), policy("vllm_v1"), TICK, EngineConfig(token_budget=16, max_num_seqs=32))


def test_what_cannot_run_is_rejected_and_counted() -> None:
    asked = one(prompt_tokens=[10, 500])
    run = simulate(asked, policy("sarathi"), TICK, EngineConfig(kv_tokens=160))
    assert run.status.tolist() == [3, 4] and run.reject_reason.tolist() == [0, 2]
    run = simulate(asked, policy("sarathi"), TICK, EngineConfig(max_model_tokens=100))
    assert run.reject_reason.tolist() == [0, 1]
    run = simulate(asked, policy("vllm_v0"), TICK, EngineConfig(token_budget=128))
    assert run.reject_reason.tolist() == [0, 3]
    run = simulate(asked, policy("vllm_v0"), TICK, EngineConfig(token_budget=128, oversize="wait"))
    assert run.status.tolist() == [3, 1] and run.stop_reason == "stalled"


def test_overload_is_a_result() -> None:
    asked = Requests.from_arrays(arrival_s=np.arange(2000) * 0.001, prompt_tokens=100, output_tokens=50)
    config = EngineConfig(token_budget=64, max_num_seqs=8)
    for bound, reason in (
        ({"stop_time_s": 1.0}, "time"),
        ({"stop_backlog": 300}, "backlog"),
        ({"stop_iterations": 9}, "iterations"),
    ):
        run = simulate(asked, policy("sarathi"), TICK, config.with_(**bound))
        assert run.stop_reason == reason
        assert run.counters["finished"] < len(asked)


def test_no_requests_is_an_empty_run() -> None:
    run = simulate(one().head(0), policy("sarathi"), TICK)
    assert run.stop_reason == "finished" and run.end_ps == 0 and len(run.finish_ps) == 0


def test_without_preemption_a_full_cache_stalls_and_says_so() -> None:
    asked = Requests.from_arrays(arrival_s=[0.0, 0.0], prompt_tokens=16, output_tokens=40)
    run = simulate(asked, policy("sarathi"), TICK, EngineConfig(kv_tokens=64, preemption="none"))
    assert run.stop_reason == "stalled"


# ------------------------------------------------------------------ a user's own rules


def longest_first(R: Any, S: Any, P: Any, i: int) -> float:
    return -float(R[i].prompt)


def misspelt(R: Any, S: Any, P: Any, i: int) -> float:
    return float(R[i].promt)


def through_python(R: Any, S: Any, P: Any, i: int) -> float:
    return float(str(R[i].prompt))  # numba cannot turn text into a number


def two_chunks(R: Any, B: Any, S: Any, H: Any, O: Any, W: Any, P: Any, d: Any, order: Any, admit: Any, v: Any) -> None:  # noqa: E741
    from_the_queue = H[0]
    slot = O[S[0].nres]
    S[0].nres += 1
    S[0].nwait -= 1
    B[slot].id = from_the_queue
    B[slot].chunk = 7
    B[slot].phase = 1
    B[slot].target = 3
    S[0].npre = 7


def test_an_own_rule_runs_compiled_and_uncompiled(differ: Any) -> None:
    asked = Requests.from_arrays(arrival_s=np.zeros(6), prompt_tokens=[5, 50, 20, 30, 7, 60], output_tokens=4)
    rule = policy("sarathi").with_rule(order=longest_first)
    config = EngineConfig(token_budget=32, max_num_seqs=1)
    compiled = simulate(asked, rule, TICK, config)
    assert compiled.mode == "compiled" and compiled.notes == ()
    assert differ(compiled, simulate(asked, rule, TICK, config, mode="python")) == ""
    assert np.argsort(compiled.finish_ps).tolist() == np.argsort(-asked.prompt_tokens).tolist()


def test_a_rule_that_cannot_compile_runs_in_python_and_says_so() -> None:
    run = simulate(one(), policy("sarathi").with_rule(order=through_python), TICK)
    assert run.mode == "python" and run.stop_reason == "finished"
    assert "through_python runs uncompiled" in run.notes[0]


def test_a_misspelt_field_is_an_ordinary_error() -> None:
    with pytest.raises(PolicyError, match=r"order rule misspelt: AttributeError.*promt"):
        simulate(one(), policy("sarathi").with_rule(order=misspelt), TICK)


def test_an_illegal_batch_names_rule_request_and_reason() -> None:
    with pytest.raises(PolicyError, match=r"mixing rule two_chunks: request 0 got a prefill chunk of 7 tokens"):
        simulate(one(), policy("sarathi").with_rule(mixing=two_chunks), TICK)


def test_an_unknown_kind_of_rule() -> None:
    with pytest.raises(InputError, match="did you mean order"):
        policy("sarathi").with_rule(oder=longest_first)


def test_policies_travel_to_other_processes(variant: Any) -> None:
    rule = policy(variant[0], **variant[1])
    again = pickle.loads(pickle.dumps(rule))
    assert again.to_dict() == rule.to_dict()
    assert "\n" not in rule.describe()


def test_a_workload_gives_common_random_numbers() -> None:
    workload = Workload((parse_class("a=512:128@0.3"), parse_class("b=uniform(10,1600):geometric(200,512)")))
    slow, fast = (Requests.from_workload(workload, 500, 1, rate=r) for r in (2.0, 8.0))
    assert np.array_equal(slow.prompt_tokens, fast.prompt_tokens)
    assert np.array_equal(slow.output_tokens, fast.output_tokens)
    assert np.allclose(slow.arrival_ps, 4.0 * fast.arrival_ps, rtol=1e-9)
    assert slow.group_names == ("class 0", "class 1")
    for rate in (0.0, float("inf"), float("nan"), -1.0):
        with pytest.raises(InputError, match="rate"):
            Requests.from_workload(workload, 5, 1, rate=rate)
