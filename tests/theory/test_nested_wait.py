"""Nested WAIT's fluid thresholds against WAIT's own equilibrium and against a sum over types."""

from __future__ import annotations

import pytest

from tileq_theory import Fixed, Geometric, Independent, InputError, Uniform
from tileq_theory.closed_forms.wait import wait_fluid
from tileq_theory.nested_wait import nested_wait


def test_one_type_is_wait() -> None:
    args = {"d0_s": 0.01, "d1_s": 1e-6}
    fluid = wait_fluid(rates_per_s=[20.0], prompts_tokens=[100], outputs_tokens=[200], kv_capacity_tokens=1e6, **args)
    nested = nested_wait(rate_per_s=20.0, lengths=Independent(Fixed(100), Fixed(200)), boundaries=[50], **args)
    assert nested.iteration_s == pytest.approx(fluid.iteration_s, rel=1e-12)
    assert nested.memory_tokens == pytest.approx(fluid.memory_tokens, rel=1e-12)
    assert nested.stage_requests == pytest.approx((fluid.stage_requests[0],) * 2, rel=1e-12)


def test_a_law_is_the_sum_over_its_types() -> None:
    """Outputs uniform on 1..40: types of rate lambda/40 each; a segment sees the types that are longer."""
    rate, args = 30.0, {"d0_s": 0.02, "d1_s": 2e-6}
    fluid = wait_fluid(
        rates_per_s=[rate / 40] * 40,
        prompts_tokens=[64] * 40,
        outputs_tokens=list(range(1, 41)),
        kv_capacity_tokens=1e6,
        **args,
    )
    nested = nested_wait(rate_per_s=rate, lengths=Independent(Fixed(64), Uniform(1, 40)), boundaries=[10, 25], **args)
    assert nested.iteration_s == pytest.approx(fluid.iteration_s, rel=1e-12)
    expected = [sum(fluid.stage_requests[o - 1] for o in range(1, 41) if o > cut) for cut in (0, 10, 25)]
    assert nested.stage_requests == pytest.approx(expected, rel=1e-12)


def test_bad_input_is_named() -> None:
    law = Independent(Fixed(100), Geometric(50))
    with pytest.raises(InputError, match="expected increasing"):
        nested_wait(rate_per_s=1.0, lengths=law, boundaries=[20, 10], d0_s=0.01, d1_s=0.0)
    with pytest.raises(InputError, match="the rate must be below"):
        nested_wait(rate_per_s=1000.0, lengths=law, boundaries=[], d0_s=0.01, d1_s=1e-3)
    with pytest.raises(InputError, match="rate_per_s is -1"):
        nested_wait(rate_per_s=-1.0, lengths=law, boundaries=[], d0_s=0.01, d1_s=0.0)
