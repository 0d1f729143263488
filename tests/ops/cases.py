"""Example operands for the primitives, from which `test_completeness.py` generates its tests."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fungrad.dtypes import ALL, FLOATS, INTEGERS, is_float
from fungrad.ir.types import array_type, literal
from fungrad.ops import create, cumulative, elementwise, linear, reduce, slicing, window

FAMILIES = (create, cumulative, elementwise, linear, reduce, slicing, window)   # imported for their declarations

NUMBERS = (*INTEGERS, *FLOATS)
BITS = tuple(dtype for dtype in ALL if not is_float(dtype))
Random = np.random.Generator


@dataclass(frozen=True)
class Case:
    """One way to call a primitive.

    operands(dtype, random): its arrays. dtypes: those it takes. differentiable: operands with a tangent. linear: groups
    of operands that it is linear in together. from_dtype: parameters made from the element type.
    """
    primitive: str
    operands: Callable[[np.dtype, Random], tuple[np.ndarray, ...]]
    dtypes: tuple[np.dtype, ...] = FLOATS
    params: dict[str, Any] = field(default_factory=dict)
    differentiable: tuple[int, ...] = ()
    linear: tuple[tuple[int, ...], ...] = ()
    from_dtype: Callable[[np.dtype], dict[str, Any]] = lambda dtype: {}
    label: str = ""

    def __str__(self) -> str:
        return f"{self.primitive}{'-' + self.label if self.label else ''}"

    def parameters(self, dtype: np.dtype) -> dict[str, Any]:
        return {**self.params, **self.from_dtype(dtype)}


def values(random: Random, dtype: np.dtype, shape: tuple[int, ...], low: float = -2, high: float = 2) -> np.ndarray:
    """Random values of a type in a range (unsigned ones are not negative); floats avoid whole and half numbers."""
    if dtype == np.dtype(bool):
        return random.integers(0, 2, shape).astype(bool)
    if not is_float(dtype):
        least = int(low * 8) if dtype.kind == "i" else max(int(low * 8), 0)
        return random.integers(least, max(int(high * 8), least) + 1, shape).astype(dtype)
    x = np.asarray(random.uniform(low, high, shape))
    return np.asarray(x + 0.02 * (np.abs(x * 2 - np.rint(x * 2)) < 0.02)).astype(dtype)


def array(*shape: int, low: float = -2, high: float = 2) -> Callable[[np.dtype, Random], tuple[np.ndarray, ...]]:
    return lambda dtype, random: (values(random, dtype, shape, low, high),)


def arrays(*shapes: tuple[int, ...], low: float = -2,
           high: float = 2) -> Callable[[np.dtype, Random], tuple[np.ndarray, ...]]:
    return lambda dtype, random: tuple(values(random, dtype, shape, low, high) for shape in shapes)


# Where a function of one operand is defined and smooth.
_DOMAINS = {"log": (0.1, 4), "log2": (0.1, 4), "log1p": (-0.8, 4), "sqrt": (0.1, 4), "rsqrt": (0.1, 4),
            "cbrt": (0.1, 4), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atanh": (-0.9, 0.9), "acosh": (1.1, 4),
            "erf_inv": (-0.9, 0.9),
            "lgamma": (0.2, 4), "digamma": (0.2, 4), "tan": (-1.2, 1.2)}
_SMOOTH = ("abs", "sqrt", "exp", "exp2", "expm1", "log", "log2", "log1p", "rsqrt", "cbrt", "logistic", "sin", "cos",
           "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erf_inv",
           "lgamma", "digamma", "floor", "ceil", "trunc", "round")


def _unary_cases() -> list[Case]:
    cases = [Case(name, array(3, 4, low=_DOMAINS.get(name, (-2, 2))[0], high=_DOMAINS.get(name, (-2, 2))[1]),
                  NUMBERS if name == "abs" else FLOATS, differentiable=(0,)) for name in _SMOOTH]
    cases += [
        Case("neg", array(3, 4), NUMBERS, differentiable=(0,), linear=((0,),)),
        Case("sign", array(3, 4), NUMBERS, differentiable=(0,)),
        Case("is_finite", array(3, 4)),
        Case("stop_gradient", array(3, 4), ALL),
        Case("not", array(3, 4), BITS),
        Case("population_count", array(3, 4), INTEGERS),
        Case("count_leading_zeros", array(3, 4), INTEGERS),
        Case("lgamma", array(3, 4, low=-3.8, high=-3.1), differentiable=(0,), label="negative"),
        Case("digamma", array(3, 4, low=-3.8, high=-3.1), differentiable=(0,), label="negative"),
    ]
    cases += [Case("integer_pow", array(3, 4, low=0.5), NUMBERS if power >= 0 else FLOATS, {"exponent": power},
                   differentiable=(0,), label=str(power)) for power in (0, 2, 3, 7, -1, -3)]
    cases += [Case("bitcast", array(3, 4), (source,), {"dtype": np.dtype(target)}, label=f"{source.name}-{target}")
              for source, target in ((np.dtype("float32"), "int32"), (np.dtype("uint16"), "bfloat16"),
                                     (np.dtype("int64"), "float64"), (np.dtype("int8"), "uint8"))]
    return cases


def _select_operands(dtype: np.dtype, random: Random) -> tuple[np.ndarray, ...]:
    return (values(random, np.dtype(bool), (3, 4)), values(random, dtype, (3, 4)), values(random, dtype, (3, 4)))


def _binary_cases() -> list[Case]:
    two = arrays((3, 4), (3, 4))
    positive = arrays((3, 4), (3, 4), low=0.3)
    cases = [Case(name, two, ALL) for name in ("eq", "ne", "lt", "le", "gt", "ge")]
    cases += [Case(name, two, BITS) for name in ("and", "or", "xor")]
    cases += [Case(name, arrays((3, 4), (3, 4), low=0), INTEGERS)
              for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic")]
    cases += [
        Case("add", two, NUMBERS, differentiable=(0, 1), linear=((0, 1), (0,), (1,))),
        Case("sub", two, NUMBERS, differentiable=(0, 1), linear=((0, 1), (0,), (1,))),
        Case("mul", two, NUMBERS, differentiable=(0, 1), linear=((0,), (1,))),
        Case("div", positive, NUMBERS, differentiable=(0, 1), linear=((0,),)),
        Case("rem", positive, NUMBERS, differentiable=(0, 1)),
        Case("max", two, ALL, differentiable=(0, 1)),
        Case("min", two, ALL, differentiable=(0, 1)),
        Case("pow", positive, NUMBERS, differentiable=(0, 1)),
        Case("atan2", two, differentiable=(0, 1)),
        Case("nextafter", two, differentiable=(0,)),
        Case("select", _select_operands, ALL, differentiable=(1, 2), linear=((1, 2), (1,), (2,))),
    ]
    return cases


def _reduction_cases() -> list[Case]:
    cases = []
    for axes in ((0,), (1,), (0, 2), (0, 1, 2)):
        label = "".join(map(str, axes))
        for name in ("reduce_max", "reduce_min"):
            cases.append(Case(name, array(2, 3, 4), ALL, {"axes": axes}, (0,), label=label))
        cases.append(Case("reduce_prod", array(2, 3, 4, low=0.5, high=1.5), NUMBERS, {"axes": axes}, (0,), label=label))
        cases.append(Case("reduce_sum", array(2, 3, 4), NUMBERS, {"axes": axes}, (0,), ((0,),), label=label))
        cases += [Case(name, array(2, 3, 4), BITS, {"axes": axes}, label=label)
                  for name in ("reduce_and", "reduce_or", "reduce_xor")]
    cases += [Case(name, array(3, 4), ALL, {"axis": axis, "dtype": np.dtype(dtype)}, label=f"{axis}-{dtype}")
              for name in ("argmax", "argmin") for axis, dtype in ((0, "int32"), (1, "uint8"))]
    return cases


def _running_cases() -> list[Case]:
    cases = []
    for axis, reverse in ((0, False), (1, True)):
        params = {"axis": axis, "reverse": reverse}
        cases.append(Case("cumsum", array(4, 5), NUMBERS, params, (0,), ((0,),), label=str(axis)))
        cases += [Case(name, array(4, 5), NUMBERS, params, (0,), label=str(axis))
                  for name in ("cumprod", "cummax", "cummin")]
        cases.append(Case("linear_recurrence", arrays((4, 5), (4, 5)), NUMBERS, params, (0, 1), ((1,),),
                          label=str(axis)))
    return cases


def _movement_cases() -> list[Case]:
    cases = []
    for stride, dilation in ((1, 1), (2, 1), (1, 2), (3, 2)):
        shape, strides, spread = (3, 2), (stride, 1), (dilation, 1)
        extents = (9, 4)
        counts = tuple(window.window_count(*entry) for entry in zip(extents, shape, strides, spread, strict=True))
        label = f"{stride}-{dilation}"
        cases.append(Case("window", array(2, *extents), ALL, {"shape": shape, "strides": strides, "dilation": spread},
                          (0,), ((0,),), label=label))
        cases.append(Case("window_sum", array(2, *counts, *shape), NUMBERS,
                          {"extents": extents, "strides": strides, "dilation": spread}, (0,), ((0,),), label=label))

    def padded(dtype: np.dtype, random: Random) -> tuple[np.ndarray, ...]:
        return values(random, dtype, (3, 4)), values(random, dtype, ())
    cases += [
        Case("reshape", array(3, 4), ALL, {"shape": (2, 6)}, (0,), ((0,),)),
        Case("transpose", array(2, 3, 4), ALL, {"permutation": (2, 0, 1)}, (0,), ((0,),)),
        Case("broadcast", array(3, 1), ALL, {"shape": (2, 3, 4), "axes": (1, 2)}, (0,), ((0,),)),
        Case("slice", array(5, 6), ALL, {"start": (1, 0), "limit": (4, 6), "strides": (1, 2)}, (0,), ((0,),)),
        Case("pad", padded, ALL, {"config": ((1, 2, 1), (-1, 0, 0))}, (0, 1), ((0, 1), (0,), (1,))),
        Case("flip", array(3, 4), ALL, {"axes": (1,)}, (0,), ((0,),)),
        Case("concatenate", arrays((2, 3), (2, 1), (2, 2)), ALL, {"axis": 1}, (0, 1, 2), ((0, 1, 2), (0,), (2,))),
        Case("full", lambda dtype, random: (), ALL,
             from_dtype=lambda dtype: {"type": array_type((2, 3), dtype), "value": literal(1, dtype)}),
        Case("iota", lambda dtype, random: (), NUMBERS,
             from_dtype=lambda dtype: {"type": array_type((2, 3), dtype), "axis": 1}),
    ]
    cases += [Case("convert", array(3, 4), ALL, {"dtype": np.dtype(target)}, (0,) if target == "float64" else (),
                   ((0,),) if target == "float64" else (), label=target)
              for target in ("float64", "float32", "int16", "bool", "uint8")]
    return cases


CASES = [*_unary_cases(), *_binary_cases(), *_reduction_cases(), *_running_cases(), *_movement_cases()]
