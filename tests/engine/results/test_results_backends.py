"""Who computes a sweep: every backend returns the same, and what is missing is one line."""

from __future__ import annotations

import sys
import types
from operator import neg  # importable by every worker, as a function of this file is not

import pytest

from tileq_engine.experiment_parallel import run_tasks
from tileq_theory.errors import InputError


@pytest.mark.parametrize("backend", ["serial", "threads", "joblib", "multiprocessing"])
def test_results_come_in_the_order_of_the_items(backend: str) -> None:
    assert run_tasks(neg, [3, 1, 2], backend=backend, workers=2, progress=False) == [-3, -1, -2]


@pytest.mark.parametrize(("backend", "missing"), [("dask", "distributed"), ("ray", "ray.util.joblib")])
def test_a_backend_that_is_not_installed(backend: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=rf"^backend '{backend}' needs the package .* use 'joblib'$"):
        run_tasks(neg, [1, 2], backend=backend, progress=False)


def test_dask_without_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_client() -> None:
        raise ValueError("no client found")

    distributed = types.ModuleType("distributed")
    distributed.get_client = get_client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "distributed", distributed)
    with pytest.raises(InputError, match=r"found no client; make a dask\.distributed\.Client"):
        run_tasks(neg, [1, 2], backend="dask", progress=False)


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_cluster_present_computes_the_same(backend: str) -> None:
    """Where the packages are installed: two workers of their own."""
    if backend == "dask":
        distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
        with (
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            distributed.Client(cluster),
        ):
            assert run_tasks(neg, list(range(9)), backend=backend, progress=False) == [-n for n in range(9)]
        return
    ray = pytest.importorskip("ray", reason="ray is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert run_tasks(neg, list(range(9)), backend=backend, progress=False) == [-n for n in range(9)]
    finally:
        ray.shutdown()
