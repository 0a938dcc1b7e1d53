"""Errors speak of the option that was given, unexpected words come before missing ones, files are told alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tileq.cli.app import app
from tileq.cli.naming import by_option, unexpected_word
from tileq.cli.run import run


def complaint(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(line) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plan --replicas 0", "--replicas is 0; expected"),
        ("plan --nodes=0", "--nodes is 0; expected"),
        ("region --class 1:2 --class 3:4 --replicas -2", "--replicas is -2; expected"),
        ("simulate --max-num-seqs 0", "--max-num-seqs is 0; expected"),
        ("simulate --max-num-seqs 1000000", "lower --max-num-seqs"),
        ("simulate --seed -1", "--seed is -1"),
        ("simulate --rate 1 --load 1", "--rate 1.0 and --load 1.0 are both given"),
        ("simulate --control-tbt 1e99", "--control-tbt is 1e+99"),
        ("compare --rates=-1", "--rates is -1"),
        (
            "compare --workload chat --class 1:2",
            "--workload and --class are given; expected one of --trace",
        ),
        ("plan --link 3", "--link is 3.0 without --disaggregate"),
        ("analyze chain --rate 1e99", "--rate is 1e+99"),
        ("analyze latency foo", "kind 'foo' is unknown"),
        ("analyze latency", "--rate is not given"),
        ("analyze latency fifo --rate 0.5 bar", "unexpected argument 'bar'"),
        ("profile foo", "unexpected argument 'foo'"),
    ],
)
def test_the_option_is_named(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in complaint(line.split(), capsys)


def test_what_is_no_option_stays_as_it_is() -> None:
    given = ["simulate", "--max-num-seqs", "4", "--rate", "2"]
    for text in (
        "cluster.toml: node new: max_num_seqs is 600 and token_budget 512",  # keys of a file
        "trace.csv: row 3: rate is odd",
        "policy sarathi has no parameter 'max_num_seqs'",
        "a request needs rate 5",
    ):
        assert by_option(app, given, text) == text
    assert by_option(app, [], "rate is 3") == "rate is 3"
    assert by_option(app, ["nonsense"], "rate is 3") == "rate is 3"
    assert unexpected_word(app, ["plan", "--check", "--gpu", "x", "--tp=2", "word"]) == "word"
    assert unexpected_word(app, ["plan", "--gpu", "x"]) is None


@pytest.mark.parametrize(
    "option",
    ["plan --trace", "plan --gpu", "plan --model", "plan --calibration", "plan --cluster", "simulate --cluster",
     "simulate --trace", "compare --trace", "region --class 1:2 --calibration", "calibrate", "analyze network"],
)  # fmt: skip
def test_a_missing_file_is_told_in_one_way(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ending = "csv" if "trace" in option or option == "calibrate" else "toml" if "cluster" in option else "json"
    told = complaint([*option.split(), f"nowhere.{ending}"], capsys)
    assert f"nowhere.{ending}: no such file; expected " in told
