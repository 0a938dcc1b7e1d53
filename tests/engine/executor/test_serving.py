"""A real run against the simulator: the same decisions, the same timeline, whatever the policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.executor import TokenHashBackend, replay, serve
from tileq_engine.executor.replaying import differences
from tileq_engine.executor.token_hash import next_token
from tileq_engine.registry import policy
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.01, token_s=1e-4, kv_token_s=1e-6, pair_s=1e-7, sequence_s=1e-5)
POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("static", {}),
    ("orca", {"chunks": True}),
    ("vllm_v0", {}),
    ("vllm_v1", {}),
    ("vllm_v1", {"order": "priority"}),
    ("sarathi", {"order": "spf"}),
    ("slai", {}),
    ("rad", {"b_col": 4, "b_lcm": 8}),
    ("rad_general", {"levels": [(24, 16, 8, 0.6), (8, 0, 8, 0.4)]}),
    ("svf", {}),
    ("eb_plus", {}),
]
REPLAYED = ("vllm_v1", "sarathi", "slai", "rad_general", "static")
PREEMPTIONS = ("recompute", "swap")


def asked(n: int = 24, seed: int = 4) -> Requests:
    g = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=g.exponential(0.02, n).cumsum(),
        prompt_tokens=g.integers(1, 40, n),
        output_tokens=g.integers(1, 30, n),
        priority=g.integers(0, 3, n),
        tbt_limit_s=0.2,
    )


CONFIG = EngineConfig(token_budget=40, max_num_seqs=6, kv_tokens=12 * 16)


@pytest.mark.parametrize("preemption", PREEMPTIONS)
@pytest.mark.parametrize(("name", "params"), POLICIES, ids=str)
def test_on_a_models_clock_it_is_the_simulator(name: str, params: dict[str, Any], preemption: str) -> None:
    """Real decisions, blocks and tokens on a clock that an iteration time drives: the simulation, to the picosecond."""
    requests, config = asked(), CONFIG.with_(preemption=preemption)
    chosen = policy(name, **params)
    served = serve(requests, chosen, TokenHashBackend(12), config, clock=TIME, live=False, check=True)
    expected = simulate(requests, chosen, TIME, config, mode="stepped")
    assert served.raw.stop_reason == expected.stop_reason == "finished"
    for column in ("admit_ps", "first_token_ps", "finish_ps", "preemptions", "swapped_tokens", "status", "max_gap_ps"):
        assert np.array_equal(getattr(served.raw, column), getattr(expected, column)), column
    assert served.raw.integrals == expected.integrals
    assert served.raw.counters == expected.counters
    assert np.array_equal(served.raw.gaps.gap_ps, expected.gaps.gap_ps)


@pytest.mark.parametrize("preemption", PREEMPTIONS)
@pytest.mark.parametrize(("name", "params"), [p for p in POLICIES if p[0] in REPLAYED], ids=str)
def test_measured_times_replay_to_the_same_timeline(name: str, params: dict[str, Any], preemption: str) -> None:
    requests, config = asked(seed=5), CONFIG.with_(preemption=preemption)
    served = serve(requests, policy(name, **params), TokenHashBackend(12), config, clock="busy", time=TIME, live=False)
    assert differences(served, replay(served)) == []


@pytest.mark.parametrize("preemption", PREEMPTIONS)
def test_tokens_are_those_of_the_sequence_alone(preemption: str) -> None:
    """The double's next token is a hash of what its paged cache holds: any wrong slot or lost swap would change it."""
    requests = asked(seed=6)
    config = CONFIG.with_(preemption=preemption)
    prompts = [np.random.default_rng(i).integers(0, 97, int(p)) for i, p in enumerate(requests.prompt_tokens)]
    served = serve(
        requests, policy("vllm_v1"), TokenHashBackend(12), config, clock=TIME, prompts=prompts, live=False, check=True
    )
    assert served.raw.counters["preemptions"] > 0
    for prompt, output in zip(prompts, served.outputs, strict=True):
        history = list(prompt)
        for token in output:
            assert token == next_token(np.array(history), 97)
            history.append(int(token))


def test_a_run_in_which_nobody_could_run_replays_too() -> None:
    """Every prompt is longer than a batch of whole prompts may be: all are rejected, there is no iteration."""
    requests = Requests.from_arrays(arrival_s=[0.0, 0.1], prompt_tokens=[30, 40], output_tokens=[2, 2])
    config = EngineConfig(token_budget=8, oversize="reject")
    served = serve(requests, policy("vllm_v0"), TokenHashBackend(), config, clock="busy", live=False)
    assert (served.raw.stop_reason, len(served.log)) == ("finished", 0)
    assert differences(served, replay(served)) == []


def test_a_rejection_after_the_last_iteration_replays_too() -> None:
    requests = Requests.from_arrays(arrival_s=[0.0, 9.0], prompt_tokens=[5, 40], output_tokens=[1, 2])
    config = EngineConfig(token_budget=8, oversize="reject")
    served = serve(requests, policy("vllm_v0"), TokenHashBackend(), config, clock=TIME, live=False)
    assert (served.raw.status.tolist(), len(served.log)) == ([3, 4], 1)
    assert differences(served, replay(served)) == []
