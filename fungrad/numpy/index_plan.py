"""What an index expression asks for: `x[index]` as static slices, new axes, and positions given by arrays.

NumPy's rules: integers drop their axis; slices keep theirs; None adds one; an Ellipsis stands for the missing slices; a
boolean array of k axes stands for the k arrays of positions where it is true; integer arrays broadcast together, and
their axes come where the arrays stand if these are neighbours (integers count as arrays then), else first.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..ir.value import Value
from ..lax.conversion import concrete, is_python_scalar, of_sequence
from ..lax.promotion import broadcast_shape
from ..trace import Tracer

Shape = tuple[int, ...]
_KINDS = ("integers, slices, Ellipsis, None, and arrays of integers or bool")


class Part(NamedTuple):
    """One entry of an index: kind "new" | "slice" | "integer" | "array"; the axis it indexes (-1 for "new").

    slice: `start`, `count` elements, `step` (may be negative). integer: `start`. array: `positions`, a NumPy array
    (known while tracing) or a Value.
    """
    kind: str
    axis: int = -1
    start: int = 0
    count: int = 1
    step: int = 1
    positions: Any = None


class Plan(NamedTuple):
    """An index applied to an array of `shape` (which has an extra axis of extent 1 for each scalar bool).

    arrays: the "array" parts. rows: the common shape of their positions. first: where the rows' axes stand among the
    kept axes (those of slices). result: the shape of x[index].
    """
    shape: Shape
    parts: tuple[Part, ...]
    arrays: tuple[Part, ...]
    rows: Shape
    first: int
    result: Shape

    @property
    def windows(self) -> tuple[Part, ...]:
        """The slice parts, in order."""
        return tuple(part for part in self.parts if part.kind == "slice")


def plan(shape: Shape, index: Any, lenient: bool = False) -> Plan:
    """Parse an index of an array of this shape; IndexError or TypeError where it does not fit.

    lenient: an integer that is out of bounds becomes an array of positions, for modes that say what it means.
    """
    items, gap = _expanded(shape, list(index) if isinstance(index, tuple) else [index])
    parts: list[Part] = []
    extended = list(shape)
    axis = 0
    for item in items:
        if item is None:
            parts.append(Part("new"))
            continue
        if isinstance(item, _ScalarBool):
            extended.insert(axis, 1)
            part = Part("array", axis, positions=np.zeros(int(item.value), np.int32))
        elif isinstance(item, slice):
            part = _slice_part(item, axis, extended[axis])
        elif isinstance(item, int):
            part = _integer_part(item, axis, extended[axis], tuple(extended), lenient)
        else:
            part = Part("array", axis, positions=item)
        parts.append(part)
        axis += 1
    return _placed(tuple(extended), tuple(parts), gap)


class _ScalarBool:
    """A bool without axes, as an index."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


def _placed(shape: Shape, parts: tuple[Part, ...], gap: int | None) -> Plan:
    """The plan with the place and shape of the arrays' axes in the result. gap: the part before which `...` stands."""
    arrays = tuple(part for part in parts if part.kind == "array")
    rows = broadcast_shape("indexing", *[part.positions.shape for part in arrays]) if arrays else ()
    result: list[int] = []
    at: int | None = None     # of the rows' axes in the result
    first = 0                 # ... among the kept axes
    kept = 0
    advanced = [number for number, part in enumerate(parts) if part.kind in ("array", "integer")] if rows else []
    neighbours = not advanced or advanced[-1] - advanced[0] == len(advanced) - 1
    if advanced and gap is not None and advanced[0] < gap <= advanced[-1]:
        neighbours = False   # NumPy: an Ellipsis separates even where it stands for no axis
    for number, part in enumerate(parts):
        if advanced and number == advanced[0]:
            at, first = (len(result), kept) if neighbours else (0, 0)
        if part.kind == "new":
            result.append(1)
        elif part.kind == "slice":
            result.append(part.count)
            kept += 1
    if at is not None:
        result[at:at] = rows
    return Plan(shape, parts, arrays, rows, first, tuple(result))


# ---- reading the entries --------------------------------------------------------------------------------------------

def _expanded(shape: Shape, items: list[Any]) -> tuple[list[Any], int | None]:
    """The entries one for each axis: bool arrays as positions, the Ellipsis as slices, trailing slices added.

    Answers with them where the Ellipsis stood, as a number of entries before it (None: there was none).
    """
    entries = [entry for item in items for entry in _entry(item)]
    used = sum(entry is not None and entry is not Ellipsis and not isinstance(entry, _ScalarBool) for entry in entries)
    used += sum(entry.axes - 1 for entry in entries if isinstance(entry, _Mask))
    missing = len(shape) - used
    if missing < 0:
        raise IndexError(f"too many indices: an array of shape {shape} has {len(shape)} axes, but {used} were indexed.")
    ellipses = sum(entry is Ellipsis for entry in entries)
    if ellipses > 1:
        raise IndexError("an index can have only one Ellipsis (...).")
    if not ellipses:
        entries.append(Ellipsis)
    result: list[Any] = []
    gap: int | None = None
    axis = 0
    for entry in entries:
        if entry is Ellipsis:
            gap = len(result) if ellipses else None
            result.extend([slice(None)] * missing)
            axis += missing
        elif isinstance(entry, _Mask):
            result.extend(entry.positions(shape, axis))
            axis += entry.axes
        else:
            result.append(entry)
            axis += entry is not None and not isinstance(entry, _ScalarBool)
    return result, gap


class _Mask:
    """A boolean array with axes, as an index."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def axes(self) -> int:
        return self.array.ndim

    def positions(self, shape: Shape, axis: int) -> Sequence[np.ndarray]:
        check_mask(self.array.shape, shape, axis)
        found = np.nonzero(concrete(self.array, "a boolean mask as an index"))
        return [positions.astype(np.int32 if extent < 2**31 else np.int64)
                for positions, extent in zip(found, self.array.shape, strict=True)]


def check_mask(mask: Shape, shape: Shape, axis: int) -> None:
    """IndexError unless a mask of shape `mask` fits the axes of an array from `axis` on."""
    if mask != shape[axis:axis + len(mask)]:
        raise IndexError(f"a boolean index of shape {mask} does not match the axes it indexes, of shape "
                         f"{shape[axis:axis + len(mask)]} (axes {axis} on of an array of shape {shape}).")


def _entry(item: Any) -> tuple[Any, ...]:
    """One entry of an index, as None, Ellipsis, slice, int, _ScalarBool, _Mask, or integer positions."""
    if item is None or item is Ellipsis or type(item) is int:
        return (item,)
    if isinstance(item, slice):
        return (item,)
    if isinstance(item, (bool, np.bool_)):
        return (_ScalarBool(bool(item)),)
    if isinstance(item, np.integer):
        return (int(item),)
    if isinstance(item, (list, tuple, range)):
        item = np.zeros(np.shape(item), np.int32) if np.size(item) == 0 and not _holds_values(item) else _sequence(item)
    if isinstance(item, Value):
        return _array_entry(item)
    if isinstance(item, int):
        return (int(item),)
    if hasattr(item, "__array__") and not is_python_scalar(item):
        return _array_entry(np.asarray(item))
    raise TypeError(f"an array is indexed with {_KINDS}, not with {type(item).__name__}: {item!r}.")


def _holds_values(items: Any) -> bool:
    return any(isinstance(i, Value) or (isinstance(i, (list, tuple)) and _holds_values(i)) for i in items)


def _sequence(items: Any) -> Any:
    return of_sequence("an index", items) if _holds_values(items) else np.asarray(items)


def _array_entry(array: Any) -> tuple[Any, ...]:
    if array.dtype == dtypes.bool_:
        if array.ndim == 0:
            return (_ScalarBool(bool(concrete(array, "a boolean mask as an index"))),)
        return (_Mask(array),)
    if not dtypes.is_integer(array.dtype):
        raise TypeError(f"an array is indexed with {_KINDS}, not with an array of {array.dtype.name}. "
                        f"Write index.astype('int32').")
    if isinstance(array, np.ndarray) and array.ndim == 0:
        return (int(array),)
    return (array,)


def _bound(value: Any) -> int | None:
    """A slice's bound as an integer."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, Tracer) and value.concrete() is None:
        raise TypeError(f"a slice needs bounds that are known while tracing, got a traced {value.type}. Write "
                        f"fungrad.lax.dynamic_slice_in_dim(x, start, size) for a window of fixed size at a traced "
                        f"start.")
    try:
        return value.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"a slice needs integer bounds, got {type(value).__name__}: {value!r}.") from None


def _slice_part(item: slice, axis: int, extent: int) -> Part:
    if item.start is None and item.stop is None and item.step is None:
        return Part("slice", axis, 0, extent, 1)
    start, stop, step = slice(_bound(item.start), _bound(item.stop), _bound(item.step)).indices(extent)
    count = len(range(start, stop, step))
    return Part("slice", axis, start if count else 0, count, step if count > 1 else 1)


def _integer_part(item: int, axis: int, extent: int, shape: Shape, lenient: bool) -> Part:
    if not -extent <= item < extent:
        if lenient:
            return Part("array", axis, positions=np.asarray(item, np.int64))
        raise IndexError(f"index {item} is out of bounds for axis {axis} with size {extent} (of an array of shape "
                         f"{shape}).")
    return Part("integer", axis, item % extent)


def check_updates(shape: Shape, result: Shape, name: str) -> Shape:
    """The shape of updates without leading axes of extent 1 beyond the result's; ShapeError if it does not
    broadcast.
    """
    while len(shape) > len(result) and shape[0] == 1:
        shape = shape[1:]
    if len(shape) > len(result) or broadcast_shape_or_none(shape, result) != result:
        raise ShapeError(f"{name}: updates of shape {shape} do not broadcast to {result}, the shape of x[index].")
    return shape


def broadcast_shape_or_none(first: Shape, second: Shape) -> Shape | None:
    """The common shape, or None if there is none."""
    try:
        return broadcast_shape("", first, second)
    except ShapeError:
        return None
