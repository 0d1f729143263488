"""The steps of random programs: each picks operands and parameters and answers an expression as Python text."""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..ir.value import OPERATORS, Value
from ..ops import (
    bits,
    contract,
    convolution,
    create,
    cumulative,
    dynamic,
    elementwise,
    index,
    linear,
    reduce,
    samplers,
    slicing,
    sort,
    window,
)
from ..trace import bind
from ..transforms.jit import jit

MOST_ELEMENTS = 256     # of a value
MOST_POINTS = 3000      # of a contraction
MOST_SAMPLES = 6        # of the gamma and Poisson distributions


def constant(array: np.ndarray) -> Value:
    """A NumPy array as a value of fungrad, for a program to close over."""
    return OPERATORS["asarray"](array)


NAMESPACE: dict[str, Any] = {
    "bits": bits, "contract": contract, "convolution": convolution, "create": create, "cumulative": cumulative,
    "dynamic": dynamic, "elementwise": elementwise, "index": index, "linear": linear, "reduce": reduce,
    "samplers": samplers, "slicing": slicing, "sort": sort, "window": window, "jit": jit, "bind": bind,
    "constant": constant,
    "dtype": dtypes.canonical, "np": np, "nan": float("nan"), "inf": float("inf"),
    "IndexNumbers": index.IndexNumbers,
}

# Where a function of one operand is finite; used three times out of four.
_GUARDS = {"log": "elementwise.add(elementwise.abs({x}), 0.5)", "log2": "elementwise.add(elementwise.abs({x}), 0.5)",
           "log1p": "elementwise.abs({x})", "sqrt": "elementwise.abs({x})", "lgamma": "elementwise.abs({x})",
           "rsqrt": "elementwise.add(elementwise.abs({x}), 0.5)",
           "digamma": "elementwise.add(elementwise.abs({x}), 0.5)",
           "acosh": "elementwise.add(elementwise.abs({x}), 1.0)", "asin": "elementwise.sin({x})",
           "acos": "elementwise.sin({x})", "atanh": "elementwise.mul(elementwise.tanh({x}), 0.9)",
           "erf_inv": "elementwise.mul(elementwise.tanh({x}), 0.9)",
           **{name: "elementwise.tanh({x})" for name in ("exp", "exp2", "expm1", "sinh", "cosh", "tan")}}
_FLOAT_UNARY = ("tanh", "sin", "neg", "abs", "exp", "logistic", "sqrt", "cos", "log", "exp2", "expm1", "log2", "log1p",
                "rsqrt", "cbrt", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf",
                "erfc", "erf_inv", "lgamma", "digamma", "floor", "ceil", "trunc", "round", "sign", "is_finite",
                "stop_gradient")
_INTEGER_UNARY = ("neg", "abs", "sign", "bitwise_not", "population_count", "count_leading_zeros", "stop_gradient")
_ARITHMETIC = ("add", "mul", "sub", "max", "min", "div", "rem")
_COMPARISONS = ("lt", "gt", "eq", "ne", "le", "ge")
_BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")


class Choices:
    """A stream of numbers from which a step picks; 0 where it has run out."""

    def __init__(self, numbers: Sequence[int]):
        self._numbers = iter(numbers)

    def below(self, count: int) -> int:
        """A number from 0 to count - 1."""
        return next(self._numbers, 0) % max(count, 1)

    def of(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))]

    def between(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return low + self.below(high - low + 1)

    def permutation(self, count: int) -> tuple[int, ...]:
        rest = list(range(count))
        return tuple(rest.pop(self.below(len(rest))) for _ in range(count))


class Scope:
    """The lines made so far and the traced value of every name."""

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self.constants: list[str] = []
        self.lines: list[str] = []
        self.names: list[str] = []
        self.values: dict[str, Any] = {}

    def _name(self, value: Any) -> str:
        name = f"v{len(self.names)}"
        self.names.append(name)
        self.values[name] = value
        return name

    def add_argument(self, value: Any) -> None:
        self.arguments.append(self._name(value))

    def add_line(self, text: str, results: Any) -> None:
        names = [self._name(part) for part in (results if isinstance(results, tuple) else (results,))]
        self.lines.append(f"{', '.join(names)}{',' if isinstance(results, tuple) and len(names) == 1 else ''} = {text}")

    def add_constant(self, array: np.ndarray) -> str:
        """A name, outside the program, for an array that the program closes over."""
        name = f"c{len(self.constants)}"
        self.constants.append(f"{name} = constant(np.array({array.tolist()!r}, '{array.dtype}')"
                              f".reshape({array.shape}))")
        self.values[name] = constant(array)
        return name

    def evaluate(self, text: str) -> Any:
        """The traced value of an expression."""
        return eval(text, {**NAMESPACE, **self.values})

    def shape(self, text: str) -> tuple[int, ...]:
        return self.values[text].shape if text in self.values else self.evaluate(text).shape

    def pick(self, c: Choices, kind: Callable[[Any], bool] = lambda x: True) -> str | None:
        """The name of a value for which `kind` holds, every other time the latest; None if there is none."""
        names = [name for name in reversed(self.names) if kind(self.values[name])]
        return None if not names else names[0] if c.below(2) == 0 else c.of(names)

    def any(self, c: Choices) -> str:
        """The name of some value."""
        return self.pick(c) or self.names[0]


def _float(x: Any) -> bool:
    return dtypes.is_float(x.dtype)


def _number(x: Any) -> bool:
    return x.dtype != np.dtype(bool)


def _integer(x: Any) -> bool:
    return dtypes.is_integer(x.dtype)


def _axes(x: Any) -> bool:
    return x.ndim > 0


def _full(x: Any) -> bool:
    return x.ndim > 0 and x.size > 0


def _convert(scope: Scope, text: str, dtype: np.dtype) -> str:
    value = scope.values[text] if text in scope.values else scope.evaluate(text)
    return text if value.dtype == dtype else f"linear.convert({text}, dtype('{dtype.name}'))"


def _fit(scope: Scope, name: str, shape: tuple[int, ...], dtype: np.dtype) -> str:
    """An expression for a value brought to a shape and type: reduced to a vector or scalar if need be, then
    broadcast.
    """
    x = scope.values[name]
    text = _convert(scope, name, dtype)
    if x.shape == shape:
        return text
    for axis, extent in enumerate(shape):
        if x.ndim and x.shape[-1] == extent:
            kept = f"reduce.reduce_max({text}, {tuple(range(x.ndim - 1))})" if x.ndim > 1 else text
            if all(x.shape):
                return f"linear.broadcast({kept}, {shape}, ({axis},))"
    if not x.ndim:
        return f"linear.broadcast({text}, {shape}, ())"
    if not x.size:
        return f"create.full({shape}, 1, dtype('{dtype.name}'))"
    return f"linear.broadcast(reduce.reduce_max({text}, {tuple(range(x.ndim))}), {shape}, ())"


def _fitted(scope: Scope, c: Choices, x: Any, dtype: np.dtype | None = None) -> str:
    """Some value, fitted to another one's shape (and type, unless another is given)."""
    return _fit(scope, scope.any(c), x.shape, x.dtype if dtype is None else dtype)


# ---- elementwise ----------------------------------------------------------------------------------------------------

def _unary(scope: Scope, c: Choices) -> str | None:
    name = scope.any(c)
    x = scope.values[name]
    if _float(x):
        function = c.of(_FLOAT_UNARY)
        guard = _GUARDS.get(function, "{x}") if c.below(4) else "{x}"
        return f"elementwise.{function}({guard.format(x=name)})"
    return f"elementwise.{c.of(_INTEGER_UNARY) if _integer(x) else 'bitwise_not'}({name})"


def _binary(scope: Scope, c: Choices) -> str | None:
    name = scope.any(c)
    x = scope.values[name]
    y = _fitted(scope, c, x)
    if not _number(x):
        return f"elementwise.{c.of((*_BITWISE, *_COMPARISONS, 'max', 'min'))}({name}, {y})"
    if _float(x):
        function = c.of((*_ARITHMETIC, *_ARITHMETIC, "atan2", "pow", "nextafter"))
        if function == "pow":
            return f"elementwise.pow(elementwise.add(elementwise.abs({name}), 0.25), elementwise.tanh({y}))"
        return f"elementwise.{function}({name}, {y})"
    return f"elementwise.{c.of((*_ARITHMETIC, *_BITWISE, 'pow', *_SHIFTS))}({name}, {y})"


_SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")


def _with_scalar(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _number)
    if name is None:
        return None
    scalars = (0.0, 1.0, 0.5, -2.0, 3.25, 1e-3) if _float(scope.values[name]) else (0, 1, 2, 3, 7, 100)
    scalar = c.of(scalars)
    if c.below(4) == 0:
        return f"elementwise.integer_pow({name}, {c.of((2, 3, 0, 5))})"
    if c.below(5) == 0:
        return f"elementwise.clamp(0, {name}, {c.of((1, 2, 5))})"
    return f"elementwise.{c.of(('add', 'mul', 'sub', 'div', 'max', 'min'))}({name}, {scalar})"


def _compare(scope: Scope, c: Choices) -> str | None:
    name = scope.any(c)
    return f"elementwise.{c.of(_COMPARISONS)}({name}, {_fitted(scope, c, scope.values[name])})"


def _select(scope: Scope, c: Choices) -> str | None:
    name = scope.any(c)
    x = scope.values[name]
    mask = scope.pick(c, lambda v: v.dtype == np.dtype(bool))
    y = _fitted(scope, c, x) if c.below(2) else f"create.full_like({name}, {c.of((0, 1))})"
    condition = f"elementwise.gt({name}, {_fitted(scope, c, x)})" if mask is None \
        else _fit(scope, mask, x.shape, np.dtype(bool))
    return f"elementwise.select({condition}, {', '.join((name, y) if c.below(2) else (y, name))})"


def _product_by_mask(scope: Scope, c: Choices) -> str | None:
    """select(m, x, 0) * y: what mask sinking rewrites."""
    name = scope.pick(c, _float)
    if name is None:
        return None
    x = scope.values[name]
    y, other = _fitted(scope, c, x), _fitted(scope, c, x)
    return (f"elementwise.mul(elementwise.select(elementwise.gt({other}, create.full_like({name}, 0)), {name}, "
            f"create.full_like({name}, 0)), {y})")


def _cast(scope: Scope, c: Choices) -> str | None:
    name = scope.any(c)
    x = scope.values[name]
    if c.below(4) == 0:
        same = {1: ("int8", "uint8"), 2: ("int16", "uint16", "float16", "bfloat16"), 4: ("int32", "uint32", "float32"),
                8: ("int64", "uint64", "float64")}[x.dtype.itemsize]
        if _number(x):
            return f"elementwise.bitcast({name}, dtype('{c.of(same)}'))"
    if _float(x) and c.below(3) == 0:
        return f"linear.convert(elementwise.mul({name}, 4.0), dtype('{c.of(('int32', 'int8', 'uint8', 'int64'))}'))"
    return f"linear.convert({name}, dtype('{c.of(('float32', *dtypes.NAMES))}'))"


# ---- movement -------------------------------------------------------------------------------------------------------

def _reshape(scope: Scope, c: Choices) -> str | None:
    name = scope.any(c)
    x = scope.values[name]
    shape = list(x.shape)
    if c.below(2) and x.size:
        factor = c.of([f for f in (2, 3, 4, 5) if x.size % f == 0] or [1])
        shape = [factor, x.size // factor] if c.below(2) else [x.size // factor, factor]
    elif x.ndim > 1 and c.below(2):
        axis = c.below(x.ndim - 1)
        shape[axis:axis + 2] = [shape[axis] * shape[axis + 1]]
    else:
        shape.insert(c.below(x.ndim + 1), 1)
    return f"linear.reshape({name}, {tuple(shape)})"


def _transpose(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, lambda x: x.ndim > 1)
    return name and f"linear.transpose({name}, {c.permutation(scope.values[name].ndim)})"


def _broadcast(scope: Scope, c: Choices) -> str | None:
    name = scope.any(c)
    x = scope.values[name]
    shape, place, axes = list(x.shape), c.below(x.ndim + 1), list(range(x.ndim))
    shape.insert(place, c.between(1, 4))
    axes = [a + (a >= place) for a in axes]
    for a, extent in enumerate(x.shape):
        if extent == 1 and c.below(2):
            shape[axes[a]] = c.between(1, 5)
    return f"linear.broadcast({name}, {tuple(shape)}, {tuple(axes)})"


def _slice(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _axes)
    if name is None:
        return None
    shape = scope.values[name].shape
    start = tuple(c.below(min(extent, 3)) for extent in shape)
    limit = tuple(extent - c.below(min(extent - s, 3)) for s, extent in zip(start, shape, strict=True))
    return f"slicing.slice_({name}, {start}, {limit}, {tuple(c.between(1, 2) for _ in shape)})"


def _pad(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _axes)
    if name is None:
        return None
    x = scope.values[name]
    config = tuple((c.between(-1 if extent > 2 else 0, 2), c.between(-1 if extent > 2 else 0, 1), c.of((0, 0, 1)))
                   for extent in x.shape)
    return f"slicing.pad({name}, create.full((), {c.of((0, 1))}, dtype('{x.dtype.name}')), {config})"


def _flip(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _axes)
    return name and f"slicing.flip({name}, {_some_axes(c, scope.values[name].ndim)})"


def _some_axes(c: Choices, rank: int) -> tuple[int, ...]:
    chosen = tuple(a for a in range(rank) if c.below(2))
    return chosen or (c.below(rank),)


def _concatenate(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _axes)
    if name is None:
        return None
    x = scope.values[name]
    parts = [name, *[_fitted(scope, c, x) for _ in range(c.between(1, 2))]]
    return f"slicing.concatenate([{', '.join(parts)}], {c.below(x.ndim)})"


def _create(scope: Scope, c: Choices) -> str | None:
    shape = scope.values[scope.any(c)].shape
    name = c.of([name for name in dtypes.NAMES if name != "bool"])
    if shape and c.below(2):
        return f"create.iota({shape}, {c.below(len(shape))}, dtype('{name}'))"
    return f"create.full({shape}, {c.of((0, 1, 2))}, dtype('{name}'))"


def _closed_over(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _float)
    if name is None:
        return None
    x = scope.values[name]
    array = (np.arange(x.size).reshape(x.shape) % 7 - 3).astype(x.dtype) * x.dtype.type(0.25)
    return f"elementwise.{c.of(('add', 'mul'))}({name}, {scope.add_constant(np.asarray(array, x.dtype))})"


def _windows(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _full)
    if name is None:
        return None
    x = scope.values[name]
    size, stride, dilation = c.between(1, min(3, x.shape[-1])), c.between(1, 2), c.between(1, 2)
    windows = f"window.window({name}, ({size},), ({stride},), ({dilation},))"
    if c.below(2) and _number(x):
        return f"window.window_sum({windows}, ({x.shape[-1]},), ({stride},), ({dilation},))"
    return windows


# ---- reductions, running operations, contractions -------------------------------------------------------------------

def _reduction(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _axes)
    if name is None:
        return None
    x = scope.values[name]
    axes = _some_axes(c, x.ndim)
    functions = ["linear.reduce_sum", "linear.reduce_sum", "reduce.reduce_prod"] if _number(x) else []
    functions += ["reduce.reduce_max", "reduce.reduce_min"]
    if not _float(x):
        functions += ["reduce.reduce_and", "reduce.reduce_or", "reduce.reduce_xor"]
    return f"{c.of(functions)}({name}, {axes})"


def _row_normalized(scope: Scope, c: Choices) -> str | None:
    """A reduction that feeds a broadcast: what fusion makes one kernel with a row in scratch."""
    name = scope.pick(c, lambda x: _float(x) and x.ndim > 0 and x.size > 0)
    if name is None:
        return None
    shape = scope.values[name].shape
    axis = c.of((len(shape) - 1, c.below(len(shape))))
    rest = tuple(a for a in range(len(shape)) if a != axis)
    reduction = c.of(("reduce.reduce_max", "linear.reduce_sum"))
    spread = f"linear.broadcast({reduction}({name}, ({axis},)), {shape}, {rest})"
    return f"elementwise.{c.of(('sub', 'mul'))}({name}, {spread})"


def _position(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _full)
    if name is None:
        return None
    x = scope.values[name]
    return f"reduce.{c.of(('argmax', 'argmin'))}({name}, {c.below(x.ndim)}, dtype('{c.of(('int32', 'int64'))}'))"


def _running(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, lambda x: x.ndim > 0 and _number(x))
    if name is None:
        return None
    x = scope.values[name]
    axis, reverse = c.below(x.ndim), bool(c.below(2))
    function = c.of(("cumsum", "cumsum", "cummax", "cummin", "cumprod", "linear_recurrence"))
    if function == "linear_recurrence":
        return f"cumulative.linear_recurrence({_fitted(scope, c, x)}, {name}, {axis}, {reverse})"
    return f"cumulative.{function}({name}, {axis}, {reverse})"


def _dot(scope: Scope, c: Choices) -> str | None:
    first = scope.pick(c, _number)
    if first is None:
        return None
    x = scope.values[first]
    second = scope.pick(c, lambda y: y.dtype == x.dtype) or first
    y = scope.values[second]
    pairs = [(i, j) for i in range(x.ndim) for j in range(y.ndim) if x.shape[i] == y.shape[j]]
    contracted = [c.of(pairs)] if pairs else []
    batch = [p for p in pairs if not contracted or (p[0] != contracted[0][0] and p[1] != contracted[0][1])]
    batched = [c.of(batch)] if batch and c.below(2) else []
    shared = int(np.prod([x.shape[i] for i, _ in (*contracted, *batched)], dtype=int))
    if x.size * y.size > MOST_POINTS * max(shared, 1):
        return None
    numbers = (tuple(zip(*contracted, strict=True)) or ((), ()), tuple(zip(*batched, strict=True)) or ((), ()))
    result = f", dtype('{c.of(('float32', 'float64'))}')" if _float(x) and c.below(4) == 3 else ""
    return f"contract.dot_general({first}, {second}, {numbers}{result})"


def _convolution(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, lambda x: x.ndim > 0 and x.size > 0 and _number(x))
    if name is None:
        return None
    x = scope.values[name]
    spatial = min(x.ndim, c.between(1, 2))
    lead = int(np.prod(x.shape[:x.ndim - spatial], dtype=int))
    channels = c.of([n for n in (1, 2, 3, 4) if lead % n == 0])
    shape = (lead // channels, channels, *x.shape[x.ndim - spatial:])
    groups = c.of([g for g in (1, channels) if channels % g == 0])
    features = groups * c.between(1, 2)
    size = tuple(c.between(1, 3) for _ in range(spatial))
    padding = tuple((c.between(-1, 2), c.between(0, 2)) for _ in range(spatial))
    options = {"padding": padding, "strides": tuple(c.between(1, 2) for _ in range(spatial)),
               "lhs_dilation": tuple(c.of((1, 1, 2)) for _ in range(spatial)),
               "rhs_dilation": tuple(c.of((1, 1, 2)) for _ in range(spatial)), "feature_group_count": groups}
    kernel = (features, channels // groups, *size)
    taps = f"linear.reshape(create.iota(({int(np.prod(kernel))},), 0, dtype('{x.dtype.name}')), {kernel})"
    scaled = f"elementwise.sin({taps})" if _float(x) else taps
    return (f"convolution.conv(linear.reshape({name}, {shape}), {scaled}, "
            f"{', '.join(f'{key}={value}' for key, value in options.items())})")


# ---- indexing, sorting, random --------------------------------------------------------------------------------------

def _indices(scope: Scope, c: Choices, shape: tuple[int, ...], extent: int) -> str:
    """Integers of a shape, most of them within [0, extent)."""
    name = scope.pick(c, lambda x: _integer(x) and x.size > 0)
    kind = c.of(("int32", "int64", "uint8", "int8"))
    if name is None or c.below(2):
        count = int(np.prod(shape, dtype=int))
        stepped = f"elementwise.mul(create.iota(({count},), 0, dtype('{kind}')), {c.of((1, 3, 7))})"
        text = f"linear.reshape({stepped}, {shape})"
    else:
        text = _fit(scope, name, shape, np.dtype(kind))
    return text if c.below(4) == 0 else f"elementwise.rem({text}, {max(min(extent, 100), 1)})"


def _gather(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _full)
    if name is None:
        return None
    x = scope.values[name]
    axis, mode = c.below(x.ndim), c.of(("fill", "clip"))
    extent = x.shape[axis]
    if c.below(2):
        return f"index.take({name}, {_indices(scope, c, (c.between(1, 4),), extent)}, {axis}, '{mode}')"
    shape = tuple(c.between(1, 4) if a == axis else e for a, e in enumerate(x.shape))
    return f"index.take_along_axis({name}, {_indices(scope, c, shape, extent)}, {axis}, '{mode}')"


def _scatter(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, lambda x: x.ndim > 0 and x.size > 0 and _number(x))
    if name is None:
        return None
    x = scope.values[name]
    rows = c.between(1, 4)
    numbers = f"IndexNumbers({tuple(range(1, x.ndim))}, (0,), (0,))"
    updates = _fit(scope, scope.any(c), (rows, *x.shape[1:]), x.dtype)
    return (f"index.scatter({name}, {_indices(scope, c, (rows, 1), x.shape[0])}, {updates}, {numbers}, "
            f"'{c.of(('add', 'set', 'max', 'min', 'mul'))}', '{c.of(('drop', 'clip'))}')")


def _dynamic_window(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _full)
    if name is None:
        return None
    x = scope.values[name]
    sizes = tuple(c.between(1, extent) for extent in x.shape)
    starts = f"[{', '.join(_indices(scope, c, (), extent) for extent in x.shape)}]"
    if c.below(2):
        return f"dynamic.dynamic_slice({name}, {starts}, {sizes})"
    return f"dynamic.dynamic_update_slice({name}, {_fit(scope, scope.any(c), sizes, x.dtype)}, {starts})"


def _sort(scope: Scope, c: Choices) -> str | None:
    name = scope.pick(c, _full)
    if name is None:
        return None
    x = scope.values[name]
    axis = c.below(x.ndim)
    way = c.of(("single", "payload", "two", "argsort", "top_k", "searchsorted"))
    if way == "single":
        return f"sort.sort([{name}], {axis}, 1, {not _float(x) or bool(c.below(2))})"
    if way in ("payload", "two"):
        keys = 1 if way == "payload" else 2
        return f"sort.sort([{name}, {_fitted(scope, c, x, scope.values[scope.any(c)].dtype)}], {axis}, {keys}, True)"
    if way == "argsort":
        return f"sort.argsort({name}, {axis}, True, {bool(c.below(2))})"
    if way == "top_k":
        return f"sort.top_k({name}, {c.between(0, x.shape[-1])})"
    ordered = f"sort.sort([linear.reshape({name}, ({x.size},))], 0)[0]"
    return f"sort.searchsorted({ordered}, {name}, '{c.of(('left', 'right'))}')"


def _random(scope: Scope, c: Choices) -> str | None:
    name = scope.any(c)
    x = scope.values[name]
    word = np.dtype("uint32")
    words = [_fitted(scope, c, x, word) for _ in range(2)]
    counter = f"linear.reshape(create.iota(({x.size},), 0, dtype('uint32')), {x.shape})"
    way = c.of(("threefry", "threefry", "gamma", "poisson", "derivative"))
    if x.size > MOST_SAMPLES:   # interpreting a sampler's loops takes long
        way = "threefry"
    if way == "threefry":
        return f"bits.threefry2x32({words[0]}, {words[1]}, {counter}, {_convert(scope, name, word)})"
    floating = x.dtype if x.dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
    alpha = f"elementwise.add(elementwise.abs(elementwise.sin({_convert(scope, name, floating)})), 0.5)"
    if way == "gamma":
        return f"samplers.random_gamma({counter}, {words[0]}, {alpha}, {bool(c.below(2))})"
    if way == "poisson":
        rate = f"elementwise.mul({alpha}, {c.of((1.0, 20.0))})"
        return f"samplers.random_poisson({counter}, {words[0]}, {words[1]}, {rate})"
    return f"bind(samplers.gamma_derivative_p, {alpha}, elementwise.mul({alpha}, {c.of((0.5, 1.5))}))"


# ---- nested calls ---------------------------------------------------------------------------------------------------

def _nested_jit(scope: Scope, c: Choices) -> str | None:
    """Some other step within a jitted function, which takes its operands as arguments or closes over some of them."""
    inner = STEPS[c.of([name for name in STEPS if name != "jit"])](scope, c)
    if inner is None:
        return None
    names = sorted(set(re.findall(r"\bv\d+\b", inner)))
    taken = names if c.below(2) == 0 else names[1:]
    return f"jit(lambda {', '.join(taken)}: {inner})({', '.join(taken)})" if taken else f"jit(lambda: {inner})()"


STEPS: dict[str, Callable[[Scope, Choices], str | None]] = {
    "unary": _unary, "binary": _binary, "scalar": _with_scalar, "compare": _compare, "select": _select,
    "mask": _product_by_mask, "cast": _cast, "reshape": _reshape, "transpose": _transpose, "broadcast": _broadcast,
    "slice": _slice, "pad": _pad, "flip": _flip, "concatenate": _concatenate, "create": _create,
    "constant": _closed_over, "window": _windows, "reduction": _reduction, "row": _row_normalized,
    "position": _position, "running": _running, "dot": _dot, "conv": _convolution, "gather": _gather,
    "scatter": _scatter, "dynamic": _dynamic_window, "sort": _sort, "random": _random, "jit": _nested_jit,
}


# How often `random_recipe` and `strategies.recipes` take a step that is not taken once.
WEIGHTS = {"unary": 6, "binary": 5, "scalar": 2, "select": 2, "row": 3, "reduction": 3, "dot": 2}
