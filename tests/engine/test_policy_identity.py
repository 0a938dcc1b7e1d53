"""What a policy is known by: results of one setting are never taken for those of another."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine.experiment_engine import EngineSimulation, replicate_policy
from tileq_engine.experiment_store import digest
from tileq_engine.policy import Policy
from tileq_engine.registry import policy, policy_names
from tileq_engine.sweep import sweep
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Independent, Uniform
from tileq_theory.request_class import RequestClass
from tileq_theory.workload import Workload

TIME = IterationTime(launch_s=0.01, token_s=1e-4)
WORKLOAD = Workload((RequestClass("all", Independent(Uniform(10, 50), Uniform(5, 20))),))
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "static": [{}],
    "orca": [{}, {"chunks": True}],
    "vllm_v0": [{}, {"cap_decodes": False}, {"order": "spf"}],
    "vllm_v1": [{}, {"order": "priority"}, {"admission": "sequence"}],
    "sarathi": [{}, {"order": "spf"}, {"token_budget": 256}, {"token_budget": 512}, {"max_num_seqs": 8}],
    "sjf": [{}, {"key": "total"}, {"predictor": "noise"}, {"predictor": "noise", "sigma": 2.0},
            {"predictor": "noise", "seed": 1}, {"predictor": "quantile"}, {"predictor": "quantile", "quantile": 0.5},
            {"base": "sarathi"}],
    "svf": [{}, {"predictor": "noise"}, {"predictor": "noise", "sigma": 0.1}],
    "priority": [{}, {"preemptive": False}],
    "aging": [{}, {"predictor": "oracle"}],
    "rad": [{}, {"b_col": 64}, {"b_col": 64, "b_lcm": 128}, {"cycle": 3}, {"pad": False}],
    "rad_general": [{"levels": [(64, 32, 32, 1)]}, {"levels": [(64, 32, 32, 0.5), (32, 0, 32, 0.5)]}],
    "slai": [{}, {"theta": 5}, {"theta": 10}, {"mean": "ewma"}, {"mean": "ewma", "ewma_weight": 0.5},
             {"decode_cap": 64}, {"paying_tbt_s": 0.2}, {"other_tbt_s": 0.2}],
    "wait": [{}, {"thresholds": [3]}, {"thresholds": [4]}],
    "nested_wait": [{}, {"boundaries": [4], "thresholds": [2, 2]}, {"boundaries": [5], "thresholds": [2, 2]}],
    "theta": [{}, {"k": 3}, {"p0": 0.1}, {"alpha_ratio": 2.0}],
    "eb_plus": [{}, {"k": 3}],
    "psjf": [{}, {"predictor": "noise"}],
    "srpt": [{}, {"predictor": "noise"}],
    "vtc": [{}, {"base": "vllm_v1"}],
    "priority_aging": [{}, {"step_s": 1.0}, {"base": "sarathi"}],
    "edf": [{}, {"ttft_s": 2.0}, {"ttft_s": [2.0, 1.0]}],
    "sglang": [{}, {"order": "fcfs"}, {"mixed_chunk": True}, {"new_token_ratio": 0.5}, {"fcfs_beyond": 16}],
}  # fmt: skip


def test_every_setting_of_every_policy_is_told_apart() -> None:
    assert sorted(SETTINGS) == sorted(policy_names())
    made = [(name, params, policy(name, **params)) for name, all_of in SETTINGS.items() for params in all_of]
    made += [("budget " + name, {}, policy(name, **{**SETTINGS[name][0], "token_budget": 300})) for name in SETTINGS]
    for (name, one, first), (other, two, second) in itertools.combinations(made, 2):
        assert digest(first) != digest(second), (name, one, other, two)
    for name, params, rule in made:
        if not name.startswith("budget"):
            assert digest(rule) == digest(policy(name, **params)), name


def shortest(R: Any, S: Any, P: Any, i: int) -> float:
    return float(R[i].prompt)


def test_rules_of_the_users_own_are_known_by_their_code() -> None:
    def scaled(factor: float) -> Policy:
        return policy("sarathi").with_rule(order=lambda R, S, P, i: factor * R[i].prompt)

    one = policy("sarathi").with_rule(order=lambda R, S, P, i: R[i].prompt)
    other = policy("sarathi").with_rule(order=lambda R, S, P, i: -R[i].prompt)
    assert digest(one) != digest(other)
    assert digest(scaled(1.0)) == digest(scaled(1.0)) != digest(scaled(2.0))

    def in_turn(R: Any, S: Any, P: Any, i: int) -> float:
        return float(i) if i < 2 else in_turn(R, S, P, i - 2)  # a function that closes over itself

    assert digest(policy("sarathi").with_rule(order=in_turn)) != digest(one)
    assert "0x" not in str(policy("sarathi").with_rule(order=shortest).to_dict())


def test_a_budget_is_told_in_words() -> None:
    assert policy("sarathi", token_budget=512).describe() == "sarathi(order=fcfs, token_budget=512)"


def test_a_folder_does_not_serve_one_budget_as_another(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "workload": WORKLOAD,
        "time": TIME,
        "requests": 60,
        "replications": 2,
        "backend": "serial",
    }
    first = replicate_policy(policy("sarathi", token_budget=256), 5.0, folder=tmp_path / "a", **options)
    assert replicate_policy(policy("sarathi", token_budget=256), 5.0, folder=tmp_path / "a", **options).to_dict()
    with pytest.raises(InputError, match="token_budget is 64 now but was 256"):
        replicate_policy(policy("sarathi", token_budget=64), 5.0, folder=tmp_path / "a", **options)
    simulation = EngineSimulation(TIME, requests=60)
    grid: dict[str, Any] = {"rates": [5.0], "workloads": {"w": WORKLOAD}, "folder": tmp_path / "b", "backend": "serial"}
    sweep(simulation, {"p": policy("sjf", predictor="noise", sigma=0.1)}, **grid)
    with pytest.raises(InputError, match=r"policies\.p"):
        sweep(simulation, {"p": policy("sjf", predictor="noise", sigma=3.0)}, **grid)
    assert len(first) == 2


def test_errors_of_a_predictor_differ_between_replications_and_not_between_rates() -> None:
    simulation = EngineSimulation(TIME, requests=3000)
    rule = policy("sjf", predictor="noise", sigma=1.0)

    def errors(replication: int, rate: float) -> np.ndarray:
        from tileq_engine.experiment_streams import Streams

        run = simulation.at_rate(rate, Streams(1, replication), policy=rule, workload=WORKLOAD)
        return np.log(run.requests["predicted_output_tokens"] / run.requests["output_tokens"])

    one, other = errors(0, 20.0), errors(1, 20.0)
    assert 0.9 < one.std() < 1.1  # the run tells what the policy was told, not the truth
    assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / np.sqrt(3000)  # one false alarm in 10^5
    assert np.array_equal(one, errors(0, 25.0))
