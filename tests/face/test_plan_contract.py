"""The document of `tileq plan`: the keys other programs rely on, and that every way to the answer gives the same."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

import tileq as tq
from tileq.cli.run import run

CONTRACT = {
    "rate_per_s",
    "binding",
    "prices",
    "token_budget",
    "max_num_seqs",
    "tile",
    "tile_ratio",
    "utilisation",
    "error_band",
    "provenance",
    "warnings",
    "engine_flags",
}
QUESTIONS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "the default": ([], {}),
    "a mix under a limit": (
        ["--class", "chat=1024:256@3", "--class", "long=8192:64@1", "--tbt", "0.05", "--rate", "9.5"],
        {"classes": ["chat=1024:256@3", "long=8192:64@1"], "tbt": 0.05, "rate": 9.5},
    ),
    "two GPUs, three copies, another engine": (
        ["--gpu", "a100", "--model", "llama-3.1-70b", "--tp", "4", "--nodes", "3", "--engine", "sglang"],
        {"gpu": "a100", "model": "llama-3.1-70b", "tp": 4, "nodes": 3, "engine": "sglang"},
    ),
    "slots, eight bits, the datasheet's word": (
        ["--max-num-seqs", "64", "--kv-dtype", "fp8", "--times", "datasheet", "--convention", "paper"],
        {"max_num_seqs": 64, "kv_dtype": "fp8", "times": "datasheet", "convention": "paper"},
    ),
}


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["plan", *arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    parsed: dict[str, Any] = json.loads(printed.out, parse_constant=pytest.fail)
    return parsed


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_command_prints_what_python_returns(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, keywords = QUESTIONS[question]
    assert document(arguments, capsys) == tq.plan(**keywords).to_dict()


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_contract(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(QUESTIONS[question][0], capsys)
    assert set(answer) >= CONTRACT
    assert answer["rate_per_s"] > 0
    assert answer["binding"] in {"time", "weights_floor", "memory", "slots", "tbt"}
    assert all(price >= 0 for price in answer["prices"].values())
    tile = answer["tile"]
    assert set(tile) == {"prefill_tokens", "decode_tokens"}
    assert 0 < tile["prefill_tokens"] + tile["decode_tokens"] <= answer["token_budget"] + 1
    assert len(answer["tile_ratio"]) == 2 and all(isinstance(part, int) for part in answer["tile_ratio"])
    assert math.gcd(*answer["tile_ratio"]) == 1
    assert answer["max_num_seqs"] >= 1
    assert all(isinstance(text, str) and text for text in answer["warnings"])
    assert answer["provenance"]["iteration_time"]["source"]
    band = answer["error_band"]
    assert 0 < band["low"] <= band["high"] and band["basis"]
    assert band["low"] * band["time_ratio"][1] == pytest.approx(answer["rate_per_s"])
    assert answer["kkt"]["ok"] is True


def test_the_answer_hangs_together() -> None:
    answer = tq.plan(classes=["1024:256"], tbt=0.05, rate=4.0).to_dict()
    demand, rate = answer["workload"]["demand"], answer["rate_per_s"]
    # duality: the prices of one request's demand, times the capacity, fill the node's time
    units = {
        "prefill_token_s": "prefill_tokens",
        "decode_token_s": "decode_tokens",
        "kv_read_token_s": "kv_read_tokens",
        "attention_pair_s": "attention_pairs",
        "memory_iteration_s": "memory_iterations",
        "slot_iteration_s": "slot_iterations",
    }
    assert rate * sum(answer["prices"][p] * demand[d] for p, d in units.items()) == pytest.approx(1.0, rel=1e-6)
    assert sum(answer["time_shares"].values()) == pytest.approx(1.0)
    assert answer["utilisation"] == pytest.approx(4.0 / rate)
    assert answer["headroom_per_s"] == pytest.approx(rate - 4.0)
    assert answer["budget"]["rate_per_s"] >= 0.99 * max(answer["curve"]["rate_per_s"])
    assert answer["budget"]["loss"] == pytest.approx(1 - answer["budget"]["rate_per_s"] / rate, abs=1e-9)
    # every sequence of a level's time is counted: levels and per-sequence work fill the node
    levels = sum(level["time_share"] for level in answer["levels"])
    assert levels + answer["time_shares"]["sequences"] == pytest.approx(1.0, rel=1e-6)


def test_a_rate_beyond_capacity_is_said_and_sized() -> None:
    answer = tq.plan(classes=["1024:256"], rate=1000.0).to_dict()
    assert answer["utilisation"] > 1 and answer["headroom_per_s"] < 0
    assert any("no policy is stable" in warning for warning in answer["warnings"])
    # so many nodes, each at 90 % of what its budget attains, and not one fewer
    each = 0.9 * answer["budget"]["attainable_rate_per_s"]
    assert (answer["replicas"] - 1) * each < 1000.0 <= answer["replicas"] * each * (1 + 1e-9)


def test_copies_scale_the_rate_and_nothing_else() -> None:
    one, four = tq.plan(nodes=1).to_dict(), tq.plan(nodes=4).to_dict()
    assert four["rate_per_s"] == pytest.approx(4 * one["rate_per_s"], rel=1e-9)
    assert (four["token_budget"], four["binding"]) == (one["token_budget"], one["binding"])


def test_memory_is_reserved_for_the_batch_that_is_planned() -> None:
    small, large = tq.plan(tbt=0.02), tq.plan(max_num_seqs=2048)
    for answer in (small, large):
        same = answer.setting.for_batch(answer.token_budget, answer.tile.max_num_seqs)
        assert same.kv_tokens == pytest.approx(answer.setting.kv_tokens, rel=5e-3)


def test_corrected_times_are_slower_and_the_datasheet_says_so() -> None:
    promised, corrected = tq.plan(times="datasheet"), tq.plan()
    assert corrected.rate_per_s < promised.rate_per_s
    assert any("optimistic" in warning for warning in promised.warnings)
    band = corrected.to_dict()["error_band"]
    assert band["low"] < corrected.rate_per_s < band["high"]


def test_a_calibration_is_read_back_as_it_was_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = document(["--class", "700:70"], capsys)
    (tmp_path / "plan.json").write_text(json.dumps(first), encoding="utf-8")
    again = document(["--class", "700:70", "--calibration", str(tmp_path / "plan.json")], capsys)
    for key in ("rate_per_s", "token_budget", "binding", "prices", "tile", "error_band", "engine_flags"):
        assert again[key] == first[key]
    assert "plan.json" in again["provenance"]["iteration_time"]["source"]


def test_a_trace_brings_its_own_rate_and_its_own_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"2023-11-16 18:15:{second:02d}.0000000,{500 + second},{20 + second}" for second in range(0, 60, 2)]
    path = tmp_path / "mine.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n", encoding="utf-8")
    answer = document(["--trace", str(path)], capsys)
    assert answer["offered_rate_per_s"] == pytest.approx(0.5)
    assert answer["question"]["workload"] == "mine.csv"
    assert answer["workload"]["demand"]["prefill_tokens"] == pytest.approx(529.0)
    assert answer["workload"]["demand"]["decode_tokens"] == pytest.approx(48.0)
    assert document(["--trace", str(path), "--rate", "3"], capsys)["offered_rate_per_s"] == 3.0


def test_the_real_traces_of_the_specification(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = data / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv"
    answer = document(["--trace", str(trace), "--tbt", "0.1"], capsys)
    assert answer["offered_rate_per_s"] == pytest.approx(5.53, abs=0.01)
    assert answer["rate_per_s"] > answer["offered_rate_per_s"]
    assert answer["budget"]["iteration_s"] <= 0.1


def test_the_text_is_for_80_columns_and_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["plan", "--engine", "sglang", "--rate", "3", "--tbt", "0.05"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "" and "\x1b" not in printed.out
    lines = printed.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)
    start = next(i for i, line in enumerate(lines) if "sglang.launch_server" in line)
    stop = next(i for i in range(start, len(lines)) if not lines[i].endswith("\\"))
    pasted = shlex.split(" ".join(line.rstrip("\\") for line in lines[start : stop + 1]))
    assert pasted == shlex.split(tq.plan(engine="sglang", rate=3.0, tbt=0.05).flags.command())


def test_a_model_without_decodes_or_prefill_of_one_token_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """O = 1 under the engine's convention leaves no decode step; the text must cope."""
    assert document(["--class", "100:1"], capsys)["tile_ratio"] == [1, 0]
    assert run(["plan", "--class", "100:1"]) == 0
    assert run(["plan", "--class", "1:500"]) == 0
