"""Elementwise functions against NumPy: element types, broadcasting, special values, empty and 0-d arrays."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fungrad.numpy as fnp
from tests.numpy.support import near, same

RNG = np.random.default_rng(0)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-3, 30.0, np.inf, -np.inf, np.nan], "float32")

UNARY = ["negative", "positive", "absolute", "fabs", "sign", "square", "reciprocal", "exp", "exp2", "expm1", "log",
         "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh",
         "tanh", "arcsinh", "arccosh", "arctanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "deg2rad",
         "rad2deg", "degrees", "radians", "sinc", "floor", "ceil", "trunc", "fix", "rint", "signbit", "isnan", "isinf",
         "isfinite", "isposinf", "isneginf", "logical_not", "nan_to_num", "spacing", "real", "imag", "conj",
         "conjugate", "isreal", "iscomplex"]

BINARY = ["add", "subtract", "multiply", "divide", "true_divide", "floor_divide", "remainder", "mod", "fmod", "power",
          "float_power", "logaddexp", "logaddexp2", "arctan2", "atan2", "hypot", "maximum", "minimum", "fmax", "fmin",
          "copysign", "nextafter", "heaviside", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
          "logical_and", "logical_or", "logical_xor"]

INTEGER_BINARY = ["add", "subtract", "multiply", "floor_divide", "remainder", "fmod", "maximum", "minimum", "gcd",
                  "lcm", "bitwise_and", "bitwise_or", "bitwise_xor", "equal", "less", "logical_and"]


def numpy_function(name):
    return getattr(np, {"divide": "true_divide"}.get(name, name))


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    reference = numpy_function(name)
    for x in (SPECIAL, RNG.standard_normal((2, 3)).astype("float32"), np.float32(0.25) * np.ones(()),
              np.zeros((0, 2), "f")):
        with np.errstate(all="ignore"):
            want = reference(x.astype("float64")) if name != "spacing" else reference(x)
            if name == "nan_to_num":
                want = reference(x)
        near(getattr(fnp, name)(x), want, 1e-5)


@pytest.mark.parametrize("name", ["exp", "sin", "sqrt", "log1p", "tanh", "deg2rad", "reciprocal", "sinc", "log10"])
def test_floating_functions_of_integers_and_bool_give_the_default_float(name):
    for x in (np.array([1, 2, 3], "int8"), np.array([1, 2], "uint64"), np.array([True])):
        near(getattr(fnp, name)(x), getattr(np, name)(x.astype("float64")), 1e-5, "float32")
    assert getattr(fnp, name)(2).dtype == np.float32
    assert getattr(fnp, name)(np.ones(2, "float64")).dtype == np.float64
    assert getattr(fnp, name)(np.ones(2, ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "fix", "rint", "round", "absolute", "positive", "square"])
def test_integers_stay_integers(name):
    same(getattr(fnp, name)(np.array([-3, 4], "int16")), getattr(np, name)(np.array([-3, 4])))
    assert getattr(fnp, name)(np.array([3], "int16")).dtype == np.int16


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    reference = numpy_function(name)
    x, y = RNG.standard_normal((3, 1)).astype("float32"), RNG.standard_normal(4).astype("float32")
    with np.errstate(all="ignore"):
        near(getattr(fnp, name)(x, y), reference(x, y) if name == "nextafter"
             else reference(x.astype("f8"), y.astype("f8")), 1e-5)
        a, b = np.meshgrid(SPECIAL, SPECIAL)
        want = reference(a, b).astype("f4" if name == "float_power" else reference(a, b).dtype)
    got = np.asarray(getattr(fnp, name)(a, b))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-30)
    same_sign = np.signbit(got) == np.signbit(want)
    if name in ("floor_divide", "remainder", "mod", "fmod", "copysign", "divide", "maximum"):
        assert np.all(same_sign | np.isnan(want) | (a == b)), "signs of zeros"
    assert getattr(fnp, name)(np.zeros((0, 1), "f"), np.zeros(3, "f")).shape == (0, 3)


@pytest.mark.parametrize("name", INTEGER_BINARY)
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "int64"])
def test_binary_of_integers(name, dtype):
    x = RNG.integers(0 if dtype[0] == "u" else -20, 20, (5, 1)).astype(dtype)
    y = RNG.integers(1, 20, 7).astype(dtype)
    y[:3] *= np.array(-1 if dtype[0] == "i" else 1, dtype)
    with np.errstate(all="ignore"):
        want = numpy_function(name)(x, y)
    got = getattr(fnp, name)(x, y)
    same(got, want)
    assert got.dtype == want.dtype


def test_division_by_integer_zero():
    x, zero = np.array([5, -5, 0], "int32"), np.zeros(3, "int32")
    same(fnp.floor_divide(x, zero), [-1, -1, -1])
    same(fnp.remainder(x, zero), x)


def test_divmod():
    x, y = RNG.standard_normal(20).astype("float32") * 5, RNG.standard_normal(20).astype("float32")
    for got, want in zip(fnp.divmod(x, y), np.divmod(x.astype("f8"), y.astype("f8")), strict=True):
        near(got, want, 1e-4)
    for got, want in zip(divmod(fnp.array([7, -7]), 3), np.divmod(np.array([7, -7]), 3), strict=True):
        same(got, want)


def test_power():
    x = np.array([-2.0, 0.5, 3.0], "float32")
    for exponent in (0, 1, 2, 5, -1, -3):
        near(fnp.array(x) ** exponent, x.astype("f8") ** exponent, 1e-6, "float32")
        near(fnp.power(x, exponent), x.astype("f8") ** exponent, 1e-6, "float32")
    near(fnp.array(x) ** 2.0, x**2)
    near(fnp.array(np.abs(x)) ** 0.5, np.abs(x) ** 0.5)
    near(fnp.array(np.abs(x)) ** 1.7, np.abs(x).astype("f8") ** 1.7)
    near(2 ** fnp.array(x), 2.0**x)
    same(fnp.array([2, -3], "int32") ** 3, [8, -27])
    same(fnp.power(np.array([2, -3, 0, 7], "int32"), np.array([10, 3, 0, 20], "int32")),
         np.power(np.array([2, -3, 0, 7], "int32"), np.array([10, 3, 0, 20], "int32")))
    same(fnp.power(np.array([3], "uint8"), np.array([6], "uint8")),
         np.power(np.array([3], "uint8"), np.array([6], "uint8")))
    with pytest.raises(ValueError, match="negative power"):
        fnp.array([2, 3]) ** -1
    assert (fnp.array([2], "int8") ** 2).dtype == np.int8


def test_rounding_to_decimals():
    x = np.array([1.2345, -2.5, 1e20, np.inf], "float32")
    for decimals in (0, 2, -1):
        near(fnp.round(x, decimals), np.round(x.astype("f8"), decimals))
    near(round(fnp.array([1.26]), 1), [1.3])


def test_modf_frexp_ldexp():
    x = np.array([0.0, -0.0, 1.5, -3.75, 1e-40, 6e30, np.inf, -np.inf, np.nan], "float32")
    for name in ("modf", "frexp"):
        for got, want in zip(getattr(fnp, name)(x), getattr(np, name)(x), strict=True):
            if name == "frexp" and want.dtype.kind == "i":
                want = np.where(np.isfinite(x), want, 0)
            near(got, want, 0)
    exponent = np.array([3, -200, 200, -149], "int32")
    with np.errstate(all="ignore"):
        same(fnp.ldexp(np.float32(1.5), exponent), np.ldexp(np.float32(1.5), exponent))
    same(fnp.ldexp(np.array([1e-40], "f"), np.array([130])), np.ldexp(np.array([1e-40], "f"), 130))


def test_nan_to_num_and_clip():
    x = np.array([np.nan, np.inf, -np.inf, 2.0], "float32")
    near(fnp.nan_to_num(x, nan=1.0, posinf=5.0, neginf=-5.0), [1, 5, -5, 2])
    near(fnp.clip(x[3:], 0, 1), [1.0])
    near(fnp.clip(np.arange(5), 1), [1, 1, 2, 3, 4])
    near(fnp.clip(np.arange(5), max=np.array([0, 1, 1, 9, 9])), [0, 1, 1, 3, 4])
    near(fnp.arange(5).clip(1, 3), [1, 1, 2, 3, 3])
    assert fnp.clip(np.arange(5, dtype="int8"), 1, 3).dtype == np.int8


def test_shifts_and_counts():
    x = np.array([-8, 7, 1], "int32")
    for name in ("left_shift", "right_shift"):
        same(getattr(fnp, name)(x, 2), getattr(np, name)(x, 2))
    same(fnp.array(x) >> 1, x >> 1)
    same(fnp.array([200], "uint8") >> 3, np.array([200], "uint8") >> 3)
    same(fnp.bitwise_count(x), np.bitwise_count(x))
    same(~fnp.array([True, False]), [False, True])
    same(fnp.invert(x), ~x)


def test_bool_arithmetic_is_logic():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    same(fnp.add(a, b), a + b)
    same(fnp.multiply(a, b), a * b)
    with pytest.raises(TypeError, match="logical_xor"):
        fnp.subtract(a, b)
    with pytest.raises(TypeError, match="logical_not"):
        -fnp.array(a)


def test_comparison_with_integers_out_of_range():
    x = np.array([1, 127], "int8")
    same(fnp.array(x) < 300, [True, True])
    same(fnp.array(x) == -1000, [False, False])
    same(fnp.array([1], "uint8") > -1, [True])


def test_closeness():
    a, b = np.array([1.0, np.inf, np.nan, 1e-9], "f"), np.array([1.00001, np.inf, np.nan, 0], "f")
    same(fnp.isclose(a, b, rtol=1e-4), np.isclose(a, b, rtol=1e-4))
    same(fnp.isclose(a, b, rtol=1e-4, equal_nan=True), np.isclose(a, b, rtol=1e-4, equal_nan=True))
    same(fnp.allclose(a, b, rtol=1e-4, equal_nan=True), True)
    same(fnp.array_equal(a, a), False)
    same(fnp.array_equal(a, a, equal_nan=True), True)
    same(fnp.array_equal(a, a[:2]), False)
    same(fnp.array_equiv(np.ones((2, 2)), np.ones(2)), True)


def test_shape_error_names_both_shapes():
    with pytest.raises(ValueError, match=r"add: shapes \(2, 3\) and \(2, 4\)"):
        fnp.ones((2, 3)) + fnp.ones((2, 4))
    with pytest.raises(ValueError, match="transpose"):
        fnp.ones((2, 3)) * fnp.ones((3, 2))


def test_errors_say_what_was_given():
    with pytest.raises(TypeError, match="sin takes arrays and numbers, not str"):
        fnp.sin("x")
    with pytest.raises(TypeError, match="None is not an array"):
        fnp.add(None, 1)
    with pytest.raises(TypeError, match="omplex"):
        fnp.exp(1j)
    with pytest.raises(TypeError):
        fnp.ones(2) + "x"
    with pytest.raises(OverflowError, match="int8"):
        fnp.ones(2, "int8") + 300
    with pytest.raises(TypeError, match=r"bitwise_and takes bool and integers, got float32"):
        fnp.ones(2) & fnp.ones(2)


def test_values_with_numpy_arrays_and_scalars():
    x = fnp.arange(3.0)
    same(np.arange(3.0, dtype="f") + x, [0, 2, 4])
    same(np.float32(2) * x, [0, 2, 4])
    assert (np.float32(2) * x).dtype == np.float32
    assert (np.float64(2) * x).dtype == np.float32     # a float64 scalar is a Python float
    assert (np.ones(3) * x).dtype == np.float64
    assert np.asarray(x).sum() == 3


def test_gcd_and_lcm_of_the_least_integer_are_not_negative():
    least = np.array([-2**31, -2**31, 6, -2**31], np.int32)
    other = np.array([6, 7, -2**31, 0], np.int32)
    assert np.asarray(fnp.gcd(least, other)).tolist()[:3] == [2, 1, 2]
    small, even = np.array([-128, 12], np.int8), np.array([96, -18], np.int8)
    assert np.asarray(fnp.gcd(small, even)).tolist() == np.gcd(small.astype(int), even.astype(int)).tolist()
