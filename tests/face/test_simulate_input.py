"""What `tileq simulate` and `tileq compare` make of odd input, and policies as objects."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import config as jaxtyping_config

import tileq as tq
from tileq.cli.run import run
from tileq.policy_text import parse_policy, policies_by_name
from tileq_theory.errors import InputError

Capture = pytest.CaptureFixture[str]
SMALL = ["--class", "64:8", "--requests", "120", "--replications", "2"]
QUESTION: dict[str, Any] = {"classes": ["64:8"], "requests": 120, "replications": 2, "progress": False}


@pytest.fixture
def unchecked() -> Any:
    """Values of the wrong type reach the library's own checks, as they do from a user's command."""
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", False)


def complaint(arguments: list[str], capsys: Capture) -> str:
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1, printed
    return printed.err


def document(arguments: list[str], capsys: Capture) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    parsed: dict[str, Any] = json.loads(printed.out, parse_constant=pytest.fail)
    return parsed


# -------------------------------------------------------------------- settings as text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("orca:chunks=maybe", "chunks is 'maybe'; expected true or false"),
        ("orca:chunks=1", "chunks is '1'; expected true or false"),
        ("priority:preemptive=none", "preemptive is 'none'"),
        ("rad:pad=5", "pad is '5'"),
        ("slai:theta=true", "theta is True"),
        ("slai:order=spf:order=fcfs", "gives order twice"),
        ("slai:mean=ewma:ewma_weight=2", "ewma_weight is 2; expected a share"),
        ("sjf:seed=-1", "seed is -1"),
        ("sjf:seed=abc", "seed is 'abc'"),
        ("sjf:predictor=quantile:quantile=abc", "quantile is 'abc'"),
        ("svf:quantile=1.5", "quantile is 1.5; expected a probability"),
        ("theta:p0=2", "p0 is 2; expected a probability"),
        ("eb_plus:alpha_ratio=0", "alpha_ratio is 0"),
        ("rad_general:levels=1+2+3+4", "level 0 is 1; expected (tokens, prefill, decode, share)"),
        ("rad_general:levels=64/60/60/1", "level 0"),
        ("sarathi:tenant_quota=0", "tenant_quota is 0"),
        ("wait:tenant_quota=2", "tenant_quota has no meaning"),
    ],
)
def test_settings_of_the_wrong_kind(text: str, says: str, capsys: Capture, unchecked: None) -> None:
    line = complaint(["simulate", "--policy", text, *SMALL], capsys)
    assert line.startswith("tileq: error: ") and says in line


def test_settings_by_their_kind() -> None:
    """A word means what its parameter takes: "none" is a predictor, and no cycle; a number is a list of one."""
    assert parse_policy("sjf:predictor=none").params["predictor"] == "none"
    assert "cycle" not in parse_policy("rad:cycle=none").params
    assert parse_policy("wait:thresholds=4").params["thresholds"] == (4,)
    assert parse_policy("orca:chunks=TRUE").params["chunks"] is True
    levels = parse_policy("rad_general:levels=256/200/56/0.9+128/0/128/0.1").params["levels"]
    assert levels == ((256, 200, 56, 0.9), (128, 0, 128, 0.1))
    assert parse_policy("sarathi:tenant_quota=3").params["tenant_quota"] == 3


def test_every_policy_with_every_default_written_out(capsys: Capture) -> None:
    """What the catalogue prints of a policy's settings can be given back to it."""
    for row in tq.catalog("policies").rows:
        written = [item for item in row["defaults"] if not item.endswith("=none") or "predictor" in item]
        text = ":".join([row["name"], *written])
        if row["name"] != "rad_general":
            assert parse_policy(text).to_dict() == parse_policy(row["name"]).to_dict(), text


def test_policies_with_names_of_their_own() -> None:
    mine = tq.policy("slai", order="spf")
    assert list(policies_by_name({"mine": mine, "theirs": "sarathi"})) == ["mine", "theirs"]
    assert list(policies_by_name([mine, "sarathi:order=spf"])) == ["slai", "sarathi:order=spf"]
    assert list(policies_by_name(mine)) == ["slai"]
    with pytest.raises(InputError, match="'sarathi' is given twice"):
        policies_by_name("sarathi,sarathi")
    with pytest.raises(InputError, match="no policy was given"):
        policies_by_name({})


# -------------------------------------------------------------------- a rule of one's own


def longest_first(R: Any, S: Any, P: Any, i: int) -> float:
    return -float(R[i].prompt)


def test_a_policy_object_is_simulated_and_compared() -> None:
    own = tq.policy("sarathi").with_rule(order=longest_first)
    alone = tq.simulate(own, rate=400.0, **QUESTION)
    grid = tq.compare({"own": own, "sarathi": "sarathi"}, [400.0], **QUESTION)
    rows = {row["policy"]: row for row in grid.rows()}
    assert rows["own"]["ttft_p50_s"] == alone.to_dict()["ttft_s"]["p50"]
    plain = tq.simulate(tq.policy("sarathi"), rate=400.0, **QUESTION)
    assert plain.to_dict() == tq.simulate("sarathi", rate=400.0, **QUESTION).to_dict()


def test_kept_results_are_not_another_settings(tmp_path: Path, capsys: Capture) -> None:
    """sigma, a quota, the tiers' limits, a rule's code: all of it pins the folder."""
    for place, (one, other) in enumerate(
        [
            ("sjf:predictor=noise:sigma=0.5", "sjf:predictor=noise:sigma=2"),
            ("sjf:predictor=noise:seed=1", "sjf:predictor=noise:seed=2"),
            ("sarathi:tenant_quota=5", "sarathi:tenant_quota=6"),
            ("slai:paying_tbt_s=0.1", "slai:paying_tbt_s=0.2"),
            ("sarathi:token_budget=256", "sarathi:token_budget=128"),
        ]
    ):
        folder = ["--folder", str(tmp_path / str(place))]
        document(["simulate", "--policy", one, *SMALL, *folder], capsys)
        assert "when the folder was begun" in complaint(["simulate", "--policy", other, *SMALL, *folder], capsys)
    kept = tmp_path / "rules"
    rules = [lambda R, S, P, i: R[i].prompt, lambda R, S, P, i: -R[i].prompt]
    tq.simulate(tq.policy("sarathi").with_rule(order=rules[0]), folder=kept, **QUESTION)
    with pytest.raises(InputError, match="when the folder was begun"):
        tq.simulate(tq.policy("sarathi").with_rule(order=rules[1]), folder=kept, **QUESTION)


# -------------------------------------------------------------------- options together


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--picture", "kv"], "--picture kv without --plot"),
        (["--token-budget", "10", "--max-num-seqs", "100"], "--token-budget is 10 and --max-num-seqs 100"),
        (["--requests", "1e18"], "expected at most 10,000,000"),
        (["--replications", "1e9"], "expected at most 10,000"),
        (["--rate", "-1"], "rate is -1.0; expected a number above 0"),
        (["--rate", "1e-300"], "at 1e-300 requests/s arrive until"),
        (["--preemption", "swap", "--swap-gb-per-s", "0"], "--swap-gb-per-s is 0"),
    ],
)
def test_options_that_cannot_be(arguments: list[str], says: str, capsys: Capture) -> None:
    assert says in complaint(["simulate", "--class", "64:8", *arguments], capsys)


@pytest.mark.parametrize("option", ["--save", "--export", "--plot", "--folder"])
def test_where_nothing_can_be_written(option: str, tmp_path: Path, capsys: Capture, monkeypatch: Any) -> None:
    """Found out before the run, by trying: a superuser's permissions say nothing of a read-only disk."""
    import tempfile

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    target = {"--save": "x.npz", "--export": "x.csv", "--plot": "x.png", "--folder": "kept"}[option]
    line = complaint(["simulate", *SMALL, option, str(tmp_path / target)], capsys)
    assert "nothing can be written" in line and "Read-only file system" in line
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_one_request_has_no_rates_and_says_so(capsys: Capture) -> None:
    for rate in ("5", "1e308"):
        arguments = ["simulate", "--class", "64:8", "--requests", "1", "--replications", "1", "--rate", rate]
        d = document(arguments, capsys)
        assert d["requests"]["finished"] == 1 and d["stable"] == "undecided"
        assert run(arguments) == 0
        assert "throughput" in capsys.readouterr().out


def test_a_swap_takes_time(capsys: Capture) -> None:
    """KV of 131 072 bytes a token over 25 GB/s; a slower link costs throughput, and the text says what moved."""
    tight = ["simulate", "--policy", "vllm_v0", "--class", "64:200", "--kv-tokens", "2000", "--requests", "150",
             "--replications", "1", "--rate", "8", "--preemption", "swap"]  # fmt: skip
    fast = document(tight, capsys)
    assert fast["swapped_tokens"] > 0
    assert fast["setting"]["swap_token_s"] == pytest.approx(131_072 / 25e9)
    slow = document([*tight, "--swap-gb-per-s", "0.5"], capsys)
    assert slow["e2e_s"]["mean"] > fast["e2e_s"]["mean"]
    assert run(tight) == 0
    assert "moved to or from the host" in " ".join(capsys.readouterr().out.split())
    assert document(tight[:-2], capsys)["setting"]["swap_token_s"] == 0


def test_intervals_stay_where_the_quantity_can_be(capsys: Capture) -> None:
    """Two replications give wide intervals: no time is below 0, no capacity above lambda*."""
    d = document(["compare", "--policies", "sarathi,slai", "--rates", "300,900", "--slo-ttft", "0.5", *SMALL], capsys)
    for result in d["results"]:
        for name in ("ttft_s", "tbt_s", "tpot_s", "e2e_s", "throughput_per_s"):
            for low, high in result["ci95"][name].values():
                assert low is None or (0 <= low <= high)
    for found in next(iter(d["capacity"].values())).values():
        assert 0 <= found["interval"]["low"] <= found["rate_per_s"] <= d["setting"]["capacity_per_s"] * (1 + 1e-9)
        assert found["interval"]["high"] <= d["setting"]["capacity_per_s"] * (1 + 1e-9)


def test_a_limit_out_of_reach_is_a_capacity_of_zero(capsys: Capture) -> None:
    d = document(["compare", "--policies", "sarathi", "--rates", "300", "--slo-ttft", "1e-9", *SMALL], capsys)
    (found,) = next(iter(d["capacity"].values())).values()
    assert found["rate_per_s"] == 0 and any("out of reach" in text for text in d["warnings"])


def test_rates_may_begin_with_a_sign(capsys: Capture) -> None:
    assert "--rates is -1" in complaint(["compare", "--rates", "-1,2", *SMALL], capsys)
    two = ["region", "--class", "64:8", "--class", "32:8"]
    assert "rates are [-1.0, 1.0]" in complaint([*two, "--at", "-1,1"], capsys)


def test_a_packed_configuration(tmp_path: Path, capsys: Capture) -> None:
    shape = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
             "intermediate_size": 128, "vocab_size": 1000}  # fmt: skip
    text = json.dumps(shape).encode()
    plain, packed, cut = tmp_path / "config.json", tmp_path / "config.json.gz", tmp_path / "cut.json.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    cut.write_bytes(gzip.compress(text)[:-9])
    one, other = tq.load_model(plain), tq.load_model(packed)
    assert (one.name, one.kv_bytes_per_token()) == (other.name, other.kv_bytes_per_token())
    assert "not a whole gzip file" in complaint(["plan", "--model", str(cut)], capsys)


def test_closed_outputs_do_not_matter() -> None:
    """`2>&-`: the document is still the only thing on standard output, and an error is still a status."""
    code = "import sys; sys.stderr = None; from tileq.cli.run import run; sys.exit(run(sys.argv[1:]))"
    good = subprocess.run([sys.executable, "-c", code, "catalog", "policies", "--json"], capture_output=True, text=True)
    assert good.returncode == 0 and json.loads(good.stdout)["kind"] == "policies"
    bad = subprocess.run([sys.executable, "-c", code, "simulate", "--requests", "0"], capture_output=True, text=True)
    assert (bad.returncode, bad.stdout) == (2, "")


def test_one_rate_is_a_list_of_one() -> None:
    assert tq.compare("sarathi", 300.0, **QUESTION).rows() == tq.compare("sarathi", [300.0], **QUESTION).rows()


def test_a_folder_that_is_no_path(unchecked: None) -> None:
    with pytest.raises(InputError, match="folder is 5; expected a path"):
        tq.simulate("sarathi", folder=5, **QUESTION)  # type: ignore[arg-type]
