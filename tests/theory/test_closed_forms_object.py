"""The ClosedForm object: derivatives against differences, exactness, and what it refuses."""

from __future__ import annotations

import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

from tileq_theory.closed_forms import ClosedForm, Condition, Quantity, closed_form, closed_forms
from tileq_theory.errors import InputError

# one generic point per symbol: no ceil argument is whole there and no two arguments of a max tie
COMMON: dict[str, Fraction] = {
    name: Fraction(value)
    for name, value in {
        "nodes": "3", "rate_per_s": "2.5", "launch_s": "0.011", "tile_s": "0.035", "tile_tokens": "128",
        "token_s": "0.00003", "weight_floor_s": "0.02", "pair_s": "1e-9", "kv_token_s": "2e-8", "sequence_s": "1e-5",
        "batch_tokens": "500", "prefill_tokens": "300", "decode_tokens": "170", "kv_read_tokens": "65000",
        "attention_pairs": "45000", "memory_iterations": "66000", "slot_iterations": "172",
        "kv_capacity_tokens": "90000",
        "max_sequences": "64", "chunk_tokens": "256", "pairs": "4e5", "kv_tokens": "8e4", "sequences": "60",
        "c0_s": "0.02", "a0_s": "0.0001", "b0_tokens": "200", "t_lin_s": "0.004", "t_nl_s": "0.000005",
        "b_col_tokens": "120", "b_lcm_tokens": "500", "prefill_chunks": "2.6", "mean_tokens": "200",
        "cap_tokens": "512",
        "tiles": "4", "share": "0.9", "batch_s": "0.037", "longest_tokens": "3200", "prompt_mean": "800",
        "prompt_second": "7e5", "output_mean": "700", "output_second": "6e5", "cross": "5e5", "prompt_low": "10",
        "prompt_high": "1600", "output_low": "10", "output_high": "1500", "prompt_tokens": "150", "output_tokens": "90",
        "d0_s": "0.012", "d1_s": "2e-7", "kv_load": "40000", "tau_s": "0.03", "tbt_s": "0.09",
        "prefill_batch_tokens": "512", "decode_batch_sequences": "48", "prefill_iteration_s": "0.06",
        "decode_iteration_s": "0.02", "batch_requests": "16", "prefill_s": "0.4", "decode_step_s": "0.02",
        "longest_steps": "300", "completion_probability": "0.005", "alpha_p_s": "0.02", "alpha_d_s": "0.015",
        "beta_p_s": "0.00002", "beta_d_s": "0.00003", "slots": "128", "threshold": "12", "theta": "0.1",
        "hazard_slope": "1e-6", "alpha_mixed_s": "0.018", "beta_mixed_s": "0.00004", "workload": "4060", "budget": "4",
        "peak_share": "0.3", "mixed_iteration_s": "0.033", "solo_tokens_per_s": "45",
    }.items()
}  # fmt: skip


def point_of(form: ClosedForm) -> dict[str, Fraction]:
    return {q.name: COMMON[q.name] for q in form.quantities}


@pytest.mark.parametrize("name", sorted(closed_forms()))
def test_sensitivities_are_derivatives(name: str) -> None:
    form = closed_form(name)
    point = point_of(form)
    slopes, relative = form.sensitivities(**point), form.elasticities(**point)
    symbols = form.symbols
    value = form.evaluate(**point)
    for q in form.quantities:
        step = point[q.name] / 10**6
        moved = []
        for sign in (1, -1):
            # by substitution, since a whole-number symbol is differentiated as if it were continuous
            values = {symbols[k]: sp.Rational(v.numerator, v.denominator) for k, v in point.items()}
            shift = point[q.name] + sign * step
            values[symbols[q.name]] = sp.Rational(shift.numerator, shift.denominator)
            moved.append(sp.N(form.expression.xreplace(values), 40))
        difference = float((moved[0] - moved[1]) / (2 * sp.Rational(step.numerator, step.denominator)))
        scale = abs(value / float(point[q.name]))
        assert slopes[q.name] == pytest.approx(difference, rel=1e-8, abs=1e-9 * scale), q.name
        assert relative[q.name] == pytest.approx(slopes[q.name] * float(point[q.name]) / value, rel=1e-12, abs=1e-15)
        symbolic = form.elasticity(q.name).xreplace(
            {symbols[k]: sp.Rational(v.numerator, v.denominator) for k, v in point.items()}
        )
        assert float(sp.N(symbolic, 30)) == pytest.approx(relative[q.name], rel=1e-9, abs=1e-12), q.name


@pytest.mark.parametrize("name", sorted(closed_forms()))
def test_every_form_is_documented(name: str) -> None:
    form = closed_form(name)
    facts = form.to_dict()
    assert facts["name"] == name == form.name
    assert form.title
    assert form.source
    assert all(q.meaning for q in form.quantities)
    latex = form.latex()
    assert latex
    used = {str(s) for s in form.expression.free_symbols}
    assert used == {q.name for q in form.quantities}
    assert not any(q.name in latex for q in form.quantities if "_" in q.name)  # written with the sources' symbols


def test_elasticities_read_as_theory_says() -> None:
    nie = closed_form("nie_capacity")
    assert [nie.elasticity(q.name) for q in nie.quantities] == [1, 1, -1, -1]
    rad = closed_form("rad_capacity")
    share = closed_form("rad_prefill_share").evaluate(**point_of(closed_form("rad_prefill_share")))
    slopes = rad.elasticities(**point_of(rad))
    assert slopes["prefill_tokens"] == pytest.approx(-share, rel=1e-12)
    assert slopes["decode_tokens"] == pytest.approx(share - 1, rel=1e-12)


def test_inputs_stay_exact() -> None:
    form = closed_form("nie_capacity")
    where = {"nodes": 1, "kv_capacity_tokens": 131_000, "memory_iterations": Fraction(1, 3)}
    for value in ("0.0372", Decimal("0.0372"), Fraction(372, 10_000), "31/833"):
        expected = 131_000 * 3 / (Fraction(31, 833) if value == "31/833" else Fraction(372, 10_000))
        assert form.exact(batch_s=value, **where) == sp.Rational(expected.numerator, expected.denominator)
    assert form.exact(batch_s=0.5, **where) == 786_000  # a float is its binary value
    assert form.exact(batch_s=sp.Rational(1, 2), **where) == form.exact(batch_s=np.float64(0.5), **where) == 786_000
    assert form.exact(batch_s=np.int64(2), **where) == 196_500
    with pytest.raises(InputError, match="finite float"):
        form.evaluate(batch_s="1e-400", **where)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "nodes is 0; expected a number above 0"),
        ({"nodes": -1}, "nodes is -1"),
        ({"nodes": math.nan}, "nodes is nan"),
        ({"nodes": math.inf}, "nodes is inf"),
        ({"nodes": "many"}, "nodes is 'many'"),
        ({"nodes": "1/0"}, "nodes is '1/0'"),
        ({"nodes": True}, "nodes is True"),
        ({"nodes": "nan"}, "nodes is 'nan'"),
        ({"nodes": Decimal("Infinity")}, "nodes is Decimal('Infinity')"),
        ({"tile_tokens": 12.5}, "tile_tokens is 12.5; expected a whole number that is 1 or more"),
        ({"launch_s": -0.1}, "launch_s is -0.1; expected a number that is 0 or more"),
        ({"tile": 1}, "no symbol 'tile'; did you mean tile_s"),
    ],
)
def test_bad_values_are_named(changes, message) -> None:
    form = closed_form("dai_capacity")
    with pytest.raises(InputError) as caught:
        form.evaluate(**{**point_of(form), **changes})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_values_and_unknown_names() -> None:
    with pytest.raises(InputError, match="needs kv_capacity_tokens, memory_iterations as well"):
        closed_form("nie_capacity").evaluate(nodes=1, batch_s=1)
    with pytest.raises(InputError, match="no closed form is called 'nie_capacty'; did you mean nie_capacity"):
        closed_form("nie_capacty")
    with pytest.raises(InputError, match="no symbol 'x'"):
        closed_form("nie_capacity").sensitivity("x")


def test_conditions_are_checked() -> None:
    form = closed_form("single_level_tbt")
    with pytest.raises(InputError, match="tbt_s > tau_s"):
        form.evaluate(**{**point_of(form), "tbt_s": Fraction("0.03")})
    with pytest.raises(InputError, match="prompt_high >= prompt_low"):
        uniform = closed_form("nie_mean_g_uniform")
        uniform.evaluate(**{**point_of(uniform), "prompt_low": 1601})
    with pytest.raises(InputError, match="decode_batch_sequences <= max_sequences"):
        exclusive = closed_form("exclusive")
        exclusive.evaluate(**{**point_of(exclusive), "decode_batch_sequences": 65})
    with pytest.raises(InputError, match=r"launch_s \+ max"):
        family = closed_form("iteration_time")
        family.evaluate(**{**point_of(family), "launch_s": -1})


def test_a_kink_has_no_sensitivity() -> None:
    form = closed_form("gate_and_route_iteration_time")
    where = {"c0_s": 1, "a0_s": 1, "b0_tokens": 200, "batch_tokens": 200}
    assert form.evaluate(**where) == 1
    with pytest.raises(InputError, match="two arguments of a max are equal"):
        form.sensitivities(**where)


def test_a_zero_value_has_no_relative_sensitivity_and_a_pole_no_value() -> None:
    x = Quantity("x", "x", "a number", "", "real")
    identity = ClosedForm("identity", "itself", "none", "", (x,), lambda v: v["x"])
    with pytest.raises(InputError, match="is 0 there"):
        identity.elasticities(x=0)
    inverse = ClosedForm("inverse", "its inverse", "none", "", (x,), lambda v: 1 / v["x"])
    with pytest.raises(InputError, match="expected values at which it is a finite float"):
        inverse.evaluate(x=0)
    above = ClosedForm(
        "above", "x above 1", "none", "", (x,), lambda v: v["x"], (Condition(lambda v: v["x"] - 1, "x > 1"),)
    )
    with pytest.raises(InputError, match="expected x > 1, but left minus right is 0"):
        above.evaluate(x=1)


def test_ceil_is_held_while_differentiating() -> None:
    slope = closed_form("dai_iteration_time").sensitivity("batch_tokens")
    assert slope == 0
    assert closed_form("dai_iteration_time").sensitivities(launch_s=1, tile_s=2, tile_tokens=128, batch_tokens=512) == {
        "launch_s": 1.0,
        "tile_s": 4.0,
        "tile_tokens": 0.0,
        "batch_tokens": 0.0,
    }


def test_importing_the_registry_does_not_import_sympy() -> None:
    code = "import sys, tileq_theory.closed_forms as c; c.closed_forms(); sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
