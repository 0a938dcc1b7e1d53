"""The GPU catalogue, look-up by name, and a user's own GPU file."""

from __future__ import annotations

import copy
import csv
import json
import pickle
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.hardware import Gpu, catalog_rows, gpu_names, load_gpu
from tileq_theory.hardware.dtypes import kv_bytes_per_element, weight_format, weight_format_names
from tileq_theory.hardware.gpu_file import gpu_file_schema

OWN = {"schema_version": 1, "name": "mine", "bf16_tflops": 100, "memory_gib": 24, "bandwidth_gb_s": 1000}


def file(tmp_path: Path, content: object, name: str = "gpu.json") -> Path:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# ---------------------------------------------------------------- catalogue


def test_facts_agree_with_the_collected_table(data: Path) -> None:
    """Every peak and bandwidth of the collected CSV, where this catalogue does not say why it differs."""
    columns = {"bf16": "bf16_dense_tflops_fp32acc", "fp16": "fp16_dense_tflops", "fp8": "fp8_dense_tflops"}
    # GeForce cards: the CSV lists the fp16-accumulate rate; this catalogue the fp32-accumulate rate, half of it
    halved = {"rtx-3090": {"fp16"}, "rtx-4090": {"fp16"}, "rtx-5090": {"fp16"}}
    with (data / "hardware" / "gpu_catalog.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len(gpu_names())
    for row in rows:
        gpu = load_gpu(row["gpu"].replace("(", "").replace(")", ""))
        for fmt, column in columns.items():
            if row[column]:
                factor = 0.5 if fmt in halved.get(gpu.name, set()) else 1.0
                assert gpu.peak_flops[fmt] == pytest.approx(factor * 1e12 * float(row[column]), rel=1e-3), (
                    gpu.name,
                    fmt,
                )
            else:
                assert fmt not in gpu.peak_flops
        rel = 0.05 if gpu.name == "b200-sxm" else 1e-12  # a device query found 7672 where the sheet prints 8000
        assert gpu.bandwidth_bytes_per_s == pytest.approx(1e9 * float(row["mem_bw_gb_s"]), rel=rel)
        # datasheet GB lie within 9 % of what the driver reports (units, ECC)
        assert gpu.memory_bytes == pytest.approx(1e9 * float(row["mem_gb"]), rel=0.09)
        if row["link_gb_s_unidir"]:
            assert gpu.link_bytes_per_s == 1e9 * float(row["link_gb_s_unidir"])


def test_second_source_agrees(data: Path) -> None:
    """The system descriptions of aiconfigurator, read as text: memory bandwidth and bf16 peak."""
    names = {"a100_sxm": "a100-sxm-80gb", "a100_pcie": "a100-pcie-80gb", "b200_sxm": "b200-sxm", "b300_sxm": "b300-sxm"}
    for stem in ("h100_sxm", "h100_pcie", "h200_sxm", "l4", "l40s", *names):
        text = (data / "aiconfigurator" / "systems" / f"{stem}.yaml").read_text()
        gpu = load_gpu(names.get(stem, stem.replace("_", "-")))
        values = {
            line.split(":")[0].strip(): line.split(":")[1].split()[0] for line in text.splitlines() if ": " in line
        }
        assert gpu.peak_flops["bf16"] == pytest.approx(float(values["bfloat16_tc_flops"]), rel=1e-3)
        assert gpu.bandwidth_bytes_per_s == pytest.approx(float(values["mem_bw"]), rel=0.035)


def test_every_fact_names_its_source_and_marks_doubt() -> None:
    for name in gpu_names():
        gpu = load_gpu(name)
        assert gpu.sources and all(gpu.sources.values())
        assert set(gpu.unverified) <= set(gpu.sources)
        for fact in set(gpu.unverified) - {"l2_mb", "tdp_w", "measured_bf16_tflops"}:  # these enter no formula
            assert any(fact in note for note in gpu.provenance.notes)
        for fact, source in gpu.sources.items():
            assert fact in gpu.unverified or not source.startswith("memory")


def test_memory_is_what_the_driver_reports() -> None:
    assert load_gpu("h100-sxm").memory_bytes == 81559 * 2**20
    assert load_gpu("rtx-4090").memory_bytes == 24564 * 2**20


@pytest.mark.parametrize(
    ("given_name", "slug"),
    [
        ("H100 SXM", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("nvidia a100-sxm4-80gb", "a100-sxm-80gb"),
        ("RTX4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("  l40S ", "l40s"),
    ],
)
def test_names_without_case_space_or_brand(given_name: str, slug: str) -> None:
    assert load_gpu(given_name).name == slug


@given(st.sampled_from(gpu_names()), st.randoms(use_true_random=False))
def test_any_casing_and_separators_find_the_gpu(name: str, random: object) -> None:
    pieces = (c.upper() if random.random() < 0.5 else c for c in name)  # type: ignore[attr-defined]
    assert load_gpu("".join(" " if c == "-" else c for c in pieces)).name == name


def test_unknown_names_get_near_matches() -> None:
    with pytest.raises(InputError, match=r"h100-sx.*did you mean .*h100-sxm"):
        load_gpu("h100-sx")
    for name in ("", "-", "nvidia", "quantum", "x" * 5000, "a\0b"):
        with pytest.raises(InputError, match="not in the catalogue"):
            load_gpu(name)


def test_unsupported_arithmetic_is_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"no bf16 arithmetic; use fp16"):
        load_gpu("v100").peak("bf16")
    with pytest.raises(InputError, match=r"a100-sxm-80gb has no fp8 arithmetic.*w8a16"):
        load_gpu("a100").peak("fp8")
    assert load_gpu("a100").peak("w8a16") == 312e12
    assert load_gpu("v100").peak("w4a16") == 125e12


def test_gpus_can_be_copied_hashed_and_pickled() -> None:
    gpu = load_gpu("h100-sxm")
    assert pickle.loads(pickle.dumps(gpu)) == gpu == copy.deepcopy(gpu)
    assert len({gpu, load_gpu("H100")}) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"memory_bytes": 0.0},
        {"bandwidth_bytes_per_s": float("nan")},
        {"peak_flops": {}},
        {"peak_flops": {"fp4": 1e15}},
        {"peak_flops": {"bf16": -1.0}},
        {"link_bytes_per_s": 0.0},
    ],
)
def test_bad_facts_are_refused(change: dict[str, object]) -> None:
    facts = {"peak_flops": {"bf16": 1e14}, "memory_bytes": 1e10, "bandwidth_bytes_per_s": 1e12, **change}
    with pytest.raises(InputError, match="GPU bad"):
        Gpu("bad", "Test", **facts)  # type: ignore[arg-type]


def test_dtypes() -> None:
    assert [weight_format(n).bytes_per_weight for n in ("bf16", "FP16", "float8", "int8")] == [2, 2, 1, 1]
    assert weight_format("awq").name == "w4a16" and 0.5 < weight_format("w4a16").bytes_per_weight < 0.53
    assert [kv_bytes_per_element(n) for n in (None, "auto", "bf16", "fp8_e5m2")] == [2, 2, 2, 1]
    with pytest.raises(InputError, match="did you mean"):
        weight_format("bf61")
    with pytest.raises(InputError, match="KV dtype"):
        kv_bytes_per_element("fp3")
    assert "bf16" in weight_format_names()


def test_table_rows_have_the_same_keys() -> None:
    rows = catalog_rows("gpus")
    assert [row["name"] for row in rows] == list(gpu_names())
    assert len({tuple(row) for row in rows}) == 1
    with pytest.raises(InputError, match="expected 'gpus' or 'models'"):
        catalog_rows("cpus")


# ---------------------------------------------------------------- a user's own file


def test_json_and_toml_files_say_the_same(tmp_path: Path) -> None:
    toml = "\n".join(f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in OWN.items())
    one, two = load_gpu(file(tmp_path, OWN)), load_gpu(str(file(tmp_path, toml, "gpu.toml")))
    assert one == two
    assert (one.name, one.peak("bf16"), one.memory_bytes, one.bandwidth_bytes_per_s) == ("mine", 1e14, 24 * 2**30, 1e12)
    assert str(tmp_path) in one.provenance.source


def test_optional_facts_are_scaled(tmp_path: Path) -> None:
    more = {"link_gb_s": 32, "l2_mb": 50, "tdp_w": 300, "fp8_tflops": 200, "measured_bf16_tflops": 80, "source": "me"}
    gpu = load_gpu(file(tmp_path, {**OWN, **more}))
    assert (gpu.link_bytes_per_s, gpu.l2_bytes, gpu.tdp_w) == (32e9, 50e6, 300)
    assert (gpu.peak("fp8"), gpu.measured_bf16_flops, gpu.provenance.notes) == (2e14, 8e13, ("me",))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({**OWN, "schema_version": 2}, "schema_version"),
        ({k: v for k, v in OWN.items() if k != "schema_version"}, "schema_version"),
        ({k: v for k, v in OWN.items() if k != "bandwidth_gb_s"}, "bandwidth_gb_s: Field required"),
        ({**OWN, "bandwidth_gb_s": -1}, "bandwidth_gb_s.*greater than or equal to 0.001.*-1"),
        ({**OWN, "bf16_tflops": 1e-300}, "bf16_tflops.*greater than or equal to 0.001.*1e-300"),
        ({**OWN, "bf16_tflops": 1e300}, r"bf16_tflops.*less than or equal to 1e\+?07|10000000.*1e\+300"),
        ({**OWN, "bandwidth_gb_s": "1000"}, "bandwidth_gb_s.*'1000'"),
        ({**OWN, "bf16_tflops": True}, "bf16_tflops is a boolean"),
        ({**OWN, "bf16_flops": 1}, "bf16_flops"),
        ({k: v for k, v in OWN.items() if k != "bf16_tflops"}, "no peak given"),
        ({**OWN, "memory_mib": 24000}, "exactly one of memory_gib and memory_mib"),
        ({k: v for k, v in OWN.items() if k != "memory_gib"}, "exactly one of memory_gib and memory_mib"),
        ({**OWN, "name": ""}, "name"),
        ("[1, 2]", "expected an object"),
        ("{", "not valid JSON"),
        ('{"name": "a", "name": "b"}', "'name' appears twice"),
        ('{"bandwidth_gb_s": NaN}', "NaN"),
        ("", "not valid JSON"),
    ],
)
def test_bad_files_name_file_and_field(tmp_path: Path, content: object, complaint: str) -> None:
    path = file(tmp_path, content)
    with pytest.raises(InputError, match=complaint) as caught:
        load_gpu(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_missing_files_and_bad_toml(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load_gpu(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        load_gpu(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="not valid TOML"):
        load_gpu(file(tmp_path, 'name = "a"\nname = "b"\n', "gpu.toml"))
    binary = tmp_path / "gpu.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load_gpu(binary)


def test_shipped_schema_is_the_one_in_force() -> None:
    shipped = json.loads((files("tileq_theory") / "data" / "gpu.schema.json").read_text())
    assert shipped == gpu_file_schema()
