"""JAX's `lax`: functions close to the primitives, which neither broadcast nor promote (but for scalars).

>>> import fungrad.numpy as fnp
>>> from fungrad import lax
>>> lax.add(fnp.ones(2), 1.0).tolist()
[2.0, 2.0]
"""
# ruff: noqa: I001  (the names of a module in a few lines, not one line each)
from __future__ import annotations

from .control import (
    all_gather, all_to_all, axis_index, axis_size, cond, custom_linear_solve, custom_root, fori_loop, map, pmax,
    pmean, pmin, ppermute, pshuffle, psum, psum_scatter, scan, switch, while_loop)
from .convolution import (
    ConvDimensionNumbers, ConvGeneralDilatedDimensionNumbers, DotDimensionNumbers, Precision, PrecisionLike,
    batch_matmul, conv, conv_dimension_numbers, conv_general_dilated, conv_general_dilated_patches,
    conv_general_permutations, conv_general_shape_tuple, conv_shape_tuple, conv_transpose,
    conv_transpose_shape_tuple, conv_with_general_padding, dot, dot_general, padtype_to_pads,
    reduce_window_shape_tuple)
from .elementwise import (
    RoundingMethod, abs, acos, acosh, add, asin, asinh, atan, atan2, atanh, bitcast_convert_type, bitwise_and,
    bitwise_not, bitwise_or, bitwise_xor, cbrt, ceil, clamp, clz, conj, convert_element_type, cos, cosh, digamma,
    div, eq, erf, erf_inv, erfc, exp, exp2, expm1, floor, ge, gt, imag, integer_pow, is_finite, le, lgamma, log,
    log1p, logistic, lt, max, min, mul, ne, neg, nextafter, population_count, pow, real, reciprocal,
    reduce_precision, rem, round, rsqrt, select, select_n, shift_left, shift_right_arithmetic, shift_right_logical,
    sign, sin, sinh, sqrt, square, stop_gradient, sub, tan, tanh)
from .reductions import (
    argmax, argmin, associative_scan, cumlogsumexp, cummax, cummin, cumprod, cumsum, reduce, reduce_and, reduce_max,
    reduce_min, reduce_or, reduce_prod, reduce_sum, reduce_window, reduce_xor)
from .structure import (
    GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers, approx_max_k, approx_min_k, broadcast,
    broadcast_in_dim, broadcast_shapes, broadcast_to_rank, broadcasted_iota, collapse, concatenate, dtype,
    dynamic_index_in_dim, dynamic_slice, dynamic_slice_in_dim, dynamic_update_index_in_dim, dynamic_update_slice,
    dynamic_update_slice_in_dim, empty, expand_dims, full, full_like, gather, index_in_dim, index_take, iota, pad,
    reshape, rev, scatter, scatter_add, scatter_apply, scatter_max, scatter_min, scatter_mul, scatter_sub,
    shape_as_value, slice_ as slice, slice_in_dim, sort, sort_key_val, split, squeeze, stack, tile, top_k, transpose,
    unstack, zeros_like_array)

__all__ = [
    "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "DotDimensionNumbers", "GatherDimensionNumbers",
    "GatherScatterMode", "Precision", "PrecisionLike", "RoundingMethod", "ScatterDimensionNumbers", "abs", "acos",
    "acosh", "add", "all_gather", "all_to_all", "approx_max_k", "approx_min_k", "argmax", "argmin", "asin", "asinh",
    "associative_scan", "atan", "atan2", "atanh", "axis_index", "axis_size", "batch_matmul", "bitcast_convert_type",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast", "broadcast_in_dim", "broadcast_shapes",
    "broadcast_to_rank", "broadcasted_iota", "cbrt", "ceil", "clamp", "clz", "collapse", "concatenate", "cond",
    "conj", "conv", "conv_dimension_numbers", "conv_general_dilated", "conv_general_dilated_patches",
    "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose",
    "conv_transpose_shape_tuple", "conv_with_general_padding", "convert_element_type", "cos", "cosh", "cumlogsumexp",
    "cummax", "cummin", "cumprod", "cumsum", "custom_linear_solve", "custom_root", "digamma", "div", "dot",
    "dot_general", "dtype", "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim", "empty", "eq", "erf",
    "erf_inv", "erfc", "exp", "exp2", "expand_dims", "expm1", "floor", "fori_loop", "full", "full_like", "gather",
    "ge", "gt", "imag", "index_in_dim", "index_take", "integer_pow", "iota", "is_finite", "le", "lgamma", "log",
    "log1p", "logistic", "lt", "map", "max", "min", "mul", "ne", "neg", "nextafter", "pad", "padtype_to_pads", "pmax",
    "pmean", "pmin", "population_count", "pow", "ppermute", "pshuffle", "psum", "psum_scatter", "real", "reciprocal",
    "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_precision", "reduce_prod", "reduce_sum",
    "reduce_window", "reduce_window_shape_tuple", "reduce_xor", "rem", "reshape", "rev", "round", "rsqrt", "scan",
    "scatter", "scatter_add", "scatter_apply", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub", "select",
    "select_n", "shape_as_value", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin",
    "sinh", "slice", "slice_in_dim", "sort", "sort_key_val", "split", "sqrt", "square", "squeeze", "stack",
    "stop_gradient", "sub", "switch", "tan", "tanh", "tile", "top_k", "transpose", "unstack", "while_loop",
    "zeros_like_array",
]
