"""The fit's solvers: nonnegative least squares, Huber's loss, the convex program, each held against another."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import nnls

from tileq_profiling.fit.huber import huber, minimise, minimise_draws
from tileq_profiling.fit.nonnegative import nonnegative_solutions
from tileq_profiling.fit.program import fit_exactly, solve_cell
from tileq_profiling.fit.rows import BETA, NAMES, A, C, Rows, W, design, predict
from tileq_profiling.fit.screen import polish, screen, splits_of
from tileq_profiling.profile import Profile
from tileq_theory.iteration_time import IterationTime


def test_stacked_problems_agree_with_lawson_and_hanson() -> None:
    rng = np.random.default_rng(1)
    matrices = rng.normal(size=(300, 12, 6)) * 10.0 ** rng.integers(-6, 6, size=(300, 1, 6))
    targets = rng.normal(size=(300, 12))
    got = nonnegative_solutions(
        np.einsum("bni,bnj->bij", matrices, matrices), np.einsum("bni,bn->bi", matrices, targets)
    )
    for matrix, target, x in zip(matrices, targets, got, strict=True):
        _, norm = nnls(matrix, target)
        assert (x >= 0).all()
        assert np.linalg.norm(matrix @ x - target) <= norm * (1 + 1e-9)


def test_collinear_and_empty_columns_are_solved() -> None:
    matrix = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [3.0, 6.0, 0.0]])
    target = np.array([1.0, 2.0, 3.0])
    x = nonnegative_solutions((matrix.T @ matrix)[None], (matrix.T @ target)[None])[0]
    np.testing.assert_allclose(matrix @ x, target, rtol=1e-6)
    assert x[2] == 0


def _rows(seed: int = 0, points: int = 60) -> Rows:
    rng = np.random.default_rng(seed)
    t = IterationTime(launch_s=0.004, weight_floor_s=0.012, tile_s=0.006, tile_tokens=64, token_s=2e-5, kv_token_s=1e-7)
    n = rng.integers(1, 600, points)
    kv = rng.integers(0, 50_000, points)
    noise = 1 + 0.03 * rng.standard_t(2, points).clip(-8, 8)
    return Rows.of(Profile.of(tokens=n, kv_tokens=kv, seconds=np.asarray(t(n, 0.0, kv)) * noise))


def test_reweighting_reaches_the_convex_programs_minimum() -> None:
    rows, knee = _rows(), 0.02
    used = [C, W, A, BETA, 5]
    columns = design(rows, 64, 100.0, used)
    target = rows.seconds / rows.scale
    x, loss = minimise(columns[None], target, knee, rows.weight)
    size = np.linalg.norm(columns, axis=0)
    y = cp.Variable(len(used), nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.huber(((columns / size) @ y - target) / knee, 1.0))))
    problem.solve(solver=cp.CLARABEL)
    assert float(loss[0]) == pytest.approx(problem.value * knee**2 / 2, rel=1e-6)
    np.testing.assert_allclose(columns @ x[0], (columns / size) @ y.value, rtol=1e-3)


def test_draws_agree_with_one_problem_at_a_time() -> None:
    rows, knee = _rows(), 0.02
    used = [C, A, BETA, 5]
    columns, target = design(rows, 64, 0.0, used), rows.seconds / rows.scale
    weights = np.random.default_rng(2).integers(0, 3, (5, len(rows))).astype(float)
    many, losses = minimise_draws(columns, target, knee, weights)
    for w, x, loss in zip(weights, many, losses, strict=True):
        one, own = minimise(columns[None], target, knee, w)
        np.testing.assert_allclose(columns @ x, columns @ one[0], rtol=1e-4)
        assert loss == pytest.approx(float(own[0]), rel=1e-6)


def test_screening_finds_the_least_squares_of_each_split() -> None:
    rows = _rows()
    splits = splits_of(rows)
    active = [C, W, A, BETA, 5]
    for tile, cell in zip((None, 48, 64), screen(rows, [None, 48, 64], splits, active), strict=True):
        own = polish(rows, tile, splits, active, knee=1e6)  # a knee beyond every residual: plain least squares
        assert cell.loss == pytest.approx(own.loss, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_exact_fit_is_a_global_minimum(seed: int) -> None:
    """No coefficients, not those of any split's program nor random ones near the answer, have a smaller loss."""
    rows, knee, tile = _rows(seed, points=25), 0.02, 64
    splits, active = [0.0, *np.unique(rows.tokens)[:-1].tolist()], [C, W, A, BETA, 5]
    best = fit_exactly(rows, tile, splits, active, knee)

    def loss(theta: np.ndarray) -> float:
        return float(np.mean(rows.weight * huber((predict(rows, tile, theta) - rows.seconds) / rows.scale, knee)))

    assert loss(best.theta) == pytest.approx(best.loss, rel=1e-9)
    for split in splits:
        assert loss(solve_cell(rows, tile, split, active, knee)) >= best.loss * (1 - 1e-5)
    rng = np.random.default_rng(seed)
    for _ in range(300):
        assert loss(best.theta * np.exp(0.05 * rng.standard_normal(7))) >= best.loss * (1 - 1e-9)


def test_a_cells_program_satisfies_its_conditions() -> None:
    """Karush, Kuhn and Tucker: feasible, gradient orthogonal to the free coefficients, none below 0."""
    rows, knee, tile = _rows(3), 0.02, 64
    split = float(rows.tokens[rows.tokens <= 64].max())  # where the true floor ends
    theta = solve_cell(rows, tile, split, [C, W, A, BETA, 5], knee)
    assert (theta >= 0).all()
    on, beyond = rows.tokens[rows.tokens <= split].max(), rows.tokens[rows.tokens > split].min()
    line = [theta[A] * np.ceil(n / tile) + theta[BETA] * n for n in (on, beyond)]
    assert line[0] <= theta[W] * (1 + 1e-6) and theta[W] <= line[1] * (1 + 1e-6)
    # k enters no row of the program but its sign: its gradient vanishes where it is positive
    residual = (predict(rows, tile, theta) - rows.seconds) / rows.scale
    gradient = np.clip(residual, -knee, knee) @ (rows.weight * rows.kv_tokens / rows.scale)
    size = np.abs(rows.kv_tokens / rows.scale).sum() * knee
    assert theta[5] > 0 and abs(gradient) <= 1e-4 * size
    assert NAMES[5] == "kv_token_s"
