"""Calling compiled functions by address, so that no type of the engine depends on a policy.

A policy is a numba cfunc; its address, an int64, stands in the state. Addresses belong to a process: whatever outlives
one stores names (simulation.py). With NUMBA_DISABLE_JIT=1 an "address" is an index into a list of Python functions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, int64, typeof, types, uint64
from numba.core.cgutils import gep_inbounds
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, Signature, infer_getattr
from numba.extending import intrinsic, models, register_model

from servegym.simulator import state as layout
from servegym.simulator.kernel import CACHED_BY, IS_JIT_DISABLED, kernel

_PYTHON_FUNCTIONS: list[Callable[..., Any]] = []


def tuple_type(cls: type, *members: Any) -> types.NamedTuple:
    """Return numba's type of a NamedTuple of such members."""
    return types.NamedTuple(members, cls)


def records_type(dtype: np.dtype) -> Any:
    """Return numba's type of a one-dimensional array of records."""
    return typeof(np.zeros(1, dtype))


FLOATS = types.Array(float64, 1, "C")
STREAM = types.Array(uint64, 1, "C")
COUNTS = types.Array(types.int32, 1, "C")
MOVES = types.Array(int64, 2, "C")
_ARRAYS = {
    "shared": records_type(layout.SHARED),
    "engines": records_type(layout.ENGINE),
    "instances": records_type(layout.INSTANCE),
    "requests": records_type(layout.REQUEST),
    "slots": records_type(layout.SLOT),
    "phases": COUNTS,
    "views": records_type(layout.VIEW),
    "params": FLOATS,
    "memory": FLOATS,
    "streams": STREAM,
    "policies": records_type(layout.POLICY),
    "tiers": COUNTS,
    "gateway": records_type(layout.GATEWAY),
    "queues": records_type(layout.QUEUE),
    "control": records_type(layout.CONTROL),
    "moves": records_type(layout.MOVE),
    "ordered": MOVES,
    "ledger": records_type(layout.LEDGER),
    "faults": records_type(layout.FAULT),
    "timers": records_type(layout.TIMER),
    "timeouts_ps": types.Array(int64, 1, "C"),
    "tally": records_type(layout.TALLY),
    "tariffs": records_type(layout.TARIFF),
    "outlooks": records_type(layout.OUTLOOK),
    "waits": records_type(layout.WAIT),
    "first_to_move": COUNTS,
}


def _part_type(cls: type) -> types.NamedTuple:
    return tuple_type(cls, *(_ARRAYS[name] for name in cls.__annotations__))


CORE, CENTRE, COPIES = map(_part_type, (layout.Core, layout.Centre, layout.Copies))
REQUEST = tuple_type(layout.Request, records_type(layout.REQUEST), int64)

CLUSTER = tuple_type(
    layout.Cluster,
    records_type(layout.SHARED),
    records_type(layout.ENGINE),
    records_type(layout.INSTANCE),
    records_type(layout.VIEW),
)

CATCH_UP = int64(int64, int64, int64, int64)
DISPATCH = int64(CLUSTER, REQUEST, FLOATS, FLOATS, STREAM)
ORDER = float64(REQUEST, int64, FLOATS)
PREDICT = float64(REQUEST, FLOATS, FLOATS, STREAM)
REMAIN = float64(REQUEST, int64, FLOATS, FLOATS)
OBSERVE = types.void(REQUEST, int64, FLOATS, FLOATS)
ADMIT = DISPATCH
CHOOSE_QUEUE = int64(CLUSTER, FLOATS, FLOATS, STREAM)
MIGRATE = int64(CLUSTER, MOVES, FLOATS, FLOATS, STREAM)
SCALE = CHOOSE_QUEUE
PLAY = int64(int64, int64)
RUN = int64(int64, int64)
WHAT_IF = float64(int64, int64, int64, int64, float64, float64)


def python_address(function: Callable[..., Any]) -> int:
    """Return the stand-in for an address when compilation is disabled."""
    if function not in _PYTHON_FUNCTIONS:
        _PYTHON_FUNCTIONS.append(function)
    return _PYTHON_FUNCTIONS.index(function)


def _caller(signature: Signature) -> Callable[..., Any]:
    """Return a function (address, *arguments) that calls a compiled function of this signature."""
    if IS_JIT_DISABLED:
        return lambda address, *arguments: _PYTHON_FUNCTIONS[address](*arguments)

    def generate(context, builder, _, arguments):
        address, *rest = arguments
        argument_types = [context.get_value_type(t) for t in signature.args]
        is_void = signature.return_type == types.void
        return_type = ir.VoidType() if is_void else context.get_value_type(signature.return_type)
        function = ir.FunctionType(return_type, argument_types)
        result = builder.call(builder.inttoptr(address, function.as_pointer()), rest)
        return context.get_dummy_value() if is_void else result

    return _INTRINSICS[len(signature.args)](signature, generate)


def _with_two(signature, generate):
    @intrinsic
    def call(typing, address, a, b):
        return signature.return_type(int64, *signature.args), generate

    return call


def _with_three(signature, generate):
    @intrinsic
    def call(typing, address, a, b, c):
        return signature.return_type(int64, *signature.args), generate

    return call


def _with_four(signature, generate):
    @intrinsic
    def call(typing, address, a, b, c, d):
        return signature.return_type(int64, *signature.args), generate

    return call


def _with_five(signature, generate):
    @intrinsic
    def call(typing, address, a, b, c, d, e):
        return signature.return_type(int64, *signature.args), generate

    return call


def _with_six(signature, generate):
    @intrinsic
    def call(typing, address, a, b, c, d, e, f):
        return signature.return_type(int64, *signature.args), generate

    return call


_INTRINSICS = {2: _with_two, 3: _with_three, 4: _with_four, 5: _with_five, 6: _with_six}

call_catch_up = _caller(CATCH_UP)
call_dispatch = _caller(DISPATCH)
call_order = _caller(ORDER)
call_predict = _caller(PREDICT)
call_remaining = _caller(REMAIN)
call_observe = _caller(OBSERVE)
call_admission = _caller(ADMIT)
call_queue = _caller(CHOOSE_QUEUE)
call_migration = _caller(MIGRATE)
call_scaling = _caller(SCALE)
call_what_if = _caller(WHAT_IF)
call_play = _caller(PLAY)
call_run = _caller(RUN)


def _store_python(address: int, part: Any) -> int:
    return python_address(lambda: part)


def _python_part_at(pointer: int) -> Any:
    return _PYTHON_FUNCTIONS[pointer]()


@intrinsic
def _store(typing, address, part):
    """Write a tuple (array descriptors, not arrays) to an address; return the address."""

    def generate(context, builder, signature, arguments):
        pointer_type = context.get_value_type(signature.args[1]).as_pointer()
        builder.store(arguments[1], builder.inttoptr(arguments[0], pointer_type))
        return arguments[0]

    return int64(int64, part), generate


class PartAt(types.Type):
    """Numba's type of a part of the state that is known by its address: handed on in one word.

    An array's descriptor is read where it is used. Nobody writes one while compiled code runs.
    """

    def __init__(self, part: types.NamedTuple) -> None:
        self.part = part
        super().__init__(name=f"PartAt({part})")


@register_model(PartAt)
class _PartAtModel(models.PrimitiveModel):
    def __init__(self, manager: Any, part_at: PartAt) -> None:
        super().__init__(manager, part_at, ir.IntType(8).as_pointer())


@infer_getattr
class _PartAtAttributes(AttributeTemplate):
    key = PartAt

    def generic_resolve(self, part_at: PartAt, name: str) -> Any:
        fields = part_at.part.fields
        return part_at.part.types[fields.index(name)] if name in fields else None


@lower_getattr_generic(PartAt)
def _read_field(context, builder, part_at, pointer, name):
    part_pointer = context.get_value_type(part_at.part).as_pointer()
    place = builder.bitcast(pointer, part_pointer)
    field = gep_inbounds(builder, place, 0, part_at.part.fields.index(name))
    return _load_constant(builder, field)


def _load_constant(builder, pointer):
    """Load a value word by word, each marked as one that never changes: LLVM need not read it again."""
    kind = pointer.type.pointee
    parts = getattr(kind, "elements", None)
    if parts is None:
        word = builder.load(pointer)
        word.set_metadata("invariant.load", builder.module.add_metadata([]))
        return word
    value = ir.Constant(kind, ir.Undefined)
    for k in range(len(parts)):
        part = _load_constant(builder, gep_inbounds(builder, pointer, 0, k))
        value = builder.insert_value(value, part, k)
    return value


def reader(part: types.NamedTuple) -> Any:
    """Return a function (address) that returns the part which store put there; its arrays must still be alive."""
    if IS_JIT_DISABLED:
        return _python_part_at
    part_type = PartAt(part)

    @intrinsic
    def part_at(typing, pointer):
        def generate(context, builder, _, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(part_type))

        return part_type(int64), generate

    setattr(part_at, CACHED_BY, part)
    return part_at


store: Any = _store_python if IS_JIT_DISABLED else _store
state_at, centre_at, copies_at = map(reader, (CORE, CENTRE, COPIES))


@kernel
def centre(state):
    """Return the Centre that belongs to a Core."""
    return centre_at(state.shared[0].centre_pointer)


@kernel
def copies(state):
    """Return the Copies that belong to a Core."""
    return copies_at(state.shared[0].copies_pointer)
