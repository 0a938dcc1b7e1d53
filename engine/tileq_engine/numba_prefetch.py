"""The processor's prefetch for compiled kernels: this module imports numba, so only compiled code imports it."""

from __future__ import annotations

__all__ = ["prefetch"]

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def prefetch(typing: Any, array: Any, place: Any) -> Any:
    """Ask for the cache line of the element `place` of a contiguous array, counted in elements from its first.

    Nothing waits for it, and a place outside the array does no harm.
    """

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, given[0]).data
        where = builder.bitcast(builder.gep(start, [given[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        declare: Any = cgutils.get_or_insert_function
        ask = declare(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(ask, [where, number(0), number(3), number(1)])  # to read, keep in all caches, data
        return context.get_dummy_value()

    return types.void(array, types.intp), code
