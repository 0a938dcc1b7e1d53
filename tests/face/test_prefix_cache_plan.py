"""`tileq plan --prefix-cache`: with and without it, from a trace, conversations or a share; bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tileq as tq
from tileq.caching import parse_prefix_cache
from tileq.cli.run import run
from tileq.talks import parse_conversations

TALKS = "turns=4:system=1000:user=100:answer=200:think=60:prompts=5"


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["plan", *arguments, "--json"]) == 0
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    return parsed


def test_the_command_prints_what_python_returns(capsys: pytest.CaptureFixture[str]) -> None:
    given = document(["--conversations", TALKS, "--prefix-cache", "kv", "--rate", "5"], capsys)
    assert given == tq.plan(conversations=TALKS, prefix_cache="kv", rate=5).to_dict()
    cache = given["prefix_cache"]
    without = tq.plan(conversations=TALKS, rate=5).to_dict()
    assert without["prefix_cache"] is None
    for key in ("rate_per_s", "binding", "token_budget", "max_num_seqs", "tile"):
        assert cache["without"][key] == without[key]
    assert cache["rate_gain"] == pytest.approx(given["rate_per_s"] / without["rate_per_s"] - 1)
    assert 0 < cache["hit_share"] < 1
    assert given["kkt"]["ok"]
    assert given["engine_flags"]["--enable-prefix-caching"] is True
    assert "--enable-prefix-caching" not in without["engine_flags"]
    # 4 turns of 100 words and 200 answer tokens behind 1000 tokens: 1000 + 3 * 300 + 100 a prompt, 100 of it new
    assert tq.plan(conversations=f"{TALKS}:block=1", prefix_cache="infinite").to_dict()["prefix_cache"][
        "hit_share"
    ] == (pytest.approx(1 - 100 / 2000, abs=1e-9))


def test_a_larger_cache_carries_more(capsys: pytest.CaptureFixture[str]) -> None:
    sizes: list[str | None] = [None, "20000", "200000", "2000000", "infinite"]
    rates = [tq.plan(conversations=TALKS, prefix_cache=size, rate=5).rate_per_s for size in sizes]
    assert rates == sorted(rates)
    assert rates[-1] > 1.5 * rates[0]


def test_a_share_is_of_every_prompt() -> None:
    found = tq.plan(classes=["1000:100"], prefix_cache="50%")
    assert found.tile.capacity.demand.prefill_tokens == 500
    assert found.to_dict()["prefix_cache"]["hit_tokens"] == 500
    assert any("share of hits was given" in warning for warning in found.warnings)


def test_a_trace_with_blocks(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(data / "mooncake" / "conversation_trace.jsonl")
    infinite = document(["--trace", trace, "--prefix-cache", "infinite"], capsys)["prefix_cache"]
    # 36.6 % of blocks are 37.4 % of tokens, since the last block of a prompt is rarely full
    assert infinite["hit_share"] == pytest.approx(0.3736, abs=5e-4)
    kv = document(["--trace", trace, "--prefix-cache", "kv"], capsys)
    own = kv["prefix_cache"]
    assert 0.04 < own["hit_share"] < 0.06
    assert own["cache_tokens"] == kv["kv_tokens"]
    more = document(["--trace", trace, "--prefix-cache", "kv", "--nodes", "8"], capsys)
    assert more["prefix_cache"]["hit_share"] > 2 * own["hit_share"], "eight replicas remember eight times as much"
    assert any("go to the same replica" in warning for warning in more["warnings"])


def test_the_text_names_both_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--conversations", TALKS, "--prefix-cache", "100000"]) == 0
    printed = capsys.readouterr().out
    assert "Prefix cache: 100000" in printed
    assert "without" in printed and "remembers" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prefix-cache", "kv"], "chat mix does not tell which prompts share a prefix"),
        (["--prefix-cache", "much"], "--prefix-cache is 'much'; expected off, infinite, kv"),
        (["--prefix-cache", "140%"], "between 0% and 100%"),
        (["--prefix-cache", "-5"], "--prefix-cache is"),
        (["--prefix-cache", "nan"], "--prefix-cache is 'nan'"),
        (["--conversations", TALKS, "--class", "5:5"], "--class and --conversations are given"),
        (["--conversations", "turns"], "turns has no value"),
        (["--conversations", f"{TALKS}:thnk=5"], "did you mean think"),
        (["--conversations", f"{TALKS}:turns=5"], "turns twice"),
        (["--conversations", TALKS.replace("system=1000", "system=10.5")], "expected a whole number"),
        (["--conversations", TALKS.replace("think=60", "think=0")], "think is 0"),
        (["--conversations", f"{TALKS}:answers=some"], "expected kept or dropped"),
        (["--conversations", TALKS, "--prefix-cache", "kv", "--check"], "--check and --prefix-cache are both given"),
    ],
)
def test_bad_input_gets_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err


def test_words_and_objects_are_the_same() -> None:
    assert parse_prefix_cache("off") is None
    assert parse_prefix_cache(parse_prefix_cache("kv")) == parse_prefix_cache(" KV ")
    assert parse_prefix_cache(5e5) == parse_prefix_cache("500000")
    talks = parse_conversations(f"{TALKS}:zipf=0.9:block=16:answers=dropped")
    assert parse_conversations(talks) is talks
    assert (talks.zipf, talks.block_tokens, talks.cache_answers) == (0.9, 16, False)


def test_both_ways_to_name_conversations_answer_alike() -> None:
    law = "turns=4:system=1000:user=100:answer=200:think=60:prompts=3:zipf=0.5:block=16"
    one = tq.plan(conversations=law, prefix_cache="infinite").to_dict()["prefix_cache"]["hit_share"]
    other = tq.plan(workload=f"conversations:{law}", prefix_cache="infinite").to_dict()["prefix_cache"]["hit_share"]
    assert one == other, "one reader, one law"
    drawn = tq.plan(
        workload=f"conversations:{law.replace('user=100', 'user=uniform(50,150)')}", prefix_cache="infinite"
    )
    # prompts by their law, or from 4096 drawn sessions
    assert one == pytest.approx(drawn.to_dict()["prefix_cache"]["hit_share"], rel=0.03)
