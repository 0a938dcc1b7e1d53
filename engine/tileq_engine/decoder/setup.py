"""One place that sets torch's threads and denormals, and says what was set."""

from __future__ import annotations

__all__ = ["TorchSetup", "denormals_flushed", "torch_setup"]

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch

from tileq_theory.errors import positive_int


@dataclass(frozen=True, slots=True)
class TorchSetup:
    """What was set, for a report."""

    torch: str
    threads: int
    interop_threads: int
    flush_denormals: bool
    omp_wait_policy: str
    tf32: bool

    def to_dict(self) -> dict[str, object]:
        """Return the settings as plain data."""
        return asdict(self)


def torch_setup(threads: int = 1) -> TorchSetup:
    """Set `threads` threads within an operation and one between operations, no TF32; say so.

    One thread is the default: with two and a busy neighbour on the core, OpenMP's spinning waits cost up to fifteen
    times. Where more are wanted, set OMP_WAIT_POLICY=PASSIVE before Python starts. The number of interop threads can
    be set once a process, before torch has run in parallel; later it is left and reported as it is. Denormals flushed
    to zero keep the time of an operation from depending on its numbers: `flush_denormals` says whether this processor
    can. The decoder's passes do it, and nothing beside them (`denormals_flushed`).
    """
    threads = positive_int("threads", threads)
    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        with contextlib.suppress(RuntimeError):  # torch has run in parallel already: reported below as it is
            torch.set_num_interop_threads(1)
    with denormals_flushed() as flushed:
        pass
    torch.backends.cuda.matmul.allow_tf32 = False
    return TorchSetup(
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        interop_threads=torch.get_num_interop_threads(),
        flush_denormals=flushed,
        omp_wait_policy=os.environ.get("OMP_WAIT_POLICY", "not set"),
        tf32=bool(torch.backends.cuda.matmul.allow_tf32),
    )


@contextlib.contextmanager
def denormals_flushed() -> Iterator[bool]:
    """Within the block this thread takes denormal numbers as zero, if the processor can: the value says so.

    The mode is the thread's own, and other libraries do not expect it (scipy's k-d tree recurses without end under
    it), so it is put back as it was.
    """
    before = sys.float_info.min * 0.5 == 0.0
    can = bool(torch.set_flush_denormal(True))
    try:
        yield can
    finally:
        torch.set_flush_denormal(before)
