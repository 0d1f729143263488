"""Sums of products and convolutions under JAX's names in lax: dot, dot_general, conv_general_dilated,
conv_transpose.
"""
from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..ir.value import Value
from ..ops import contract, linear, slicing
from ..ops.convolution import conv as convolved, convolved_extents, dilated
from ..ops.create import full
from ..ops.window import window
from .conversion import as_value
from .promotion import requested

Pads = list[tuple[int, int]]
DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


class Precision(enum.Enum):
    """JAX's hint for fast hardware; sums of products are always computed in the operands' type (16-bit floats in
    float32).
    """
    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


PrecisionLike = Any

# ---- dot ------------------------------------------------------------------------------------------------------------

def _operands(name: str, lhs: Any, rhs: Any) -> tuple[Value, Value]:
    x, y = as_value(name, lhs), as_value(name, rhs)
    if dtypes.is_float(x.dtype) != dtypes.is_float(y.dtype):
        raise DTypeError(f"lax.{name}: element types {x.dtype} and {y.dtype} mix integers and floats. Convert with "
                         f"x.astype(...), or use fungrad.numpy, which promotes.")
    return x, y


def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None,
                preferred_element_type: Any = None) -> Value:
    """Sums of products over paired axes: ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)).

    The result has the batch axes, the other axes of lhs, those of rhs.
    """
    x, y = _operands("dot_general", lhs, rhs)
    (contracted, batch) = [tuple(tuple(int(axis) for axis in axes) for axes in pair) for pair in dimension_numbers]
    numbers = (contracted[0], contracted[1]), (batch[0], batch[1])
    return contract.dot_general(x, y, numbers, requested("dot_general", preferred_element_type))


def dot(lhs: Any, rhs: Any, *, dimension_numbers: Any = None, precision: Any = None,
        preferred_element_type: Any = None) -> Value:
    """The product of two vectors, matrices, or both."""
    x, y = _operands("dot", lhs, rhs)
    if dimension_numbers is not None:
        return dot_general(x, y, dimension_numbers, precision, preferred_element_type)
    if not (1 <= x.ndim <= 2 and 1 <= y.ndim <= 2 and x.shape[-1] == y.shape[0]):
        raise ShapeError(f"lax.dot takes vectors and matrices with fitting axes, got shapes {x.shape} and {y.shape}. "
                         f"Use fungrad.numpy.matmul, or dimension_numbers=.")
    return dot_general(x, y, (((x.ndim - 1,), (0,)), ((), ())), precision, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Value:
    """Matrix products over the last two axes, for each index of the leading ones, which agree."""
    x, y = _operands("batch_matmul", lhs, rhs)
    if x.ndim != y.ndim or x.ndim < 2 or x.shape[:-2] != y.shape[:-2]:
        raise ShapeError(f"lax.batch_matmul takes arrays with equal leading axes, got shapes {x.shape} and {y.shape}. "
                         f"Use fungrad.numpy.matmul, which broadcasts.")
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)), precision)


# ---- layouts --------------------------------------------------------------------------------------------------------

class ConvDimensionNumbers(NamedTuple):
    """Where the axes are: lhs (batch, feature, spatial...), rhs (output, input, spatial...), out (batch, feature,
    ...).
    """
    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


ConvGeneralDilatedDimensionNumbers = Any


def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                           dimension_numbers: Any) -> ConvDimensionNumbers:
    """The axes that three strings such as ("NHWC", "HWIO", "NHWC") name; None is ("NC...", "OI...", "NC...").

    >>> conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC")).lhs_spec
    (0, 3, 1, 2)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if len(rhs_shape) != rank or rank < 2:
        raise ShapeError(f"a convolution needs an operand and a kernel with equally many axes, at least two; got "
                         f"shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}.")
    if dimension_numbers is None:
        plain = tuple(range(rank))
        return ConvDimensionNumbers(plain, plain, plain)
    lhs, rhs, out = dimension_numbers
    for text, letters, what in ((lhs, "NC", "operand"), (rhs, "OI", "kernel"), (out, "NC", "result")):
        if not isinstance(text, str) or len(text) != rank or len(set(text)) != rank or not set(letters) <= set(text):
            raise ValueError(f"the layout {text!r} of the {what} must be {rank} different letters, among them "
                             f"{letters[0]} and {letters[1]}.")
    spatial = [letter for letter in rhs if letter not in "OI"]
    if set(spatial) != set(lhs) - set("NC") or set(spatial) != set(out) - set("NC"):
        raise ValueError(f"the layouts {lhs!r}, {rhs!r} and {out!r} name different spatial axes.")
    return ConvDimensionNumbers(*(tuple(text.index(letter) for letter in (*first, *spatial)) for text, first in
                                  ((lhs, "NC"), (rhs, "OI"), (out, "NC"))))


def padtype_to_pads(in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int],
                    padding: str) -> Pads:
    """(before, after) for each axis that "VALID", "SAME" or "SAME_LOWER" padding means."""
    kind = padding.upper()
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise ValueError(f"padding must be 'VALID', 'SAME', 'SAME_LOWER' or pairs (before, after), got {padding!r}.")
    pads = []
    for extent, size, stride in zip(in_shape, window_shape, window_strides, strict=True):
        total = max((-(-extent // stride) - 1) * stride + size - extent, 0)
        low = total // 2 if kind == "SAME" else total - total // 2
        pads.append((low, total - low))
    return pads


def _numbers(given: Any, rank: int, what: str) -> tuple[int, ...]:
    if given is None:
        return (1,) * rank
    values = tuple(int(v) for v in given) if not isinstance(given, int) else (given,) * rank
    if len(values) != rank:
        raise ShapeError(f"conv: {what} {values} needs one entry for each of {rank} spatial axes.")
    return values


# ---- convolution ----------------------------------------------------------------------------------------------------

def conv_general_dilated(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, lhs_dilation: Any = None,
                         rhs_dilation: Any = None, dimension_numbers: Any = None, feature_group_count: int = 1,
                         batch_group_count: int = 1, precision: Any = None,
                         preferred_element_type: Any = None) -> Value:
    """The convolution (without flipping the kernel) of deep learning, in any layout.

    padding: "VALID", "SAME", "SAME_LOWER" or (before, after) for each spatial axis. lhs_dilation puts zeros between the
    operand's elements, rhs_dilation between the kernel's.

    >>> import fungrad.numpy as fnp
    >>> from fungrad import lax
    >>> x, w = fnp.ones((1, 8, 8, 3)), fnp.ones((3, 3, 3, 4))
    >>> lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
    (1, 4, 4, 4)
    """
    x, kernel = _operands("conv_general_dilated", lhs, rhs)
    layout = conv_dimension_numbers(x.shape, kernel.shape, dimension_numbers)
    rank = x.ndim - 2
    strides = _numbers(window_strides, rank, "window_strides")
    spread, gaps = _numbers(lhs_dilation, rank, "lhs_dilation"), _numbers(rhs_dilation, rank, "rhs_dilation")
    x, kernel = linear.transpose(x, layout.lhs_spec), linear.transpose(kernel, layout.rhs_spec)
    if isinstance(padding, str):
        if any(d != 1 for d in spread) and padding.upper() != "VALID":
            raise ValueError(f"conv_general_dilated: padding {padding!r} has no meaning with lhs_dilation {spread}. "
                             f"Give (before, after) for each axis, or use conv_transpose.")
        padding = padtype_to_pads(x.shape[2:], [dilated(k, d) for k, d in zip(kernel.shape[2:], gaps, strict=True)],
                                  strides,
                                  padding)
    pads = tuple((int(low), int(high)) for low, high in padding)
    if len(pads) != rank:
        raise ShapeError(f"conv_general_dilated: padding {pads} needs a pair for each of {rank} spatial axes.")
    _check_channels(x, kernel, feature_group_count, batch_group_count)
    result = convolved(x, kernel, strides=strides, padding=pads, lhs_dilation=spread, rhs_dilation=gaps,
                       feature_group_count=feature_group_count, batch_group_count=batch_group_count,
                       dtype=requested("conv", preferred_element_type))
    return linear.transpose(result, tuple(int(axis) for axis in np.argsort(layout.out_spec)))


def _check_channels(x: Value, kernel: Value, feature_groups: int, batch_groups: int) -> None:
    channels, inputs, outputs = x.shape[1], kernel.shape[1], kernel.shape[0]
    if channels != inputs * feature_groups or outputs % (feature_groups * batch_groups) or x.shape[0] % batch_groups:
        raise ShapeError(f"conv: an operand with {channels} features (shape {x.shape} as N, C, spatial) does not fit a "
                         f"kernel for {inputs} inputs and {outputs} outputs (shape {kernel.shape} as O, I, spatial) in "
                         f"{feature_groups} feature and {batch_groups} batch groups. Are the layouts right "
                         f"(dimension_numbers=)?")


def conv(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, precision: Any = None,
         preferred_element_type: Any = None) -> Value:
    """`conv_general_dilated` in the layouts NCHW and OIHW, without dilation."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, lhs_dilation: Any,
                              rhs_dilation: Any, precision: Any = None, preferred_element_type: Any = None) -> Value:
    """`conv_general_dilated` in the layouts NCHW and OIHW."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation,
                                preferred_element_type=preferred_element_type)


_TRANSPOSED_LAYOUTS = {0: ("NC", "IO", "NC"), 1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC"),
                       3: ("NHWDC", "HWDIO", "NHWDC")}


def conv_transpose(lhs: Any, rhs: Any, strides: Sequence[int], padding: Any, rhs_dilation: Any = None,
                   dimension_numbers: Any = None, transpose_kernel: bool = False, precision: Any = None,
                   preferred_element_type: Any = None) -> Value:
    """The "transposed" convolution: the operand is spread by the strides, then convolved (layouts NHWC and HWIO).

    transpose_kernel flips the kernel in space and exchanges its inputs and outputs: the gradient of a convolution. The
    paddings of "SAME" and "VALID" are JAX's.
    """
    x, kernel = _operands("conv_transpose", lhs, rhs)
    rank = x.ndim - 2
    if dimension_numbers is None:
        if rank not in _TRANSPOSED_LAYOUTS:
            raise ValueError("conv_transpose: give dimension_numbers= for more than three spatial axes.")
        dimension_numbers = _TRANSPOSED_LAYOUTS[rank]
    layout = conv_dimension_numbers(x.shape, kernel.shape, dimension_numbers)
    steps, gaps = _numbers(strides, rank, "strides"), _numbers(rhs_dilation, rank, "rhs_dilation")
    if isinstance(padding, str):
        extents = [dilated(kernel.shape[axis], gap) for axis, gap in zip(layout.rhs_spec[2:], gaps, strict=True)]
        padding = [_transposed_pads(k, s, padding) for k, s in zip(extents, steps, strict=True)]
    if transpose_kernel:
        kernel = slicing.flip(kernel, layout.rhs_spec[2:])
        order = list(range(kernel.ndim))
        output, inputs = layout.rhs_spec[:2]
        order[output], order[inputs] = inputs, output
        kernel = linear.transpose(kernel, tuple(order))
    return conv_general_dilated(x, kernel, (1,) * rank, padding, steps, gaps, layout,
                                preferred_element_type=preferred_element_type)


def _transposed_pads(size: int, stride: int, padding: str) -> tuple[int, int]:
    """The padding of a transposed convolution, as in JAX."""
    kind = padding.upper()
    if kind == "SAME":
        total = size + stride - 2
        low = size - 1 if stride > size - 1 else math.ceil(total / 2)
    elif kind == "VALID":
        total, low = size + stride - 2 + max(size - stride, 0), size - 1
    else:
        raise ValueError(f"conv_transpose: padding must be 'SAME', 'VALID' or pairs, got {padding!r}.")
    return low, total - low


def conv_general_dilated_patches(lhs: Any, filter_shape: Sequence[int], window_strides: Sequence[int], padding: Any,
                                 lhs_dilation: Any = None, rhs_dilation: Any = None, dimension_numbers: Any = None,
                                 precision: Any = None, preferred_element_type: Any = None) -> Value:
    """The patches that a convolution sees, as features: channel by channel, each patch in row-major order."""
    x = as_value("conv_general_dilated_patches", lhs)
    rank = x.ndim - 2
    shape = tuple(int(s) for s in filter_shape)
    layout = conv_dimension_numbers(x.shape, (1, 1, *shape), dimension_numbers)
    strides = _numbers(window_strides, rank, "window_strides")
    spread, gaps = _numbers(lhs_dilation, rank, "lhs_dilation"), _numbers(rhs_dilation, rank, "rhs_dilation")
    x = linear.transpose(x, layout.lhs_spec)
    if isinstance(padding, str):
        padding = padtype_to_pads(x.shape[2:], [dilated(k, d) for k, d in zip(shape, gaps, strict=True)], strides,
                                  padding)
    config = ((0, 0, 0), (0, 0, 0),
              *((int(low), int(high), d - 1) for (low, high), d in zip(padding, spread, strict=True)))
    windows = window(slicing.pad(x, full((), 0, x.dtype), config), shape, strides, gaps)
    batch, channels = x.shape[:2]
    places = windows.shape[2:2 + rank]
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    features = linear.reshape(linear.transpose(windows, order), (batch, channels * math.prod(shape), *places))
    return linear.transpose(features, tuple(int(axis) for axis in np.argsort(layout.out_spec)))


def conv_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int], pads: Any,
                     batch_group_count: int = 1) -> tuple[int, ...]:
    """The shape of a convolution in the layouts NCHW and OIHW."""
    if isinstance(pads, str):
        pads = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    ones = (1,) * (len(lhs_shape) - 2)
    spatial = convolved_extents(tuple(lhs_shape[2:]), tuple(rhs_shape[2:]), tuple(strides), tuple(map(tuple, pads)),
                                ones, ones)
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *spatial)


def conv_general_permutations(dimension_numbers: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The axes that three layout strings name, as (batch, feature, spatial...) and (output, input, spatial...)."""
    rank = len(dimension_numbers[0])
    lhs, rhs, out = conv_dimension_numbers((1,) * rank, (1,) * rank, dimension_numbers)
    return lhs, rhs, out


def conv_general_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int],
                             padding: Any, dimension_numbers: Any) -> tuple[int, ...]:
    """The shape of `conv_general_dilated` without dilation."""
    layout = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    lhs, rhs = [lhs_shape[a] for a in layout.lhs_spec], [rhs_shape[a] for a in layout.rhs_spec]
    result = conv_shape_tuple(lhs, rhs, window_strides, padding)
    return tuple(result[int(a)] for a in np.argsort(layout.out_spec))


def conv_transpose_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int],
                               padding: Any, dimension_numbers: Any) -> tuple[int, ...]:
    """The shape of `conv_transpose` without dilation."""
    layout = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    lhs, rhs = [lhs_shape[a] for a in layout.lhs_spec], [rhs_shape[a] for a in layout.rhs_spec]
    if isinstance(padding, str):
        padding = [_transposed_pads(k, s, padding) for k, s in zip(rhs[2:], window_strides, strict=True)]
    spread = [dilated(e, s) for e, s in zip(lhs[2:], window_strides, strict=True)]
    result = conv_shape_tuple([*lhs[:2], *spread], rhs, (1,) * len(spread), padding)
    return tuple(result[int(a)] for a in np.argsort(layout.out_spec))


def reduce_window_shape_tuple(operand_shape: Sequence[int], window_dimensions: Sequence[int],
                              window_strides: Sequence[int], padding: Any, base_dilation: Sequence[int] | None = None,
                              window_dilation: Sequence[int] | None = None) -> tuple[int, ...]:
    """The shape of `reduce_window`."""
    ones = (1,) * len(operand_shape)
    spread = [dilated(e, d) for e, d in zip(operand_shape, base_dilation or ones, strict=True)]
    covered = [dilated(w, d) for w, d in zip(window_dimensions, window_dilation or ones, strict=True)]
    pads = padtype_to_pads(spread, covered, window_strides, padding) if isinstance(padding, str) else padding
    return tuple(max(0, (e + low + high - w) // s + 1)
                 for e, w, s, (low, high) in zip(spread, covered, window_strides, pads, strict=True))
