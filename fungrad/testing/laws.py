"""The laws of the transforms, for any function; and counters for traces, kernels, memory and leaks.

`check_transforms(f, args)` builds every word of up to three of {jit, vmap, jvp, grad}, such as vmap(grad(jit(f))), and
compares it with the same word in another way of computing: jit is left out, vmap is a loop over slices, jvp is
linearize, and grad for small arguments is forward mode along each unit vector. So a word that fails shows transforms
that do not commute. A law of single transforms against finite differences is `check_grads`.
"""
from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes, tree
from ..ir.value import OPERATORS
from ..ops import elementwise, linear, slicing
from ..runtime import compile as compiler
from ..runtime.array import Array
from ..trace import Tracer, is_base
from ..transforms.api import grad, jvp, linearize, vmap
from ..transforms.jit import Jitted, jit
from .gradcheck import _EXACT, _arrays, _compare

Function = Callable[..., Any]
TRANSFORMS = ("jit", "vmap", "jvp", "grad")
MOST_UNIT_VECTORS = 12   # elements of the arguments up to which grad is compared with forward mode


def words(length: int = 3) -> list[tuple[str, ...]]:
    """All sequences of up to `length` transforms, the outermost first.

    >>> len(words(3)), words(1)
    (84, [('jit',), ('vmap',), ('jvp',), ('grad',)])
    """
    return [word for count in range(1, length + 1) for word in itertools.product(TRANSFORMS, repeat=count)]


def check_transforms(f: Function, args: Sequence[Any], chosen: Sequence[tuple[str, ...]] | None = None,
                     rtol: float | None = None, seed: int = 0) -> None:
    """Check every word of up to three transforms (or the `chosen` ones) of `f` at `args` (arrays).

    Raises AssertionError that names the word. Words that make no sense are left out: derivatives of functions without
    floating arguments or results. Floating arguments should be float64, lest rounding hides or feigns differences.
    """
    given = tuple(np.asarray(arg) for arg in args)
    for word in words() if chosen is None else chosen:
        generator = np.random.default_rng(seed)
        plain = other = _Case(_listed(f), given)
        for name in reversed(word):
            built = _apply(name, plain, other, generator)
            if built is None:
                break
            plain, other = built
        else:
            what = f"{'('.join(word)}(f{')' * len(word)}"
            results, expected = _arrays(plain.function(*plain.args)), _arrays(other.function(*other.args))
            limit = _tolerance(results) if rtol is None else rtol
            _compare(results, expected, limit, None, f"{what} and the same without jit, by loops and by forward mode")
            if [a.dtype for a in results] != [a.dtype for a in expected]:
                raise AssertionError(f"{what} gives {[a.dtype for a in results]}, not {[a.dtype for a in expected]}")


def _tolerance(results: Sequence[np.ndarray]) -> float:
    return max((100 * _EXACT.get(array.dtype.name, 0.0) for array in results), default=0.0)


@dataclass(frozen=True, slots=True)
class _Case:
    """A function of arrays that answers a list of arrays, and its arguments."""
    function: Function
    args: tuple[np.ndarray, ...]


def _listed(f: Function) -> Function:
    asarray = OPERATORS["asarray"]
    return lambda *args: [asarray(leaf) for leaf in tree.leaves(f(*map(asarray, args)))]


def _floats(arrays: Sequence[Any]) -> list[int]:
    return [number for number, array in enumerate(arrays) if dtypes.is_float(array.dtype)]


def _apply(name: str, plain: _Case, other: _Case, generator: np.random.Generator) -> tuple[_Case, _Case] | None:
    """The transform applied to both: as it is, and in the other way of computing. None where it makes no sense."""
    args = plain.args
    if name == "jit":
        return _Case(jit(plain.function), args), other
    if name == "vmap":
        axes, stacked = _stacked(args, generator)
        if axes is None:
            return None
        return (_Case(vmap(plain.function, in_axes=axes), stacked), _Case(_loop(other.function, axes), stacked))
    floats = _floats(args)
    if not floats:
        return None
    if name == "jvp":
        tangents = tuple(np.asarray(generator.standard_normal(args[n].shape)).astype(args[n].dtype) for n in floats)
        wide = (*args, *tangents)
        return (_Case(_forward(plain.function, floats, jvp), wide),
                _Case(_forward(other.function, floats, _linearized), wide))
    if not _floats(_arrays(plain.function(*args))):
        return None
    scalar, scalar_other = _weighted(plain.function), _weighted(other.function)
    small = sum(args[n].size for n in floats) <= MOST_UNIT_VECTORS
    back = lambda *values: list(grad(scalar, argnums=tuple(floats))(*values))
    back_other = _by_unit_vectors(scalar_other, floats) if small else \
        lambda *values: list(grad(scalar_other, argnums=tuple(floats))(*values))
    return _Case(back, args), _Case(back_other, args)


def _stacked(args: Sequence[np.ndarray], generator: np.random.Generator) -> tuple[Any, tuple[np.ndarray, ...]]:
    """Axes at which a new axis of size 2 is mapped (None now and then for one of several), and the wider arguments."""
    axes: list[int | None] = [int(generator.integers(0, array.ndim + 1)) for array in args]
    if not args:
        return None, ()
    if len(args) > 1 and generator.random() < 0.5:
        axes[int(generator.integers(len(args)))] = None
    wide = []
    for array, axis in zip(args, axes, strict=True):
        moved = np.asarray(array * 0.75).astype(array.dtype) if dtypes.is_float(array.dtype) else array
        wide.append(array if axis is None else np.stack([array, moved], axis))
    return tuple(axes), tuple(wide)


def _loop(f: Function, axes: Sequence[int | None]) -> Function:
    """vmap as calls for each slice, whose results are stacked."""
    def looped(*args: Any) -> list[Any]:
        rows = [f(*[arg if axis is None else _row(arg, axis, i) for arg, axis in zip(args, axes, strict=True)])
                for i in range(2)]
        return [slicing.concatenate([linear.reshape(a, (1, *a.shape)) for a in column], 0)
                for column in zip(*rows, strict=True)]
    return looped


def _row(x: Any, axis: int, i: int) -> Any:
    value = OPERATORS["asarray"](x)
    start = tuple(i if a == axis else 0 for a in range(value.ndim))
    limit = tuple(i + 1 if a == axis else extent for a, extent in enumerate(value.shape))
    return linear.reshape(slicing.slice_(value, start, limit),
                          tuple(extent for a, extent in enumerate(value.shape) if a != axis))


def _forward(f: Function, floats: Sequence[int], transform: Function) -> Function:
    """The results of `f` and their tangents, as a function of the arguments and the floats' tangents."""
    def forward(*values: Any) -> list[Any]:
        primals, given = values[:len(values) - len(floats)], iter(values[len(values) - len(floats):])
        fixed = list(primals)

        def of_floats(*moving: Any) -> Any:
            for number, value in zip(floats, moving, strict=True):
                fixed[number] = value
            return f(*fixed)
        results, tangents = transform(of_floats, [primals[n] for n in floats], list(given))
        return [*results, *[t for r, t in zip(results, tangents, strict=True) if dtypes.is_float(r.dtype)]]
    return forward


def _linearized(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    results, derivative = linearize(f, *primals)
    return results, derivative(*tangents)


def _weighted(f: Function) -> Function:
    """A scalar: the floating results' elements, weighted by a cosine and added up."""
    def weighted(*args: Any) -> Any:
        total = None
        for result in f(*args):
            if dtypes.is_float(result.dtype):
                weights = OPERATORS["asarray"](np.cos(np.arange(result.size) + 1.0).reshape(result.shape)
                                               .astype(result.dtype))
                part = linear.reduce_sum(elementwise.mul(result, weights), tuple(range(result.ndim)))
                total = part if total is None else elementwise.add(total, linear.convert(part, total.dtype))
        return total
    return weighted


def _by_unit_vectors(f: Function, floats: Sequence[int]) -> Function:
    """The gradient by forward mode along every unit vector."""
    def gradient(*args: Any) -> list[Any]:
        forward = _forward(lambda *values: [f(*values)], floats, jvp)
        found = []
        for number in floats:
            value = OPERATORS["asarray"](args[number])
            entries = []
            for element in range(value.size):
                unit = np.zeros(value.size, value.dtype)
                unit[element] = 1
                tangents = [unit.reshape(value.shape) if n == number else np.zeros(args[n].shape, args[n].dtype)
                            for n in floats]
                entries.append(linear.reshape(linear.convert(forward(*args, *tangents)[1], value.dtype), (1,)))
            whole = slicing.concatenate(entries, 0) if entries else linear.reshape(value, (0,))
            found.append(linear.reshape(whole, value.shape))
        return found
    return gradient


# ---- counting -------------------------------------------------------------------------------------------------------

@dataclass(slots=True)
class Count:
    """What happened within a block so far. traces: of the jitted functions watched; compilations: of the process."""
    jitted: tuple[Jitted, ...]
    before: tuple[int, int]

    @property
    def traces(self) -> int:
        return sum(f.statistics.traces for f in self.jitted) - self.before[0]

    @property
    def compilations(self) -> int:
        return compiler.compilations() - self.before[1]


@contextmanager
def count_traces(*jitted: Jitted) -> Iterator[Count]:
    """Count the traces of jitted functions, and the compilations, within a `with` block."""
    yield Count(jitted, (sum(f.statistics.traces for f in jitted), compiler.compilations()))


def count_kernels(f: Function, *args: Any) -> int:
    """How many kernels the compiled function launches for these arguments."""
    return len(_jitted(f).executable(*args).lowered.fused.launches)


def peak_memory(f: Function, *args: Any) -> int:
    """Bytes that the compiled function needs at once: arguments, results and the arena of its temporaries."""
    lowered = _jitted(f).executable(*args).lowered
    slots = {*lowered.fused.inputs, *lowered.fused.outputs}
    return lowered.memory.arena_bytes + sum(lowered.fused.slots[slot].nbytes for slot in slots)


def temporary_memory(f: Function, *args: Any) -> int:
    """Bytes of the arena of the compiled function's temporaries."""
    return _jitted(f).executable(*args).lowered.memory.arena_bytes


def _jitted(f: Function) -> Jitted:
    return f if isinstance(f, Jitted) else jit(f)


@contextmanager
def assert_no_leaks(arrays: int = 0) -> Iterator[None]:
    """Raise AssertionError if the block leaves a transform active, tracers alive, or more than `arrays` new Arrays."""
    gc.collect()
    known_arrays, known_tracers = _alive(Array), _alive(Tracer)
    yield
    gc.collect()
    if not is_base():
        raise AssertionError("a transform is still active after the block")
    tracers = [x for x in _alive_objects(Tracer) if id(x) not in known_tracers]
    if tracers:
        raise AssertionError(f"{len(tracers)} tracers are still alive, such as {tracers[0]!r}")
    more = sum(1 for x in _alive_objects(Array) if id(x) not in known_arrays)
    if more > arrays:
        raise AssertionError(f"{more} arrays made within the block are still alive, more than {arrays}")


def _alive_objects(kind: type) -> list[Any]:
    """All objects of a kind that can be reached from what the garbage collector tracks."""
    found: dict[int, Any] = {}
    for holder in gc.get_objects():
        if isinstance(holder, kind):
            found[id(holder)] = holder
    return list(found.values())


def _alive(kind: type) -> set[int]:
    return {id(x) for x in _alive_objects(kind)}
