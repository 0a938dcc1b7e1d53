"""Laws and classes written in a line: right laws, or one clear line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.lengths import (
    Fixed,
    GaussianCopula,
    Geometric,
    LengthLaw,
    LogNormal,
    MultipleOf,
    Uniform,
    parse_lengths,
)
from tileq_theory.request_class import parse_class


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("512", Fixed(512)),
        (" 512 ", Fixed(512)),
        ("5e2", Fixed(500)),
        ("uniform:10:1600", Uniform(10, 1600)),
        ("uniform(10,1600)", Uniform(10, 1600)),
        ("Uniform( 10 , 1600 )", Uniform(10, 1600)),
        ("lognormal:7:0.7", LogNormal(7, 0.7)),
        ("lognormal(7, 0.7, 8192)", LogNormal(7, 0.7, high=8192)),
        ("geometric:200", Geometric(mean=200)),
        ("geometric:200:512", Geometric(mean=200, cap=512)),
        ("exponential:200:512", Geometric.floor_exponential(200, cap=512)),
        ("percentiles:900:4000", LogNormal.from_percentiles(900, 4000)),
        ("multiple(128, uniform(1, 8))", MultipleOf(128, Uniform(1, 8))),
    ],
)
def test_forms(text: str, law: LengthLaw) -> None:
    assert parse_lengths(text) == law


def test_choice() -> None:
    assert parse_lengths("choice(100, 200, 600)").mean() == 300


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("0", "1 or more"),
        ("-3", "1 or more"),
        ("1.5", "whole"),
        ("nan", "unknown"),
        ("unifrom(1,2)", "did you mean uniform"),
        ("uniform", "has 0 numbers; uniform expects 2"),
        ("uniform(1)", "has 1 numbers"),
        ("uniform(1,2,3)", "has 3 numbers"),
        ("uniform(5,2)", "low <= high"),
        ("uniform(,2)", "empty entry"),
        ("uniform(1,2", "brackets"),
        ("uniform)1,2(", "brackets"),
        ("uniform(1,2)x", "not of the form"),
        ("(1,2)", "not of the form"),
        ("uniform(1:2)", "has 1 numbers"),
        ("multiple:128:uniform(1,8)", "mixes"),
        ("geometric(0.5)", "1 token or more"),
        ("geometric(inf)", "finite"),
        ("lognormal(7,-1)", "sigma"),
        ("lognormal(7,x)", "not a number"),
        ("lognormal(7,0.7,0)", "whole"),
        ("12abc", "not a number"),
        ("multiple(128, geometric(4))", "expected at most"),
    ],
)
def test_bad_lengths_get_one_line(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_lengths(text)
    assert "\n" not in str(caught.value)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="uniformgeocla(),:.=@0123456789e- \n", max_size=25))
def test_any_text_is_a_law_or_an_input_error(text: str) -> None:
    try:
        law = parse_lengths(text)
    except InputError:
        return
    assert law.mean() >= 1


@pytest.mark.parametrize(
    ("text", "name", "share", "prompt", "output"),
    [
        ("512:128", "512:128", 1.0, Fixed(512), Fixed(128)),
        ("chat=512:128@0.3", "chat", 0.3, Fixed(512), Fixed(128)),
        ("uniform(10,1600):geometric(200,512)", None, 1.0, Uniform(10, 1600), Geometric(mean=200, cap=512)),
        ("a = multiple(128,uniform(1,8)) : 64 @ 2", "a", 2.0, MultipleOf(128, Uniform(1, 8)), Fixed(64)),
    ],
)
def test_classes(text: str, name: str | None, share: float, prompt: LengthLaw, output: LengthLaw) -> None:
    found = parse_class(text)
    assert found.name == (text if name is None else name)
    assert found.share == share
    assert (found.lengths.prompt_law, found.lengths.output_law) == (prompt, output)


def test_correlated_class() -> None:
    found = parse_class("b=uniform(1,900):geometric(20,90)~-0.4@2")
    assert found.lengths == GaussianCopula(Uniform(1, 900), Geometric(mean=20, cap=90), -0.4)
    assert found.share == 2


def test_default_name() -> None:
    assert parse_class("512:128", default_name="class 1").name == "class 1"
    assert parse_class("chat=512:128", default_name="class 1").name == "chat"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("512", "not of the form P:O"),
        ("512:", "not of the form P:O"),
        ("", "not of the form P:O"),
        ("uniform:10:1600:512", "a law's own numbers stand in brackets"),
        ("=512:128", "empty name"),
        ("a=512:128@", "share"),
        ("a=512:128@0", "share"),
        ("a=512:128@-1", "share"),
        ("a=512:128@x", "share"),
        ("a=0:128", "1 or more"),
        ("9:9~x", "rank correlation 'x'"),
        ("9:9~2", "rank_correlation is 2"),
        ("9:9~nan", "rank_correlation is nan"),
        ("geometric(9):9~0.5", "prompt law of a copula"),
        ("a=512:unknown(3)", "unknown"),
    ],
)
def test_bad_classes_get_one_line(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_class(text)
    assert "\n" not in str(caught.value)
