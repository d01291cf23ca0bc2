"""A dense layer on float32, with its sums in vector registers: out = max(bias + row @ matrix, least).

Written in LLVM's vectors because a loop over arrays is not enough here: numba cannot know that `out` is not part of
`matrix`, so sums go through memory at every step, three times slower (measured at 32 outputs). Products are added in
the order of the row and never fused, so all processors give the same numbers, and so does the plain Python below.
"""

import inspect
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from servegym.simulator.kernel import CACHED_BY, IS_JIT_DISABLED

LANES = 16  # outputs that are worked out together: their number must be a multiple
VECTOR = ir.VectorType(ir.FloatType(), LANES)
FIRST_LANE = ir.Constant(ir.IntType(32), 0)
EVERY_LANE = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
NOTHING = ir.Constant(VECTOR, ir.Undefined)


def dense_in_python(row, matrix, bias, least, out):
    """Write max(bias + row @ matrix, least) into out, [H]; matrix: flat, H numbers for each of row; all float32."""
    total = bias.copy()
    for value, weights in zip(row, matrix.reshape(len(row), len(bias)), strict=True):
        total += value * weights
    out[:] = np.maximum(total, least)


def _write_code(context, builder, signature, arguments):
    """Write the code of the layer: for every LANES outputs one pass over the row."""
    row, matrix, bias, out = (
        context.make_array(kind)(context, builder, value)
        for kind, value in zip(signature.args, arguments, strict=True)
        if isinstance(kind, types.Array)
    )
    least = _in_every_lane(builder, arguments[3])
    n_rows, hidden = row.nitems, bias.nitems
    zero, step = ir.Constant(hidden.type, 0), ir.Constant(hidden.type, LANES)
    total = cgutils.alloca_once(builder, VECTOR)
    with cgutils.for_range_slice(builder, zero, hidden, step, intp=hidden.type) as (k, _):
        builder.store(builder.load(_lanes_at(builder, bias, k), align=4), total)
        with cgutils.for_range(builder, n_rows) as loop:
            value = builder.load(builder.gep(row.data, [loop.index]))
            at = builder.add(builder.mul(loop.index, hidden), k)
            weights = builder.load(_lanes_at(builder, matrix, at), align=4)
            product = builder.fmul(_in_every_lane(builder, value), weights)
            builder.store(builder.fadd(builder.load(total), product), total)
        found = builder.load(total)
        is_more = builder.fcmp_ordered(">", found, least)
        found = builder.select(is_more, found, least)
        builder.store(found, _lanes_at(builder, out, k), align=4)
    return context.get_dummy_value()


def _lanes_at(builder, array, at):
    return builder.bitcast(builder.gep(array.data, [at]), VECTOR.as_pointer())


def _in_every_lane(builder, value):
    first = builder.insert_element(NOTHING, value, FIRST_LANE)
    return builder.shuffle_vector(first, NOTHING, EVERY_LANE)


@intrinsic
def _compiled(typing, row, matrix, bias, least, out):
    return types.void(row, matrix, bias, least, out), _write_code


_CODE = f"{LANES} " + "".join(map(inspect.getsource, (_write_code, _lanes_at, _in_every_lane)))
setattr(_compiled, CACHED_BY, _CODE)
dense: Any = dense_in_python if IS_JIT_DISABLED else _compiled
