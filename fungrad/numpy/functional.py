"""Functions of functions: vectorize, apply_along_axis."""
from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from typing import Any

from ..errors import ShapeError
from ..ir.value import Value
from ..lax.arguments import one_axis
from ..lax.conversion import as_value
from ..lax.promotion import broadcast_shape
from ..ops import linear
from ..transforms.api import vmap
from .manipulation import moveaxis

Shape = tuple[int, ...]


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Value:
    """`func1d` of every vector of `arr` along an axis; the axes of its results come in the axis's place.

    >>> import fungrad.numpy as fnp
    >>> fnp.apply_along_axis(lambda v: v.sum(), 0, fnp.ones((2, 3))).tolist()
    [2.0, 2.0, 2.0]
    """
    value = as_value("apply_along_axis", arr)
    number = one_axis("apply_along_axis", axis, value.shape)
    apply: Callable[..., Any] = lambda v: as_value("apply_along_axis", func1d(v, *args, **kwargs))
    for _ in range(value.ndim - 1):
        apply = vmap(apply)
    result = apply(moveaxis(value, number, -1))
    rest = value.ndim - 1
    order = (*range(number), *range(rest, result.ndim), *range(number, rest))
    return linear.transpose(result, order)


_SIGNATURE = re.compile(r"\s*(\([^()]*\)(?:\s*,\s*\([^()]*\))*)?\s*->\s*(\([^()]*\)(?:\s*,\s*\([^()]*\))*)\s*")


def _parsed(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The core axes' names of each operand and result of a signature such as "(n,m),(m)->(n)"."""
    match = _SIGNATURE.fullmatch(signature)
    if match is None:
        raise ValueError(f"vectorize: {signature!r} is not a signature such as '(n,m),(m)->(n)'.")
    sides = [re.findall(r"\(([^()]*)\)", side or "") for side in match.groups()]
    left, right = [[tuple(name.strip() for name in core.split(",") if name.strip()) for core in side] for side in sides]
    return left, right


def vectorize(pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = frozenset(),
              signature: str | None = None) -> Callable[..., Any]:
    """`pyfunc` of scalars (or of the core axes in `signature`) as a function of arrays that broadcast.

    excluded: positions and names of arguments that are handed on as they are.

    >>> import fungrad.numpy as fnp
    >>> dot = fnp.vectorize(fnp.vdot, signature="(n),(n)->()")
    >>> dot(fnp.ones((4, 1, 3)), fnp.ones((2, 3))).shape
    (4, 2)
    """
    fixed = set(excluded)

    def vectorized(*args: Any, **kwargs: Any) -> Any:
        names = [number for number in range(len(args)) if number not in fixed]
        if kwargs and not set(kwargs) <= fixed:
            bound = inspect.signature(pyfunc).bind(*args, **{k: v for k, v in kwargs.items() if k not in fixed})
            return vectorized(*bound.args, **{k: v for k, v in kwargs.items() if k in fixed})
        values = [as_value("vectorize", args[number]) for number in names]
        cores = _parsed(signature)[0] if signature is not None else [()] * len(values)
        if len(cores) != len(values):
            raise TypeError(f"vectorize: the signature {signature!r} has {len(cores)} operands, got {len(values)}.")

        def call(*mapped: Any) -> Any:
            given = list(args)
            for number, value in zip(names, mapped, strict=True):
                given[number] = value
            return pyfunc(*given, **kwargs)
        return _mapped(call, values, [len(core) for core in cores])
    return vectorized


def _mapped(function: Callable[..., Any], values: list[Value], core_ranks: list[int]) -> Any:
    """`function` mapped over the axes before the core ones, which broadcast; axes of extent 1 are not repeated."""
    for value, rank in zip(values, core_ranks, strict=True):
        if value.ndim < rank:
            raise ShapeError(f"vectorize: an operand of shape {value.shape} has fewer than {rank} core axes.")
    outer = [value.shape[:value.ndim - rank] for value, rank in zip(values, core_ranks, strict=True)]
    shape = broadcast_shape("vectorize", *outer)
    plans: list[list[int | None]] = []
    squeezed = []
    for value, own in zip(values, outer, strict=True):
        padded = (1,) * (len(shape) - len(own)) + own
        mapped = [extent != 1 or whole == 1 for extent, whole in zip(padded, shape, strict=True)]
        kept = tuple(extent for extent, use in zip(padded, mapped, strict=True) if use)
        squeezed.append(linear.reshape(value, (*kept, *value.shape[len(own):])))
        plans.append([0 if use else None for use in mapped])
    for level in reversed(range(len(shape))):
        axes = tuple(plan[level] for plan in plans)
        function = vmap(function, in_axes=axes)
    return function(*squeezed)
