"""What a policy was made with: checked where it is given, and told apart where results are kept."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from jaxtyping import config as jaxtyping_config

import tileq_engine
from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.policy import Policy, PolicyError
from tileq_engine.registry import policy, policy_maker, policy_names
from tileq_theory.errors import InputError, boolean, finite, nonnegative_int, positive_int
from tileq_theory.iteration_time import IterationTime

TICK = IterationTime.constant(0.01)
NEEDS: dict[str, dict[str, Any]] = {"rad_general": {"levels": [(16, 8, 8, 1.0)]}}
OTHER: dict[str, Any] = {
    "base": "sarathi", "order": "spf", "key": "total", "predictor": "noise", "theta": 7.0, "mean": "ewma",
    "admission": "sequence", "boundaries": [8], "thresholds": [3], "levels": [(32, 16, 16, 1.0)], "p0": 0.25,
}  # fmt: skip


@pytest.fixture
def unchecked() -> Any:
    """Values of the wrong type reach the library's own checks, as they do from a user's script."""
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", False)


def settings_of(name: str) -> dict[str, Any]:
    known = inspect.signature(inspect.unwrap(policy_maker(name))).parameters
    return {n: p.default for n, p in known.items() if n != "plan"}


def another(name: str, default: Any) -> Any:
    if name in OTHER:
        return OTHER[name] if OTHER[name] != default else "vllm_v1"
    if isinstance(default, bool):
        return not default
    return 3 if default is None or isinstance(default, int) else default / 2


@pytest.mark.parametrize("name", policy_names())
def test_every_setting_is_part_of_a_policys_data(name: str) -> None:
    """Results kept under one setting are never taken for another's: the data that pin a folder differ."""
    needs = NEEDS.get(name, {})
    plain = policy(name, **needs).to_dict()
    assert plain == policy(name, **needs).to_dict()
    for setting, default in settings_of(name).items():
        changed = {**needs, setting: another(setting, default)}
        if (name, setting) == ("sglang", "order"):
            changed = {"order": "fcfs"}
        if (name, setting) == ("nested_wait", "thresholds"):
            changed = {"boundaries": [8], "thresholds": [3, 2]}
            plain = policy(name, boundaries=[8], thresholds=[3, 1]).to_dict()
        assert policy(name, **changed).to_dict() != plain, setting


@pytest.mark.parametrize("name", policy_names())
def test_truth_values_and_numbers_are_not_each_other(name: str, unchecked: None) -> None:
    for setting, default in settings_of(name).items():
        wrong = [1, 0, "maybe", None] if isinstance(default, bool) else [True, "seven", float("nan"), np.True_]
        if isinstance(default, str) and setting != "theta":
            wrong = [5, None, True]
        for value in wrong:
            if value is None and default is None:
                continue
            with pytest.raises(InputError, match=r"expected|known|did you mean") as caught:
                policy(name, **{**NEEDS.get(name, {}), setting: value})
            assert "\n" not in str(caught.value)


def test_a_number_is_a_list_of_one(unchecked: None) -> None:
    assert policy("wait", thresholds=4).params["thresholds"] == (4,)
    assert policy("nested_wait", boundaries=8).params["boundaries"] == [8]
    with pytest.raises(InputError, match=r"levels are 384; expected a list"):
        policy("rad_general", levels=384)
    with pytest.raises(InputError, match=r"level 0 is 384; expected \(tokens"):
        policy("rad_general", levels=[384])


@pytest.mark.parametrize("check", [finite, positive_int, nonnegative_int])
@pytest.mark.parametrize("value", [True, np.True_, "x", None, float("inf"), 10**400, 1 + 2j, [1, 2]])
def test_what_is_no_number(check: Any, value: Any, unchecked: None) -> None:
    with pytest.raises(InputError, match="size is"):
        check("size", value)


def test_what_is_no_truth_value() -> None:
    assert boolean("on", np.True_) is True and boolean("on", False) is False
    for value in (1, 0, "true", None, np.int64(1)):
        with pytest.raises(InputError, match=r"on is .*; expected true or false"):
            boolean("on", value)


# -------------------------------------------------------------------- rules


def shortest(R: Any, S: Any, P: Any, i: int) -> float:
    return float(R[i].prompt)


def scaled(factor: float) -> Any:
    return lambda R, S, P, i: R[i].prompt * factor


def test_a_rule_of_ones_own_is_known_by_its_code() -> None:
    base = policy("sarathi")
    one, other = base.with_rule(order=scaled(1.0)).to_dict(), base.with_rule(order=scaled(-1.0)).to_dict()
    assert one != other and one == base.with_rule(order=scaled(1.0)).to_dict()
    assert base.with_rule(order=shortest).to_dict() != base.to_dict()


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"order": "order_spv"}, r"order rule 'order_spv' is unknown; did you mean order_spf"),
        ({"order": "admit_watermark"}, r"order rule 'admit_watermark' is unknown"),
        ({"mixing": "zzz"}, r"mixing rule 'zzz' is unknown; known rules: .*mix_chunked"),
        ({"eviction": 5}, r"eviction rule is 5; expected a function, or the name of a rule"),
        ({"admission": None}, r"admission rule is None"),
    ],
)
def test_a_rule_that_is_none(rules: dict[str, Any], says: str, unchecked: None) -> None:
    with pytest.raises(InputError, match=says):
        policy("sarathi").with_rule(**rules)


def test_rules_by_name_still_work() -> None:
    made = policy("sarathi").with_rule(order="order_spf", eviction="evict_none")
    assert isinstance(made, Policy) and made.macro


# -------------------------------------------------------------------- simulate, requests, clock


def few(**given: Any) -> Requests:
    asked = {"arrival_s": np.arange(4) * 0.1, "prompt_tokens": 10, "output_tokens": 3}
    return Requests.from_arrays(**(asked | given))


def test_simulate_takes_a_name_and_says_what_is_wrong(unchecked: None) -> None:
    named = simulate(few(), "sarathi", TICK)
    assert named.finish_ps.tolist() == simulate(few(), policy("sarathi"), TICK).finish_ps.tolist()
    wrong: list[tuple[Any, Any, Any, str]] = [
        ("x", "sarathi", TICK, "requests is of type str; expected Requests"),
        (few(), None, TICK, "policy is of type NoneType; expected Policy"),
        (few(), "sarathi", 0.01, "time is of type float; expected IterationTime"),
        (few(), "sarathy", TICK, "did you mean sarathi"),
    ]
    for requests, chosen, time, says in wrong:
        with pytest.raises(InputError, match=says):
            simulate(requests, chosen, time)


@pytest.mark.parametrize("name", ["prompt_tokens", "output_tokens", "class_index", "tenant", "priority"])
def test_truth_values_are_no_counts(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} holds truth values"):
        few(**{name: [True] * 4})


@pytest.mark.parametrize("values", [["x"] * 4, [2, 0, 1, 1], [0.5] * 4])
def test_who_pays_is_a_truth_value(values: list[Any]) -> None:
    with pytest.raises(InputError, match="paying holds"):
        few(paying=values)
    assert few(paying=[1, 0, 1, 0]).paying.tolist() == [True, False, True, False]


def test_moments_off_the_clock_name_their_request() -> None:
    for moment in (float("nan"), -1.0, 5e6, float("inf")):
        with pytest.raises(InputError, match=r"arrival_s of request 2 is"):
            few(arrival_s=[0.0, 1.0, moment, 7.0])
    with pytest.raises(InputError, match="count is -1"):
        few().head(-1)


@pytest.mark.parametrize("name", ["launch_s", "weight_floor_s", "tile_s", "token_s", "kv_token_s", "sequence_s"])
def test_times_that_the_clock_cannot_count(name: str) -> None:
    """A number of picoseconds beyond 64 bits would come out as any number: refused, never wrapped around."""
    time = IterationTime(launch_s=0.01, tile_tokens=16).with_(**{name: 1e12})
    with pytest.raises(InputError, match=name):
        simulate(few(), "sarathi", time)


@pytest.mark.parametrize("mode", ["compiled", "stepped", "python"])
def test_an_iteration_beyond_the_clock_ends_the_run(mode: Any) -> None:
    """Each coefficient can be counted, their sum cannot: the clock stops at its end and never runs backwards."""
    time = IterationTime(launch_s=3e6, token_s=3e6)
    run = simulate(few(), "sarathi", time, mode=mode)
    assert run.stop_reason == "time" and run.end_ps >= 4 * 10**18
    reached = run.finish_ps[run.finish_ps >= 0]
    assert (reached > 0).all() and (np.diff(run.samples.start_ps) > 0).all()
    assert run.end_ps < 2**63


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"watermark": "much"}, "watermark is 'much'; expected a number"),
        ({"watermark": float("nan")}, "watermark"),
        ({"trace_limit": float("nan")}, "trace_limit"),
        ({"trace_limit": "all"}, "trace_limit is 'all'"),
        ({"check": 1}, "check is 1; expected true or false"),
        ({"gap_from_s": 5.0, "gap_to_s": 1.0}, "gap_to_s is 1.0, before gap_from_s 5.0"),
    ],
)
def test_engine_settings(settings: dict[str, Any], says: str, unchecked: None) -> None:
    with pytest.raises(InputError, match=says):
        EngineConfig(**settings)


def test_a_wild_prediction_stays_a_length(recwarn: pytest.WarningsRecorder) -> None:
    run = simulate(few(), policy("sjf", predictor="noise", sigma=1e9), TICK)
    assert run.counters["finished"] == 4 and not list(recwarn)


# -------------------------------------------------------------------- the package's own names


def test_the_package_exports_what_it_says() -> None:
    for name in tileq_engine.__all__:
        found = getattr(tileq_engine, name)
        assert callable(found), name  # a class or a function: never a submodule of the same name
    assert set(tileq_engine.__all__) <= set(dir(tileq_engine))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tileq_engine.nothing
    assert issubclass(tileq_engine.PolicyError, PolicyError)
