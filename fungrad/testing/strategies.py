"""Hypothesis strategies: element types, shapes, arrays with special values, pytrees, vmap axes and random programs.

    @given(strategies.programs())
    def test_all_stages_agree(generated):
        stages.check_stages(generated.program, generated.arrays())
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from .. import dtypes as element_types
from ..ir.types import array_type
from .program_steps import STEPS
from .programs import Generated, Recipe, build, special_values, weighted_steps

Shape = tuple[int, ...]
_NUMBERS = st.integers(0, (1 << 16) - 1)


def dtypes(kinds: str = "bif") -> st.SearchStrategy[np.dtype]:
    """Element types: bool (b), integers (i), floats (f); float32 first."""
    chosen = [dtype for dtype in element_types.ALL
              if ("f" if element_types.is_float(dtype) else "i" if element_types.is_integer(dtype) else "b") in kinds]
    return st.sampled_from(sorted(chosen, key=lambda dtype: dtype.name != "float32"))


def shapes(max_rank: int = 3, max_size: int = 256, zero: bool = True) -> st.SearchStrategy[Shape]:
    """Shapes from rank 0 on with at most max_size elements; extents 0 among them if `zero`."""
    extents = st.one_of(st.integers(1, 5), st.sampled_from([8, 16, 17, 33, 70]), *([st.just(0)] if zero else []))
    return st.lists(extents, max_size=max_rank).map(tuple).filter(lambda shape: int(np.prod(shape)) <= max_size)


def elements(dtype: np.dtype, special: bool = True) -> st.SearchStrategy[Any]:
    """Numbers of an element type; with NaN, infinities, signed zeros, subnormal and extreme ones if `special`."""
    if dtype == np.dtype(bool):
        return st.booleans()
    if not element_types.is_float(dtype):
        info = np.iinfo(dtype)
        small = st.integers(max(int(info.min), -9), 9)
        return st.one_of(small, st.sampled_from([int(info.min), int(info.max)])) if special else small
    usual = st.integers(-64, 64).map(lambda n: n / 16)
    return st.one_of(usual, st.sampled_from([float(x) for x in special_values(dtype)])) if special else usual


@st.composite
def arrays(draw: Any, dtype: Any = None, shape: Any = None, special: bool = True) -> np.ndarray:
    """NumPy arrays of an element type and shape (either may be a strategy). Few elements are drawn, and tiled."""
    kind = draw(dtypes() if dtype is None else dtype) if not isinstance(dtype, (str, np.dtype)) else dtype
    kind = element_types.canonical(kind)
    extents = draw(shapes() if shape is None else shape) if not isinstance(shape, tuple) else shape
    size = int(np.prod(extents))
    drawn = draw(st.lists(elements(kind, special), min_size=min(size, 1), max_size=min(size, 24)))
    with np.errstate(all="ignore"):
        few = np.asarray(drawn, np.float64 if element_types.is_float(kind) else object).astype(kind)
    return np.resize(few, extents) if size else np.zeros(extents, kind)


def pytrees(leaves: st.SearchStrategy[Any], max_leaves: int = 6) -> st.SearchStrategy[Any]:
    """Nested tuples, lists and dicts (and None) of leaves."""
    return st.recursive(leaves, lambda inner: st.one_of(
        st.tuples(inner), st.tuples(inner, inner), st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "weights"]), inner, max_size=3), st.tuples(inner, st.none())),
        max_leaves=max_leaves)


def axes_for(shapes: Sequence[Shape]) -> st.SearchStrategy[tuple[int | None, ...]]:
    """`in_axes` for arguments of these (unmapped) shapes: where to put a mapped axis, or None; not all None."""
    places = [st.one_of(st.integers(0, len(shape)), st.none(), st.integers(-len(shape) - 1, -1)) for shape in shapes]
    return st.tuples(*places).filter(lambda axes: any(axis is not None for axis in axes))


@st.composite
def recipes(draw: Any, max_steps: int = 8, kinds: Sequence[str] | None = None, types: Any = None) -> Recipe:
    """Recipes of random programs: of these kinds of steps, with inputs of these element types (a strategy)."""
    floats = st.sampled_from([element_types.float32] * 3 + [element_types.float64])
    element = st.one_of(floats, dtypes()) if types is None else types
    inputs = draw(st.lists(st.builds(array_type, shapes(), element), min_size=1, max_size=3))
    assert kinds is None or set(kinds) <= set(STEPS), f"the kinds of steps are {', '.join(STEPS)}"
    step = st.tuples(st.sampled_from(weighted_steps() if kinds is None else list(kinds)),
                     st.lists(_NUMBERS, max_size=12).map(tuple))
    steps = draw(st.lists(step, min_size=1, max_size=max_steps))
    outputs = draw(st.lists(st.integers(0, 5), max_size=2))
    return Recipe(tuple(inputs), tuple(steps), (0, *outputs))


def programs(max_steps: int = 8, kinds: Sequence[str] | None = None,
             types: Any = None) -> st.SearchStrategy[Generated]:
    """Random programs; what hypothesis prints of a failing one is its source."""
    return recipes(max_steps, kinds, types).map(build)
