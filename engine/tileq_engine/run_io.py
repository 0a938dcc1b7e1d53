r"""Saving and loading a `Run`: NPZ (a zip of plain arrays) with a JSON header inside, never pickle.

A file is written beside its final place and moved there when complete, so a reader sees the whole file or none. Zip
checksums find damaged bytes; the header's schema finds foreign files. Loading gives back every array and fact exactly.
"""

from __future__ import annotations

__all__ = ["HEADER", "atomic_write", "header_text", "identical_runs", "load_run", "reading", "save_run", "write_npz"]

import contextlib
import io
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq_engine.gaps import GapDistribution, GapHistogram, GapPairs
from tileq_engine.observed import BOTTLENECK_ARRAYS, TENANT_ARRAYS, Bottlenecks, TenantRecord
from tileq_engine.run import LATER_FIELDS, REQUEST_FIELDS, SAMPLE_FIELDS, GapGroup, Run
from tileq_theory.errors import InputError, no_such_file

if TYPE_CHECKING:
    from tileq_engine.run_header import RunHeader

HEADER = "header"
# what the zip and array readers raise on damaged bytes (RuntimeError: a flag says "encrypted", or an unknown method)
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, AttributeError, RuntimeError)


def atomic_write(path: str | Path, write: Callable[[Path], object]) -> Path:
    """Call `write` on a temporary file in the folder of `path` and move it there once it is complete and on disk.

    Raises `InputError` naming the file where the system does not let it be written; nothing is left behind then.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"cannot write {target}: folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise InputError(f"cannot write {target}: it is a folder; expected the name of a file")
    try:
        return _written(target, write)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}; choose another place") from None


def _written(target: Path, write: Callable[[Path], object]) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    part = Path(name)
    try:
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise
    return target


def _arrays_of(run: Run) -> dict[str, np.ndarray]:
    arrays = {f"requests/{name}": run.requests[name] for name in REQUEST_FIELDS}
    arrays |= {f"samples/{name}": run.samples[name] for name in SAMPLE_FIELDS}
    for place, group in enumerate(run.gaps):
        gaps = group.gaps
        if isinstance(gaps, GapPairs):
            arrays |= {f"gaps/{place}/gap_ps": gaps.gap_ps, f"gaps/{place}/counts": gaps.counts}
        else:
            arrays[f"gaps/{place}/bin_counts"] = gaps.bin_counts
    for kind, names in (("tenants", TENANT_ARRAYS), ("bottlenecks", BOTTLENECK_ARRAYS)):
        record = getattr(run, kind)
        if record is not None:
            arrays |= {f"{kind}/{name}": getattr(record, name) for name in names}
    return arrays


def save_run(run: Run, path: str | Path) -> Path:
    """Write `run` to `path` (NPZ), losslessly and atomically; return the path."""
    from tileq_engine.run_header import header_of

    text = header_of(run).model_dump_json().encode()
    return atomic_write(path, lambda part: write_npz(part, text, _arrays_of(run)))


def write_npz(path: Path, header: bytes, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an NPZ file as numpy does, but compressed at the quickest level and without the time of day.

    The header's text is an array of bytes in front. Level 1 takes less than half of the time of numpy's fixed level 6
    for a few per cent more space; a constant date makes the same run the same bytes.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in {HEADER: np.frombuffer(header, dtype=np.uint8), **arrays}.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getvalue(), zipfile.ZIP_DEFLATED, 1)


def _gaps_from(arrays: Mapping[str, np.ndarray], place: int, header: Any) -> GapDistribution:
    if header.kind == "pairs":
        return GapPairs(arrays[f"gaps/{place}/gap_ps"], arrays[f"gaps/{place}/counts"])
    bins = arrays[f"gaps/{place}/bin_counts"]
    return GapHistogram(bins, header.sub_bins, header.sum_ps, header.min_ps, header.max_ps, header.mean_exact)


def _observed(arrays: Mapping[str, np.ndarray], header: RunHeader) -> tuple[TenantRecord | None, Bottlenecks | None]:
    """Return the tenants' accounts and the bottlenecks that a file holds."""
    tenants = bottlenecks = None
    if header.tenants is not None:
        facts = header.tenants
        columns = {name: arrays[f"tenants/{name}"] for name in TENANT_ARRAYS}
        tenants = TenantRecord(
            tuple(facts.names), tuple(facts.weights), facts.prompt_price, facts.output_price, **columns
        )
    if f"bottlenecks/{BOTTLENECK_ARRAYS[0]}" in arrays:
        bottlenecks = Bottlenecks(**{name: arrays[f"bottlenecks/{name}"] for name in BOTTLENECK_ARRAYS})
    return tenants, bottlenecks


@contextlib.contextmanager
def reading(path: str | Path, writer: str = "Run.save") -> Iterator[Any]:
    """Open an NPZ file that `writer` wrote; what is wrong with it becomes an `InputError` that names the file.

    Raises
    ------
    InputError
        If the file is missing, damaged or foreign, or if the reading of it finds so.
    """
    source = str(path)
    if not Path(path).is_file():
        raise no_such_file(source, f"a run written by {writer}")
    try:
        if not zipfile.is_zipfile(path):
            raise InputError(f"{source}: not a saved run, or cut short; expected a file written by {writer}")
        with np.load(path, allow_pickle=False) as stored:
            if HEADER not in stored.files:
                raise InputError(f"{source}: not a saved run; expected a file written by {writer}")
            yield stored
    except InputError as error:
        raise error if source in str(error) else InputError(f"{source}: {error}") from None
    except KeyError as error:
        raise InputError(f"{source}: array {error} is missing; the file is damaged or foreign") from None
    except _DAMAGE as error:
        raise InputError(f"{source}: cannot be read as a saved run ({error}); the file is damaged or foreign") from None


def header_text(stored: Any) -> str:
    """Return the JSON text in the header of an open file."""
    return str(stored[HEADER].tobytes().decode())


def load_run(path: str | Path) -> Run:
    """Return the run stored in `path`.

    Raises
    ------
    InputError
        If the file is missing, damaged, foreign, or of another schema version.
    """
    from tileq_engine.run_header import info_of, parse_header

    with reading(path) as stored:
        header = parse_header(header_text(stored), str(path))
        arrays = {name: stored[name] for name in stored.files}
        groups = tuple(
            GapGroup(item.class_index, item.tier, _gaps_from(arrays, place, item))
            for place, item in enumerate(header.gaps)
        )
        requests = _table(arrays, "requests", REQUEST_FIELDS)
        samples = _table(arrays, "samples", SAMPLE_FIELDS)
        return Run(requests, samples, groups, header.counters, info_of(header), *_observed(arrays, header))


def _table(arrays: Mapping[str, np.ndarray], kind: str, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return a table's columns; those that came later are 0 in a file that was written before."""
    size = len(arrays[f"{kind}/{names[0]}"])
    absent = {f"{kind}/{name}": np.zeros(size, dtype=np.int64) for name in LATER_FIELDS}
    return {name: ({**absent, **arrays})[f"{kind}/{name}"] for name in names}


def identical_runs(first: Run, second: Run) -> bool:
    """Return whether two runs agree in every array entry and every fact."""
    from tileq_engine.run_header import header_of

    one, two = _arrays_of(first), _arrays_of(second)
    same = one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)
    return same and header_of(first) == header_of(second)
