"""Reductions, running reductions, windows and associative scans: JAX's names in lax."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes, tree
from ..errors import RefusedError, ShapeError
from ..ir.value import Value
from ..ops import cumulative, elementwise as ops, linear, reduce as reductions, slicing
from ..ops.create import full
from ..ops.window import window
from .arguments import axes_of, one_axis
from .conversion import as_value, place
from .convolution import padtype_to_pads
from .elementwise import logaddexp
from .promotion import to_same_dtype

Axes = tuple[int, ...]


def _reduction(name: str, operation: Callable[[Any, Axes], Any], doc: str) -> Callable[..., Value]:
    def function(operand: Any, axes: Sequence[int]) -> Value:
        value = as_value(name, operand)
        return operation(value, axes_of(name, tuple(axes), value.shape))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


reduce_sum = _reduction("reduce_sum", linear.reduce_sum, "The sum over axes.")
reduce_prod = _reduction("reduce_prod", reductions.reduce_prod, "The product over axes.")
reduce_max = _reduction("reduce_max", reductions.reduce_max, "The largest element over axes; NaN if there is one.")
reduce_min = _reduction("reduce_min", reductions.reduce_min, "The smallest element over axes; NaN if there is one.")
reduce_and = _reduction("reduce_and", reductions.reduce_and, "The bitwise and over axes.")
reduce_or = _reduction("reduce_or", reductions.reduce_or, "The bitwise or over axes.")
reduce_xor = _reduction("reduce_xor", reductions.reduce_xor, "The bitwise exclusive or over axes.")


def argmax(operand: Any, axis: int, index_dtype: Any = "int32") -> Value:
    """The first position of the largest element (or of a NaN) along an axis."""
    value = as_value("argmax", operand)
    return reductions.argmax(value, one_axis("argmax", axis, value.shape), dtypes.canonical(index_dtype))


def argmin(operand: Any, axis: int, index_dtype: Any = "int32") -> Value:
    """The first position of the smallest element (or of a NaN) along an axis."""
    value = as_value("argmin", operand)
    return reductions.argmin(value, one_axis("argmin", axis, value.shape), dtypes.canonical(index_dtype))


# ---- monoids --------------------------------------------------------------------------------------------------------

_Monoid = tuple[Callable[[Any, Axes], Any], Callable[[np.dtype], Any], Callable[[Any, Any], Any]]
_MONOIDS: dict[str, _Monoid] = {
    "add": (linear.reduce_sum, lambda dtype: 0, ops.add),
    "mul": (reductions.reduce_prod, lambda dtype: 1, ops.mul),
    "max": (reductions.reduce_max, dtypes.lowest, ops.max),
    "min": (reductions.reduce_min, dtypes.highest, ops.min),
    "and": (reductions.reduce_and, lambda dtype: True if dtype == dtypes.bool_ else -1, ops.bitwise_and),
    "or": (reductions.reduce_or, lambda dtype: 0, ops.bitwise_or),
    "xor": (reductions.reduce_xor, lambda dtype: 0, ops.bitwise_xor),
}
# The names under which these functions exist in fungrad.lax, fungrad.numpy, operator and builtins.
_NAMES = {"add": "add", "mul": "mul", "multiply": "mul", "max": "max", "maximum": "max", "min": "min", "minimum": "min",
          "bitwise_and": "and", "logical_and": "and", "and_": "and", "bitwise_or": "or", "logical_or": "or",
          "or_": "or",
          "bitwise_xor": "xor", "logical_xor": "xor", "xor": "xor"}
_OPERATORS = (operator.add, operator.mul, operator.and_, operator.or_, operator.xor)


def _monoid(name: str, computation: Any) -> _Monoid:
    """The reduction that a binary function stands for, recognised by the function itself."""
    found = _NAMES.get(getattr(computation, "__name__", ""))
    module = getattr(computation, "__module__", "") or ""
    if found is None or not (module.startswith("fungrad.") or computation in _OPERATORS):
        shown = getattr(computation, "__name__", computation)
        raise RefusedError(f"lax.{name} takes one of the functions add, mul, max, min, bitwise_and, bitwise_or, "
                           f"bitwise_xor of "
                           f"fungrad.lax (or their kin in fungrad.numpy), not {shown!r}. For another associative "
                           f"function use lax.associative_scan and take the last element.")
    return _MONOIDS[found]


def _host_scalar(x: Any) -> Any:
    """A Python scalar for a NumPy one."""
    if not isinstance(x, (np.ndarray, np.generic)) or np.ndim(x):
        return x
    item = x.item()
    # bfloat16's items are of a type of their own
    return item if isinstance(item, (bool, int, float)) else float(item)


def _is_identity(init: Any, identity: Any, dtype: np.dtype) -> bool:
    init = _host_scalar(init)
    return isinstance(init, (bool, int, float)) and (init == identity or (
        init in (float("-inf"), float("inf")) and identity == np.asarray(init).clip(*_limits(dtype)).item()))


def _limits(dtype: np.dtype) -> tuple[Any, Any]:
    return dtypes.lowest(dtype), dtypes.highest(dtype)


def _with_initial(result: Value, init: Any, monoid: _Monoid, name: str) -> Value:
    """`result` combined with an initial value that is not the identity."""
    _, identity, combine = monoid
    if _is_identity(init, identity(result.dtype), result.dtype):
        return result
    start, = to_same_dtype(name, _host_scalar(init), dtype=result.dtype)
    return combine(result, place(start, result.shape, result.dtype))


def reduce(operands: Any, init_values: Any, computation: Callable[..., Any], dimensions: Sequence[int]) -> Any:
    """The reduction of arrays over axes by one of lax's associative functions, starting with init_values."""
    monoid = _monoid("reduce", computation)

    def one(x: Any, init: Any) -> Value:
        value = as_value("reduce", x)
        return _with_initial(monoid[0](value, axes_of("reduce", tuple(dimensions), value.shape)), init, monoid,
                             "reduce")
    return tree.map(one, operands, init_values)


def reduce_window(operand: Any, init_value: Any, computation: Callable[..., Any], window_dimensions: Sequence[int],
                  window_strides: Sequence[int] | None = None, padding: Any = "VALID",
                  base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None) -> Value:
    """The reduction of each window of an array by one of lax's associative functions, starting with init_value.

    padding: "VALID", "SAME", "SAME_LOWER" or (before, after) for each axis, filled with the reduction's identity.

    >>> import fungrad.numpy as fnp
    >>> from fungrad import lax
    >>> lax.reduce_window(fnp.arange(4.0), -fnp.inf, lax.max, (2,), (2,), "VALID").tolist()
    [1.0, 3.0]
    """
    value = as_value("reduce_window", operand)
    monoid = _monoid("reduce_window", computation)
    ones = (1,) * value.ndim
    shape, strides, base, dilation = (tuple(map(int, given)) if given is not None else ones for given in
                                      (window_dimensions, window_strides, base_dilation, window_dilation))
    if not len(shape) == len(strides) == len(base) == len(dilation) == value.ndim:
        raise ShapeError(f"reduce_window: the window {shape}, strides {strides} and dilations need one entry for each "
                         f"axis of an array of shape {value.shape}.")
    if isinstance(padding, str):
        spread = [0 if e == 0 else (e - 1) * b + 1 for e, b in zip(value.shape, base, strict=True)]
        covered = [(s - 1) * d + 1 for s, d in zip(shape, dilation, strict=True)]
        padding = padtype_to_pads(spread, covered, strides, padding)
    config = tuple((int(low), int(high), b - 1) for (low, high), b in zip(padding, base, strict=True))
    reduction, identity, _ = monoid
    padded = slicing.pad(value, full((), identity(value.dtype), value.dtype), config)
    active = [axis for axis in range(value.ndim) if (shape[axis], strides[axis]) != (1, 1)]
    first = active[0] if active else value.ndim
    if first == value.ndim:
        return _with_initial(padded, init_value, monoid, "reduce_window")
    windows = window(padded, shape[first:], strides[first:], dilation[first:])
    result = reduction(windows, tuple(range(value.ndim, windows.ndim)))
    return _with_initial(result, init_value, monoid, "reduce_window")


# ---- running reductions ---------------------------------------------------------------------------------------------

def _running(name: str, operation: Callable[..., Any], doc: str) -> Callable[..., Value]:
    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Value:
        value = as_value(name, operand)
        return operation(value, one_axis(name, axis, value.shape), reverse)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


cumsum = _running("cumsum", cumulative.cumsum, "The sums of the elements up to each one (from it on, if reverse).")
cumprod = _running("cumprod", cumulative.cumprod, "The products of the elements up to each one (from it on, if "
                                                  "reverse).")
cummax = _running("cummax", cumulative.cummax, "The largest of the elements up to each one (from it on, if reverse).")
cummin = _running("cummin", cumulative.cummin, "The smallest of the elements up to each one (from it on, if reverse).")


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Value:
    """log(cumsum(exp(x))) without overflow, by an associative scan of logaddexp."""
    value = as_value("cumlogsumexp", operand)
    return associative_scan(logaddexp, value, reverse, one_axis("cumlogsumexp", axis, value.shape))


# ---- associative scan -----------------------------------------------------------------------------------------------

def _cut(x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    low, high, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    low[axis], high[axis], strides[axis] = start, stop, step
    return slicing.slice_(x, tuple(low), tuple(high), tuple(strides))


def _interleaved(even: Value, odd: Value, axis: int) -> Value:
    """even[0], odd[0], even[1], odd[1], ..., where even is as long as odd or one longer."""
    count, more = odd.shape[axis], even.shape[axis] - odd.shape[axis]
    head = _cut(even, axis, 0, count)
    pairs = slicing.concatenate([linear.reshape(v, (*v.shape[:axis + 1], 1, *v.shape[axis + 1:])) for v in (head, odd)],
                                axis + 1)
    joined = linear.reshape(pairs, (*odd.shape[:axis], 2 * count, *odd.shape[axis + 1:]))
    return slicing.concatenate([joined, _cut(even, axis, count, count + more)], axis) if more else joined


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """The running combinations x0, fn(x0, x1), fn(fn(x0, x1), x2), ... of slices along an axis of a pytree of arrays.

    `fn` must be associative and work on stacks of slices. Pairs are combined, their results scanned in the same way,
    and the even places filled in (Blelloch, "Prefix sums and their applications", 1990): at most 2n combinations in
    O(log n) calls of fn.

    >>> import fungrad.numpy as fnp
    >>> from fungrad import lax
    >>> lax.associative_scan(fnp.multiply, fnp.arange(1, 6)).tolist()
    [1, 2, 6, 24, 120]
    """
    leaves, structure = tree.flatten(elems)
    values = [as_value("associative_scan", leaf) for leaf in leaves]
    if not values:
        raise ValueError("associative_scan needs at least one array.")
    number = one_axis("associative_scan", axis, values[0].shape)
    count = values[0].shape[number]
    for value in values:
        if value.shape[one_axis("associative_scan", axis, value.shape)] != count:
            raise ShapeError(f"associative_scan: arrays of shapes {values[0].shape} and {value.shape} differ along "
                             f"axis {axis}.")
    axes = [one_axis("associative_scan", axis, value.shape) for value in values]

    def combine(a: list[Value], b: list[Value]) -> list[Value]:
        result = tree.leaves(fn(tree.unflatten(structure, a), tree.unflatten(structure, b)))
        return [as_value("associative_scan", leaf) for leaf in result]

    def scan(xs: list[Value]) -> list[Value]:
        length = xs[0].shape[axes[0]]
        if length < 2:
            return xs
        firsts = [_cut(x, a, 0, length - 1, 2) for x, a in zip(xs, axes, strict=True)]
        seconds = [_cut(x, a, 1, length, 2) for x, a in zip(xs, axes, strict=True)]
        odd = scan(combine(firsts, seconds))
        before = odd if length % 2 else [_cut(x, a, 0, x.shape[a] - 1) for x, a in zip(odd, axes, strict=True)]
        later = [_cut(x, a, 2, length, 2) for x, a in zip(xs, axes, strict=True)]
        heads = [_cut(x, a, 0, 1) for x, a in zip(xs, axes, strict=True)]
        if length > 2:
            tails = combine(before, later)
            heads = [slicing.concatenate([h, t], a) for h, t, a in zip(heads, tails, axes, strict=True)]
        return [_interleaved(e, o, a) for e, o, a in zip(heads, odd, axes, strict=True)]

    if reverse:
        values = [slicing.flip(value, (a,)) for value, a in zip(values, axes, strict=True)]
    results = scan(values)
    if reverse:
        results = [slicing.flip(value, (a,)) for value, a in zip(results, axes, strict=True)]
    return tree.unflatten(structure, results)

