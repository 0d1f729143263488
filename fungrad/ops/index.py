"""gather and its transpose, scatter: windows of an array read or written at computed positions.

Both take the dimension numbers of JAX (see `IndexNumbers`, which serves either) and a mode for windows that do not lie
within the operand: "clip" moves them inside, "fill" (gather) reads a fill value, "drop" (scatter) writes nothing;
"promise_in_bounds" says that there are none (a broken promise reads or writes some element of the operand, or nothing).
A window is in or out as a whole. Index rows of a scatter act in order: of several "set"s on an element the last wins.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import is_float, is_integer, is_signed
from ..errors import DTypeError, ShapeError
from ..ir.expr import (
    BOOL,
    INDEX,
    TRUE,
    Axis,
    Buffer,
    Expr,
    Reader,
    axis as axis_expr,
    cast,
    conjunction,
    constant,
    index_constant,
    load,
    operation,
    select,
)
from ..ir.kernel import Fragment, If, Statement, Store
from ..ir.primitive import Linear, Primitive, Refused, Zero, declare, parameter_type
from ..ir.types import Literal, Shape, Type, array_type, literal
from ..trace import bind
from . import elementwise
from .create import full, full_like, iota
from .fragments import loop, nested, plus, times
from .linear import convert, reshape
from .rules import batch_to_front, instantiate, is_zero, move_axis

Axes = tuple[int, ...]


@parameter_type
class IndexNumbers(NamedTuple):
    """How windows, index rows and operand axes correspond; in brackets the names in JAX's gather / scatter.

    "Rows" are the vectors along the last axis of the indices; the result of a gather and the updates of a scatter have
    the axes of the rows and those of the windows.
    """
    window_dims: Axes                 # axes of the result that are window axes (offset_dims / update_window_dims)
    dropped_dims: Axes                # operand axes without a window axis (collapsed_slice_dims / inserted_window_dims)
    index_map: Axes                   # operand axis of an index entry (start_index_map / scatter_dims_to_operand_dims)
    operand_batch_dims: Axes = ()     # operand axes walked along with ... (operand_batching_dims)
    index_batch_dims: Axes = ()       # ... these axes of the indices (start_indices_ / scatter_indices_batching_dims)

    def window_axes(self, rank: int) -> Axes:
        """The operand axes that have a window axis, in order."""
        return tuple(a for a in range(rank) if a not in self.dropped_dims and a not in self.operand_batch_dims)

    def row_places(self, rank: int) -> Axes:
        """The axes of a result of this rank that are axes of the rows."""
        return tuple(a for a in range(rank) if a not in self.window_dims)

    def shifted(self, operand: bool, indices: bool) -> IndexNumbers:
        """The numbers after a leading axis was added to the result, and to the operand and the indices if so told.

        Added to both, it is a further pair of batch axes; to the operand alone, a whole window axis.
        """
        up = lambda axes, by=1: tuple(a + by for a in axes)
        pair = (0,) if operand and indices else ()
        whole = (0,) if operand and not indices else ()
        return IndexNumbers(
            (*whole, *up(self.window_dims)), up(self.dropped_dims, operand), up(self.index_map, operand),
            (*pair, *up(self.operand_batch_dims, operand)), (*pair, *up(self.index_batch_dims, indices)))


def _check_numbers(name: str, operand: Type, indices: Type, numbers: IndexNumbers, sizes: Shape, rank: int) -> None:
    """The checks that gather and scatter share; `rank` is that of the gather's result or the scatter's updates."""
    if not is_integer(indices.dtype):
        raise DTypeError(f"{name}: indices must be integers, got {indices}. Convert with x.astype('int32').")
    if indices.rank < 1 or indices.shape[-1] != len(numbers.index_map):
        raise ShapeError(f"{name}: the last axis of indices of shape {indices.shape} needs {len(numbers.index_map)} "
                         f"entries, one for each of the operand axes {numbers.index_map}")
    every = (*numbers.dropped_dims, *numbers.operand_batch_dims)
    for label, axes, limit in (("window", numbers.window_dims, rank), ("dropped and batch", every, operand.rank),
                               ("indexed and batch", (*numbers.index_map, *numbers.operand_batch_dims), operand.rank),
                               ("index batch", numbers.index_batch_dims, indices.rank - 1)):
        if len(set(axes)) != len(axes) or any(not 0 <= a < limit for a in axes):
            raise ShapeError(f"{name}: {label} axes {axes} are not distinct axes below {limit} (operand {operand}, "
                             f"indices {indices})")
    if list(numbers.window_dims) != sorted(numbers.window_dims):
        raise ShapeError(f"{name}: window axes {numbers.window_dims} must ascend")
    if len(numbers.window_dims) != len(numbers.window_axes(operand.rank)):
        raise ShapeError(f"{name}: {len(numbers.window_dims)} window axes {numbers.window_dims} for the "
                         f"{len(numbers.window_axes(operand.rank))} axes of {operand} that are not in {every}")
    nowhere = numbers.dropped_dims if name == "scatter" and operand.size == 0 else ()
    if len(sizes) != operand.rank or any(not 0 <= size <= operand.shape[a] and a not in nowhere
                                         for a, size in enumerate(sizes)):
        raise ShapeError(f"{name}: windows of shape {sizes} do not fit an operand of shape {operand.shape}")
    if any(sizes[a] != 1 for a in numbers.dropped_dims) or any(sizes[a] > 1 for a in numbers.operand_batch_dims):
        raise ShapeError(f"{name}: windows of shape {sizes} must have size 1 on the axes {every}")
    if tuple(operand.shape[a] for a in numbers.operand_batch_dims) != \
            tuple(indices.shape[a] for a in numbers.index_batch_dims):
        raise ShapeError(f"{name}: batch axes {numbers.operand_batch_dims} of an operand of shape {operand.shape} and "
                         f"{numbers.index_batch_dims} of indices of shape {indices.shape} differ")


def _coordinates(shape: Shape, indices: np.ndarray, numbers: IndexNumbers,
                 sizes: Shape) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The operand's coordinate of every (row..., window...) element, moved inside, and which rows need not be moved."""
    rows = indices.shape[:-1]
    wide = np.minimum(indices, np.uint64(2**63 - 1)).astype(np.int64) if indices.dtype == np.uint64 else \
        indices.astype(np.int64)
    axes = numbers.window_axes(len(shape))
    inside = np.ones(rows, bool)
    coordinates = [np.zeros((1,) * (len(rows) + len(axes)), np.int64) for _ in shape]

    def spread(array: np.ndarray, place: int) -> np.ndarray:
        return array.reshape([-1 if a == place else 1 for a in range(len(rows) + len(axes))])
    for number, a in enumerate(numbers.index_map):
        limit = shape[a] - sizes[a]
        inside &= (wide[..., number] >= 0) & (wide[..., number] <= limit)
        coordinates[a] = coordinates[a] + np.clip(wide[..., number], 0, limit).reshape((*rows, *[1] * len(axes)))
    for a, row_axis in zip(numbers.operand_batch_dims, numbers.index_batch_dims, strict=True):
        coordinates[a] = coordinates[a] + spread(np.arange(shape[a]), row_axis)
    for number, a in enumerate(axes):
        coordinates[a] = coordinates[a] + spread(np.arange(sizes[a]), len(rows) + number)
    full_shape = (*rows, *(sizes[a] for a in axes))
    return tuple(np.broadcast_to(c, full_shape) for c in coordinates), inside


def _start(entry: Expr, limit: int) -> tuple[Expr, Expr, Expr]:
    """(as given, moved into [0, limit], whether it lies there) of one index entry."""
    if entry.dtype == np.dtype("uint64"):   # a large one would become negative
        top = constant(limit, entry.dtype)
        given = cast(operation("min", entry, top), INDEX)
        return given, given, operation("le", entry, top)
    given = cast(entry, INDEX)
    inside = operation("le", given, index_constant(limit))
    moved = operation("min", given, index_constant(limit))
    if is_signed(entry.dtype):
        inside = conjunction(operation("ge", given, index_constant(0)), inside)
        moved = operation("max", moved, index_constant(0))
    return given, (index_constant(0) if limit == 0 else moved), inside


# ---- gather ---------------------------------------------------------------------------------------------------------

GATHER_MODES = ("clip", "fill", "promise_in_bounds")


def _gather_type(operand: Type, indices: Type, *, dimension_numbers: tuple, slice_sizes: Shape, mode: str,
                 fill_value: Literal | None) -> Type:
    numbers = IndexNumbers(*dimension_numbers)
    rank = max(indices.rank - 1, 0) + len(numbers.window_dims)
    _check_numbers("gather", operand, indices, numbers, slice_sizes, rank)
    if mode not in GATHER_MODES or (mode == "fill") != (fill_value is not None):
        raise ValueError(f"gather: mode must be one of {GATHER_MODES}, and 'fill' have a fill value; got {mode!r}")
    rows = iter(indices.shape[:-1])
    windows = iter(slice_sizes[a] for a in numbers.window_axes(operand.rank))
    return operand.with_shape(tuple(next(windows) if a in numbers.window_dims else next(rows) for a in range(rank)))


def _gather_reference(operand: np.ndarray, indices: np.ndarray, *, dimension_numbers: tuple, slice_sizes: Shape,
                      mode: str, fill_value: Literal | None) -> np.ndarray:
    numbers = IndexNumbers(*dimension_numbers)
    coordinates, inside = _coordinates(operand.shape, indices, numbers, slice_sizes)
    result = operand[coordinates] if operand.ndim else np.broadcast_to(operand, indices.shape[:-1])
    if fill_value is not None:
        filler = np.frombuffer(fill_value.bits, operand.dtype)[0]
        result = np.where(inside.reshape((*inside.shape, *[1] * (result.ndim - inside.ndim))), result, filler)
    return np.moveaxis(result, range(inside.ndim, result.ndim), numbers.window_dims).astype(operand.dtype)


def _gather_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, fill_value: Literal | None,
                **params: Any) -> tuple[Any, Any]:
    operand, indices = primals
    result = bind(gather_p, operand, indices, fill_value=fill_value, **params)
    if is_zero(tangents[0]):
        return result, Zero(result.type)
    filler = None if fill_value is None else literal(0, operand.dtype)
    return result, bind(gather_p, tangents[0], indices, fill_value=filler, **params)


def _gather_transpose(cotangent: Any, operands: Sequence[Any], *, dimension_numbers: tuple, slice_sizes: Shape,
                      mode: str, fill_value: Literal | None) -> tuple[Any, None]:
    operand, indices = operands
    zeros = full(operand.type.shape, 0, operand.type.dtype)
    return scatter(zeros, indices, cotangent, IndexNumbers(*dimension_numbers), "add",
                   mode="drop" if mode == "fill" else mode), None


def _gather_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, dimension_numbers: tuple,
                  slice_sizes: Shape, **params: Any) -> tuple[Any, int]:
    operand, indices = operands
    operand_axis, indices_axis = axes
    numbers = IndexNumbers(*dimension_numbers).shifted(operand_axis is not None, indices_axis is not None)
    if operand_axis is not None:
        operand = move_axis(operand, operand_axis, 0)
        slice_sizes = (size if indices_axis is None else min(1, size), *slice_sizes)
    if indices_axis is not None:
        indices = move_axis(indices, indices_axis, 0)
    return bind(gather_p, operand, indices, dimension_numbers=numbers, slice_sizes=slice_sizes, **params), 0


def _gather_lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, *,
                  dimension_numbers: tuple, slice_sizes: Shape, mode: str, fill_value: Literal | None) -> Expr:
    operand, indices = readers
    numbers = IndexNumbers(*dimension_numbers)
    rows = tuple(index[a] for a in numbers.row_places(type.rank))
    position: dict[int, Expr] = dict(zip(numbers.operand_batch_dims, (rows[a] for a in numbers.index_batch_dims),
                                         strict=True))
    position |= dict(zip(numbers.window_axes(len(operand.shape)), (index[a] for a in numbers.window_dims), strict=True))
    inside = TRUE
    for number, a in enumerate(numbers.index_map):
        entry = indices((*rows, index_constant(number)), valid)
        given, moved, within = _start(entry, operand.shape[a] - slice_sizes[a])
        if fill_value is not None:
            inside = conjunction(inside, within)
            moved = given
        position[a] = plus(position[a], moved) if a in position else moved
    at = tuple(position.get(a, index_constant(0)) for a in range(len(operand.shape)))
    element = operand(at, conjunction(valid, inside))
    return element if fill_value is None else select(inside, element, constant(fill_value, type.dtype))


gather_p = declare(Primitive(
    "gather", _gather_type, _gather_reference, _gather_jvp, _gather_transpose, _gather_batch, _gather_lower,
    frozenset({"movement"}),
    "For every index row, the window of the operand that begins there."))


def default_fill(dtype: np.dtype) -> bool | int | float:
    """What a gather reads outside its operand: NaN, the least signed integer, the greatest unsigned one, or True."""
    if is_float(dtype):
        return float("nan")
    if dtype == BOOL:
        return True
    return int(np.iinfo(dtype).min if is_signed(dtype) else np.iinfo(dtype).max)


def gather(operand: Any, indices: Any, numbers: IndexNumbers, slice_sizes: Shape, mode: str = "fill",
           fill_value: bool | int | float | None = None) -> Any:
    """Windows of `operand`, of shape `slice_sizes`, one for each row (last axis) of `indices`. See `IndexNumbers`."""
    filler = None
    if mode == "fill":
        filler = literal(default_fill(operand.dtype) if fill_value is None else fill_value, operand.dtype)
    return bind(gather_p, operand, indices, dimension_numbers=numbers, slice_sizes=tuple(slice_sizes), mode=mode,
                fill_value=filler)


def take_along_axis(operand: Any, indices: Any, axis: int, mode: str = "promise_in_bounds") -> Any:
    """result[i, j, k] = operand[i, indices[i, j, k], k] for axis 1; the shapes agree on the other axes."""
    batch = tuple(a for a in range(operand.ndim) if a != axis)
    numbers = IndexNumbers((), (axis,), (axis,), batch, batch)
    sizes = tuple(min(1, extent) for extent in operand.shape)
    return gather(operand, reshape(indices, (*indices.shape, 1)), numbers, sizes, mode)


def take(operand: Any, indices: Any, axis: int, mode: str = "fill") -> Any:
    """`operand` with axis `axis` replaced by the axes of `indices`: the slices at those positions."""
    rank = indices.ndim
    windows = tuple(a if a < axis else a + rank - 1 for a in range(operand.ndim) if a != axis)
    sizes = tuple(1 if a == axis else extent for a, extent in enumerate(operand.shape))
    return gather(operand, reshape(indices, (*indices.shape, 1)), IndexNumbers(windows, (axis,), (axis,)), sizes, mode)


# ---- scatter --------------------------------------------------------------------------------------------------------

SCATTER_MODES = ("clip", "drop", "promise_in_bounds")
_SCATTER_UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
SCATTER_COMBINES = ("set", *_SCATTER_UFUNCS)
_ON_BOOL = {"mul": "and", "min": "and", "max": "or"}


def window_sizes(operand: Type, updates: Type, numbers: IndexNumbers) -> Shape:
    """The windows' shape that the updates of a scatter imply, with size 1 on dropped and batch axes."""
    sizes = [min(1, extent) if a in numbers.operand_batch_dims else 1 for a, extent in enumerate(operand.shape)]
    for a, place in zip(numbers.window_axes(operand.rank), numbers.window_dims, strict=False):
        sizes[a] = updates.shape[place] if place < updates.rank else 0
    return tuple(sizes)


def _scatter_type(operand: Type, indices: Type, updates: Type, *, dimension_numbers: tuple, combine: str, mode: str,
                  unique: bool) -> Type:
    numbers = IndexNumbers(*dimension_numbers)
    if combine not in SCATTER_COMBINES or mode not in SCATTER_MODES:
        raise ValueError(f"scatter: combine must be one of {SCATTER_COMBINES} and mode one of {SCATTER_MODES}; got "
                         f"{combine!r}, {mode!r}")
    if operand.dtype != updates.dtype:
        raise DTypeError(f"scatter: an operand of {operand.dtype} and updates of {updates.dtype} differ. Convert with "
                         f"x.astype(...).")
    if combine == "add" and operand.dtype == BOOL:
        raise DTypeError("scatter: bool has no sum; use combine 'max' for a logical or, or convert to an integer type")
    _check_numbers("scatter", operand, indices, numbers, window_sizes(operand, updates, numbers), updates.rank)
    rows = tuple(updates.shape[a] for a in numbers.row_places(updates.rank))
    if rows != indices.shape[:-1]:
        raise ShapeError(f"scatter: updates of shape {updates.shape} with window axes {numbers.window_dims} do not "
                         f"have one window for each row of indices of shape {indices.shape}")
    return operand


def _scatter_reference(operand: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, dimension_numbers: tuple,
                       combine: str, mode: str, unique: bool) -> np.ndarray:
    numbers = IndexNumbers(*dimension_numbers)
    sizes = window_sizes(array_type(operand.shape, operand.dtype), array_type(updates.shape, updates.dtype), numbers)
    if operand.size == 0:
        return operand.copy()
    coordinates, inside = _coordinates(operand.shape, indices, numbers, sizes)
    rows_first = np.moveaxis(updates, numbers.window_dims, range(inside.ndim, updates.ndim))
    chosen = np.ones(inside.shape, bool) if mode == "clip" else inside
    result = operand.copy()
    at = tuple(c[chosen].ravel() for c in coordinates)
    values = rows_first[chosen].ravel()
    with np.errstate(all="ignore"):
        if operand.ndim == 0:
            at, result = (np.zeros(values.shape, np.int64),), result.reshape(1)
        if combine == "set":
            result[at] = values
        else:
            _SCATTER_UFUNCS[combine].at(result, at, values)
    return result.reshape(operand.shape)


def _scatter_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, combine: str, unique: bool,
                 **params: Any) -> tuple[Any, Any]:
    operand, indices, updates = primals
    result = bind(scatter_p, operand, indices, updates, combine=combine, unique=unique, **params)
    if (is_zero(tangents[0]) and is_zero(tangents[2])) or not is_float(operand.dtype):
        return result, Zero(result.type)
    operand_tangent, updates_tangent = instantiate(tangents[0]), instantiate(tangents[2])
    if combine in ("add", "set"):      # linear: the same update wins for the tangents
        return result, bind(scatter_p, operand_tangent, indices, updates_tangent, combine=combine, unique=unique,
                            **params)
    if combine == "mul":
        return result, _product_tangent(primals, tangents, unique=unique, **params)
    return result, _extremum_tangent(result, primals, operand_tangent, updates_tangent, **params)


def _product_tangent(primals: Sequence[Any], tangents: Sequence[Any], *, unique: bool, **params: Any) -> Any:
    operand, indices, updates = primals
    zeros = full_like(operand, 0)
    by_operand = zeros
    if not is_zero(tangents[0]):
        by_operand = bind(scatter_p, tangents[0], indices, updates, combine="mul", unique=unique, **params)
    if is_zero(tangents[2]):
        return by_operand
    if not unique:
        Refused("scatter with combine='mul' is differentiable in the updates only where no element is multiplied "
                "twice: say so with unique_indices=True")()
    by_updates = bind(scatter_p, zeros, indices, tangents[2], combine="add", unique=True, **params)
    return elementwise.add(by_operand, elementwise.mul(operand, by_updates))


def _extremum_tangent(result: Any, primals: Sequence[Any], operand_tangent: Any, updates_tangent: Any,
                      **params: Any) -> Any:
    """The mean of the tangents of all that equal the result: the operand's element and updates (as JAX)."""
    operand, indices, updates = primals
    zeros = full_like(operand, 0)
    chosen = window_of(result, indices, updates.type, **params)
    by_operand, by_updates = elementwise.eq(operand, result), elementwise.eq(updates, chosen)
    total = scatter_add_like(elementwise.select(by_operand, operand_tangent, zeros), indices,
                             elementwise.select(by_updates, updates_tangent, full_like(updates, 0)), **params)
    count = scatter_add_like(convert(by_operand, operand.dtype), indices, convert(by_updates, operand.dtype), **params)
    return elementwise.div(total, elementwise.max(count, 1.0))


def scatter_add_like(operand: Any, indices: Any, updates: Any, *, dimension_numbers: tuple, mode: str) -> Any:
    """The scatter-add with the parameters of another scatter."""
    return scatter(operand, indices, updates, IndexNumbers(*dimension_numbers), "add", mode=mode)


def window_of(operand: Any, indices: Any, updates: Type, *, dimension_numbers: tuple, mode: str) -> Any:
    """What a gather reads where a scatter with these parameters writes its updates; 0 for dropped ones."""
    numbers = IndexNumbers(*dimension_numbers)
    sizes = window_sizes(operand.type, updates, numbers)
    if operand.size == 0:
        return full(updates.shape, 0, updates.dtype)
    return gather(operand, indices, numbers, sizes, "fill" if mode == "drop" else mode, 0)


def _scatter_transpose(cotangent: Any, operands: Sequence[Any], *, dimension_numbers: tuple, combine: str, mode: str,
                       unique: bool) -> tuple[Any, None, Any]:
    operand, indices, updates = operands
    params = {"dimension_numbers": dimension_numbers, "mode": mode}
    if combine not in ("add", "set", "mul") or (combine == "mul" and isinstance(updates, Linear)):
        Refused(f"scatter with combine={combine!r} is not linear; differentiate it with jvp, vjp or grad")()
    to_operand = to_updates = None
    if combine == "mul":
        return bind(scatter_p, cotangent, indices, updates, combine="mul", unique=unique, **params), None, None
    updates_type = updates.type
    if isinstance(operand, Linear):
        nothing = full(updates_type.shape, 0, updates_type.dtype)
        to_operand = cotangent if combine == "add" else bind(
            scatter_p, cotangent, indices, nothing, combine="set", unique=unique, **params)
    if isinstance(updates, Linear):
        to_updates = window_of(cotangent, indices, updates_type, **params)
        if combine == "set" and not unique:
            wins = _winners(operand.type, indices, updates_type, **params)
            to_updates = elementwise.select(wins, to_updates, full_like(to_updates, 0))
    return to_operand, None, to_updates


def _winners(operand: Type, indices: Any, updates: Type, **params: Any) -> Any:
    """Which elements of the updates are the last to be set: those that find their own number when read back."""
    kind = np.dtype("int32" if updates.size < 2**31 else "int64")
    numbers = reshape(iota((updates.size,), 0, kind), updates.shape)
    written = bind(scatter_p, full(operand.shape, -1, kind), indices, numbers, combine="set", unique=False, **params)
    return elementwise.eq(window_of(written, indices, updates.with_dtype(kind), **params), numbers)


def _scatter_batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, dimension_numbers: tuple,
                   **params: Any) -> tuple[Any, int]:
    operand, _, updates = (batch_to_front(size, x, axis) for x, axis in zip(operands, axes, strict=True))
    mapped = axes[1] is not None
    indices = move_axis(operands[1], axes[1], 0) if axes[1] is not None else operands[1]
    numbers = IndexNumbers(*dimension_numbers).shifted(True, mapped)
    return bind(scatter_p, operand, indices, updates, dimension_numbers=numbers, **params), 0


# ---- the loops of scatter -------------------------------------------------------------------------------------------

_BLOCK_BYTES = 32768      # an operand is split among threads in blocks of at least so many bytes ...
_BLOCK_WINDOW = 16        # ... and, since every block looks at every index, as many blocks as windows have 16 elements


class _ScatterLoops:
    """Copies the operand, then goes through the index rows in order.

    Parallel over batch axes, and over blocks of the first indexed operand axis where windows are a single element of it
    and large besides (embedding gradients): every block goes through all rows and takes those that fall into it. So the
    result does not depend on the number of threads.
    """

    def __init__(self, types: Sequence[Type], numbers: IndexNumbers, combine: str | None, clip: bool):
        self.numbers, self.combine, self.clip = numbers, combine, clip
        self.operand, self.indices, self.updates = (
            Buffer(name, type) for name, type in zip(("operand", "indices", "updates"), types, strict=True))
        self.result = Buffer("result", types[0])
        self.shape: Shape = types[0].shape
        self.sizes = window_sizes(types[0], types[2], numbers)
        self.batch = {a: Axis(f"batch{a}", self.shape[a]) for a in numbers.operand_batch_dims}
        self.free = tuple(a for a in range(len(self.shape)) if a not in self.batch)
        self.split: int | None = None
        self.block_rows = 0
        blocks = self._block_count(types[0])
        if blocks > 1:
            self.split = numbers.index_map[0]
            self.block_rows = -(-self.shape[numbers.index_map[0]] // blocks)
            blocks = -(-self.shape[numbers.index_map[0]] // self.block_rows)
        self.block = Axis("block", blocks)

    def _block_count(self, operand: Type) -> int:
        entries = self.numbers.index_map
        if not entries or self.sizes[entries[0]] != 1 or operand.size == 0:
            return 1
        window = int(np.prod([self.sizes[a] for a in self.free], dtype=np.int64))
        return max(1, min(32, self.shape[entries[0]], window // _BLOCK_WINDOW, operand.nbytes // _BLOCK_BYTES))

    def fragment(self) -> Fragment:
        outer = (*self.batch.values(), *((self.block,) if self.split is not None else ()))
        body = () if self.result.type.size == 0 else (*self._copy(), *self._updates())
        return Fragment((self.result,), (self.operand, self.indices, self.updates), (), outer, body)

    def _at(self, free: dict[int, Expr]) -> tuple[Expr, ...]:
        """An operand index from those of its axes that are no batch axes."""
        return tuple(axis_expr(self.batch[a]) if a in self.batch else free[a] for a in range(len(self.shape)))

    def _first_row(self) -> Expr:
        return times(axis_expr(self.block), self.block_rows)

    def _copy(self) -> tuple[Statement, ...]:
        axes = tuple(a for a in self.free if a != self.split)
        itemsize = self.operand.type.dtype.itemsize if axes and axes[-1] == len(self.shape) - 1 else None

        def elements(rows: dict[int, Expr]) -> tuple[Statement, ...]:
            def one(index: tuple[Expr, ...]) -> tuple[Statement, ...]:
                at = self._at(rows | dict(zip(axes, index, strict=True)))
                return (Store(self.result, at, load(self.operand, at)),)
            return nested([f"c{a}" for a in axes], [self.shape[a] for a in axes], one, itemsize)
        if self.split is None:
            return elements({})
        rows, total, split = self.block_rows, self.shape[self.split], self.split
        left = operation("sub", index_constant(total), self._first_row())
        stop = operation("min", left, index_constant(rows)) if total % rows else None
        return (loop("row", rows, lambda row: elements({split: plus(self._first_row(), row)}), stop=stop),)

    def _starts(self, row: tuple[Expr, ...]) -> tuple[dict[int, Expr], Expr]:
        """Where the window of an index row starts, and whether it is to be written (in this block)."""
        starts: dict[int, Expr] = {}
        inside = TRUE
        for number, a in enumerate(self.numbers.index_map):
            entry = load(self.indices, (*row, index_constant(number)))
            given, moved, within = _start(entry, self.shape[a] - self.sizes[a])
            starts[a] = moved if self.clip else given
            if a == self.split:
                offset = operation("sub", starts[a], self._first_row())
                here = conjunction(operation("ge", offset, index_constant(0)),
                                   operation("lt", offset, index_constant(self.block_rows)))
                inside = conjunction(inside, here)
            if not self.clip:
                inside = conjunction(inside, within)
        return starts, inside

    def _updates(self) -> tuple[Statement, ...]:
        numbers = self.numbers
        batch_places = dict(zip(numbers.index_batch_dims, numbers.operand_batch_dims, strict=True))
        walked = tuple(a for a in range(self.indices.type.rank - 1) if a not in batch_places)
        windows = numbers.window_axes(len(self.shape))
        vector = bool(windows) and windows[-1] == len(self.shape) - 1 and self.sizes[windows[-1]] >= 4
        row_places = numbers.row_places(self.updates.type.rank)

        def one_row(index: tuple[Expr, ...]) -> tuple[Statement, ...]:
            steps = dict(zip(walked, index, strict=True))
            row = tuple(axis_expr(self.batch[batch_places[a]]) if a in batch_places else steps[a]
                        for a in range(self.indices.type.rank - 1))
            starts, inside = self._starts(row)

            def one_element(offsets: tuple[Expr, ...]) -> tuple[Statement, ...]:
                free = dict(starts)
                for a, offset in zip(windows, offsets, strict=True):
                    free[a] = plus(starts[a], offset) if a in starts else offset
                places = dict(zip(row_places, row, strict=True)) | dict(zip(numbers.window_dims, offsets, strict=True))
                value = load(self.updates, tuple(places[a] for a in range(self.updates.type.rank)))
                at = self._at({a: free.get(a, index_constant(0)) for a in self.free})
                return (Store(self.result, at, value, self.combine),)
            write = nested([f"w{a}" for a in windows], [self.sizes[a] for a in windows], one_element,
                           self.result.type.dtype.itemsize if vector else None)
            return write if inside is TRUE else (If(inside, write),)
        return nested([f"row{a}" for a in walked], [self.indices.type.shape[a] for a in walked], one_row)


def _scatter_lower(types: Sequence[Type], type: Type, *, dimension_numbers: tuple, combine: str, mode: str,
                   unique: bool) -> Fragment:
    operator = None if combine == "set" else _ON_BOOL[combine] if type.dtype == BOOL else combine
    return _ScatterLoops(types, IndexNumbers(*dimension_numbers), operator, mode == "clip").fragment()


scatter_p = declare(Primitive(
    "scatter", _scatter_type, _scatter_reference, _scatter_jvp, _scatter_transpose, _scatter_batch, _scatter_lower,
    frozenset({"loops"}),
    "The operand with windows of updates set, added, multiplied, or combined by min or max at computed positions."))


def scatter(operand: Any, indices: Any, updates: Any, numbers: IndexNumbers, combine: str = "set", mode: str = "drop",
            unique: bool = False) -> Any:
    """`operand` with one window of `updates` for each row (last axis) of `indices` combined into it.

    combine: "set", "add", "mul", "min" or "max". unique: a promise that no element is written twice, which makes some
    derivatives cheaper or possible. See `IndexNumbers`.
    """
    return bind(scatter_p, operand, indices, updates, dimension_numbers=numbers, combine=combine, mode=mode,
                unique=unique)
