"""What a scheduler inside vLLM is told: settings, plans, a request's own words, the machine, the version. No vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tileq_engine.vllm.asked import asked_of
from tileq_engine.vllm.machine import Machine, differences, plan_limits
from tileq_engine.vllm.settings import Online, VllmSettings, levels_of, read_settings
from tileq_engine.vllm.versions import METHODS, VllmInterfaceError, check_interface, check_version
from tileq_theory.errors import InputError

PLAN: dict[str, Any] = {
    "question": {"gpu": "h100-sxm"},
    "engine": "vllm",
    "token_budget": 384,
    "max_num_seqs": 100,
    "rate_per_s": 20.0,
    "model": {"name": "llama", "layers": 2, "hidden": 128, "heads": 4, "vocab": 512},
    "gpu": {"name": "h100-sxm"},
    "tp": 1,
    "kv_tokens": 1000,
    "elasticities": {"kv_tokens": 0.0},
    "levels": [{"tokens": 384, "prefill_tokens": 300.2, "decode_tokens": 59.1, "iterations_per_s": 80.0}],
    "iteration_time": {
        "launch_s": 0.001,
        "weight_floor_s": 0.006,
        "tile_s": 0.002,
        "tile_tokens": 128,
        "token_s": 1e-6,
    },
}
HERE = Machine(
    "some/model",
    {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "vocab_size": 512},
    "NVIDIA H100 80GB HBM3",
    1,
    1000,
)


def test_a_plans_document_is_a_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLAN), encoding="utf-8")
    found = read_settings(path, policy="slai", params={"order": "spf"})
    assert (found.policy, found.token_budget, found.max_num_seqs) == ("slai", 384, 100)
    assert found.make_policy().token_budget == 384
    named = read_settings({"plan": str(path), "token_budget": 256}, policy="sarathi")
    assert (named.token_budget, named.max_num_seqs) == (256, 100)


def test_the_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"token_budget": 99}), encoding="utf-8")
    monkeypatch.setenv("TILEQ_VLLM", str(path))
    assert read_settings().token_budget == 99
    assert read_settings({"token_budget": 98}).token_budget == 98, "what vLLM was told comes first"


def test_levels_come_from_the_plan() -> None:
    assert levels_of(PLAN) == [[384, 300, 60, 80.0]]
    scarce = {**PLAN, "elasticities": {"kv_tokens": 0.3}}
    assert levels_of(scarce) == [[384, 0, 384, 1.0]]
    assert read_settings(PLAN, policy="rad_general").make_policy().name == "rad_general"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"polcy": "slai"}, "setting 'polcy' of the scheduler is unknown; did you mean"),
        ({"policy": "wait"}, "policy 'wait' does not run inside vLLM"),
        ({"token_budget": 0}, "token_budget is 0"),
        ({"tiers": {"gold": {"tbt_limit": 1}}}, "tier gold has no setting 'tbt_limit'"),
        ({"tiers": {"gold": {"tbt_limit_s": -1}}}, "tbt_limit_s of a tier is -1"),
        ({"tiers": {}}, "tiers is empty"),
        ({"default_tier": "gold"}, "default_tier 'gold' is not a tier"),
        ({"unknown_tier": "ignore"}, "unknown_tier is 'ignore'"),
        ({"online": {"every": 3}}, "online has no setting 'every'"),
        ({"online": {"least_budget": 512, "most_budget": 128}}, "least_budget of online is 512"),
        ({"plan": {"a": 1}}, "plan is no document of `tileq plan --json`"),
        ({"plan": {**PLAN, "engine": "sglang"}}, "the plan was made for sglang"),
        ({"plan": "nowhere.json"}, "nowhere.json: no such file"),
        ("nowhere.json", "nowhere.json: no such file"),
    ],
    ids=str,
)
def test_bad_settings_get_one_clear_line(given: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(given)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_rad_without_a_plan_says_how_to_make_one() -> None:
    with pytest.raises(InputError, match="tileq plan --engine vllm"):
        VllmSettings(policy="rad_general").make_policy()


def test_the_largest_numbers_that_are_taken_fit_into_the_tables() -> None:
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.vllm.mirror import Mirror

    most = {"tileq_tbt_limit_s": 1e6, "tileq_predicted_output_tokens": 1 << 30, "tileq_tenant": 10**30}
    for name in ("slai", "sjf"):
        mirror = Mirror(policy(name), EngineConfig(token_budget=64, max_num_seqs=8, kv_tokens=4096), capacity=8)
        mirror.add("a", asked_of(most, VllmSettings()), prompt_tokens=10, output_tokens=3, priority=10**30)
        assert mirror.decide(0, 256).tokens == {"a": 10}


def test_a_limit_below_the_clocks_unit_is_still_one() -> None:
    """0 ps would be no limit at all: SLAI would put such a request off as long as another wants the budget."""
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.vllm.mirror import Mirror

    hasty = asked_of({"tileq_tbt_limit_s": 1e-30}, VllmSettings())
    mirror = Mirror(policy("slai"), EngineConfig(token_budget=64, max_num_seqs=8, kv_tokens=4096), capacity=8)
    mirror.add("a", hasty, prompt_tokens=10, output_tokens=9)
    mirror.decide(0, 256)
    mirror.close(10**9)
    mirror.add("b", asked_of(None, VllmSettings()), prompt_tokens=500, output_tokens=3)
    assert mirror.decide(10**9, 255).tokens == {"a": 1, "b": 63}


def test_a_request_speaks_for_itself() -> None:
    settings = VllmSettings()
    assert asked_of(None, settings).tbt_limit_s == 0.5
    assert asked_of({"other": 1}, settings).tier == "standard"
    own = asked_of({"tileq_tier": "paying", "tileq_tbt_limit_s": 0.03, "tileq_predicted_output_tokens": 7}, settings)
    assert (own.tbt_limit_s, own.paying, own.predicted_output_tokens) == (0.03, True, 7)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"tileq_tier": "gold"}, "tier 'gold' is unknown"),
        ({"tileq_tier": 3}, "tileq_tier is 3"),
        ({"tileq_teir": "paying"}, "'tileq_teir' is unknown; did you mean"),
        ({"tileq_tbt_limit_s": 0}, "tileq_tbt_limit_s is 0"),
        ({"tileq_predicted_output_tokens": -2}, "tileq_predicted_output_tokens is -2"),
        ({"tileq_tenant": -1}, "tileq_tenant is -1"),
        ({"tileq_tbt_limit_s": 1e30}, "tileq_tbt_limit_s is 1e+30; expected 1e+06 s or less"),
        ({"tileq_predicted_output_tokens": 2**40}, "; expected 1073741824 or less"),
        ({"tileq_tier": "g" * 10**6}, "tileq_tier has 1000000 characters; expected the name of a tier"),
    ],
    ids=lambda v: str(v)[:60],
)
def test_a_request_that_cannot_be_read_is_an_error(extra: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        asked_of(extra, VllmSettings())
    assert says in str(caught.value)


def test_a_plan_for_this_machine_has_no_differences() -> None:
    assert differences(PLAN, HERE) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"name": "llama", "layers": 32}}, "the plan is for llama with 32 layers, some/model has 2"),
        ({"gpu": {"name": "a100-sxm-80gb"}}, "the plan is for a a100-sxm-80gb, this is NVIDIA H100 80GB HBM3"),
        ({"tp": 2}, "the plan has 2 GPUs a copy, vLLM runs with 1"),
        ({"kv_tokens": 2000}, "the plan counts on 2000 KV tokens, vLLM has 1000"),
    ],
    ids=str,
)
def test_a_plan_for_another_machine_says_what_differs(change: dict[str, Any], says: str) -> None:
    assert differences({**PLAN, **change}, HERE) == [says]


def test_the_shortest_iteration_of_a_plan() -> None:
    assert plan_limits(PLAN) == pytest.approx(0.001 + 0.006)


def test_versions_that_were_not_tried_are_refused() -> None:
    check_version("0.32.0+cpu")
    for version in ("0.31.9", "0.33.0", "1.0.0"):
        with pytest.raises(VllmInterfaceError, match="tried with 0"):
            check_version(version)
    with pytest.raises(VllmInterfaceError, match="expected numbers"):
        check_version("main")


def _scheduler_like_vllms() -> type:
    space: dict[str, Any] = {}
    body = ["class Scheduler:"]
    for name, parameters in METHODS.items():
        lines = "self._reserve_prefill_lookahead(1); self._reserve_prefill_lookahead(2)" if name == "schedule" else "0"
        body.append(f"    def {name}({', '.join(parameters)}): {lines}")
    folder = Path(__file__).parent
    exec(compile("\n".join(body), str(folder / "made_up.py"), "exec"), space)
    import linecache

    text = "\n".join(body)
    linecache.cache[str(folder / "made_up.py")] = (len(text), None, text.splitlines(keepends=True), "made_up.py")
    found: type = space["Scheduler"]
    return found


def test_a_changed_interface_is_named() -> None:
    scheduler = _scheduler_like_vllms()
    check_interface(scheduler, "0.32.0")
    kept = scheduler._free_request  # type: ignore[attr-defined]
    scheduler._free_request = lambda self, request, later: None  # type: ignore[attr-defined]
    with pytest.raises(VllmInterfaceError, match=r"Scheduler\._free_request takes \(self, request, later\)"):
        check_interface(scheduler, "0.32.9")
    scheduler._free_request = kept  # type: ignore[attr-defined]
    del scheduler._reserve_prefill_lookahead  # type: ignore[attr-defined]
    with pytest.raises(VllmInterfaceError, match="has no _reserve_prefill_lookahead any more"):
        check_interface(scheduler, "0.32.9")


def test_the_package_imports_nothing_of_vllm_until_a_scheduler_is_asked_for() -> None:
    code = "import sys, tileq_engine.vllm as t; t.VllmSettings(); assert not {'vllm', 'torch'} & set(sys.modules)"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stderr


def test_online_is_off_unless_asked_for() -> None:
    assert not VllmSettings().online.enabled and Online(enabled=True).enabled


ODD: list[Any] = [True, -1, float("nan"), float("inf"), "x", [1], [[1]], {"a": 1}, 10**30]
OF_A_PLAN: dict[str, list[Any]] = {
    "rate_per_s": [None, -1, float("nan"), "x", [1], {}],
    "token_budget": [None, 0, 1.5, float("inf"), "x", []],
    "model": [True, -1, "x", [1], {"layers": "x"}],
    "gpu": [-1, [1]],
    "tp": [0, 1.5, float("nan"), "x", []],
    "kv_tokens": [-1, float("nan"), "x", [1]],
    "elasticities": [True, "x", [1], {"kv_tokens": "x"}],
    "levels": [True, 1.5, "x", [1], [[1]], [{}], [{"tokens": 1, "prefill_tokens": "x"}]],
    "workload": [1, "x", [], {"demand": 1}, {"demand": {}}, {"demand": {"prefill_tokens": "x"}}],
    "iteration_time": [None, True, 0, "x", [], {}, {"a": 1}, {"token_s": "x"}, {"token_s": float("nan")}],
}
READ = """
import json, sys
from tileq_engine.vllm.settings import read_settings
from tileq_theory.errors import InputError
for given in json.load(sys.stdin):
    try:
        read_settings(given).make_policy()
        print("taken:", given)
    except InputError as error:
        if "\\n" in str(error):
            print("more than a line:", given)
    except Exception as error:
        print(type(error).__name__, given)
"""


def not_refused(given: list[Any]) -> str:
    """Return what a process without the tests' checks of types does not refuse with one line, a line each."""
    command = [sys.executable, "-c", READ]
    found = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    return found.stdout


def test_what_is_of_the_wrong_kind_is_refused_in_one_line() -> None:
    """In a plan it would end the server later: when the headroom is told, or when it is fitted anew."""
    names = ("params", "tiers", "default_tier", "plan", "online")
    settings = [{name: value} for name in names for value in ODD]
    plans = [{"plan": {**PLAN, name: value}} for name, values in OF_A_PLAN.items() for value in values]
    whole: list[Any] = [True, 0, 1.5, [], [["policy", "slai"]]]
    assert not_refused([*settings, *plans, *whole]) == ""
    assert not_refused([{"plan": PLAN}]).startswith("taken")


def test_limits_that_do_not_fit_into_the_rules_tables_are_refused() -> None:
    with pytest.raises(InputError, match="expected 1e"):
        read_settings({"tiers": {"standard": {"tbt_limit_s": 1e300}}})
    with pytest.raises(InputError, match="most_budget of online"):
        read_settings({"online": {"most_budget": 1 << 40}})
