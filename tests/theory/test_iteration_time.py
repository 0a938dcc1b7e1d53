"""The iteration-time family: each source's model as a setting of it, the floor, units, shapes, bad input."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import ErrorBand, Provenance

EXACT = 1e-12
seconds = st.floats(1e-9, 10.0)
tokens = st.integers(0, 20_000)
tiles = st.integers(1, 1024)


def close(value: object, expected: float) -> bool:
    return math.isclose(float(value), expected, rel_tol=EXACT, abs_tol=0.0)  # type: ignore[arg-type]


# ---------------------------------------------------------------- the table of theory.md section 2, in exact arithmetic


@given(t_lin=seconds, t_nl=seconds, b=tiles, n=tokens)
def test_rad_equation_7(t_lin: float, t_nl: float, b: int, n: int) -> None:
    exact = Fraction(t_lin) * math.ceil(Fraction(n, b)) + Fraction(t_nl) * n
    assert close(IterationTime.rad(t_lin_s=t_lin, t_nl_s=t_nl, tile_tokens=b)(n), float(exact))


@given(c=seconds, a=seconds, b=tiles, n=tokens)
def test_dai_assumption_1(c: float, a: float, b: int, n: int) -> None:
    exact = Fraction(c) + Fraction(a) * math.ceil(Fraction(n, b))
    assert close(IterationTime.dai(launch_s=c, tile_s=a, tile_tokens=b)(n), float(exact))


@given(d0=seconds, d1=seconds, kv=st.integers(0, 10**7), n=tokens)
def test_wait_depends_on_kv_only(d0: float, d1: float, kv: int, n: int) -> None:
    t = IterationTime.wait(d0_s=d0, d1_s=d1)
    assert t.kv_counts_prefill
    assert close(t(n, 5.0, kv, 3), float(Fraction(d0) + Fraction(d1) * kv))


@given(c0=seconds, a0=st.floats(1e-7, 1e-2), b0=st.integers(0, 4096), n=tokens)
def test_gate_and_route(c0: float, a0: float, b0: int, n: int) -> None:
    exact = Fraction(c0) + Fraction(a0) * max(0, n - b0)
    value = float(IterationTime.gate_and_route(c0_s=c0, a0_s=a0, b0_tokens=b0)(n))
    # c = c0 - a0 b0 is added back, so rounding is relative to the largest term, not to the sum
    scale = max(float(exact), a0 * max(b0, n))
    assert abs(value - float(exact)) <= EXACT * scale


@given(b=seconds, n=tokens, pairs=seconds, kv=tokens, m=tokens)
def test_nie_is_constant(b: float, n: int, pairs: float, kv: int, m: int) -> None:
    assert float(IterationTime.constant(b)(n, pairs, kv, m)) == b


@given(c=seconds, w=seconds, a=seconds, b=tiles, beta=seconds, e=seconds, k=seconds, s=seconds, n=tokens, m=tokens)
def test_the_whole_family(
    c: float, w: float, a: float, b: int, beta: float, e: float, k: float, s: float, n: int, m: int
) -> None:
    t = IterationTime(c, w, a, b, beta, e, k, s)
    linear = max(Fraction(w), Fraction(a) * math.ceil(Fraction(n, b)) + Fraction(beta) * n)
    exact = Fraction(c) + linear + Fraction(e) * 17 + Fraction(k) * 23 + Fraction(s) * m
    assert close(t(n, 17, 23, m), float(exact))
    assert close(t.tau_s(n), float(Fraction(c) + linear))


def test_printed_numbers_of_dai() -> None:
    t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    assert close(t(128), 0.04675)
    assert close(t(512), 0.15316)
    assert round(128 / (1e3 * float(t(128))), 3) == 2.738
    assert round(512 / (1e3 * float(t(512))), 3) == 3.343


def test_printed_number_of_rad() -> None:
    t = IterationTime.rad(t_lin_s=4000e-6, t_nl_s=5e-6, tile_tokens=128)
    assert close(t(128) / 128, 36.25e-6)


# ---------------------------------------------------------------- the floor


@given(
    w=st.integers(0, 3000),
    a=st.integers(0, 60),
    beta=st.integers(0, 12),
    b=st.integers(1, 40),
    unit=st.sampled_from([1.0, 0.1, 1e-3, 1 / 3, 1e-6]),
)
def test_floor_tokens_is_the_last_token_on_the_floor(w: int, a: int, beta: int, b: int, unit: float) -> None:
    assume(a > 0 or beta > 0)
    t = IterationTime(weight_floor_s=w * unit, tile_s=a * unit, tile_tokens=b, token_s=beta * unit)
    bound = (w + 1) * b + 1 if a > 0 else w + 2  # beyond it even one time unit a tile, or a token, is too much
    grid = np.arange(1, bound + 1)
    on_floor = grid[t.linear_s(grid) <= t.weight_floor_s]
    assert t.floor_tokens() == (int(on_floor[-1]) if len(on_floor) else 0)


@given(w=st.integers(0, 10**6), a=st.integers(0, 1000), beta=st.integers(0, 1000), b=st.integers(1, 1000))
def test_floor_tokens_in_whole_time_units_is_exact(w: int, a: int, beta: int, b: int) -> None:
    assume(a > 0 or beta > 0)
    n = IterationTime(weight_floor_s=w, tile_s=a, tile_tokens=b, token_s=beta).floor_tokens()
    assert n == 0 or a * -(-n // b) + beta * n <= w
    assert a * -(-(n + 1) // b) + beta * (n + 1) > w


def test_floor_tokens_of_gate_and_route_is_b0() -> None:
    assert IterationTime.gate_and_route(c0_s=0.02, a0_s=2**-14, b0_tokens=256).floor_tokens() == 256


def test_floor_without_a_slope_is_refused() -> None:
    with pytest.raises(InputError, match="every batch size costs the floor"):
        IterationTime.constant(0.03).floor_tokens()
    with pytest.raises(InputError, match="check the units"):
        IterationTime(weight_floor_s=1.0, token_s=1e-300).floor_tokens()


# ---------------------------------------------------------------- properties


@given(factor=st.sampled_from([0.5, 2.0, 1024.0, 2.0**-20]), n=tokens, kv=tokens)
def test_scaling_by_a_power_of_two_is_exact(factor: float, n: int, kv: int) -> None:
    t = IterationTime(0.01, 0.004, 0.002, 128, 1e-6, 1e-10, 1e-8, 1e-6)
    assert float(t.scaled(factor)(n, n * n, kv, 7)) == factor * float(t(n, n * n, kv, 7))
    assert t.scaled(factor).floor_tokens() == t.floor_tokens()


@given(n=tokens, more=tokens)
def test_never_falls_with_the_batch(n: int, more: int) -> None:
    t = IterationTime(0.01, 0.004, 0.002, 96, 1e-6, 1e-10, 1e-8, 1e-6)
    assert float(t(n, n, n, n)) <= float(t(n + more, n + more, n + more, n + more))


def test_arrays_and_scalars_agree() -> None:
    t = IterationTime(0.01, 0.004, 0.002, 128, 1e-6, 1e-10, 1e-8, 1e-6)
    n = np.array([0, 1, 127, 128, 129, 4096])
    assert t(n).shape == (6,)
    assert [float(x) for x in t(n)] == [float(t(int(x))) for x in n]
    grid = t(n[:, None], 0.0, np.array([0, 10, 20])[None, :], 1)
    assert grid.shape == (6, 3)
    assert float(grid[3, 2]) == float(t(128, 0.0, 20, 1))


def test_copies_keep_provenance_and_band() -> None:
    band, source = ErrorBand(0.9, 1.2, 0.9, "test"), Provenance("measured", "test")
    t = IterationTime(tile_s=1.0, error_band=band, provenance=source)
    changed = t.scaled(3.0).with_(token_s=0.5)
    assert (changed.error_band, changed.provenance, changed.tile_s, changed.token_s) == (band, source, 3.0, 0.5)
    assert pickle.loads(pickle.dumps(t)) == t
    assert t.to_dict()["error_band"] == {"low": 0.9, "high": 1.2, "coverage": 0.9, "basis": "test"}


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["weight_floor_s", "tile_s", "token_s", "pair_s", "kv_token_s", "sequence_s"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, True])
def test_bad_coefficients_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        IterationTime(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -128])
def test_bad_tiles_are_refused(value: int) -> None:
    with pytest.raises(InputError, match="tile_tokens"):
        IterationTime(tile_s=1.0, tile_tokens=value)


def test_negative_times_are_refused() -> None:
    with pytest.raises(InputError, match="0 s or more"):
        IterationTime(launch_s=-1.0, weight_floor_s=0.5)
    with pytest.raises(InputError, match="c0_s"):
        IterationTime.gate_and_route(c0_s=-0.1, a0_s=1e-3, b0_tokens=1000)
    with pytest.raises(InputError, match="seconds"):
        IterationTime.constant(-1.0)


@pytest.mark.parametrize("batch", [(-1,), (math.nan,), (math.inf,), ("many",), (1, -1), (1, 0, -1), (1, 0, 0, -1)])
def test_bad_batches_are_refused(batch: tuple[object, ...]) -> None:
    with pytest.raises(InputError, match="expected"):
        IterationTime(tile_s=1.0)(*batch)


def test_unknown_fields_and_factors_are_refused() -> None:
    with pytest.raises(InputError, match="tile_time"):
        IterationTime().with_(tile_time=1.0)
    with pytest.raises(InputError, match="factor"):
        IterationTime().scaled(0.0)
