"""Bad input gives one clear line and leaves nothing half written; overload ends; a user's own rule, end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.batch import admit_request, remove_waiting, take_chunk
from tileq_engine.policy import PolicyError
from tileq_engine.registry import policy, policy_names
from tileq_engine.rules.eviction import evict_last
from tileq_engine.sweep import sweep
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Independent, Uniform
from tileq_theory.request_class import RequestClass
from tileq_theory.workload import Workload

TICK = IterationTime.constant(0.01)
CHAT = Workload([RequestClass("chat", Independent(Uniform(20, 60), Uniform(2, 20)))])
# what a policy cannot do without
NEEDS: dict[str, dict[str, Any]] = {"rad_general": {"levels": [(16, 8, 8, 1.0)]}, "wait": {"thresholds": [1]}}


def burst(n: int = 40, **given: Any) -> Requests:
    g = np.random.default_rng(9)
    asked = {"arrival_s": np.arange(n) * 0.002, "prompt_tokens": g.integers(5, 60, n), "output_tokens": 20}
    return Requests.from_arrays(**(asked | given))


# -------------------------------------------------------------------- rates, files


@pytest.mark.parametrize("rate", [0.0, float("inf"), float("nan"), -3.0])
def test_a_rate_of_zero_or_infinity(rate: float, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rate") as caught:
        Requests.from_workload(CHAT, 10, 1, rate=rate)
    assert "\n" not in str(caught.value)
    folder = tmp_path / "results"
    with pytest.raises(InputError, match="rate"):
        sweep(lambda scenario: {}, ["sarathi"], [1.0, rate], folder=folder, settings=1, backend="serial")
    assert not folder.exists()


def test_an_error_half_way_leaves_whole_points_only(tmp_path: Path) -> None:
    """The points before the error are kept whole, the failed one is not there, and no partial file is left."""

    def one(scenario: Any) -> Any:
        rule = policy("sarathi") if scenario.rate_per_s < 3 else policy("sarathi").with_rule(order=too_late)
        return simulate(Requests.from_workload(CHAT, 60, 1, rate=scenario.rate_per_s), rule, TICK)

    with pytest.raises(PolicyError, match="order rule too_late: ValueError: no 50"):
        sweep(one, ["mine"], [1.0, 2.0, 300.0], folder=tmp_path, settings=1, backend="serial", progress=False)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert [n.split("-")[0] for n in names] == ["manifest.json", "point", "point"]
    assert not any("300" in n for n in names)


# -------------------------------------------------------------------- requests that cannot run


@pytest.mark.parametrize("name", policy_names())
def test_over_long_requests_are_counted_and_never_looped_on(name: str) -> None:
    """One request larger than the cache and one beyond the model's length among others: every policy goes on."""
    asked = burst(prompt_tokens=[*[20] * 10, 4000, *[30] * 10, 900, *[10] * 18])
    config = EngineConfig(token_budget=64, max_num_seqs=8, kv_tokens=1600, max_model_tokens=800, check=True)
    run = simulate(asked, policy(name, **NEEDS.get(name, {})), TICK, config.with_(stop_iterations=20_000))
    assert run.stop_reason == "finished"
    assert run.reject_reason[[10, 21]].tolist() == [1, 1] and run.counters["rejected"] == 2
    assert run.counters["finished"] == 38
    larger = simulate(asked, policy(name, **NEEDS.get(name, {})), TICK, config.with_(max_model_tokens=None))
    assert larger.reject_reason[10] == 2


def test_a_cache_smaller_than_any_request_rejects_all_of_them() -> None:
    run = simulate(burst(), policy("vllm_v1"), TICK, EngineConfig(kv_tokens=16, block_tokens=16, max_num_seqs=4))
    assert run.counters["rejected"] == (run.reject_reason == 2).sum() > 30
    assert run.stop_reason == "finished"


def test_overload_of_every_policy_ends_by_its_bound() -> None:
    """A hundred times what can be served: the bounds end the run, and the backlog grows as it must."""
    asked = Requests.from_arrays(arrival_s=np.arange(3000) * 1e-4, prompt_tokens=40, output_tokens=30)
    for name in policy_names():
        rule = policy(name, **NEEDS.get(name, {}))
        config = EngineConfig(token_budget=64, max_num_seqs=8, kv_tokens=3200, stop_backlog=2000)
        run = simulate(asked, rule, TICK, config)
        assert run.stop_reason == "backlog", name
        timed = simulate(asked, rule, TICK, config.with_(stop_backlog=None, stop_time_s=1.0))
        assert timed.stop_reason == "time" and timed.counters["finished"] < 1500, name


# -------------------------------------------------------------------- illegal batches


def too_late(R: Any, S: Any, P: Any, i: int) -> float:
    if i == 50:
        raise ValueError("no 50")
    return float(i)


def not_a_number(R: Any, S: Any, P: Any, i: int) -> float:
    return float("nan")


def divides(R: Any, S: Any, P: Any, i: int) -> float:
    return 1.0 / float(R[i].prompt - R[0].prompt)


def decodes_at_once(
    R: Any,
    B: Any,
    S: Any,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    d: Any,
    order: Any,
    admit: Any,
    v: Any,
) -> None:
    b = B[admit_request(R, B, S, O, P, remove_waiting(R, S, H, 0))]
    b.dec = 1
    S[0].ndec = 1


def everybody_in(
    R: Any,
    B: Any,
    S: Any,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    d: Any,
    order: Any,
    admit: Any,
    v: Any,
) -> None:
    while S[0].nwait > 0:
        b = B[admit_request(R, B, S, O, P, remove_waiting(R, S, H, 0))]
        take_chunk(b, S[0], 1)


def no_blocks(
    R: Any,
    B: Any,
    S: Any,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    d: Any,
    order: Any,
    admit: Any,
    v: Any,
) -> None:
    b = B[admit_request(R, B, S, O, P, remove_waiting(R, S, H, 0))]
    S[0].free += b.blocks
    b.blocks = 0
    b.chunk = 3
    S[0].npre = 3


def miscounted(
    R: Any,
    B: Any,
    S: Any,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    d: Any,
    order: Any,
    admit: Any,
    v: Any,
) -> None:
    b = B[admit_request(R, B, S, O, P, remove_waiting(R, S, H, 0))]
    take_chunk(b, S[0], 2)
    S[0].npre = 9


def evicts_nobody_there(R: Any, B: Any, S: Any, O: Any, P: Any, slot: int) -> int:  # noqa: E741
    return int(O[S[0].nres]) if S[0].nres < 4 else -1


@pytest.mark.parametrize("mode", ["compiled", "python"])
@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"order": too_late}, r"order rule too_late: ValueError: no 50"),
        ({"order": not_a_number}, r"order rule not_a_number: request \d+ has no place in the queue"),
        ({"order": divides}, r"order rule divides: ZeroDivisionError"),
        ({"mixing": decodes_at_once}, r"mixing rule decodes_at_once: request 0 decodes although its prefill"),
        ({"mixing": everybody_in}, r"mixing rule everybody_in: request \d+ is part of a batch with \d residents, more"),
        ({"mixing": no_blocks}, r"mixing rule no_blocks: request 0 runs without enough KV blocks"),
        ({"mixing": miscounted}, r"mixing rule miscounted: request 0 .* tokens differ from its members' by -7"),
        ({"eviction": evicts_nobody_there}, r"eviction rule evicts_nobody_there: .* was to be preempted from slot"),
    ],
)
def test_an_illegal_rule_is_named_with_request_and_reason(mode: Any, rules: dict[str, Any], says: str) -> None:
    asked = burst(60, arrival_s=np.zeros(60))
    config = EngineConfig(token_budget=64, max_num_seqs=4, kv_tokens=128)
    with pytest.raises(PolicyError, match=f"policy sarathi, {says}") as caught:
        simulate(asked, policy("sarathi").with_rule(**rules), TICK, config, mode=mode)
    assert "\n" not in str(caught.value)


# -------------------------------------------------------------------- a user's own rules, end to end


def newest_first(R: Any, S: Any, P: Any, i: int) -> float:
    return -float(R[i].arrival)


def half_the_cache(R: Any, B: Any, S: Any, P: Any, i: int) -> int:
    s = S[0]
    return 1 if s.nres == 0 or 2 * s.free > s.total_blocks else 0


def longest_resident(R: Any, B: Any, S: Any, O: Any, P: Any, slot: int) -> int:  # noqa: E741
    worst = evict_last(R, B, S, O, P, slot)  # a rule may call the library's kernels, compiled or not
    for k in range(S[0].nres):
        if B[O[k]].cached > B[worst].cached:
            worst = O[k]
    return int(worst)


def two_decodes(R: Any, B: Any, S: Any, O: Any, W: Any, P: Any) -> int:  # noqa: E741
    n = 0
    for k in range(S[0].nres):
        if B[O[k]].phase == 2 and n < 2:
            W[n] = O[k]
            n += 1
    S[0].must = n
    return n


OWN: tuple[dict[str, Any], ...] = (
    {"order": newest_first},
    {"admission": half_the_cache},
    {"eviction": longest_resident},
    {"decodes": two_decodes},
    {"order": newest_first, "admission": half_the_cache, "eviction": longest_resident, "decodes": two_decodes},
)


@pytest.mark.parametrize("rules", OWN, ids=lambda r: "+".join(r))
def test_own_rules_compiled_and_uncompiled_beside_compiled_ones(rules: dict[str, Any]) -> None:
    rule = policy("sarathi").with_rule(**rules)
    config = EngineConfig(token_budget=64, max_num_seqs=6, kv_tokens=128)
    compiled = simulate(burst(), rule, TICK, config)
    plain = simulate(burst(), rule, TICK, config, mode="python")
    assert compiled.mode == "compiled" and compiled.notes == () and plain.mode == "python"
    assert np.array_equal(compiled.finish_ps, plain.finish_ps) and compiled.counters == plain.counters
    assert compiled.counters["finished"] == 40
    built_in = simulate(burst(), policy("sarathi"), TICK, config)
    assert not np.array_equal(compiled.finish_ps, built_in.finish_ps)  # the rule is really asked
