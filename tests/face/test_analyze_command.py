"""`tileq analyze`: documents, printed numbers of the sources, text at 80 columns, pictures, bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import tileq as tq
from tileq.cli.run import run

Capture = pytest.CaptureFixture[str]
TIME = ["--time", "launch_s=0.01,tile_s=0.03,tile_tokens=128"]
COMMANDS: dict[str, list[str]] = {
    "chain": ["--class", "64:8", "--residents", "3", "--laws", *TIME],
    "fluid": [
        "--class",
        "128:64",
        "--residents",
        "32",
        "--token-budget",
        "128",
        "--waiting-tokens",
        "2000",
        "--horizon",
        "20",
        *TIME,
    ],
    "certificate": ["--class", "128:64", "--residents", "32", "--token-budget", "128", *TIME],
    "latency": ["sjf", "--rate", "0.5"],
    "sizing": ["--ttft", "0.06"],
    "network": ["--rate", "1.1", "--priority", "ab.1,ba.1,ab.2,ba.2"],
    "disaggregate": ["--class", "1024:64", "--nodes", "3", "--kv-bytes-per-token", "1e5", *TIME],
}


def document(arguments: list[str], capsys: Capture) -> dict[str, Any]:
    assert run(["analyze", *arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    held: dict[str, Any] = json.loads(printed.out, parse_constant=lambda token: pytest.fail(f"{token} in JSON"))
    return held


@pytest.mark.parametrize("what", COMMANDS)
def test_each_command_prints_one_document_and_text_of_80_columns(
    what: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = document([what, *COMMANDS[what]], capsys)
    assert held["schema_version"] == 1 and held["what"] == what
    assert {"question", "provenance", "warnings"} <= set(held)
    assert held["provenance"]["tileq"] == tq.__version__
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["analyze", what, *COMMANDS[what]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 80


# the printed numbers of the sources, by the command
NUMBERS: list[tuple[list[str], str, float, float]] = [
    (["latency", "fifo", "--rate", "0.9"], "response_s", 10.0, 1e-9),
    (["latency", "sjf", "--rate", "0.7"], "response_s", 2.3122, 5e-5),
    (["latency", "psjf", "--rate", "0.5"], "response_s", 1.5314, 5e-5),
    (["latency", "srpt", "--rate", "0.9"], "response_s", 3.5521, 5e-5),
    (["latency", "batching", "--rate", "3.47705146", "--alpha", ".1438", "--tau0", "1.8874"],
     "response_s", 5.9019, 5e-5),
    (
        ["latency", "clipping", "--service", "lognormal:7:0.7", "--seconds-per-token", ".0225", "--rate", ".025",
         "--limit", "1600"], "waiting_s", 22.319, 5e-4,
    ),
    (["sizing", "--ttft", "0.06"], "rate_per_s", 2.94946, 5e-6),
    (["sizing", "--ttft", "0.06"], "itl_ms", 19.905, 5e-4),
    (["chain", "--time", "launch_s=0.5", "--class", "1:1", "--residents", "1", "--rate", "1.2"], "mean_in_system", 1.05,
     1e-9),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "key", "value", "tolerance"), NUMBERS)
def test_numbers_of_the_sources(
    arguments: list[str], key: str, value: float, tolerance: float, capsys: Capture
) -> None:
    assert math.isclose(document(arguments, capsys)[key], value, abs_tol=tolerance)


def test_the_function_and_the_command_say_the_same(capsys: Capture) -> None:
    time = TIME[1]
    assert document(["chain", "--class", "64:8", "--policy", "rad", "--load", "0.9", *TIME], capsys) == (
        tq.analysis.chain("64:8", policy="rad", load=0.9, time=time).to_dict()
    )
    order = ["ab.2", "ba.2", "ab.1", "ba.1"]
    assert document(["network", "--rate", "1.1", "--priority", ",".join(order)], capsys) == (
        tq.analysis.network(rate=1.1, priority=order).to_dict()
    )


def test_a_machine_of_the_catalogue(capsys: Capture) -> None:
    held = document(["chain", "--gpu", "a100-sxm-80gb", "--class", "512:32", "--residents", "4"], capsys)
    assert held["question"]["gpu"]["name"] == "a100-sxm-80gb" and held["provenance"]["gpu"]
    assert any("contexts" in note for note in held["warnings"])
    named = tq.calibration_names()[0]
    assert (
        document(
            ["fluid", "--calibration", named, "--class", "512:32", "--waiting-tokens", "2000", "--horizon", "5"], capsys
        )["capacity_per_s"]
        > 0
    )


def test_a_network_from_a_file(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "agents.json"
    steps = [
        {"name": "plan", "engine": "A", "work_tokens": 50.0, "arrivals_per_s": 1.0},
        {"name": "act", "engine": "B", "work_tokens": 10.0},
    ]
    routing = [["plan", "act", 2.0], ["act", "plan", 0.25]]
    file.write_text(json.dumps({"engines": {"A": 200.0, "B": 100.0}, "steps": steps, "routing": routing}))
    held = document(["network", str(file)], capsys)
    # lambda_plan = 1 + lambda_act/4, lambda_act = 2 lambda_plan
    assert math.isclose(held["loads"]["A"], 2 * 50 / 200) and math.isclose(held["loads"]["B"], 4 * 10 / 100)
    assert held["bottleneck"] == "A"


@pytest.mark.parametrize("what", ["fluid", "disaggregate"])
@pytest.mark.parametrize("ending", ["svg", "png"])
def test_pictures(what: str, ending: str, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / f"picture.{ending}"
    document([what, *COMMANDS[what], "--plot", str(target)], capsys)
    assert target.stat().st_size > 2000


BAD: list[tuple[list[str], list[str]]] = [
    (["chain", "--policy", "sarathy"], ["policy 'sarathy'", "decode-first"]),
    (["chain", "--time", "launch=0.5"], ["'launch=0.5'", "launch_s"]),
    (["chain", "--time", "launch_s=fast"], ["number"]),
    (["chain", "--time", "launch_s=0.1,launch_s=0.2"], ["twice"]),
    (["chain", "--time", "launch_s=nan"], ["launch_s"]),
    (["chain", "--time", "launch_s=0.1", "--calibration", "x"], ["one of them"]),
    (["chain", "--load", "1"], ["load is 1", "below 1"]),
    (["chain", "--rate", "1e9", *TIME], ["capacity"]),
    (["chain", "--rate", "1", "--load", "0.5"], ["one of them"]),
    (["chain", "--residents", "0", *TIME], ["residents is 0"]),
    (["chain", "--free-slots", "2", *TIME], ["theta"]),
    (["chain", "--class", "512", *TIME], ["512"]),
    (["fluid", "--policy", "x", *TIME], ["unknown"]),
    (["fluid", "--horizon", "0", *TIME], ["horizon is 0"]),
    (["fluid", "--plot", "p.gif", *TIME], ["gif"]),
    (["certificate", "--policy", "x"], ["unknown"]),
    (["certificate", "--policy", "lu-kumar", "--services", "1,2"], ["expected 4"]),
    (["certificate", "--policy", "lu-kumar", "--services", "1,a"], ["--services", "numbers"]),
    (["latency", "fifo", "--rate", "1"], ["load"]),
    (["latency", "lifo", "--rate", "0.5"], ["'lifo'", "fifo"]),
    (["latency", "fifo", "--rate", "-1"], ["rate is -1"]),
    (["latency", "fifo", "--rate", "0.5", "--service", "exp:x"], ["exp:SECONDS"]),
    (["latency", "fifo", "--rate", "0.5", "--service", "lognormal:7:0.7"], ["--seconds-per-token"]),
    (["latency", "batching", "--rate", "1"], ["alpha and tau0"]),
    (["latency", "clipping", "--rate", "1"], ["seconds_per_token"]),
    (["latency", "fifo"], ["--rate"]),
    (["sizing"], ["neither"]),
    (["sizing", "--rate", "1", "--ttft", "0.1"], ["both"]),
    (["sizing", "--ttft", "0.0001"], ["ttft"]),
    (["network", "absent.json"], ["absent.json"]),
    (["network", "--priority", "ab.1,ba.1"], ["ba.2", "once"]),
    (["network", "--rate", "0"], ["rate is 0"]),
    (["disaggregate", *TIME], ["kv_bytes_per_token"]),
    (["disaggregate", "--nodes", "0", "--kv-bytes-per-token", "1e5", *TIME], ["nodes"]),
    (["disaggregate", "--link-bytes-per-s", "0"], ["--link-bytes-per-s is 0"]),
    (["disaggregate", "--gpu", "a100-sxm-80gb", "--class", "4033:63", "--tbt", "0.011"], ["one decode alone takes"]),
    (["modes", "--nodes", "1"], ["nodes is 1", "2 or more"]),
    (["modes", "--slo-ttft", "0"], ["--slo-ttft is 0"]),
    (["modes", "--slo-tbt", "-1"], ["--slo-tbt is -1"]),
    (["modes", "--slo-tbt", "1e-4"], ["TBT limit is 0.0001"]),
    (["modes", "--link", "0"], ["link is 0"]),
    (["modes", "--requests", "0"], ["requests is 0"]),
]


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=lambda value: " ".join(value)[:60])
def test_bad_input_is_one_line(arguments: list[str], says: list[str], capsys: Capture) -> None:
    assert run(["analyze", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1
    for part in says:
        assert part.lower() in printed.err.lower(), printed.err


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"engines": {"A": 1}, "steps": [{"name": "a"}]}',
        '{"engines": {"A": 1}, "steps": [{"name": "a", "engine": "B", "work_tokens": 1}]}',
        '{"engines": {"A": 1}, "steps": [{"name": "a", "engine": "A", "work_tokens": 1}], "routing": [["a", "a", 1]]}',
        '{"engines": {"A": 1}, "steps": [{"name": "a", "engine": "A", "work_tokens": 1}], "routing": [["a"]]}',
        '{"engines": {"A": true}, "steps": [{"name": "a", "engine": "A", "work_tokens": 1}]}',
        '{"engines": {"A": 1}, "steps": [], "routing": []}',
    ],
)
def test_networks_that_cannot_be(content: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "network.json"
    file.write_text(content)
    assert run(["analyze", "network", str(file)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_everything_is_reachable_by_name() -> None:
    for name in (
        "iteration_chain",
        "ttft_law",
        "fluid_path",
        "certify",
        "mg1",
        "SizingModel",
        "AgentNetwork",
        "best_split",
    ):
        assert callable(getattr(tq, name))
    assert tq.chain.DecodeFirst is not tq.fluid.DecodeFirst
    for part in (tq.chain, tq.fluid, tq.certificates, tq.latency, tq.networks, tq.disaggregation, tq.analysis):
        assert all(hasattr(part, name) for name in part.__all__)
    for name in tq.__all__:
        assert getattr(tq, name) is not None


def test_a_node_is_certified_where_its_fluid_is_stable_and_not_beyond(capsys: Capture) -> None:
    """Attention, the reading of KV, slots and memory count: nothing above the fluid's capacity is called stable."""
    for requests in ("512:64", "64:512", "4000:2000"):
        capacity = document(["fluid", "--class", requests, "--horizon", "1"], capsys)["capacity_per_s"]
        # full slots of long contexts cost a tile more than those at rest: a little below capacity they already lose
        for load, stable in ((0.94 if requests == "4000:2000" else 0.98, True), (1.02, False)):
            held = document(["certificate", "--class", requests, "--rate", f"{load * capacity!r}"], capsys)
            assert (held["verdict"] == "stable") == stable, (requests, load, held["verdict"])
            assert held["verified"] or held["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["latency", "fifo", "--rate", "0.7", "--servers", "3"], "servers"),
        (["latency", "srpt", "--rate", "0.7", "--limit", "100"], "limit"),
        (["latency", "servers", "--rate", "0.7", "--alpha", "1"], "alpha"),
        (["latency", "fifo", "--rate", "0.7", "--setup", "-1"], "setup"),
        (["latency", "batching", "--rate", "1", "--alpha", ".1", "--tau0", ".1", "--service", "exp:2"], "service"),
        (["certificate", "--policy", "lu-kumar", "--gpu", "l4"], "gpu"),
        (["certificate", "--policy", "lu-kumar", "--class", "5:5"], "--class"),
        (["chain", *TIME, "--gpu", "l4"], "gpu"),
        (["fluid", *TIME, "--tp", "2"], "tp"),
    ],
)
def test_an_option_that_the_question_does_not_read_is_refused(
    arguments: list[str], named: str, capsys: Capture
) -> None:
    assert run(["analyze", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1 and named in printed.err


@pytest.mark.parametrize(
    ("steps", "routing", "named"),
    [
        ('{"name":"x","engine":"a","work_tokens":0.1,"arrivals_per_s":0}', "[]", "arrivals_per_s"),
        ('{"name":"x","engine":"a","work_tokens":"0.1"}', "[]", "work_tokens"),
        ('{"name":5,"engine":"a","work_tokens":0.1}', "[]", "name of steps"),
        ('"x"', "[]", "steps"),
        ('{"name":"x","engine":"a","work_tokens":0.1,"arrivals":1}', "[]", "arrivals_per_s"),
        ('{"name":"x","engine":"a","work_tokens":0.1,"arrivals_per_s":1}', '{"x": 0.1}', "routing"),
        ('{"name":"x","engine":"a","work_tokens":0.1,"arrivals_per_s":1}', '[["x","x","0.5"]]', "share"),
        ('{"name":"x","engine":"a","work_tokens":0.1,"arrivals_per_s":1}', '[["x","x",true]]', "share"),
        ('{"name":"x","engine":"a","work_tokens":0.1,"arrivals_per_s":1}', '[["x","x",0.5],["x","x",0.2]]', "twice"),
        ('{"name":"x","engine":"a","work_tokens":0.1,"arrivals_per_s":1}', '[["x","x",1.0]]', "spectral radius"),
        ('{"name":"x","engine":"b","work_tokens":0.1,"arrivals_per_s":1}', "[]", "engine"),
    ],
)
def test_a_networks_file_is_read_as_it_stands(
    steps: str, routing: str, named: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "agents.json"
    file.write_text(f'{{"engines": {{"a": 1}}, "steps": [{steps}], "routing": {routing}}}')
    assert run(["analyze", "network", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1
    assert "agents.json" in printed.err and named in printed.err and "tileq_theory" not in printed.err


def test_a_threshold_leaves_some_slots_and_a_static_batch_has_no_fluid(capsys: Capture) -> None:
    for what, slots in (("chain", "9"), ("fluid", "8"), ("fluid", "9")):
        policy = "theta" if what == "chain" else "threshold"
        assert run(["analyze", what, *TIME, "--policy", policy, "--residents", "8", "--free-slots", slots]) == 2
        assert "--free-slots" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["chain", "--class", "uniform(1,9):8", *TIME], "prompt length"),
        (["chain", "--class", "5:uniform(1,9)", *TIME], "geometric"),
        (["chain", "--class", "5:geometric(9,20)", *TIME], "geometric"),
        (["fluid", "--time", "launch_s=0"], "time of an iteration"),
        (["latency", "servers", "--rate", "3", "--servers", "2"], "E[S] is 3 on 2"),
        (["sizing", "--blocked", "2"], "share below 1"),
        (["latency", "clipping", "--rate", "1", "--service", "lognormal:800:1", "--seconds-per-token", "1",
          "--limit", "9"], "mu is 800"),
    ],
)  # fmt: skip
def test_what_has_no_answer_is_refused_in_one_line(arguments: list[str], named: str, capsys: Capture) -> None:
    assert run(["analyze", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1 and named in printed.err


def test_one_node_has_no_split_and_capacity_is_named(capsys: Capture) -> None:
    assert run(["analyze", "disaggregate", "--nodes", "1"]) == 0
    assert "a split takes two nodes" in capsys.readouterr().out
    assert run(["analyze", "fluid", "--load", "1", "--horizon", "1"]) == 0
    assert "at its capacity" in capsys.readouterr().out


def test_a_threshold_where_the_fluid_rests_is_followed_until_it_has_drained(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tileq_theory.fluid.trajectory._MOST_SEGMENTS", 300)
    held = document(["fluid", "--policy", "threshold", "--free-slots", "64", "--load", "0.9"], capsys)
    assert held["stable"] and 20 < held["drained_s"] < 30
    assert any("threshold" in note for note in held["warnings"])
