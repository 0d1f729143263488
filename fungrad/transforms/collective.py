"""Collectives: operations across the axis of an enclosing vmap that has a name (JAX's `axis_name`).

Each is one primitive with the axis' name and size as parameters. The vmap of that name turns it into ordinary
operations on the mapped axis (`collect`); every other transform treats it as the linear map between all lanes that
it is, so psum is its own transpose, that of ppermute is the inverse permutation, and so on.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes, tree
from ..errors import RefusedError, ShapeError
from ..ir.primitive import PRIMITIVES, Primitive, Refused, Rule, Zero, declare
from ..ir.types import Type, array_type
from ..ops.create import full, iota
from ..ops.dynamic import dynamic_slice
from ..ops.elementwise import eq, mul, select
from ..ops.index import take
from ..ops.linear import convert, reduce_sum, reshape, transpose
from ..ops.reduce import reduce_max, reduce_min
from ..ops.rules import batch_to_front, move_axis
from ..ops.slicing import concatenate, slice_
from ..trace import bind, thread_state
from ..util import canonical_axis
from .flat import is_python_scalar, to_value


def _unbound(name: str) -> Refused:
    return Refused(f"{name} is computed by the vmap whose axis_name it names; outside of it there is no such axis")


def _reference(*arrays: np.ndarray, **params: Any) -> np.ndarray:
    raise RefusedError("a collective has no value outside the vmap whose axis it names")


def axis_size(axis_name: Any) -> int:
    """The size of the named axis, a Python int. NameError if no enclosing vmap has that name."""
    sizes = 1
    for name in axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,):
        found = [size for known, size in thread_state.axes if known == name]
        if not found:
            known = ", ".join(repr(known) for known, _ in thread_state.axes) or "none"
            raise NameError(f"there is no axis named {name!r} here (names: {known}). Collectives work inside "
                            f"fungrad.vmap(f, axis_name={name!r}).")
        sizes *= found[-1]
    return sizes


def _elsewhere(name: str) -> Rule:
    """The batch rule of a collective that acts on whole values, for maps of other names."""
    def batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        return bind(PRIMITIVES[name], *operands, **params), axes[0]
    return batch


def _linear_jvp(name: str) -> Rule:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        result = bind(PRIMITIVES[name], *primals, **params)
        if type(tangents[0]) is Zero or not dtypes.is_float(primals[0].dtype):
            return result, Zero(result.type)
        return result, bind(PRIMITIVES[name], tangents[0], **params)
    return jvp


# ---- reductions -----------------------------------------------------------------------------------------------------

def _same(x: Type, *, axis_name: Any, axis_size: int) -> Type:
    return x


def _psum_collect(size: int, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, None]:
    (x,), (axis,) = operands, axes
    if axis is None:
        return mul(x, full(x.shape, size, x.dtype)), None
    return reduce_sum(x, (axis,)), None


psum_p = declare(Primitive(
    "psum", _same, _reference, _linear_jvp("psum"),
    lambda cotangent, operands, **params: (bind(psum_p, cotangent, **params),),
    _elsewhere("psum"), _unbound("psum"), frozenset({"linear"}), "The sum over a named axis, for all of its lanes.",
    collect=_psum_collect))


def _extremum_jvp(name: str) -> Rule:
    """Lanes that attain the extremum share its derivative."""
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        (x,), (t,) = primals, tangents
        result = bind(PRIMITIVES[name], x, **params)
        if type(t) is Zero or not dtypes.is_float(x.dtype):
            return result, Zero(result.type)
        attained = eq(x, result)
        count = bind(psum_p, convert(attained, x.dtype), **params)
        total = bind(psum_p, select(attained, t, full(x.shape, 0, x.dtype)), **params)
        return result, bind(PRIMITIVES["div"], total, count)
    return jvp


def _extremum(name: str, reduction: Any) -> Primitive:
    def collect(size: int, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, None]:
        return (operands[0] if axes[0] is None else reduction(operands[0], (axes[0],))), None
    return declare(
        Primitive(
            name,
            _same,
            _reference,
            _extremum_jvp(name),
            Refused(f"{name} is not linear, so it has no transpose"),
            _elsewhere(name),
            _unbound(name),
            frozenset(),
            f"The {name[1:]} over a named axis, for all of its lanes.",
            collect=collect,
        )
    )


pmax_p = _extremum("pmax", reduce_max)
pmin_p = _extremum("pmin", reduce_min)

# ---- the lane's number ----------------------------------------------------------------------------------------------

_NO_OPERAND = Refused("an operation without operands is never differentiated, transposed or batched")

axis_index_p = declare(Primitive(
    "axis_index", lambda *, axis_name, axis_size: array_type((), dtypes.int32), _reference, _NO_OPERAND, _NO_OPERAND,
    _NO_OPERAND, _unbound("axis_index"), frozenset({"creation"}), "The number of the lane along a named axis.",
    collect=lambda size, operands, axes, **params: (iota((size,), 0, dtypes.int32), 0)))

# ---- gathering ------------------------------------------------------------------------------------------------------


def _gather_type(x: Type, *, axis_name: Any, axis_size: int) -> Type:
    return array_type((axis_size, *x.shape), x.dtype)


def _gather_collect(size: int, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, None]:
    return batch_to_front(size, operands[0], axes[0]), None


def _gather_transpose(cotangent: Any, operands: Sequence[Any], *, axis_name: Any, axis_size: int) -> tuple[Any]:
    """Each lane gets the sum over lanes of the cotangents of its part."""
    total = bind(psum_p, cotangent, axis_name=axis_name, axis_size=axis_size)
    number = bind(axis_index_p, axis_name=axis_name, axis_size=axis_size)
    zero = full((), 0, number.dtype)
    part = dynamic_slice(total, [number, *[zero] * (total.ndim - 1)], (1, *total.shape[1:]))
    return (reshape(part, total.shape[1:]),)


def _shifted(name: str) -> Rule:
    """The batch rule, for maps of other names, of a collective whose result has the lanes' axis first."""
    def batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, int]:
        return bind(PRIMITIVES[name], move_axis(operands[0], axes[0] or 0, 0), **params), 1
    return batch


all_gather_p = declare(Primitive(
    "all_gather", _gather_type, _reference, _linear_jvp("all_gather"), _gather_transpose, _shifted("all_gather"),
    _unbound("all_gather"), frozenset({"linear"}), "The values of all lanes of a named axis, along a new first axis.",
    collect=_gather_collect))

# ---- permutations ---------------------------------------------------------------------------------------------------

Permutation = tuple[tuple[int, int], ...]


def _permute_type(x: Type, *, axis_name: Any, axis_size: int, permutation: Permutation) -> Type:
    return x


def _permute_collect(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, axis_name: Any, axis_size: int,
                     permutation: Permutation) -> tuple[Any, int]:
    x = batch_to_front(size, operands[0], axes[0])
    zero = full((1, *x.shape[1:]), 0, x.dtype)
    sources = {destination: source for source, destination in permutation}
    rows = concatenate([x, zero], 0)   # a lane to which nobody sends gets zeros
    parts = []
    for lane in range(size):
        row = sources.get(lane, size)
        parts.append(slice_(rows, (row, *[0] * (x.ndim - 1)), (row + 1, *x.shape[1:])))
    return concatenate(parts, 0), 0


def _permute_transpose(
    cotangent: Any, operands: Sequence[Any], *, permutation: Permutation, **params: Any
) -> tuple[Any]:
    inverse = tuple((destination, source) for source, destination in permutation)
    return (bind(ppermute_p, cotangent, permutation=inverse, **params),)


ppermute_p = declare(Primitive(
    "ppermute", _permute_type, _reference, _linear_jvp("ppermute"), _permute_transpose, _elsewhere("ppermute"),
    _unbound("ppermute"), frozenset({"linear"}),
    "The value of the lane that sends to this one by a list of (source, destination); zeros where none does.",
    collect=_permute_collect))


def _exchange_type(x: Type, *, axis_name: Any, axis_size: int) -> Type:
    return x


def _exchange_collect(size: int, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, int]:
    x = batch_to_front(size, operands[0], axes[0])
    return transpose(x, (1, 0, *range(2, x.ndim))), 0


all_to_all_p = declare(Primitive(
    "all_to_all", _exchange_type, _reference, _linear_jvp("all_to_all"),
    lambda cotangent, operands, **params: (bind(all_to_all_p, cotangent, **params),),
    lambda size, operands, axes, **params: (bind(all_to_all_p, move_axis(operands[0], axes[0], operands[0].ndim - 1),
                                                 **params), operands[0].ndim - 1),
    _unbound("all_to_all"), frozenset({"linear"}),
    "Part j (along the first axis) of lane i becomes part i of lane j.", collect=_exchange_collect))

# ---- the user's side ------------------------------------------------------------------------------------------------


def _names(axis_name: Any) -> tuple[Any, ...]:
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def _over(primitive: Primitive, x: Any, axis_name: Any) -> Any:
    for name in _names(axis_name):
        x = bind(primitive, x, axis_name=name, axis_size=axis_size(name))
    return x


def _leaf(x: Any, name: str) -> Any:
    return to_value(x, lambda: f"an operand of lax.{name}")


def psum(x: Any, axis_name: Any, *, axis_index_groups: None = None) -> Any:
    """The sum of a pytree over the named axis (or axes) of an enclosing vmap; a Python number is multiplied by the
    size.

    >>> import fungrad, fungrad.numpy as fnp
    >>> fungrad.vmap(lambda v: v / fungrad.lax.psum(v, "i"), axis_name="i")(fnp.arange(4.0)).tolist()[3]
    0.5
    """
    _no_groups("psum", axis_index_groups)
    count = axis_size(axis_name)
    return tree.tree_map(
        lambda leaf: leaf * count if is_python_scalar(leaf) else _over(psum_p, _leaf(leaf, "psum"), axis_name), x
    )


def pmean(x: Any, axis_name: Any, *, axis_index_groups: None = None) -> Any:
    """The mean of a pytree over the named axis (or axes)."""
    count = axis_size(axis_name)
    return tree.tree_map(lambda total: total / count, psum(x, axis_name, axis_index_groups=axis_index_groups))


def pmax(x: Any, axis_name: Any, *, axis_index_groups: None = None) -> Any:
    """The largest value of each leaf over the named axis (or axes)."""
    _no_groups("pmax", axis_index_groups)
    return tree.tree_map(lambda leaf: _over(pmax_p, _leaf(leaf, "pmax"), axis_name), x)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: None = None) -> Any:
    """The smallest value of each leaf over the named axis (or axes)."""
    _no_groups("pmin", axis_index_groups)
    return tree.tree_map(lambda leaf: _over(pmin_p, _leaf(leaf, "pmin"), axis_name), x)


def _no_groups(name: str, groups: Any) -> None:
    if groups is not None:
        raise NotImplementedError(f"lax.{name}: axis_index_groups is not supported; nest two vmaps with names instead")


def axis_index(axis_name: Any) -> Any:
    """The number of this lane along the named axis, an int32; of several names the last one counts fastest."""
    number: Any = None
    for name in _names(axis_name):
        own = bind(axis_index_p, axis_name=name, axis_size=axis_size(name))
        number = own if number is None else number * axis_size(name) + own
    return number


def all_gather(x: Any, axis_name: Any, *, axis_index_groups: None = None, axis: int = 0, tiled: bool = False) -> Any:
    """The values of all lanes, along a new axis `axis` (tiled: one after another along the existing one)."""
    _no_groups("all_gather", axis_index_groups)
    size = axis_size(axis_name)

    def gather(leaf: Any) -> Any:
        value = _leaf(leaf, "all_gather")
        place = canonical_axis(axis, value.ndim + (not tiled))
        shape = value.shape
        for name in reversed(_names(axis_name)):
            value = bind(all_gather_p, value, axis_name=name, axis_size=axis_size(name))
        value = move_axis(reshape(value, (size, *shape)), 0, place)
        return reshape(value, (*shape[:place], size * shape[place], *shape[place + 1:])) if tiled else value
    return tree.tree_map(gather, x)


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Send the value of each source lane to its destination, for pairs (source, destination); the others get zeros."""
    size = axis_size(axis_name)
    permutation = tuple((int(source), int(destination)) for source, destination in perm)
    lanes = [list(side) for side in zip(*permutation, strict=True)]
    if any(not 0 <= lane < size for side in lanes for lane in side) or any(
        len(set(side)) != len(side) for side in lanes
    ):
        raise ValueError(
            f"lax.ppermute: {permutation} must name lanes 0..{size - 1}, each at most once as a source and once "
            f"as a destination"
        )
    return tree.tree_map(lambda leaf: bind(ppermute_p, _leaf(leaf, "ppermute"), axis_name=axis_name, axis_size=size,
                                           permutation=permutation), x)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Lane i gets the value of lane perm[i]."""
    return ppermute(x, axis_name, list(zip(perm, range(len(perm)), strict=True)))


def all_to_all(x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, axis_index_groups: None = None,
               tiled: bool = False) -> Any:
    """Exchange parts: lane i's part j along `split_axis` goes to lane j, which puts part i at place i along
    `concat_axis`.

    Untiled the split axis has the named axis' size and is removed, and a new axis is made at `concat_axis`.
    """
    _no_groups("all_to_all", axis_index_groups)
    size = axis_size(axis_name)

    def exchange(leaf: Any) -> Any:
        value = _leaf(leaf, "all_to_all")
        split, joined = canonical_axis(split_axis, value.ndim), canonical_axis(concat_axis, value.ndim)
        if tiled:
            if value.shape[split] % size:
                raise ShapeError(f"lax.all_to_all: axis {split} of {value.type} does not divide into {size} parts")
            shape = value.shape
            value = reshape(value, (*shape[:split], size, shape[split] // size, *shape[split + 1:]))
        elif value.shape[split] != size:
            raise ShapeError(
                f"lax.all_to_all: axis {split} of {value.type} must have extent {size}, the named axis' size; "
                f"or use tiled=True"
            )
        parts = bind(all_to_all_p, move_axis(value, split, 0), axis_name=axis_name, axis_size=size)
        value = move_axis(parts, 0, joined)
        if not tiled:
            return value
        shape = value.shape
        return reshape(value, (*shape[:joined], size * shape[joined + 1], *shape[joined + 2:]))
    return tree.tree_map(exchange, x)


def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: None = None,
                 tiled: bool = False) -> Any:
    """The sum over the named axis, of which lane i keeps part i along `scatter_dimension`."""
    _no_groups("psum_scatter", axis_index_groups)
    size = axis_size(axis_name)

    def scatter(leaf: Any) -> Any:
        value = _leaf(leaf, "psum_scatter")
        place = canonical_axis(scatter_dimension, value.ndim)
        if value.shape[place] % size or (not tiled and value.shape[place] != size):
            raise ShapeError(f"lax.psum_scatter: axis {place} of {value.type} does not divide into {size} parts")
        total = move_axis(_over(psum_p, value, axis_name), place, 0)
        rest = total.shape[1:]
        parts = reshape(total, (size, total.shape[0] // size, *rest))
        own = take(parts, axis_index(axis_name), 0, "clip")
        own = reshape(own, (total.shape[0] // size, *rest))
        return move_axis(own, 0, place) if tiled else reshape(own, rest)
    return tree.tree_map(scatter, x)


