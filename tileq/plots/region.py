"""The stability region of two or three request classes."""

from __future__ import annotations

__all__ = ["RegionPicture", "Side", "draw_region", "plot_region"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tileq.plots.figure import DASHES, INK, binds, in_style, save
from tileq_theory.errors import InputError

_FACES = {"time": INK[0], "slots": INK[1], "memory": INK[2], "tbt": INK[3], "weights_floor": INK[4]}


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the region, sum of prices[i] * rate[i] <= 1, and the constraint that makes it."""

    prices: Sequence[float]
    binding: str

    def name(self) -> str:
        """Return the constraint in words."""
        return binds(self.binding)


@dataclass(frozen=True, slots=True)
class RegionPicture:
    """What is drawn: names of the classes, vertices, sides, and points to mark.

    Parameters
    ----------
    classes
        One short name a class.
    vertices
        Rates per class (requests/s), one row a vertex.
    sides
        Facets that are not axes.
    points
        Name -> rates, marked in the picture.
    title
        One line.
    earlier
        Vertices of another region, outlined beneath this one so that a change can be seen (two classes).
    """

    classes: Sequence[str]
    vertices: np.ndarray
    sides: Sequence[Side]
    points: Mapping[str, Sequence[float]]
    title: str
    earlier: np.ndarray | None = None


def plot_region(picture: RegionPicture, path: Path) -> None:
    """Draw the region (see `draw_region`) and write it to `path`."""
    save(draw_region(picture), path)


def draw_region(picture: RegionPicture) -> Any:
    """Return a matplotlib figure: a polygon (two classes) or a body with its pairwise sections (three classes)."""
    count = len(picture.classes)
    if count not in (2, 3):
        raise InputError(f"a region of {count} classes has no picture; expected 2 or 3 classes")
    with in_style() as new_figure:
        return _two(new_figure(), picture) if count == 2 else _three(new_figure(figsize=(11.0, 8.2)), picture)


# ---------------------------------------------------------------------- two classes


def _two(figure: Any, picture: RegionPicture) -> Any:
    axes = figure.subplots()
    corners = around(with_origin(picture.vertices))
    if picture.earlier is not None:
        before = around(with_origin(picture.earlier))
        ring = np.vstack([before, before[:1]])
        axes.plot(ring[:, 0], ring[:, 1], color=INK[5], lw=1.1, ls=(0, (1, 1)), label="before", zorder=1)
    axes.fill(corners[:, 0], corners[:, 1], color=INK[0], alpha=0.10, lw=0)
    _draw_sides(axes, picture.sides, (0, 1), corners)
    rim = corners[corners.sum(axis=1) > 0]
    axes.plot(rim[:, 0], rim[:, 1], "o", color=INK[0], ms=6, zorder=4)
    for (name, rates), ink, mark in zip(picture.points.items(), INK[1:], "D^s*P", strict=False):
        axes.plot(rates[0], rates[1], mark, color=ink, ms=9, mec="white", mew=1.0, label=name, zorder=5, clip_on=False)
    asked = [np.asarray([rates], dtype=float) for rates in picture.points.values()]
    _frame(axes, picture, (0, 1), np.vstack([corners, *([] if picture.earlier is None else [picture.earlier]), *asked]))
    axes.set_title(picture.title)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _draw_sides(axes: Any, sides: Sequence[Side], pair: tuple[int, int], corners: np.ndarray) -> None:
    """Draw every side that lies on the rim of this section, once a name in the legend."""
    named: set[str] = set()
    for side in sides:
        load = corners @ np.array([side.prices[i] for i in pair])
        ends = corners[np.isclose(load, 1.0, rtol=1e-6)]
        if len(ends) < 2:
            continue
        label = None if side.binding in named else side.name()
        axes.plot(ends[:, 0], ends[:, 1], color=INK[0], lw=2.6, ls=DASHES.get(side.binding, "-"), label=label)
        named.add(side.binding)


def _frame(axes: Any, picture: RegionPicture, pair: tuple[int, int], corners: np.ndarray) -> None:
    first, second = pair
    axes.set_xlabel(f"{picture.classes[first]} (requests/s)")
    axes.set_ylabel(f"{picture.classes[second]} (requests/s)")
    axes.set_xlim(0, 1.08 * corners[:, 0].max())
    axes.set_ylim(0, 1.08 * corners[:, 1].max())


def with_origin(points: np.ndarray) -> np.ndarray:
    """Return the points with the origin, which every region holds, among them."""
    return np.unique(np.vstack([np.zeros(points.shape[1]), points]), axis=0)


def around(points: np.ndarray) -> np.ndarray:
    """Return the corners of a convex polygon in order around its middle."""
    points = np.asarray(points, dtype=float)
    scale = np.where(points.max(axis=0) > 0, points.max(axis=0), 1.0)
    middle = (points / scale).mean(axis=0)
    return points[np.argsort(np.arctan2(*((points / scale - middle).T[::-1])), kind="stable")]


# ---------------------------------------------------------------------- three classes


def _three(figure: Any, picture: RegionPicture) -> Any:
    grid = figure.add_gridspec(2, 2)
    _body(figure.add_subplot(grid[0, 0], projection="3d"), picture)
    for place, pair in zip(((0, 1), (1, 0), (1, 1)), ((0, 1), (0, 2), (1, 2)), strict=True):
        axes = figure.add_subplot(grid[place])
        rest = ({0, 1, 2} - set(pair)).pop()
        section = picture.vertices[np.isclose(picture.vertices[:, rest], 0.0)][:, list(pair)]
        corners = around(with_origin(section))
        axes.fill(corners[:, 0], corners[:, 1], color=INK[0], alpha=0.10, lw=0)
        _draw_sides(axes, picture.sides, pair, corners)
        rim = corners[corners.sum(axis=1) > 0]
        axes.plot(rim[:, 0], rim[:, 1], "o", color=INK[0], ms=5, zorder=4)
        _frame(axes, picture, pair, corners)
        axes.set_title(f"without {picture.classes[rest]}")
    figure.suptitle(picture.title, x=0.01, ha="left")
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    return figure


def _body(axes: Any, picture: RegionPicture) -> None:
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    top = np.asarray(picture.vertices).max(axis=0)
    named: set[str] = set()
    for side in picture.sides:
        load = picture.vertices @ np.asarray(side.prices, dtype=float)
        face = picture.vertices[np.isclose(load, 1.0, rtol=1e-6)]
        if len(face) < 3:
            continue
        sheet = Poly3DCollection([_around_in_plane(face, top)], alpha=0.55, edgecolor=INK[0], lw=1.2)
        sheet.set_facecolor(_FACES.get(side.binding, INK[5]))
        sheet.set_label(None if side.binding in named else f"{side.name()} (face)")
        named.add(side.binding)
        axes.add_collection3d(sheet)
    for (name, rates), ink, mark in zip(picture.points.items(), INK[1:], "D^s*P", strict=False):
        axes.plot([rates[0]], [rates[1]], [rates[2]], mark, color=ink, ms=8, label=name)
    axes.set(xlim=(0, top[0]), ylim=(0, top[1]), zlim=(0, top[2]))
    for setter, name in zip((axes.set_xlabel, axes.set_ylabel, axes.set_zlabel), picture.classes, strict=True):
        setter(f"{name} (requests/s)", fontsize=10)
    axes.tick_params(labelsize=9)
    axes.view_init(elev=24, azim=38)


def _around_in_plane(face: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the corners of a planar face in order, by their angle in the plane."""
    relative = face / scale - (face / scale).mean(axis=0)
    _, _, axes = np.linalg.svd(relative)
    flat = relative @ axes[:2].T
    return face[np.argsort(np.arctan2(flat[:, 1], flat[:, 0]), kind="stable")]
