"""NumPy's functions over traced and compiled arrays, with JAX's names and argument order.

>>> import fungrad.numpy as fnp
>>> x = fnp.arange(6.0).reshape(2, 3)
>>> fnp.sum(x * x, axis=1).tolist()
[5.0, 50.0]

Element types promote by NEP 50 with one exception (integers with floats give the floats' type); see
`docs/decisions/001-promotion.md`. Arrays are immutable: write `x = x.at[index].set(value)` for `x[index] = value`.
"""
# ruff: noqa: I001, RUF022  (the names of a module in a few lines, not one line each)
from __future__ import annotations

import numpy as np

from ..ir.value import Value as ndarray
from .contractions import (
    convolve, correlate, cross, dot, inner, kron, matmul, matvec, outer, poly, polyadd, polyder, polydiv, polyint,
    polymul, polysub, polyval, tensordot, trace, vdot, vecdot, vecmat)
from .creation import (
    arange, array, asarray, astype, bartlett, blackman, c_, copy, diag, diag_indices, diag_indices_from, diagflat,
    diagonal, empty, empty_like, eye, fill_diagonal, frombuffer, fromfunction, fromiter, full, full_like, geomspace,
    hamming, hanning, identity, indices, kaiser, linspace, logspace, mask_indices, meshgrid, mgrid, ogrid, ones,
    ones_like, r_, tri, tril, tril_indices, tril_indices_from, triu, triu_indices, triu_indices_from, vander, zeros,
    zeros_like)
from .cumulative import (
    cumprod, cumsum, cumulative_prod, cumulative_sum, diff, ediff1d, gradient, nancumprod, nancumsum, trapezoid,
    unwrap)
from .einsum import (
    einsum, einsum_path)
from .elementwise import (
    abs, absolute, acos, acosh, add, angle, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh, around, asin,
    asinh, atan, atan2, atanh, cbrt, ceil, clip, conj, conjugate, copysign, cos, cosh, deg2rad, degrees, divide,
    divmod, exp, exp2, expm1, fabs, fix, float_power, floor, floor_divide, fmax, fmin, fmod, frexp, gcd, heaviside,
    hypot, imag, lcm, ldexp, log, log10, log1p, log2, logaddexp, logaddexp2, maximum, minimum, mod, modf, multiply,
    nan_to_num, negative, nextafter, positive, pow, power, rad2deg, radians, real, reciprocal, remainder, rint,
    round, sign, signbit, sin, sinc, sinh, spacing, sqrt, square, subtract, tan, tanh, true_divide, trunc)
from .files import (
    array_repr, array_str, from_dlpack, fromfile, fromstring, get_printoptions, iterable, load, printoptions, save,
    savez, set_printoptions)
from .functional import (
    apply_along_axis, vectorize)
from .indexing import (
    place_elements as place, put, put_along_axis, take, take_along_axis)
from .joining import (
    append, array_split, block, column_stack, concat, concatenate, delete, dsplit, dstack, hsplit, hstack, insert,
    pad, repeat, split, stack, tile, trim_zeros, unstack, vsplit, vstack)
from .logic import (
    allclose, array_equal, array_equiv, bitwise_and, bitwise_count, bitwise_invert, bitwise_left_shift, bitwise_not,
    bitwise_or, bitwise_right_shift, bitwise_xor, equal, greater, greater_equal, invert, isclose, iscomplex,
    isfinite, isinf, isnan, isneginf, isposinf, isreal, left_shift, less, less_equal, logical_and, logical_not,
    logical_or, logical_xor, not_equal, packbits, right_shift, unpackbits)
from .manipulation import (
    atleast_1d, atleast_2d, atleast_3d, broadcast_arrays, broadcast_shapes, broadcast_to, expand_dims, flip, fliplr,
    flipud, matrix_transpose, moveaxis, permute_dims, ravel, reshape, resize, roll, rollaxis, rot90, squeeze,
    swapaxes, transpose)
from .reductions import (
    all, amax, amin, any, argmax, argmin, average, count_nonzero, max, mean, min, nanargmax, nanargmin, nanmax,
    nanmean, nanmin, nanprod, nanstd, nansum, nanvar, prod, ptp, std, sum, var)
from .scalar_types import (
    bfloat16, bool_, can_cast, complexfloating, dtype, finfo, float16, float32, float64, floating, generic, iinfo,
    inexact, int16, int32, int64, int8, integer, iscomplexobj, isdtype, isrealobj, isscalar, issubdtype, ndim,
    number, promote_types, result_type, shape, signedinteger, size, uint16, uint32, uint64, uint8, unsignedinteger)
from .selection import (
    apply_over_axes, argwhere, choose, compress, extract, flatnonzero, ix_, nonzero, piecewise, ravel_multi_index,
    select, unravel_index, where)
from .sorting import (
    UniqueAllResult, UniqueCountsResult, UniqueInverseResult, argpartition, argsort, bincount, digitize, histogram,
    histogram2d, histogram_bin_edges, histogramdd, interp, intersect1d, isin, lexsort, partition, searchsorted,
    setdiff1d, setxor1d, sort, top_k, union1d, unique, unique_all, unique_counts, unique_inverse, unique_values)
from .statistics import (
    corrcoef, cov, median, nanmedian, nanpercentile, nanquantile, percentile, quantile)

e, pi, euler_gamma, inf, nan = np.e, np.pi, np.euler_gamma, np.inf, np.nan
newaxis = None
s_, index_exp = np.s_, np.index_exp
uint, int_, float_, single, double, half = uint32, int32, float32, float32, float64, float16
bool = bool_

__all__ = [
    "UniqueAllResult", "UniqueCountsResult", "UniqueInverseResult", "abs", "absolute", "acos", "acosh", "add", "all",
    "allclose", "amax", "amin", "angle", "any", "append", "apply_along_axis", "apply_over_axes", "arange", "arccos",
    "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort",
    "argwhere", "around", "array", "array_equal", "array_equiv", "array_repr", "array_split", "array_str", "asarray",
    "asin", "asinh", "astype", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average",
    "bartlett", "bfloat16", "bincount", "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman", "block", "bool", "bool_",
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "c_", "can_cast", "cbrt", "ceil", "choose", "clip",
    "column_stack", "complexfloating", "compress", "concat", "concatenate", "conj", "conjugate", "convolve", "copy",
    "copysign", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov", "cross", "cumprod", "cumsum",
    "cumulative_prod", "cumulative_sum", "deg2rad", "degrees", "delete", "diag", "diag_indices", "diag_indices_from",
    "diagflat", "diagonal", "diff", "digitize", "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype",
    "e", "ediff1d", "einsum", "einsum_path", "empty", "empty_like", "equal", "euler_gamma", "exp", "exp2",
    "expand_dims", "expm1", "extract", "eye", "fabs", "fill_diagonal", "finfo", "fix", "flatnonzero", "flip",
    "fliplr", "flipud", "float16", "float32", "float64", "float_", "float_power", "floating", "floor",
    "floor_divide", "fmax", "fmin", "fmod", "frexp", "from_dlpack", "frombuffer", "fromfile", "fromfunction",
    "fromiter", "fromstring", "full", "full_like", "gcd", "generic", "geomspace", "get_printoptions", "gradient",
    "greater", "greater_equal", "half", "hamming", "hanning", "heaviside", "histogram", "histogram2d",
    "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "hypot", "identity", "iinfo", "imag", "index_exp",
    "indices", "inexact", "inf", "inner", "insert", "int16", "int32", "int64", "int8", "int_", "integer", "interp",
    "intersect1d", "invert", "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isin", "isinf", "isnan",
    "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_", "kaiser", "kron",
    "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort", "linspace", "load", "log", "log10", "log1p",
    "log2", "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logspace",
    "mask_indices", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean", "median", "meshgrid", "mgrid",
    "min", "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile",
    "nanstd", "nansum", "nanvar", "ndarray", "ndim", "negative", "newaxis", "nextafter", "nonzero", "not_equal",
    "number", "ogrid", "ones", "ones_like", "outer", "packbits", "pad", "partition", "percentile", "permute_dims",
    "pi", "piecewise", "place", "poly", "polyadd", "polyder", "polydiv", "polyint", "polymul", "polysub", "polyval",
    "positive", "pow", "power", "printoptions", "prod", "promote_types", "ptp", "put", "put_along_axis", "quantile",
    "r_", "rad2deg", "radians", "ravel", "ravel_multi_index", "real", "reciprocal", "remainder", "repeat", "reshape",
    "resize", "result_type", "right_shift", "rint", "roll", "rollaxis", "rot90", "round", "s_", "save", "savez",
    "searchsorted", "select", "set_printoptions", "setdiff1d", "setxor1d", "shape", "sign", "signbit",
    "signedinteger", "sin", "sinc", "single", "sinh", "size", "sort", "spacing", "split", "sqrt", "square",
    "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot",
    "tile", "top_k", "trace", "transpose", "trapezoid", "tri", "tril", "tril_indices", "tril_indices_from",
    "trim_zeros", "triu", "triu_indices", "triu_indices_from", "true_divide", "trunc", "uint", "uint16", "uint32",
    "uint64", "uint8", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    "unpackbits", "unravel_index", "unsignedinteger", "unstack", "unwrap", "vander", "var", "vdot", "vecdot",
    "vecmat", "vectorize", "vsplit", "vstack", "where", "zeros", "zeros_like",
]
