"""`tileq simulate --cluster` and `tileq plan --cluster`: documents, pictures, files, and every kind of bad file."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tileq as tq
from tileq.cli.run import run
from tileq.cluster_file import read_cluster_file
from tileq.simulating_cluster import CLUSTER_PICTURES
from tileq_engine.cluster import load_cluster_runs
from tileq_engine.cluster.saving import identical_cluster_runs

MIXED = """
router = "power_of_two"

[[node]]
name = "fast"
count = 2
token_budget = 256

[[node]]
name = "slow"
gpu = "a100-sxm-80gb"
weight = 0.4
token_budget = 256

[[failure]]
node = "fast-1"
at_s = 1.0
back_s = 3.0
"""
POOLS = """
decode_router = "least_work"

[link]
gb_per_s = 25
fabric_gb_per_s = 100
latency_s = 0.001

[[node]]
name = "pre"
role = "prefill"
count = 2

[[node]]
name = "dec"
role = "decode"
count = 2
"""
CLASSES = ["chat=512:64@3", "code=2048:16@1"]
QUICK = ["--requests", "150", "--replications", "2", "--class", "chat=512:64@3", "--class", "code=2048:16@1"]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.toml"
    path.write_text(MIXED, encoding="utf-8")
    return path


@pytest.fixture
def pools(tmp_path: Path) -> Path:
    path = tmp_path / "pools.toml"
    path.write_text(POOLS, encoding="utf-8")
    return path


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    parsed: dict[str, Any] = json.loads(printed.out, parse_constant=pytest.fail)
    return parsed


def test_simulated_document(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = document(["simulate", "--cluster", str(mixed), "--load", "0.6", *QUICK], capsys)
    python = tq.simulate(
        cluster=mixed, load=0.6, requests=150, replications=2, progress=False,
        classes=["chat=512:64@3", "code=2048:16@1"],
    )  # fmt: skip
    assert given == python.to_dict()
    assert [node["name"] for node in given["nodes"]] == ["fast-0", "fast-1", "slow"]
    assert given["requests"]["finished"] == given["requests"]["offered"] == 300
    assert sum(node["finished"] for node in given["nodes"]) == 300, "counts are of all replications"
    assert sum(node["routed"] for node in given["nodes"]) == 300 + given["moves"]["node failed"]
    assert given["moves"]["node failed"] == sum(int((run.moves.reason == 0).sum()) for run in python.runs)
    assert given["utilisation"] == pytest.approx(0.6)
    assert given["rate_per_s"] == pytest.approx(0.6 * given["capacity"]["rate_per_s"])
    assert given["capacity"]["kkt"]["ok"]
    for key in ("ttft_s", "tbt_s", "tpot_s", "e2e_s", "throughput_per_s", "stable", "ci95", "classes"):
        assert key in given
    assert given["moves"]["node failed"] > 0, "the planned failure sends its requests elsewhere"
    # the same mapping in place of the file
    again = tq.simulate(
        cluster=tomllib.loads(MIXED), load=0.6, requests=150, replications=2, progress=False,
        classes=["chat=512:64@3", "code=2048:16@1"],
    ).to_dict()  # fmt: skip
    assert again["ttft_s"] == given["ttft_s"]


def test_pools_move_kv(pools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = document(["simulate", "--cluster", str(pools), "--load", "0.5", *QUICK], capsys)
    assert given["transfers"]["count"] == 300
    assert given["transfers"]["mean_s"] > 0.001
    roles = {node["name"]: node["role"] for node in given["nodes"]}
    assert roles == {"pre-0": "prefill", "pre-1": "prefill", "dec-0": "decode", "dec-1": "decode"}
    plan = document(["plan", "--cluster", str(pools), *QUICK[4:]], capsys)
    assert plan["rate_per_s"] == pytest.approx(given["capacity"]["rate_per_s"])
    assert plan["fabric_use"] is not None
    flows = {group["name"]: group["rates_per_s"] for group in plan["groups"]}
    assert flows["pre"] == pytest.approx(flows["dec"])


def test_every_replication_is_saved_and_exported(mixed: Path, tmp_path: Path) -> None:
    saved, table, folder = tmp_path / "run.npz", tmp_path / "run.csv", tmp_path / "kept"
    common = ["simulate", "--cluster", str(mixed), "--load", "0.6", *QUICK]
    assert run([*common, "--save", str(saved), "--export", str(table), "--folder", str(folder)]) == 0
    runs = load_cluster_runs(saved)
    assert len(runs) == 2 and not identical_cluster_runs(*runs)
    assert all(int(np.sum(kept.finish_ps >= 0)) == 150 and kept.class_names == ("chat", "code") for kept in runs)
    python = tq.simulate(cluster=mixed, load=0.6, requests=150, replications=2, progress=False, classes=CLASSES)
    assert all(map(identical_cluster_runs, runs, python.runs)), "those that were not kept are simulated again"
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["replication"] for row in rows] == ["0"] * 150 + ["1"] * 150
    assert [row["node"] for row in rows[:150]] == [runs[0].nodes[k].name for k in runs[0].node.tolist()]
    assert any(row["nodes"].startswith("fast-1 > ") for row in rows), "the planned failure moved somebody"


def test_killed_replications_go_on(mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had finished is not simulated again, whole runs included; another question is an error."""
    from tileq import simulating_cluster as module

    made: list[int] = []
    real = module.run_once

    def counted(setting: Any, rate: float, count: int, streams: Any) -> Any:
        if streams.replication == 2 and not (tmp_path / "go on").exists():
            raise KeyboardInterrupt
        made.append(streams.replication)
        return real(setting, rate, count, streams)

    monkeypatch.setattr(module, "run_once", counted)
    question: dict[str, Any] = {
        "cluster": mixed, "load": 0.6, "requests": 100, "replications": 3, "progress": False, "classes": CLASSES,
    }  # fmt: skip
    folder = tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        tq.simulate(**question, folder=folder, keep_runs=True)
    (tmp_path / "go on").touch()
    finished = sorted(path.name for path in folder.glob("run-*.npz"))
    before = len(made)
    again = tq.simulate(**question, folder=folder, keep_runs=True)
    assert sorted(made[before:]) == [r for r in range(3) if f"run-{r}.npz" not in finished]
    made.clear()
    third = tq.simulate(**question, folder=folder, keep_runs=True)
    assert made == []
    fresh = tq.simulate(**question)
    assert again.to_dict() == third.to_dict() == fresh.to_dict()
    assert all(map(identical_cluster_runs, third.runs, fresh.runs))
    with pytest.raises(tq.InputError, match=r"rate_per_s is .* now but was"):
        tq.simulate(**{**question, "load": 0.5}, folder=folder)


def test_other_conversations_are_another_question(tmp_path: Path) -> None:
    """Their lengths are the same; how long they think is not."""
    asked: dict[str, Any] = {
        "cluster": {"router": "session_affinity", "node": [{"name": "gpu", "count": 2}]},
        "rate": 5, "requests": 50, "replications": 1, "progress": False, "folder": tmp_path,
    }  # fmt: skip
    tq.simulate(**asked, conversations="turns=5:system=64:user=64:answer=64:think=5")
    with pytest.raises(tq.InputError, match=r"source\.think_s"):
        tq.simulate(**asked, conversations="turns=5:system=64:user=64:answer=64:think=6")


def test_pictures_are_drawn_to_the_byte(pools: Path, tmp_path: Path) -> None:
    answer = tq.simulate(cluster=pools, load=0.6, requests=80, replications=1, classes=["512:64"], progress=False)
    with pytest.raises(tq.InputError, match="no node has prefix_cache"):
        answer.plot(tmp_path / "x.svg", "hits")
    caching = tq.simulate(
        cluster={"node": [{"name": "gpu", "count": 2, "prefix_cache": True}]}, requests=80, replications=1, rate=20,
        conversations="turns=4:system=64:user=32:answer=32:think=2", progress=False,
    )  # fmt: skip
    assert caching.to_dict()["prefix_cache"]["hit_rate"] > 0, "what was found, beside what theory says"
    for picture in CLUSTER_PICTURES:
        path = tmp_path / f"{picture}.svg"
        answer = caching if picture == "hits" else answer
        answer.plot(path, picture)
        before = path.read_bytes()
        answer.plot(path, picture)
        assert path.read_bytes() == before
    with pytest.raises(tq.InputError, match="expected one of nodes, pools"):
        answer.plot(tmp_path / "x.svg", "pie")


def test_the_text_names_what_binds(mixed: Path, pools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--cluster", str(mixed), "--load", "0.6", *QUICK]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "no router exceeds" in printed and "fast and slow would be full" in printed
    assert "off a node that failed" in printed and "not empty" in printed
    assert run(["plan", "--cluster", str(pools), *QUICK[4:], "--rate", "5"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "full then" in printed and "ports" in printed and "at the rate asked" in printed


def test_classes_go_where_tenants_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tenants.toml"
    text = MIXED.replace('"power_of_two"', '"tenant"').split("[[failure]]")[0]
    path.write_text(text.replace('name = "slow"', 'name = "slow"\ntenants = ["code"]'), encoding="utf-8")
    plan = document(["plan", "--cluster", str(path), *QUICK[4:]], capsys)
    slow = next(group for group in plan["groups"] if group["name"] == "slow")
    assert slow["rates_per_s"][0] == 0
    assert plan["same_mix_rate_per_s"] is None
    run_ = document(["simulate", "--cluster", str(path), "--load", "0.5", *QUICK], capsys)
    assert run_["requests"]["finished"] == 300


def test_sessions_stay_on_their_node_and_find_their_prefix() -> None:
    """Session affinity finds what random routing loses: each node sees whole conversations."""
    talks = "turns=5:system=64:user=64:answer=64:think=5:prompts=40"
    hits = {}
    for router in ("session_affinity", "prefix_affinity:slack=64", "random"):
        made = {"router": router, "node": [{"name": "gpu", "count": 4, "prefix_cache": True}]}
        answer = tq.simulate(
            cluster=made, conversations=talks, rate=40, requests=600, replications=1, progress=False
        )  # fmt: skip
        counters = answer.first.counters
        hits[router] = counters["prefix_hit_tokens"] / counters["prefix_lookup_tokens"]
        told = answer.to_dict()["prefix_cache"]
        assert told["conversations_together"] == (router != "random")
        assert told["rate_gain"] > 0
    assert hits["session_affinity"] > 1.3 * hits["random"]
    assert hits["prefix_affinity:slack=64"] > 1.3 * hits["random"]


def test_defaults_are_filled_in() -> None:
    found, label = read_cluster_file({"node": [{"name": "a"}]})
    assert label == "cluster"
    assert found["router"] == found["decode_router"] == "jsq"
    assert found["node"][0]["gpu"] == "h100-sxm"


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


BAD = {
    "no node": ("router = 'jsq'\n", "no [[node]] is given; expected at least one"),
    "link of zero bandwidth": (changed(POOLS, "gb_per_s = 25", "gb_per_s = 0"), "link: gb_per_s is 0; expected"),
    "negative weight": (changed(MIXED, "weight = 0.4", "weight = -1"), "node 2 (slow): weight is -1; expected greater"),
    "weights all zero": (changed(MIXED, "weight = 0.4", "weight = 0"), "node 2 (slow): weight is 0; expected greater"),
    "unknown key of a node": (changed(MIXED, "weight", "wieght"), "(slow): unknown key 'wieght'; did you mean weight?"),
    "unknown key": ("ruoter = 'jsq'\n" + MIXED.replace("router", "#"), "unknown key 'ruoter'; did you mean router"),
    "unknown key of the link": (changed(POOLS, "latency_s", "latency"), "link: unknown key 'latency'"),
    "a node without a name": (changed(MIXED, 'name = "slow"', ""), "node 2: name is missing"),
    "no such GPU": (changed(MIXED, "a100-sxm-80gb", "a1000"), "node slow: GPU 'a1000'"),
    "no such router": (changed(MIXED, "power_of_two", "power_of_too"), "did you mean power_of_two"),
    "a router's parameter": (changed(MIXED, "power_of_two", "power_of_two:chices=3"), "'chices'"),
    "no such policy": (changed(MIXED, 'name = "slow"', 'name = "slow"\npolicy = "sarati"'), "did you mean sarathi"),
    "no such role": (changed(POOLS, '"decode"\n', '"cook"\n'), "role is 'cook'; expected 'both', 'prefill'"),
    "pools without a link": (POOLS[: POOLS.index("[link]")] + POOLS[POOLS.index("[[node]]") :], "no [link]; expected"),
    "prefill alone": (POOLS.split('[[node]]\nname = "dec"')[0], "no decode node"),
    "a failure of nobody": (changed(MIXED, '"fast-1"', '"fats-1"'), "did you mean fast-1"),
    "a failure that ends before it begins": (changed(MIXED, "back_s = 3.0", "back_s = 0.5"), "back_s of the failure"),
    "two of one name": (changed(MIXED, 'name = "slow"', 'name = "fast"\ncount = 2'), "two nodes of the cluster are"),
    "a count that is no whole number": (changed(MIXED, "count = 2", "count = 2.5"), "node 1 (fast): count is 2.5"),
    "a tenant that is no class": (changed(MIXED, "weight = 0.4", "tenants = ['cat']"), "did you mean chat"),
    "no TOML": ("router = ", "not valid TOML"),
    "a quota below one request": (changed(MIXED, "weight = 0.4", "queue_limit = 0"), "queue_limit is 0; expected"),
    "affinity without sessions": (changed(MIXED, "power_of_two", "session_affinity"), "that tell their prefixes"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_get_one_line(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, words = BAD[kind]
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    assert run(["simulate", "--cluster", str(path), "--load", "0.5", *QUICK]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err
    if "session" not in kind:
        assert "bad.toml" in printed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "--cluster", "nowhere.toml"], "nowhere.toml"),
        (["simulate", "--cluster", "FILE", "--gpu", "a100"], "--gpu beside --cluster"),
        (["simulate", "--cluster", "FILE", "--policy", "slai"], "--policy beside --cluster"),
        (["simulate", "--cluster", "FILE", "--rate", "1", "--load", "1"], "both given"),
        (["plan", "--cluster", "FILE", "--tp", "2"], "--tp beside --cluster"),
        (["simulate", "--picture", "pools"], "without --plot"),
    ],
)
def test_bad_options_get_one_line(
    arguments: list[str], words: str, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(mixed) if word == "FILE" else word for word in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err


def test_a_policy_beside_a_cluster_is_refused_in_python(mixed: Path) -> None:
    with pytest.raises(tq.InputError, match="policy is given beside cluster"):
        tq.simulate("slai", cluster=mixed)
    with pytest.raises(tq.InputError, match="gpu is given beside cluster"):
        tq.simulate(cluster=mixed, gpu="a100")
