"""The exact queues themselves: the printed digits of the sources, and limits where they must coincide."""

from __future__ import annotations

import pytest
import queues_exact as q

TABLE = {  # load: FIFO, SJF, PSJF, SRPT (Exp(1) service), as printed
    0.5: ("2.0000", "1.7127", "1.5314", "1.4254"),
    0.7: ("3.3333", "2.3122", "2.0839", "1.8746"),
    0.9: ("10.0000", "4.1969", "4.0518", "3.5521"),
}


@pytest.mark.parametrize("lam", TABLE)
def test_orders_of_the_exponential_queue_as_printed(lam: float) -> None:
    values = (q.mg1_fcfs_response(lam, 1, 2), q.exp1_sjf(lam), q.exp1_psjf(lam), q.exp1_srpt(lam))
    assert tuple(f"{v:.4f}" for v in values) == TABLE[lam]


@pytest.mark.parametrize(("rho", "printed"), [(0.3, "4.2248"), (0.5, "5.9019"), (0.7, "9.8176")])
def test_dynamic_batching_as_printed(rho: float, printed: str) -> None:
    alpha, tau0 = 0.1438, 1.8874
    exact = q.inoue_response(rho / alpha, alpha, tau0)
    assert f"{exact:.4f}" == printed
    assert exact <= q.inoue_bound(rho / alpha, alpha, tau0)


def test_dynamic_batching_of_no_load_is_one_service() -> None:
    assert q.inoue_response(1e-6, 0.1438, 1.8874) == pytest.approx(0.1438 + 1.8874, rel=1e-5)


def test_closed_forms_meet_where_they_must() -> None:
    assert q.mm1_response(0.7, 1.0) == pytest.approx(q.mg1_fcfs_response(0.7, 1, 2), rel=1e-14)
    assert q.md1_response(0.7, 1.0) == pytest.approx(1 + 0.7 / (2 * 0.3), rel=1e-14)
    loss, response = q.mm1k(0.7, 1.0, 400)
    assert loss < 1e-60
    assert response == pytest.approx(q.mm1_response(0.7, 1.0), rel=1e-12)
    first, second = q.priority_waits(0.3, 0.4, 1.0)
    # Kleinrock's conservation law: sum rho_i W_i does not depend on the order
    assert 0.3 * first + 0.4 * second == pytest.approx(0.7 * (0.7 / 0.3), rel=1e-14)
