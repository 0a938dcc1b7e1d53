"""One reader of conversations behind `--conversations` and `--workload conversations:...`: words, law and draws."""

from __future__ import annotations

import numpy as np
import pytest

import tileq as tq
from tileq.cli.run import run
from tileq.talks import KEYS, read_conversations
from tileq_engine.conversations import Conversations as Drawn
from tileq_theory.prefix_cache import Conversations

BAD = {
    "turn=4": "'turn' is unknown; did you mean turns",
    "turns": "turns has no value; expected turns=...",
    "turns=": "turns has no value",
    "turns=two": "turns is 'two'; expected a number",
    "turns=2:turns=3": "give turns twice",
    "turns=0.5": "turns is 0.5; expected 1 or more",
    "think=inf": "think is inf; expected a finite number",
    "think=0": "think is 0; expected a number above 0",
    "zipf=-1": "zipf is -1; expected a number that is 0 or more",
    "prompts=0": "prompts is 0; expected a whole number",
    "block=1.5": "block is 1.5; expected a whole number",
    "user=geometric(0)": "user: 'geometric(0)'",
    "answer=2.5": "answer: ",
    "answers=some": "answers is 'some'; expected kept or dropped",
    "user=uniform(1,2": "brackets do not match",
}


@pytest.mark.parametrize("option", ["--conversations {}", "--workload conversations:{}"])
@pytest.mark.parametrize("text", BAD)
@pytest.mark.parametrize("command", ["plan", "simulate", "compare"])
def test_the_same_words_for_the_same_fault(
    text: str, option: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, value = option.split()
    assert run([command, name, value.format(text)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert BAD[text] in printed.err
    assert not any(field in printed.err for key, field in KEYS.items() if field != key), "no name of a field"


def test_every_key_reaches_what_is_drawn_and_its_law() -> None:
    text = "turns=3:system=160:user=uniform(10,30):answer=40:think=7:prompts=5:zipf=0.5:block=32:answers=dropped"
    found = read_conversations(text)
    d, law = found.drawn, found.law
    assert (d.turns_mean, d.system_tokens, d.think_s, d.system_prompts, d.system_zipf) == (3, 160, 7, 5, 0.5)
    assert (d.block_tokens, d.keep_answers, d.user_tokens.mean()) == (32, False, 20.0)  # type: ignore[union-attr]
    assert law == Conversations(3, 160, 20.0, 40.0, 7, 5, 0.5, False, 32)
    assert set(KEYS.values()) == set(Drawn.__dataclass_fields__), "every parameter has a key"
    assert read_conversations("") == read_conversations(Drawn())
    assert read_conversations(law).law is law


@pytest.mark.parametrize("answers", ["kept", "dropped"])
def test_what_is_drawn_is_found_as_often_as_the_law_says(answers: str) -> None:
    """An unbounded cache over all blocks: the law counts every turn's history, with or without its answers."""
    found = read_conversations(
        f"turns=4:system=0:user=48:answer=96:think=5:prompts=1:zipf=0:block=16:answers={answers}"
    )
    asked = found.drawn.requests(6000, rate_per_s=20.0, seed=3)
    seen, hits = set[int](), 0
    for i, prompt in enumerate((asked.prompt_tokens // 16).tolist()):
        path = asked.blocks.path(i).tolist()  # type: ignore[union-attr]
        hits += next((k for k, node in enumerate(path[:prompt]) if node not in seen), prompt)
        seen.update(path)
    measured = 16 * hits / int(asked.prompt_tokens.sum())
    law = found.law.hits(None).hit_share
    # sessions are independent: the error of a mean over 1500 of them is below 1.5 points with probability 0.999
    assert measured == pytest.approx(law, abs=0.015)


def test_dropped_answers_are_missed_by_the_engine_too() -> None:
    hits = {}
    for answers in ("kept", "dropped"):
        answer = tq.simulate(
            "sarathi", conversations=f"turns=5:system=0:user=32:answer=128:think=2:answers={answers}", load=0.4,
            prefix_cache=True, requests=600, replications=1, progress=False,
        )  # fmt: skip
        counters = answer.run.counters
        hits[answers] = counters["prefix_hit_tokens"] / counters["prefix_lookup_tokens"]
    assert hits["dropped"] < 0.95 * hits["kept"]


def test_tenants_share_whole_conversations() -> None:
    """Sessions are divided among tenants in their shares; before, all requests were the first tenant's."""
    answer = tq.simulate(
        "vtc", conversations="turns=4:system=64:user=32:answer=32:think=5", prefix_cache=True, load=0.5, requests=2000,
        replications=1, tenants=["gold=3@0.7", "free=1@0.3"], progress=False,
    )  # fmt: skip
    tenant = answer.run.requests["tenant"]
    assert np.array_equal(tenant, answer.run.requests["class_index"])
    assert answer.run.info.class_names == ("gold", "free")
    assert 0.6 < float((tenant == 0).mean()) < 0.8  # of some 500 sessions: five standard deviations
