"""Elementwise primitives: values against NumPy and SciPy at special points, integers, derivative conventions."""
from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import scipy.special
from hypothesis import given, strategies as st

from fungrad.dtypes import FLOATS, INTEGERS, SIGNED, is_float
from fungrad.errors import DTypeError, RefusedError, ShapeError
from fungrad.ir.primitive import PRIMITIVES, Linear, Zero
from fungrad.ir.types import array_type
from fungrad.ops import elementwise, special
from fungrad.trace import active
from tests.ops.eager import EagerTrace, run, unwrap, wrap

F16, F32, F64, BF16 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64"), np.dtype(ml_dtypes.bfloat16)
I8, I32, U8, U32 = (np.dtype(name) for name in ("int8", "int32", "uint8", "uint32"))

UNARY = {
    "neg": np.negative, "abs": np.abs, "sign": lambda x: np.copysign(np.sign(x), x), "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "sqrt": np.sqrt, "is_finite": np.isfinite,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log1p": np.log1p, "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "logistic": scipy.special.expit, "erf": scipy.special.erf, "erfc": scipy.special.erfc,
    "erf_inv": lambda x: np.copysign(scipy.special.erfinv(x), x),
    "lgamma": lambda x: np.where(np.isinf(x), np.inf, np.where(   # SciPy's overflows at tiny x, where it is -log |x|
        np.abs(x) < 1e-300, -np.log(np.abs(x)), scipy.special.gammaln(x))),
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "rem": np.fmod,
          "max": np.maximum, "min": np.minimum, "pow": np.power, "atan2": np.arctan2, "eq": np.equal,
          "ne": np.not_equal, "lt": np.less,
          "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


def special_values(dtype: np.dtype) -> np.ndarray:
    info = ml_dtypes.finfo(dtype)
    positive = [0.0, float(info.smallest_subnormal), float(info.tiny), 1e-3, 0.5, 1.0, 1.5, 2.0, 2.5, 10.0, 100.0,
                float(info.max), math.inf]
    return np.array([*positive, *(-x for x in positive), math.nan]).astype(dtype)


def assert_equal_bits_or_close(actual, expected, dtype, absolute=0.0):
    """NaN and infinities in the same places, zeros with the same sign, the rest within a few units in the last."""
    assert actual.dtype == dtype
    if not is_float(dtype):
        np.testing.assert_array_equal(actual, expected)
        return
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    zero = (expected == 0) & (actual == 0)
    np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(expected[zero]))
    info = ml_dtypes.finfo(dtype)
    np.testing.assert_allclose(actual, expected, 4 * float(info.eps), 2 * float(info.smallest_subnormal) + absolute)


@pytest.mark.parametrize("name", sorted(UNARY))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values_of_one_operand(name, dtype):
    x = special_values(dtype)
    with np.errstate(all="ignore"):
        wide = UNARY[name](x.astype(np.float64))
        expected = wide if wide.dtype == bool else wide.astype(dtype)
    near_roots = 1e-15 if name == "lgamma" else 0.0
    assert_equal_bits_or_close(run(getattr(elementwise, name), x), expected, expected.dtype, near_roots)


@pytest.mark.parametrize("name", sorted(BINARY))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values_of_two_operands(name, dtype):
    x, y = (a.ravel() for a in np.meshgrid(special_values(dtype), special_values(dtype)))
    with np.errstate(all="ignore"):
        wide = BINARY[name](x.astype(np.float64), y.astype(np.float64))
        expected = wide if wide.dtype == bool else wide.astype(dtype)
    assert_equal_bits_or_close(run(getattr(elementwise, name), x, y), expected, expected.dtype)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_nextafter_steps_like_numpy(dtype):
    x, y = (a.ravel() for a in np.meshgrid(special_values(dtype), special_values(dtype)))
    with np.errstate(all="ignore"):
        expected = np.nextafter(x, y)
    actual = run(elementwise.nextafter, x, y)
    number = ~np.isnan(expected)
    bits = f"u{dtype.itemsize}"
    np.testing.assert_array_equal(actual[number].view(bits), expected[number].view(bits))
    assert np.isnan(actual[~number]).all()


def test_nextafter_of_bfloat16():
    one = np.array(1, BF16)
    assert float(run(elementwise.nextafter, one, np.array(2, BF16))) == 1 + 2 ** -7
    assert float(run(elementwise.nextafter, np.array(0, BF16), one)) == 2.0 ** -133


# ---- integers -------------------------------------------------------------------------------------------------------


def truncated(x: int, y: int) -> tuple[int, int]:
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return quotient, x - quotient * y


@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
def test_integer_division_truncates_for_every_pair(dtype):
    every = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
    x, y = (a.ravel() for a in np.meshgrid(every, every))
    quotient, remainder = run(elementwise.div, x, y), run(elementwise.rem, x, y)
    zero = y == 0
    assert (quotient[zero] == np.array(-1).astype(dtype)).all()
    np.testing.assert_array_equal(remainder[zero], x[zero])
    expected = np.array([truncated(int(a), int(b)) for a, b in zip(x[~zero], y[~zero], strict=True)])
    np.testing.assert_array_equal(quotient[~zero], expected[:, 0].astype(dtype))   # -128 / -1 wraps to -128
    np.testing.assert_array_equal(remainder[~zero], expected[:, 1].astype(dtype))


@given(st.sampled_from(INTEGERS), st.integers(-2**63, 2**64 - 1), st.integers(-300, 300))
def test_integer_power_wraps(dtype, x, y):
    x, y = np.asarray(x).astype(np.uint64).astype(dtype), np.asarray(y).astype(dtype)
    if int(y) >= 0:
        expected = pow(int(x), int(y), 2 ** (8 * dtype.itemsize))
    elif int(x) in (1, -1):
        expected = 1 if int(x) == 1 or int(y) % 2 == 0 else -1
    else:
        expected = 0
    assert run(elementwise.pow, x, y) == np.array(expected % 2**64, np.uint64).astype(dtype)


@given(st.sampled_from(INTEGERS), st.integers(-2**63, 2**64 - 1), st.integers(0, 12))
def test_fixed_integer_power_wraps(dtype, x, exponent):
    x = np.asarray(x).astype(np.uint64).astype(dtype)
    expected = np.array(pow(int(x), exponent, 2**64), np.uint64).astype(dtype)
    assert run(elementwise.integer_pow, x, exponent=exponent) == expected


@given(st.sampled_from(INTEGERS), st.integers(-2**63, 2**64 - 1), st.integers(-3, 70))
def test_shifts_by_any_count(dtype, x, count):
    bits = 8 * dtype.itemsize
    x, shift = np.asarray(x).astype(np.uint64).astype(dtype), np.asarray(count).astype(dtype)
    inside = 0 <= count < bits
    unsigned = int(x) % 2**bits
    signed = unsigned - (2**bits if unsigned >= 2 ** (bits - 1) else 0)
    expected = {"shift_left": unsigned << count if inside else 0,
                "shift_right_logical": unsigned >> count if inside else 0,
                "shift_right_arithmetic": signed >> (count if inside else bits - 1)}
    for name, value in expected.items():
        assert int(run(getattr(elementwise, name), x, shift)) % 2**bits == value % 2**bits, name


@given(st.sampled_from(INTEGERS), st.integers(-2**63, 2**64 - 1))
def test_counting_bits(dtype, x):
    x = np.asarray(x).astype(np.uint64).astype(dtype)
    unsigned = int(x) % 2 ** (8 * dtype.itemsize)
    assert run(elementwise.population_count, x) == unsigned.bit_count()
    assert run(elementwise.count_leading_zeros, x) == 8 * dtype.itemsize - unsigned.bit_length()


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_arithmetic_wraps(dtype):
    least, most = np.array(np.iinfo(dtype).min, dtype), np.array(np.iinfo(dtype).max, dtype)
    assert run(elementwise.add, most, 1) == least
    assert run(elementwise.sub, least, 1) == most
    assert run(elementwise.mul, most, 2) == -2
    assert run(elementwise.neg, least) == least == run(elementwise.abs, least)


def test_bits_are_logical_on_bool():
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert run(elementwise.bitwise_and, x, y).tolist() == [False, False, False, True]
    assert run(elementwise.bitwise_xor, x, y).tolist() == [False, True, True, False]
    assert run(elementwise.bitwise_not, x).tolist() == [True, True, False, False]
    assert run(elementwise.max, x, y).tolist() == run(elementwise.bitwise_or, x, y).tolist()


def test_bitcast_keeps_the_bits():
    x = np.array([1.0, -0.0, math.nan], F32)
    assert run(elementwise.bitcast, x, dtype=U32).tolist() == [0x3F800000, 0x80000000, 0x7FC00000]
    with pytest.raises(DTypeError, match="bitcast.*one size"):
        run(elementwise.bitcast, x, dtype=F64)


# ---- derivatives ----------------------------------------------------------------------------------------------------


def derivative(name: str, *point: float, wrt: int = 0, dtype: np.dtype = F64) -> float:
    """The tangent of an operation along one operand."""
    arrays = [np.array(x, dtype) for x in point]
    tangents = [np.array(1, dtype) if i == wrt else Zero(array_type((), dtype)) for i in range(len(point))]
    with active(EagerTrace()):
        _, tangent = PRIMITIVES[name].jvp([wrap(a) for a in arrays], [wrap(t) for t in tangents])
    return float(unwrap(tangent))


def test_conventions_where_there_is_no_derivative():
    assert derivative("abs", 0.0) == 0
    assert derivative("sign", 0.0) == 0
    assert derivative("sqrt", 0.0) == math.inf
    assert derivative("max", 1.0, 1.0) == derivative("min", 1.0, 1.0, wrt=1) == 0.5
    assert (derivative("max", 2.0, 1.0), derivative("max", 2.0, 1.0, wrt=1)) == (1, 0)
    assert (derivative("min", 2.0, 1.0), derivative("min", 2.0, 1.0, wrt=1)) == (0, 1)


def test_derivatives_of_pow_at_zero():
    assert derivative("pow", 0.0, 0.0) == 0           # x**0 = 1 everywhere
    assert derivative("pow", 0.0, 1.0) == 1
    assert derivative("pow", 0.0, 2.0) == 0
    assert derivative("pow", 0.0, 2.0, wrt=1) == 0    # 0**y = 0 for every y > 0
    assert derivative("pow", -2.0, 3.0) == 12
    assert math.isnan(derivative("pow", -2.0, 3.0, wrt=1))


def test_max_routes_infinite_tangents_without_nan():
    with active(EagerTrace()):
        _, tangent = PRIMITIVES["max"].jvp([wrap(np.array([2.0])), wrap(np.array([1.0]))],
                                           [wrap(np.array([3.0])), wrap(np.array([math.inf]))])
    assert unwrap(tangent) == 3


def test_remainder_near_a_whole_quotient():
    """x / y rounds to 3 although x < 3 y: the derivative along y is -2."""
    y = 0.1
    x = np.nextafter(3 * y, 0)
    while x / y < 3:
        x = np.nextafter(x, 1)
    x = np.nextafter(x, 0) if math.fmod(x, y) < 0.05 else x
    assert derivative("rem", float(x), y, wrt=1) == -round((x - math.fmod(x, y)) / y)


@pytest.mark.parametrize(("name", "x", "exact"), [
    ("tanh", 18.0, 4 * math.exp(-36.0)), ("logistic", -40.0, math.exp(-40.0)), ("expm1", -40.0, math.exp(-40.0)),
    ("log1p", -1 + 2.0**-52, 2.0**52), ("asin", 1 - 2.0**-52, 2.0**25.5), ("acosh", 1 + 2.0**-52, 2.0**25.5),
    ("atanh", 1 - 2.0**-52, 2.0**51), ("log1p", 1e-20, 1.0), ("expm1", 1e-20, 1.0),
])
def test_derivatives_are_accurate_at_the_ends(name, x, exact):
    tolerance = 0.1 if name == "tanh" else 1e-12   # tanh' comes from a result that is rounded near 1
    assert derivative(name, x) == pytest.approx(exact, rel=tolerance)


def test_tangents_of_sixteen_bits_stay_finite():
    assert derivative("logistic", 20.0, dtype=F16) == 0
    assert derivative("rsqrt", 1e-4, dtype=F16) == -math.inf   # -500,000 is beyond float16
    assert derivative("exp2", 10.0, dtype=F16) == pytest.approx(1024 * math.log(2), rel=1e-3)


def test_mul_is_linear_in_one_operand_at_a_time():
    both = [Linear(array_type((), F32))] * 2
    with pytest.raises(RefusedError, match="one operand at a time"):
        PRIMITIVES["mul"].transpose(wrap(np.ones((), F32)), both)
    with pytest.raises(RefusedError, match="divisor"):
        PRIMITIVES["div"].transpose(wrap(np.ones((), F32)), [wrap(np.ones((), F32)), both[0]])


# ---- special functions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "exact", "low", "high"), [
    ("erf", scipy.special.erf, -6, 6), ("erfc", scipy.special.erfc, -6, 26),
    ("lgamma", scipy.special.gammaln, -20, 200), ("digamma", scipy.special.digamma, 1e-3, 100),
    ("digamma", scipy.special.digamma, -9.7, -9.3),
    ("logistic", scipy.special.expit, -700, 700), ("erf_inv", scipy.special.erfinv, -1, 1),
])
def test_references_of_special_functions(name, exact, low, high):
    x = np.linspace(low, high, 1001)
    np.testing.assert_allclose(getattr(special, name)(x), exact(x), 2e-13, 2e-14)


@pytest.mark.parametrize("x", [1 - 2.0**-53, -1 + 2.0**-53, 1 - 1e-9, 0.5, 1e-12, -1e-300])
def test_erf_inv_near_its_ends(x):
    np.testing.assert_allclose(special.erf_inv(np.array(x)), scipy.special.erfinv(x), 1e-13)


def test_poles_of_the_gamma_functions():
    poles = np.array([0.0, -1.0, -2.0, -math.inf])
    assert (special.lgamma(poles) == math.inf).all()
    assert np.isnan(special.digamma(poles[1:])).all()
    assert special.digamma(np.array([0.0, -0.0])).tolist() == [-math.inf, math.inf]


@given(st.floats(-30, 100).filter(lambda x: abs(x - round(x)) > 1e-3))
def test_trigamma(x):
    np.testing.assert_allclose(run(elementwise.trigamma, np.array(x)), scipy.special.polygamma(1, x) if x > 0 else
                               (math.pi / math.sin(math.pi * (x - math.floor(x)))) ** 2
                               - scipy.special.polygamma(1, 1 - x), 1e-11)


# ---- calling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F16, BF16, F32, I32], ids=str)
def test_a_python_scalar_takes_the_type_of_the_array(dtype):
    x = np.array([1, 2, 3], dtype)
    for function in (lambda x: elementwise.add(x, 2), lambda x: elementwise.add(2, x),
                     lambda x: elementwise.max(x, np.int64(2))):
        assert run(function, x).dtype == dtype
    assert run(elementwise.sub, 5, x).astype(int).tolist() == [4, 3, 2]
    assert run(elementwise.select, x > 1, x, 0).astype(int).tolist() == [0, 2, 3]
    assert run(elementwise.select, x > 1, 9, x).astype(int).tolist() == [1, 9, 9]
    assert run(elementwise.clamp, 2, x, 2).astype(int).tolist() == [2, 2, 2]


def test_errors_say_what_to_write():
    ints, floats = np.array([1, 2], I32), np.array([1, 2], F32)
    with pytest.raises(DTypeError, match=r"sin does not take int32: .*x\.astype\('float32'\)"):
        run(elementwise.sin, ints)
    with pytest.raises(DTypeError, match=r"add: the float 0\.5 does not fit an array of int32"):
        run(elementwise.add, ints, 0.5)
    with pytest.raises(DTypeError, match="add: element types int32 and float32 differ"):
        run(elementwise.add, ints, floats)
    with pytest.raises(ShapeError, match=r"mul: shapes \(2,\) and \(1,\) differ"):
        run(elementwise.mul, floats, floats[:1])
    with pytest.raises(DTypeError, match="and does not take float32"):
        run(elementwise.bitwise_and, floats, floats)
    with pytest.raises(DTypeError, match="the predicate must be bool, not int32"):
        run(elementwise.select, ints, floats, floats)
    with pytest.raises(DTypeError, match="int32 has no negative power -2"):
        run(elementwise.integer_pow, ints, exponent=-2)
    with pytest.raises(TypeError, match="one operand must be an array"):
        run(elementwise.add, 1, 2)
