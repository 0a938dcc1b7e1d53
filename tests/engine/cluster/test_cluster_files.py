"""A cluster's runs as files: everything comes back, damage is found, and the table tells where a request was."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_peers import draw_setting
from test_cluster_features import config, conversations

from tileq_engine import EngineConfig, Requests
from tileq_engine.backpressure import Backpressure, TbtControl
from tileq_engine.cluster import Cluster, ClusterRun, Failure, Node, load_cluster_runs, save_cluster_runs
from tileq_engine.cluster import simulate_cluster as run_cluster
from tileq_engine.cluster.export import visits
from tileq_engine.cluster.header import SCHEMA_FILE, ClusterHeader
from tileq_engine.cluster.recorded import RecordedPolicy, cluster_facts, cluster_from
from tileq_engine.cluster.saving import identical_cluster_runs
from tileq_engine.registry import policy, policy_names
from tileq_engine.run import Run
from tileq_engine.run_io import identical_runs
from tileq_engine.tenants import Tenants
from tileq_theory.disaggregation import KvLink
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import ErrorBand, Provenance

TIME = IterationTime(
    launch_s=1e-3, token_s=1e-5, kv_token_s=1.3e-8, provenance=Provenance("fitted", "a bench", ("one", "two")),
    error_band=ErrorBand(0.9, 1.25, 0.5, "twelve points"),
)  # fmt: skip
SLOW = KvLink(1000.0, node_bytes_per_s=2e7, shared_bytes_per_s=1e8, latency_s=2e-3)
_NEEDS: dict[str, dict[str, Any]] = {
    "nested_wait": {"boundaries": (8,)},
    "rad_general": {"levels": ((64, 32, 32, 1.0),)},
}


def everything() -> ClusterRun:
    """Pools, blocks, tenants, a watch, a trace, random and planned failures: every array of a run has rows."""
    requests, _ = conversations(400, 3, 1e-3)
    own = config(tenants=Tenants(("a", "b", "c"), (3.0, 1.0, 1.0), quotas=(None, 3, 2)), watch=True, trace_limit=500)
    nodes = [
        Node("pre", TIME, "vtc", own, role="prefill", count=2, mtbf_s=0.4, mttr_s=0.05),
        Node("dec", TIME, "sarathi", own.with_(backpressure=Backpressure("shrink", waiting=9)), role="decode", count=2),
        Node(
            "all", TIME, policy("sarathi", order="spf"), own.with_(control=TbtControl(0.5)), warm_s=0.1, warm_factor=2
        ),
    ]
    failures = [Failure("all", 0.3, 0.35), *(Failure(f"dec-{k % 2}", 0.05 * k, 0.05 * k + 0.02) for k in range(1, 8))]
    cluster = Cluster(nodes, router="power_of_two", link=SLOW, failures=failures, rebalance_s=0.05, rebalance_gap=3)
    run = run_cluster(requests, cluster, seed=5)
    assert len(run.moves) and len(run.transfers) and (run.transfers.end_ps < 0).any()
    assert all(node.bottlenecks is not None and node.tenants is not None and len(node.trace.request)
               for node in run.nodes)  # fmt: skip
    assert run.prefix_hit_tokens.any()
    return replace(run, rate_per_s=0.1 + 0.2, class_names=("only",), notes=("a note",))


@pytest.fixture(scope="module")
def whole() -> ClusterRun:
    return everything()


def equal(a: Any, b: Any) -> bool:
    """Return whether two records agree in everything, looked at field by field without the code under test."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if hasattr(a, "to_dict") and not isinstance(a, ClusterRun):
        return bool(a.to_dict() == b.to_dict())
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, dict):
        return a == b and all(type(a[k]) is type(b[k]) for k in a)
    return bool(a == b)


def test_a_run_comes_back_whole(whole: ClusterRun, tmp_path: Path) -> None:
    path = whole.save(tmp_path / "run.npz")
    back = ClusterRun.load(path)
    assert identical_cluster_runs(whole, back)
    for f in fields(ClusterRun):
        assert equal(getattr(whole, f.name), getattr(back, f.name)), f.name
    assert back.cluster.nodes[0].time.error_band == TIME.error_band  # which equality of times leaves out
    assert back.cluster.nodes[0].time.provenance == TIME.provenance
    assert back.to_dict() == whole.to_dict()
    assert identical_runs(back.run(), whole.run())
    for k in range(len(whole.nodes)):
        assert identical_runs(back.node_run(k), whole.node_run(k))
    assert back.node_run(0).info.class_names == ("only",)
    assert path.read_bytes() == back.save(tmp_path / "again.npz").read_bytes()


@pytest.mark.parametrize("seed", range(12))
def test_random_clusters_come_back(seed: int, tmp_path: Path) -> None:
    x = draw_setting(seed)
    run = run_cluster(x.requests, x.cluster, seed=x.seed, prefixes=x.keys, mode="python")
    back = ClusterRun.load(run.save(tmp_path / "run.npz"))
    assert identical_cluster_runs(run, back)
    assert all(equal(getattr(run, f.name), getattr(back, f.name)) for f in fields(ClusterRun))
    again = run_cluster(back.requests, back.cluster, seed=back.seed, prefixes=x.keys, mode="python")
    assert identical_cluster_runs(run, again), "what was loaded can be run again"


def test_several_replications_share_a_file(tmp_path: Path) -> None:
    runs = []
    for seed in range(3):
        x = draw_setting(seed)
        runs.append(run_cluster(x.requests, x.cluster, seed=x.seed, prefixes=x.keys, mode="python"))
    path = save_cluster_runs(runs, tmp_path / "runs.npz")
    back = load_cluster_runs(path)
    assert len(back) == 3 and all(map(identical_cluster_runs, runs, back))
    assert identical_cluster_runs(ClusterRun.load(path, 2), runs[2])
    assert not identical_cluster_runs(runs[0], runs[1])
    for bad in (3, -1):
        with pytest.raises(InputError, match=rf"replication {bad} is not in the file; it has 3, from 0"):
            ClusterRun.load(path, bad)
    with pytest.raises(InputError, match="no run was given"):
        save_cluster_runs([], path)


def test_one_changed_number_is_another_run(whole: ClusterRun) -> None:
    finish = whole.finish_ps.copy()
    finish[7] += 1
    assert not identical_cluster_runs(whole, replace(whole, finish_ps=finish))
    assert not identical_cluster_runs(whole, replace(whole, seed=6))
    node = replace(whole.nodes[0], counters={**whole.nodes[0].counters, "routed": 0})
    assert not identical_cluster_runs(whole, replace(whole, nodes=(node, *whole.nodes[1:])))


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_is_made_again(name: str) -> None:
    given = policy(name, token_budget=77, max_num_seqs=9, **_NEEDS.get(name, {}))
    cluster = Cluster([Node("one", TIME, given)])
    found: Any = cluster_from(json.loads(json.dumps(cluster_facts(cluster)))).nodes[0].policy
    assert found.to_dict() == given.to_dict()
    assert not isinstance(found, RecordedPolicy)


def test_a_policy_of_the_users_is_told_and_not_run(tmp_path: Path) -> None:
    mine = policy("sarathi").with_rule(order=lambda R, S, P, i: R[i].prompt)
    asked = Requests.from_arrays(arrival_s=[0.0, 0.1], prompt_tokens=[50, 20], output_tokens=3)
    run = run_cluster(asked, Cluster([Node("one", TIME, mine)]), mode="python")
    back = ClusterRun.load(run.save(tmp_path / "run.npz"))
    assert identical_cluster_runs(run, back)
    assert back.run().info.policy_config == run.run().info.policy_config
    with pytest.raises(InputError, match="policy sarathi comes from a saved run and held functions of its own"):
        run_cluster(asked, back.cluster, mode="python")


def test_settings_without_a_bound_and_links_without_a_limit(tmp_path: Path) -> None:
    asked = Requests.from_arrays(arrival_s=[0.0], prompt_tokens=[50], output_tokens=3)
    nodes = [Node("p", TIME, config=EngineConfig(), role="prefill"), Node("d", TIME, role="decode")]
    run = run_cluster(asked, Cluster(nodes, link=KvLink(1000.0)), mode="python")
    back = ClusterRun.load(run.save(tmp_path / "run.npz"))
    assert back.cluster == run.cluster or cluster_facts(back.cluster) == cluster_facts(run.cluster)
    assert back.cluster.link == run.cluster.link and back.cluster.nodes[0].config.kv_tokens is None


def test_damage_is_found_wherever_it_is(whole: ClusterRun, tmp_path: Path) -> None:
    path = whole.save(tmp_path / "run.npz")
    content, rng = path.read_bytes(), np.random.default_rng(2)
    found = 0
    for place in rng.integers(0, len(content), 60).tolist():
        hurt = bytearray(content)
        hurt[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(hurt))
        try:
            back = ClusterRun.load(path)
        except InputError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            found += 1
        else:
            assert identical_cluster_runs(whole, back), f"byte {place} changed a number and nobody noticed"
    assert found > 30
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="cut short"):
        ClusterRun.load(path)


def rewritten(run: ClusterRun, folder: Path, change: Callable[[dict[str, Any]], None], drop: str = "") -> Path:
    with np.load(run.save(folder / "source.npz")) as stored:
        arrays = {name: stored[name] for name in stored.files if name != drop}
    header = json.loads(arrays["header"].tobytes())
    change(header)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(folder / "changed.npz", **arrays)
    return folder / "changed.npz"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(schema_version=99), "schema_version is 99"),
        (lambda h: h["runs"][0].update(end_ps=-5), r"runs\.0\.end_ps"),
        (lambda h: h["runs"][0]["nodes"][0].pop("stride"), r"runs\.0\.nodes\.0\.stride"),
        (lambda h: h["runs"][0]["cluster"].pop("router"), "its cluster cannot be made again"),
        (lambda h: h["runs"][0]["cluster"]["nodes"][0].update(weight=-1.0), "weight of node pre is -1.0"),
        (lambda h: h["runs"][0]["nodes"].pop(), "nodes does not fit"),
        (lambda h: h.update(extra=1), "extra"),
    ],
)
def test_a_bad_header_names_its_entry(
    whole: ClusterRun, tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        ClusterRun.load(rewritten(whole, tmp_path, change))
    assert "changed.npz" in str(caught.value)


def test_files_of_another_kind_say_what_they_are(whole: ClusterRun, tmp_path: Path) -> None:
    one, many = whole.run().save(tmp_path / "one.npz"), whole.save(tmp_path / "many.npz")
    with pytest.raises(InputError, match=r"many\.npz: holds the runs of a cluster; read it with ClusterRun\.load"):
        Run.load(many)
    with pytest.raises(InputError, match=r"one\.npz: holds the run of one engine; read it with Run\.load"):
        ClusterRun.load(one)
    with pytest.raises(InputError, match=r"no such file; expected a run written by ClusterRun\.save"):
        ClusterRun.load(tmp_path / "none.npz")
    with zipfile.ZipFile(tmp_path / "foreign.npz", "w") as archive:
        archive.writestr("a.txt", "b")
    with pytest.raises(InputError, match="not a saved run"):
        ClusterRun.load(tmp_path / "foreign.npz")
    with pytest.raises(InputError, match="array 'run/0/moves/source"):
        ClusterRun.load(rewritten(whole, tmp_path, lambda h: None, "run/0/moves/source"))


def test_the_schema_in_the_repository_is_the_headers() -> None:
    assert json.loads(SCHEMA_FILE.read_text()) == ClusterHeader.model_json_schema(), (
        "write ClusterHeader.model_json_schema() to header.schema.json"
    )


def test_the_table_tells_the_nodes_of_a_request(whole: ClusterRun, tmp_path: Path) -> None:
    names = [node.name for node in whole.nodes]
    with whole.to_csv(tmp_path / "run.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["request_id"]) for row in rows] == whole.requests.ids.tolist()
    for i, row in enumerate(rows):
        assert row["node"] == names[int(whole.node[i])]
        before = int(whole.prefill_node[i])
        assert row["prefill_node"] == (names[before] if before >= 0 else "")
        # its history by hand: every event of its own in order of time
        m, t = whole.moves, whole.transfers
        events = [(int(m.time_ps[k]), int(m.source[k]), int(m.target[k])) for k in np.flatnonzero(m.request == i)]
        events += [
            (int(t.end_ps[k]), int(t.source[k]), int(t.target[k]))
            for k in np.flatnonzero((t.request == i) & (t.end_ps >= 0))
        ]
        walk = [node for _, *pair in sorted(events, key=lambda e: e[0]) for node in pair if node >= 0]
        walk.append(int(whole.node[i]))
        path = [names[node] for k, node in enumerate(walk) if k == 0 or walk[k - 1] != node]
        assert row["nodes"].split(" > ") == path
        assert int(row["times_routed"]) == whole.routed[i] and int(row["moves"]) == int((m.request == i).sum())
    assert any(row["nodes"].count(">") > 1 for row in rows), "some request was on three nodes"


def test_parquet_has_the_same_table_and_the_facts(whole: ClusterRun, tmp_path: Path) -> None:
    from pyarrow import parquet

    table = parquet.read_table(whole.to_parquet(tmp_path / "run.parquet"))
    facts = json.loads(table.schema.metadata[b"tileq_cluster_run"])
    assert facts["nodes"] == [node.name for node in whole.nodes] and facts["rate_per_s"] == 0.1 + 0.2
    assert table.column("finish_ps").to_pylist() == [t if t >= 0 else None for t in whole.finish_ps.tolist()]
    assert table.column("replication").to_pylist() == [0] * len(whole.requests)


def test_a_request_that_nobody_had_was_nowhere() -> None:
    asked = Requests.from_arrays(arrival_s=[0.0, 9.0], prompt_tokens=10, output_tokens=2)
    run = run_cluster(asked, Cluster([Node("one", TIME, count=2)]), mode="python", stop_time_s=1.0)
    request, node = visits(run)
    assert request.tolist() == [0] and node.tolist() == [0]
