"""Samplers that draw until they accept: random_gamma, with its derivative, and random_poisson.

Each element has a key of its own and a loop of its own, so elements run in parallel and none waits for another. The
algorithms and the order in which keys are split are those of JAX (`jax/_src/random/core.py`).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import float32, float64, int32
from ..errors import DTypeError, ShapeError
from ..ir.expr import BOOL, Axis, Buffer, Expr, axis as axis_expr, cast, conjunction, constant, load, operation, select
from ..ir.kernel import Fragment, If, Statement, Store, While
from ..ir.primitive import PRIMITIVES, Primitive, Refused, Zero, declare
from ..ir.types import Type, array_type
from ..trace import bind
from . import elementwise
from .bits import UINT32, threefry2x32_p, threefry_expressions
from .rules import NOT_LINEAR, elementwise_batch, is_zero, same_type, zero_tangent
from .special import digamma

Key = tuple[Expr, Expr]
Body = tuple[Statement, ...]
_UINT64 = np.dtype("uint64")
_SQUEEZE = 0.0331   # Marsaglia and Tsang's quick test


def _number(value: float, like: Expr) -> Expr:
    return constant(value, like.dtype)


def _op(name: str, *operands: Expr | float) -> Expr:
    """An operation in which Python numbers take the type of the other operands."""
    like = next(x for x in operands if isinstance(x, Expr))
    return operation(name, *[x if isinstance(x, Expr) else _number(x, like) for x in operands])


class _Element:
    """The registers and statements of one element's loop."""

    def __init__(self) -> None:
        self.registers: list[Buffer] = []

    def register(self, name: str, dtype: np.dtype) -> Buffer:
        buffer = Buffer(name, array_type((), dtype), "register")
        self.registers.append(buffer)
        return buffer

    def key(self, name: str) -> tuple[Buffer, Buffer]:
        return self.register(f"{name}0", UINT32), self.register(f"{name}1", UINT32)

    def assign(self, targets: Sequence[Buffer], values: Sequence[Expr]) -> Body:
        """Store all values at once: none sees another's new value."""
        parts = [self.register(f"{target.name}_next", target.type.dtype) for target in targets]
        return (*(Store(part, (), value) for part, value in zip(parts, values, strict=True)),
                *(Store(target, (), load(part, ())) for target, part in zip(targets, parts, strict=True)))


def _read(buffers: Sequence[Buffer]) -> Any:
    return tuple(load(buffer, ()) for buffer in buffers)


def _child(key: Key, number: int) -> Key:
    """Key `number` of those that splitting `key` gives."""
    return threefry_expressions(*key, constant(0, UINT32), constant(number, UINT32))


def _unit(key: Key, dtype: np.dtype, position: Expr | None = None) -> Expr:
    """Uniform in [0, 1): element `position` of what `key` draws."""
    where = constant(0, UINT32) if position is None else position
    first, second = threefry_expressions(*key, constant(0, UINT32), where)
    if dtype == float64:
        high = operation("shift_left", cast(first, _UINT64), constant(32, _UINT64))
        bits = operation("or", high, cast(second, _UINT64))
    else:
        bits = operation("xor", first, second)
    mantissa = _op("shift_right", bits, 12 if dtype == float64 else 9)
    one = int(np.ones((), dtype).view(bits.dtype))
    return _op("sub", operation("bitcast", _op("or", mantissa, one), dtype=dtype), 1.0)


def _normal(key: Key, dtype: np.dtype) -> Expr:
    low = float(np.nextafter(np.array(-1, dtype), np.array(0, dtype)))
    span = float(np.array(1, dtype) - np.array(low, dtype))
    uniform = _op("max", _op("add", _op("mul", _unit(key, dtype), span), low), low)
    return _op("mul", _op("erf_inv", uniform), math.sqrt(2))


def _fragment(types: Sequence[Type], result: Type,
              body: Callable[[_Element, list[Expr]], tuple[Body, Expr]]) -> Fragment:
    """The loops of an op whose elements are independent: `body` gives the statements and the value of one element."""
    inputs = tuple(Buffer(f"x{i}", t) for i, t in enumerate(types))
    output = Buffer("y", result)
    outer = tuple(Axis(f"i{a}", extent) for a, extent in enumerate(result.shape))
    index = tuple(map(axis_expr, outer))
    element = _Element()
    statements, value = body(element, [load(x, index) for x in inputs])
    return Fragment((output,), inputs, tuple(element.registers), outer, (*statements, Store(output, index, value)))


def _each(scalar: Callable[..., Any], dtype: Callable[..., np.dtype]) -> Callable[..., np.ndarray]:
    """A reference that calls a scalar function for every element."""
    def reference(*arrays: np.ndarray, **params: Any) -> np.ndarray:
        result = np.empty(arrays[0].shape, dtype(*arrays))
        with np.errstate(all="ignore"):
            for place in np.ndindex(*result.shape):
                result[place] = scalar(*[np.asarray(a[place])[()] for a in arrays], **params)
        return result
    return reference


# ---- the same draws in NumPy ----------------------------------------------------------------------------------------


def _child_reference(key: Any, number: int) -> tuple[Any, Any]:
    words = threefry2x32_p.reference(*map(np.uint32, (*key, 0, number)))
    return words[0][()], words[1][()]


def _unit_reference(key: Any, dtype: np.dtype, position: int = 0) -> Any:
    first, second = _child_reference(key, position)
    if dtype == float64:
        bits = (np.uint64(first) << np.uint64(32)) | np.uint64(second)
        return ((bits >> np.uint64(12)) | np.float64(1).view(np.uint64)).view(np.float64) - 1.0
    return (((first ^ second) >> np.uint32(9)) | np.float32(1).view(np.uint32)).view(np.float32) - np.float32(1)


def _normal_reference(key: Any, dtype: np.dtype) -> Any:
    low = np.nextafter(dtype.type(-1), dtype.type(0))
    uniform = np.maximum(_unit_reference(key, dtype) * (dtype.type(1) - low) + low, low)
    return dtype.type(PRIMITIVES["erf_inv"].reference(np.asarray(uniform)) * dtype.type(math.sqrt(2)))


# ---- random_gamma ---------------------------------------------------------------------------------------------------


def _gamma_type(k0: Type, k1: Type, alpha: Type, *, log_space: bool) -> Type:
    _check_keys("random_gamma", k0, k1, alpha)
    return alpha


def _check_keys(name: str, k0: Type, k1: Type, parameter: Type) -> None:
    if k0.dtype != UINT32 or k1.dtype != UINT32:
        raise DTypeError(f"{name}: keys must be uint32, got {k0} and {k1}")
    if parameter.dtype not in (float32, float64):
        raise DTypeError(f"{name}: the parameter must be float32 or float64, got {parameter}")
    if not k0.shape == k1.shape == parameter.shape:
        raise ShapeError(f"{name}: keys {k0}, {k1} and parameter {parameter} must have one shape")


def _gamma_scalar(k0: Any, k1: Any, alpha: Any, *, log_space: bool) -> Any:
    dtype, real = alpha.dtype, alpha.dtype.type
    key, last = _child_reference((k0, k1), 0), _child_reference((k0, k1), 1)
    d = (alpha if alpha >= 1 else alpha + real(1)) - real(1 / 3)
    c = real(1 / 3) / np.sqrt(d)
    x_squared, cube, u = real(0), real(1), real(2)
    while u >= real(1) - real(_SQUEEZE) * (x_squared * x_squared) and \
            np.log(u) >= x_squared * real(0.5) + d * ((real(1) - cube) + np.log(cube)):
        key, x_key, u_key = (_child_reference(key, i) for i in range(3))
        v = x = real(-1)
        while v <= 0:
            x = _normal_reference(_child_reference(x_key, 1), dtype)
            x_key, v = _child_reference(x_key, 0), real(1) + x * c
        x_squared, cube, u = x * x, v * v * v, _unit_reference(u_key, dtype)
    unit = _unit_reference(last, dtype)
    if log_space:
        boost = np.log1p(-unit)
        return np.log(d) + np.log(cube) + (real(0) if alpha >= 1 or boost == 0 else boost * (real(1) / alpha))
    return d * cube * (real(1) if alpha >= 1 else (real(1) - unit) ** (real(1) / alpha))


def _gamma_lower(types: Sequence[Type], type: Type, *, log_space: bool) -> Fragment:
    """Marsaglia and Tsang, A simple method for generating gamma variables (2000); alpha < 1 through alpha + 1."""
    def body(element: _Element, operands: list[Expr]) -> tuple[Body, Expr]:
        k0, k1, alpha = operands
        dtype = alpha.dtype
        large = _op("ge", alpha, 1.0)
        d = _op("sub", select(large, alpha, _op("add", alpha, 1.0)), 1 / 3)
        c = operation("div", _number(1 / 3, d), operation("sqrt", d))
        key, x_key, u_key = (element.key(name) for name in ("key", "x_key", "u_key"))
        x_squared, cube, u, x, v = (element.register(name, dtype) for name in ("x_squared", "cube", "u", "x", "v"))
        square, v_cubed, uniform = _read((x_squared, cube, u))
        fourth = operation("mul", square, square)
        quick = _op("ge", uniform, operation("sub", _number(1, d), _op("mul", fourth, _SQUEEZE)))
        excess = operation("add", operation("sub", _number(1, d), v_cubed), operation("log", v_cubed))
        bound = operation("add", _op("mul", square, 0.5), operation("mul", d, excess))
        slow = operation("ge", operation("log", uniform), bound)
        state, x_state, last = _read(key), _read(x_key), _read((v,))[0]
        children = [_child(state, i) for i in range(3)]
        draw = (Store(x, (), _normal(_child(x_state, 1), dtype)), *element.assign(x_key, _child(x_state, 0)),
                Store(v, (), _op("add", operation("mul", load(x, ()), c), 1.0)))
        attempt = (*element.assign((*key, *x_key, *u_key), [word for child in children for word in child]),
                   Store(v, (), _number(-1, d)), While(_op("le", last, 0.0), draw),
                   Store(x_squared, (), operation("mul", load(x, ()), load(x, ()))),
                   Store(cube, (), operation("mul", operation("mul", last, last), last)),
                   Store(u, (), _unit(_read(u_key), dtype)))
        start = (*element.assign(key, _child((k0, k1), 0)), Store(x_squared, (), _number(0, d)),
                 Store(cube, (), _number(1, d)), Store(u, (), _number(2, d)))
        unit = _unit(_child((k0, k1), 1), dtype)
        inverse = operation("div", _number(1, alpha), alpha)
        if log_space:
            boost = operation("log1p", operation("neg", unit))
            none = operation("or", large, _op("eq", boost, 0.0))
            total = operation("add", operation("log", d), operation("log", v_cubed))
            value = operation("add", total, select(none, _number(0, d), operation("mul", boost, inverse)))
        else:
            power = operation("pow", operation("sub", _number(1, d), unit), inverse)
            value = operation("mul", operation("mul", d, v_cubed), select(large, _number(1, d), power))
        return (*start, While(conjunction(quick, slow), attempt)), value
    return _fragment(types, type, body)


def _gamma_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, log_space: bool) -> tuple[Any, Any]:
    """By the implicit function theorem: the sample keeps its place in the distribution while alpha changes."""
    *_, alpha = primals
    result = bind(random_gamma_p, *primals, log_space=log_space)
    if is_zero(tangents[2]):
        return result, Zero(result.type)
    if not log_space:
        return result, elementwise.mul(tangents[2], bind(gamma_derivative_p, alpha, result))
    tiny = float(np.finfo(alpha.dtype).tiny)
    sample = elementwise.max(elementwise.exp(result), tiny)
    return result, elementwise.mul(tangents[2], elementwise.div(bind(gamma_derivative_p, alpha, sample), sample))


random_gamma_p = declare(Primitive(
    "random_gamma", _gamma_type, _each(_gamma_scalar, lambda k0, k1, alpha: alpha.dtype), _gamma_jvp, NOT_LINEAR,
    elementwise_batch("random_gamma"), _gamma_lower, frozenset({"loops"}),
    "A sample of the gamma distribution (or its logarithm) for each key and each alpha."))


def random_gamma(k0: Any, k1: Any, alpha: Any, log_space: bool = False) -> Any:
    """Samples with density x^(alpha - 1) exp(-x) / gamma(alpha), or their logarithms."""
    return bind(random_gamma_p, k0, k1, alpha, log_space=log_space)


# ---- the derivative of a gamma sample -------------------------------------------------------------------------------

_PRECISION = 1e-17        # the series ends where a term is so small beside the sum of the terms' sizes ...
_MOST_TERMS = 1e6         # ... or here
_LARGE = 1e4              # above this alpha a sample is taken for Wilson and Hilferty's cube of a normal number


def _derivative_type(alpha: Type, sample: Type) -> Type:
    return same_type("gamma_derivative", alpha, sample)


def _derivative_scalar(alpha: Any, sample: Any) -> Any:
    a, x = np.float64(alpha), np.float64(sample)
    if x == 0 or np.isnan(a) or np.isnan(x):
        return x + a if x else 0.0
    if a > _LARGE:
        root = np.cbrt(x / a)
        normal = 3 * np.sqrt(a) * (root - 1 + 1 / (9 * a))
        return x / a + 3 * a * root * root * (1 / (9 * a * a) - normal / (6 * a * np.sqrt(a)))
    term, total, size, n = x / a, np.float64(0), np.float64(0), a + 1
    place = np.log(x) - digamma(np.asarray(a + 1))
    while n < _MOST_TERMS and (n <= x or term * (1 + abs(place)) > _PRECISION * size):
        total, size = total - term * place, size + term * abs(place)
        term, place, n = term * (x / n), place - 1 / n, n + 1
    return total


def _derivative_lower(types: Sequence[Type], type: Type) -> Fragment:
    """dx/da = -(dF/da) / (dF/dx), F(a, x) = sum over n of x^(a + n) exp(-x) / gamma(a + n + 1), summed in float64."""
    def body(element: _Element, operands: list[Expr]) -> tuple[Body, Expr]:
        a, x = (cast(operand, float64) for operand in operands)
        term, total, size, n, place = registers = [
            element.register(name, float64) for name in ("term", "total", "size", "n", "place")]
        now = dict(zip(registers, _read(registers), strict=True))
        after_a = _op("add", a, 1.0)
        begin = (operation("div", x, a), _number(0, a), _number(0, a), after_a,
                 operation("sub", operation("log", x), operation("digamma", after_a)))
        weight = operation("abs", now[place])
        change = operation("mul", now[term], _op("add", weight, 1.0))
        matters = operation("gt", change, _op("mul", now[size], _PRECISION))
        more = operation("or", operation("le", now[n], x), matters)
        step = element.assign(registers, (
            operation("mul", now[term], operation("div", x, now[n])),
            operation("sub", now[total], operation("mul", now[term], now[place])),
            operation("add", now[size], operation("mul", now[term], weight)), _op("add", now[n], 1.0),
            operation("sub", now[place], operation("div", _number(1, a), now[n]))))
        series = _op("le", a, _LARGE)
        condition = conjunction(_op("lt", now[n], _MOST_TERMS), more)
        loop = If(series, (*element.assign(registers, begin), While(condition, step)))
        value = select(series, now[total], _cube_derivative(a, x))
        both = operation("add", a, x)
        value = select(operation("ne", both, both), both, value)
        value = select(_op("eq", x, 0.0), _number(0, a), value)
        return (Store(total, (), _number(0, a)), loop), cast(value, type.dtype)
    return _fragment(types, type, body)


def _cube_derivative(a: Expr, x: Expr) -> Expr:
    """The derivative of x = a (1 - 1/(9a) + z / (3 sqrt a))^3 by a, with z as it is."""
    ratio, ninth = operation("div", x, a), operation("div", _number(1 / 9, a), a)
    root = operation("cbrt", ratio)
    third = operation("add", _op("sub", root, 1.0), ninth)                       # z / (3 sqrt a)
    slope = operation("div", operation("sub", ninth, _op("mul", third, 0.5)), a)
    change = operation("mul", operation("mul", root, root), slope)
    return operation("add", ratio, operation("mul", _op("mul", a, 3.0), change))


gamma_derivative_p = declare(Primitive(
    "gamma_derivative", _derivative_type, _each(_derivative_scalar, lambda alpha, sample: alpha.dtype),
    Refused("the second derivative of a gamma sample with respect to alpha is not offered"), NOT_LINEAR,
    elementwise_batch("gamma_derivative"), _derivative_lower, frozenset({"loops"}),
    "How a gamma sample changes with alpha while its place in the distribution stays."))


# ---- random_poisson -------------------------------------------------------------------------------------------------

_KNUTH = 10   # below this rate uniform numbers are multiplied, from it on samples are rejected


def _poisson_type(k0: Type, k1: Type, position: Type, rate: Type) -> Type:
    _check_keys("random_poisson", k0, k1, rate)
    if position.dtype != UINT32 or position.shape != rate.shape:
        raise DTypeError(f"random_poisson: positions must be uint32 and of the rates' shape, got {position}, {rate}")
    return rate.with_dtype(int32)


def _knuth_scalar(key: Any, position: int, rate: Any) -> int:
    count, log_product = 0, np.float32(0)
    while log_product > -rate:
        key, drawn = _child_reference(key, 0), _child_reference(key, 1)
        count, log_product = count + 1, log_product + np.log(_unit_reference(drawn, float32, position))
    return count - 1


def _poisson_scalar(k0: Any, k1: Any, position: Any, rate: Any) -> int:
    if rate == 0:
        return 0
    if not rate >= _KNUTH:
        return _knuth_scalar((k0, k1), int(position), rate)
    dtype, real, key = rate.dtype, rate.dtype.type, (k0, k1)
    b = real(0.931) + real(2.53) * np.sqrt(rate)
    a = real(-0.059) + real(0.02483) * b
    inverse = real(1.1239) + real(1.1328) / (b - real(3.4))
    easy = real(0.9277) - real(3.6224) / (b - real(2))
    while True:
        key, first, second = (_child_reference(key, i) for i in range(3))
        u = _unit_reference(first, dtype, int(position)) - real(0.5)
        v, inner = _unit_reference(second, dtype, int(position)), real(0.5) - abs(u)
        k = np.floor((real(2) * a / inner + b) * u + rate + real(0.43))
        if inner >= real(0.07) and v <= easy:
            return _to_int32(k)
        s = np.log(v * inverse / (a / (inner * inner) + b))
        t = -rate + k * np.log(rate) - real(_lgamma(k + real(1)))
        if not (k < 0 or (inner < real(0.013) and v > inner)) and s <= t:
            return _to_int32(k)


def _lgamma(x: Any) -> float:
    return PRIMITIVES["lgamma"].reference(np.asarray(x))[()]


def _to_int32(k: Any) -> int:
    return 0 if np.isnan(k) else int(min(max(k, -(2**31)), 2**31 - 1))


def _poisson_lower(types: Sequence[Type], type: Type) -> Fragment:
    """Knuth's products of uniform numbers for small rates, Hoermann's transformed rejection (PTRS, 1993) for others."""
    def body(element: _Element, operands: list[Expr]) -> tuple[Body, Expr]:
        k0, k1, position, rate = operands
        key = element.key("key")
        count = element.register("count", rate.dtype)
        large = _op("ge", rate, float(_KNUTH))
        statements = (*element.assign(key, (k0, k1)), Store(count, (), _number(-1, rate)),
                      If(operation("not", large), _by_products(element, key, count, position, rate)),
                      If(large, _by_rejection(element, key, count, position, rate)))
        value = cast(load(count, ()), int32)
        return statements, select(_op("eq", rate, 0.0), _number(0, value), value)
    return _fragment(types, type, body)


def _by_products(element: _Element, key: Sequence[Buffer], count: Buffer, position: Expr, rate: Expr) -> Body:
    log_product, drawn = element.register("log_product", float32), element.key("drawn")
    state, product = _read(key), load(log_product, ())
    children = (*_child(state, 0), *_child(state, 1))
    step = (*element.assign((*key, *drawn), children),
            Store(log_product, (), operation("log", _unit(_read(drawn), float32, position)), "add"),
            Store(count, (), _number(1, rate), "add"))
    return Store(log_product, (), constant(0, float32)), While(
        operation("gt", cast(product, rate.dtype), operation("neg", rate)), step)


def _by_rejection(element: _Element, key: Sequence[Buffer], count: Buffer, position: Expr, rate: Expr) -> Body:
    first, second = element.key("first"), element.key("second")
    accepted = element.register("accepted", BOOL)
    u, v = element.register("u", rate.dtype), element.register("v", rate.dtype)
    state = _read(key)
    b = _op("add", _op("mul", operation("sqrt", rate), 2.53), 0.931)
    a = _op("add", _op("mul", b, 0.02483), -0.059)
    inverse = _op("add", operation("div", _number(1.1328, b), _op("sub", b, 3.4)), 1.1239)
    easy = operation("sub", _number(0.9277, b), operation("div", _number(3.6224, b), _op("sub", b, 2.0)))
    shifted, uniform, k = load(u, ()), load(v, ()), load(count, ())
    inner = operation("sub", _number(0.5, b), operation("abs", shifted))
    slope = operation("add", operation("div", _op("mul", a, 2.0), inner), b)
    candidate = operation("floor", _op("add", operation("add", operation("mul", slope, shifted), rate), 0.43))
    quick = conjunction(_op("ge", inner, 0.07), operation("le", uniform, easy))
    spread = operation("add", operation("div", a, operation("mul", inner, inner)), b)
    s = operation("log", operation("div", operation("mul", uniform, inverse), spread))
    t = operation("sub", operation("add", operation("neg", rate), operation("mul", k, operation("log", rate))),
                  operation("lgamma", _op("add", k, 1.0)))
    outside = conjunction(_op("lt", inner, 0.013), operation("gt", uniform, inner))
    fits = conjunction(operation("not", operation("or", _op("lt", k, 0.0), outside)), operation("le", s, t))
    children = [word for i in range(3) for word in _child(state, i)]
    attempt = (*element.assign((*key, *first, *second), children),
               Store(u, (), _op("sub", _unit(_read(first), rate.dtype, position), 0.5)),
               Store(v, (), _unit(_read(second), rate.dtype, position)), Store(count, (), candidate),
               Store(accepted, (), operation("or", quick, fits)))
    return Store(accepted, (), constant(False, BOOL)), While(operation("not", load(accepted, ())), attempt)


random_poisson_p = declare(Primitive(
    "random_poisson", _poisson_type, _each(_poisson_scalar, lambda *arrays: int32), zero_tangent("random_poisson"),
    NOT_LINEAR, elementwise_batch("random_poisson"), _poisson_lower, frozenset({"loops"}),
    "A sample of the Poisson distribution for each key, position and rate."))


def random_poisson(k0: Any, k1: Any, position: Any, rate: Any) -> Any:
    """int32 samples of the Poisson distributions with these rates; -1 for a rate that is negative or NaN."""
    return bind(random_poisson_p, k0, k1, position, rate)
