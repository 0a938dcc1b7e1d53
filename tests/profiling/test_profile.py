"""Profiles: what they refuse, what they keep, what they question."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileq_profiling.profile import Conditions, Profile, load_profile, save_profile, unit_questions
from tileq_theory.errors import InputError
from tileq_theory.hardware import load_gpu, load_model, roofline


def test_columns_that_the_source_does_not_tell_are_named() -> None:
    p = Profile.of(tokens=[1, 2], seconds=[0.1, 0.2], kv_tokens=[5, 6])
    assert p.unknown == ("pairs", "sequences")
    assert set(p.phase.tolist()) == {"unknown"}


def test_phases_follow_from_the_split() -> None:
    p = Profile.of(tokens=[4, 4, 4], seconds=[1, 1, 1], prefill_tokens=[0, 2, 4])
    assert p.phase.tolist() == ["decode", "mixed", "prefill"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seconds": [0.1, float("nan")]}, "row 1: seconds is nan"),
        ({"seconds": [0.1, -1.0]}, "row 1: seconds is -1"),
        ({"seconds": [0.0, 1.0]}, "row 0: seconds is 0"),
        ({"seconds": [0.1]}, "seconds has 1 rows, tokens has 2"),
        ({"tokens": [0, 1]}, "row 0: tokens is 0"),
        ({"tokens": [1, float("inf")]}, "row 1: tokens is inf"),
        ({"tokens": ["a", "b"]}, "not a list of numbers"),
        ({"tokens": [], "seconds": []}, "no measurement"),
        ({"pairs": [1, -2]}, "row 1: pairs is -2"),
        ({"prefill_tokens": [3, 1]}, "row 0: prefill_tokens is 3"),
        ({"repeats": [1, 0.5]}, "row 1: repeats is 0.5"),
        ({"tokens": [[1, 2]]}, "2 dimensions"),
    ],
)
def test_bad_columns_name_themselves(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Profile.of(**{"tokens": [1, 2], "seconds": [0.1, 0.2], **changes})  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    rows=st.lists(
        st.tuples(
            st.integers(1, 10**6),
            st.floats(1e-9, 1e6),
            st.integers(0, 10**12),
            st.one_of(st.none(), st.floats(0, 1)),
        ),
        min_size=1,
        max_size=20,
    ),
    ending=st.sampled_from([".csv", ".parquet"]),
    unknown=st.booleans(),
)
def test_save_and_load_are_inverse(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, float, int, float | None]],
    ending: str,
    unknown: bool,
) -> None:
    n = [r[0] for r in rows]
    p = Profile.of(
        tokens=n,
        seconds=[r[1] for r in rows],
        kv_tokens=None if unknown else [r[2] for r in rows],
        prefill_tokens=[np.nan if r[3] is None else r[3] * r[0] for r in rows],
        conditions=Conditions(device="d", libraries={"vllm": "0.19"}, clocks={"sm": 1410.0}, notes=("a", "b")),
    )
    path = tmp_path_factory.mktemp("p") / f"profile{ending}"
    header = save_profile(p, path)
    for where in (path, header):
        back = load_profile(where)
        assert back.unknown == p.unknown and back.conditions == p.conditions and back.scope == p.scope
        for name in ("tokens", "pairs", "kv_tokens", "sequences", "seconds", "repeats", "prefill_tokens"):
            np.testing.assert_array_equal(getattr(back, name), getattr(p, name))


def _saved(tmp_path: Path) -> Path:
    path = tmp_path / "p.csv"
    save_profile(Profile.of(tokens=[1, 2], seconds=[0.1, 0.2]), path)
    return path


def test_a_later_schema_is_refused(tmp_path: Path) -> None:
    path = _saved(tmp_path)
    header = path.with_name("p.csv.json")
    document = json.loads(header.read_text())
    header.write_text(json.dumps({**document, "schema_version": 2}))
    with pytest.raises(InputError, match=r"p\.csv\.json: schema_version"):
        load_profile(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tokens,seconds\n1,0.1,7\n", "line 2: 3 fields"),
        ("tokens,seconds\n1,x\n", "column seconds"),
        ("tokens\n1\n", "no column 'seconds'"),
        ("", "is empty"),
        ("tokens,seconds\n1,nan\n", "seconds is nan"),
    ],
)
def test_a_broken_table_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = _saved(tmp_path)
    path.write_text(text)
    with pytest.raises(InputError, match=r"p\.csv") as caught:
        load_profile(path)
    assert words in str(caught.value)


def test_a_missing_header_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no profile header"):
        load_profile(tmp_path / "absent.csv")


# ---------------------------------------------------------------- units


def _measured(factor: float, **conditions: str) -> Profile:
    t = roofline(load_gpu("a100-sxm-80gb"), load_model("llama-2-7b"), dtype="fp16")
    n = np.array([1, 16, 128, 512, 2048])
    return Profile.of(
        tokens=n,
        seconds=factor * 1.6 * np.asarray(t(n)),
        conditions=Conditions(dtype="fp16", **conditions),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("known", [True, False])
def test_plausible_times_are_not_questioned(known: bool) -> None:
    named = {"device": "a100-sxm-80gb", "model": "llama-2-7b"} if known else {}
    assert unit_questions(_measured(1.0, **named)) == ()


@pytest.mark.parametrize(
    ("factor", "known", "words"),
    [
        (1e3, True, "milliseconds taken for seconds"),
        (1e3, False, "milliseconds taken for seconds"),
        (1e-3, True, "divided by 1000"),
        (1e-3, False, "divided by"),
        (1e6, True, "microseconds taken for seconds"),
        (1e6, False, "taken for seconds"),
    ],
)
def test_a_wrong_unit_is_questioned(factor: float, known: bool, words: str) -> None:
    named = {"device": "a100-sxm-80gb", "model": "llama-2-7b"} if known else {}
    questions = unit_questions(_measured(factor, **named))
    assert questions and words in " ".join(questions)
