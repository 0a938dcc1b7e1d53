"""The checks of the exercises refuse what is wrong, wait for what is missing, and never raise.

That they accept what is right is seen where the notebooks run, with `notebook_solutions` in place of the dots.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from notebook_solutions import SOLUTIONS, WRONG

CASES = sorted(WRONG)
NONSENSE: list[Any] = ["", "Ω", [], {}, (1, 2, 3, 4, 5), float("inf"), float("nan"), 1e300, -1, 2 + 1j, object(), print]


def check(case: tuple[int, int]) -> Any:
    return getattr(importlib.import_module(f"lesson.ex{case[0]:02d}"), f"exercise_{case[1]}")


def test_every_exercise_has_a_solution_and_wrong_answers() -> None:
    assert CASES == sorted(SOLUTIONS) == [(n, i) for n in range(1, 8) for i in (1, 2, 3)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dots_are_no_answer(case: tuple[int, int]) -> None:
    verdict = check(case)(...)
    assert verdict.right is None and repr(verdict).startswith("No answer yet")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_answers_are_refused_with_a_hint(case: tuple[int, int]) -> None:
    for answer in WRONG[case]:
        verdict = check(case)(answer)
        assert verdict.right is False, answer
        assert len(verdict.text) > 10 and "\n" not in verdict.text


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nonsense_is_refused_and_nothing_raises(case: tuple[int, int]) -> None:
    for answer in [*NONSENSE, np.array([1.0, 2.0]), np.array([]), np.float64("nan"), True]:
        assert check(case)(answer).right is False, repr(answer)


def test_a_size_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from lesson import VARIABLE, start
    from tileq_theory.errors import InputError

    monkeypatch.setenv(VARIABLE, "tiny")
    with pytest.raises(InputError, match="expected 'full' or 'smoke'"):
        start()
    monkeypatch.setenv(VARIABLE, "smoke")
    assert start()(full=1, smoke=2) == 2
    monkeypatch.delenv(VARIABLE)
    assert start()(full=1, smoke=2) == 1
