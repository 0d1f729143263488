"""Rule bodies that many primitives share, named by the mathematics.

A body names its primitive by the name under which it is declared, since a rule is written before its primitive exists.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DTypeError, ShapeError
from ..ir.expr import Expr, Reader
from ..ir.primitive import PRIMITIVES, Refused, Zero
from ..ir.types import Type, literal
from ..trace import bind

NOT_LINEAR = Refused("this operation is not linear, so it has no transpose; differentiate it with jvp, vjp or grad")


def is_zero(tangent: Any) -> bool:
    """Whether a tangent or cotangent is a symbolic zero."""
    return type(tangent) is Zero


def add_tangents(a: Any, b: Any) -> Any:
    """The sum of two tangents or cotangents, either of which may be a Zero."""
    if is_zero(a):
        return b
    return a if is_zero(b) else bind(PRIMITIVES["add"], a, b)


def instantiate(tangent: Any) -> Any:
    """A value for a tangent: zeros for a symbolic Zero."""
    return full(tangent.type, 0) if is_zero(tangent) else tangent


def full(type: Type, value: bool | int | float) -> Any:
    """An array of this type, every element `value`."""
    return bind(PRIMITIVES["full"], type=type, value=literal(value, type.dtype))


def broadcast(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """`x` with its axes placed at `axes` of an array of `shape`, repeated along the others."""
    if x.shape == shape and axes == tuple(range(len(shape))):
        return x
    return bind(PRIMITIVES["broadcast"], x, shape=shape, axes=axes)


def move_axis(x: Any, source: int, destination: int) -> Any:
    """`x` transposed so that axis `source` becomes axis `destination`."""
    if source == destination:
        return x
    order = [i for i in range(x.ndim) if i != source]
    order.insert(destination, source)
    return bind(PRIMITIVES["transpose"], x, permutation=tuple(order))


def batch_to_front(size: int, operand: Any, batch_axis: int | None) -> Any:
    """The operand with its mapped axis first; an unmapped operand is repeated along a new first axis."""
    if batch_axis is None:
        return broadcast(operand, (size, *operand.shape), tuple(range(1, operand.ndim + 1)))
    return move_axis(operand, batch_axis, 0)


# ---- jvp ------------------------------------------------------------------------------------------------------------

def zero_tangent(name: str) -> Callable[..., Any]:
    """jvp of an operation whose result is locally constant or has no tangent (comparisons, integers, floor)."""
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        result = bind(PRIMITIVES[name], *primals, **params)
        if isinstance(result, tuple):
            return result, tuple(Zero(r.type) for r in result)
        return result, Zero(result.type)
    return jvp


def linear_jvp(name: str) -> Callable[..., Any]:
    """jvp of an operation that is linear in all its operands together: the operation, of the tangents."""
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        result = bind(PRIMITIVES[name], *primals, **params)
        if all(map(is_zero, tangents)):
            return result, Zero(result.type)
        return result, bind(PRIMITIVES[name], *map(instantiate, tangents), **params)
    return jvp


# ---- elementwise ----------------------------------------------------------------------------------------------------

def same_type(name: str, *types: Type) -> Type:
    """The common type of elementwise operands; ShapeError or DTypeError if they differ."""
    first = types[0]
    for type in types[1:]:
        if type.shape != first.shape:
            raise ShapeError(f"{name}: shapes {first.shape} and {type.shape} differ. Broadcast first, or use "
                             f"fungrad.numpy, which does.")
        if type.dtype != first.dtype:
            raise DTypeError(f"{name}: element types {first.dtype} and {type.dtype} differ. Convert with "
                             f"x.astype(...).")
    return first


def elementwise_batch(name: str) -> Callable[..., Any]:
    """Bring mapped axes to a common place, expand unmapped operands, apply the operation."""
    def batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        mapped = [axis for axis in axes if axis is not None]
        common = mapped[0]
        aligned = []
        for operand, axis in zip(operands, axes, strict=True):
            if axis is None:
                shape = (*operand.shape[:common], size, *operand.shape[common:])
                kept = tuple(i if i < common else i + 1 for i in range(operand.ndim))
                aligned.append(broadcast(operand, shape, kept))
            else:
                aligned.append(move_axis(operand, axis, common))
        result = bind(PRIMITIVES[name], *aligned, **params)
        return result, tuple(common for _ in result) if isinstance(result, tuple) else common
    return batch


def elementwise_lower(combine: Callable[..., Expr]) -> Callable[..., Expr]:
    """Lower by combining the operands' elements at the same index: `combine(*elements)`."""
    def lower(readers: Sequence[Reader], index: tuple[Expr, ...], valid: Expr, type: Type, **params: Any) -> Expr:
        return combine(*[reader(index, valid) for reader in readers], **params)
    return lower
