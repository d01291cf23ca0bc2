"""Prefetching: asking for memory before it is read, so that many waits become one.

The states of many sub-environments do not fit into a core's caches. Kernels that go from one record to the next and
compute in between would wait for each in turn. Changes no result.
"""

import inspect
from typing import Any

from llvmlite import ir
from numba import int64, types
from numba.extending import intrinsic

from servegym.simulator.kernel import CACHED_BY, IS_JIT_DISABLED

LINE_BYTES = 64
READ, KEEP, DATA = 0, 3, 1  # arguments of llvm.prefetch: in order to read, in all caches, data


def _write_code(context, builder, signature, arguments):
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    size = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
    word, flag, pointer_type = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
    to_record = builder.mul(arguments[1], word(size))
    to_line = builder.mul(arguments[2], word(LINE_BYTES))
    start = builder.bitcast(array.data, pointer_type)
    place = builder.gep(start, [builder.add(to_record, to_line)])
    function = ir.FunctionType(ir.VoidType(), [pointer_type, flag, flag, flag])
    hint = builder.module.declare_intrinsic("llvm.prefetch", [pointer_type], function)
    builder.call(hint, [place, flag(READ), flag(KEEP), flag(DATA)])
    return context.get_dummy_value()


@intrinsic
def _compiled(typing, records, i, line):
    """Ask for the cache line `line` of records[i], behind the end, too; the record begins line 0."""
    return types.void(records, int64, int64), _write_code


_CODE = f"{LINE_BYTES} {READ} {KEEP} {DATA} {inspect.getsource(_write_code)}"
setattr(_compiled, CACHED_BY, _CODE)
prefetch: Any = (lambda *_: None) if IS_JIT_DISABLED else _compiled
