"""The transforms as users call them: pytrees, argument numbers and messages. No mechanism.

Names and arguments are JAX's.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes, tree
from ..errors import GradientError, ShapeError, TreeError
from ..ir.primitive import Zero
from ..ir.program import Program
from ..ir.types import Type, array_type
from ..ir.value import Value
from ..ops.create import full, iota
from ..ops.elementwise import add, eq
from ..ops.linear import convert, reshape
from ..ops.rules import broadcast, instantiate, move_axis
from ..trace import current_trace, evaluate, trace_program
from .batch import batch_values
from .flat import FlatFunction, function_name, is_weak, leaf_name, normalize_argnums, to_value
from .jvp import jvp_values
from .linearize import linearize_values
from .transpose import backward_pass

Function = Callable[..., Any]


# ---- grad -----------------------------------------------------------------------------------------------------------

def grad(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, **options: Any) -> Function:
    """The gradient of a function with a scalar floating result.

    Args:
        fun: takes pytrees of arrays; the arguments `argnums` must hold floating leaves only.
        argnums: the argument, or a sequence of them, to differentiate with respect to.
        has_aux: `fun` answers (result, aux); the gradient function answers (gradient, aux).

    Returns a function with fun's arguments that answers the gradient: a pytree like argument `argnums`, or a tuple of
    them. Raises GradientError (a TypeError) for integer arguments and for results that are not scalar floats.

    >>> import fungrad
    >>> float(fungrad.grad(lambda x: x ** 3)(2.0))
    12.0
    """
    with_value = value_and_grad(fun, argnums, has_aux, **options)

    @functools.wraps(fun, updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = with_value(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients
    return gradient


def value_and_grad(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, **options: Any) -> Function:
    """Like `grad`, for a function that answers (result, gradient), or ((result, aux), gradient).

    >>> import fungrad
    >>> value, gradient = fungrad.value_and_grad(lambda x: x ** 2)(3.0)
    >>> float(value), float(gradient)
    (9.0, 6.0)
    """
    _no_options("grad", options, allowed={"holomorphic": False, "allow_int": False, "reduce_axes": ()})

    @functools.wraps(fun, updated=())
    def valued(*args: Any, **kwargs: Any) -> Any:
        numbers = normalize_argnums(argnums, len(args), f"grad of {function_name(fun)}")
        result, pullback, aux = _vjp(fun, args, kwargs, numbers, has_aux, _check_gradient_input)
        _check_gradient_output(fun, result)
        leaf = tree.leaves(result)[0]
        gradients = pullback(tree.unflatten(tree.structure(result), [full((), 1.0, leaf.dtype)]))
        gradients = gradients[0] if isinstance(argnums, (int, np.integer)) else gradients
        return ((result, aux) if has_aux else result), gradients
    return valued


def _no_options(name: str, options: dict[str, Any], allowed: dict[str, Any]) -> None:
    for option, value in options.items():
        if option not in allowed:
            raise TypeError(f"{name}() got an unexpected keyword argument {option!r}")
        if value != allowed[option]:
            raise NotImplementedError(f"{name}: {option}={value!r} is not supported")


def _check_gradient_input(value: Value, name: str) -> None:
    if not dtypes.is_float(value.dtype):
        raise GradientError(f"grad needs floating arguments, but {name} is {value.type}: an {value.dtype} (int or "
                            f"bool) argument has no gradient. Pass a float, or leave the argument out of argnums.")


def _check_gradient_output(fun: Function, result: Any) -> None:
    leaves = tree.leaves(result)
    types = [leaf.type for leaf in leaves]
    if len(leaves) != 1 or types[0].shape != () or not dtypes.is_float(types[0].dtype):
        found = str(types[0]) if len(leaves) == 1 else f"{len(leaves)} arrays: {types}"
        raise GradientError(f"grad needs a function whose result is one scalar float, but {function_name(fun)} gives "
                            f"{found}. Reduce it (for example with .sum() or .mean()), use has_aux=True for further "
                            f"results, or jacrev/jacfwd for the derivatives of an array.")


# ---- vjp ------------------------------------------------------------------------------------------------------------

def _vjp(fun: Function, args: Sequence[Any], kwargs: dict[str, Any], numbers: Sequence[int], has_aux: bool,
         check: Callable[[Value, str], None] | None) -> tuple[Any, Function, Any]:
    """The result, the function from its cotangent to the cotangents of arguments `numbers`, and aux."""
    chosen = tuple(args[number] for number in numbers)
    leaves, in_tree = tree.flatten(chosen)
    values = [to_value(leaf, lambda i=i: leaf_name(fun, chosen, i)) for i, leaf in enumerate(leaves)]
    if check is not None:
        for i, value in enumerate(values):
            check(value, leaf_name(fun, args, _global_leaf(args, numbers, i)))
    differentiated = [dtypes.is_float(value.dtype) for value in values]
    aux_tree: list[tree.TreeDef] = []
    count: list[int] = []

    def with_chosen(*parts: Any) -> Any:
        full_args = list(args)
        for number, part in zip(numbers, parts, strict=True):
            full_args[number] = part
        result = fun(*full_args, **kwargs)
        if not has_aux:
            return result
        if not (isinstance(result, tuple) and len(result) == 2):
            raise TypeError(f"has_aux=True needs a function that answers a pair (result, aux), but "
                            f"{function_name(fun)} answers {type(result).__name__}")
        count[:] = [tree.structure(result[0]).num_leaves]
        aux_tree[:] = [tree.structure(result)]
        return result
    flat = FlatFunction(with_chosen, in_tree, function_name(fun))
    linearized = linearize_values(flat, values, differentiated, [is_weak(leaf) for leaf in leaves])
    outputs, aux, out_tree = list(linearized.outputs), None, flat.result_tree
    if has_aux:
        result_and_aux = tree.unflatten(out_tree, outputs)
        aux, result = result_and_aux[1], result_and_aux[0]
        out_tree = tree.structure(result)
    else:
        result = tree.unflatten(out_tree, outputs)
    kept = out_tree.num_leaves

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        given = _cotangent_values(cotangent, out_tree, linearized.output_types[:kept])
        traced, nonzero = linearized.traced, linearized.nonzero
        seeds = [*given, *(Zero(t) for t in linearized.output_types[kept:])]
        seeds = [seed for seed, flag in zip(seeds, nonzero, strict=True) if flag]
        total = sum(differentiated)
        linear = [i < total for i in range(len(traced.program.input_types))]
        results = iter(backward_pass(traced.program, linear, traced.captured, seeds, traced.locations))
        cotangents = [instantiate(next(results)) if flag else _integer_cotangent(value)
                      for value, flag in zip(values, differentiated, strict=True)]
        return tree.unflatten(in_tree, cotangents)
    return result, pullback, aux


def _integer_cotangent(value: Value) -> Any:
    """Integers have no cotangent space: zeros of the default float stand for it."""
    return full(value.shape, 0.0, dtypes.default_float())


def _global_leaf(args: Sequence[Any], numbers: Sequence[int], leaf: int) -> int:
    """The number among all arguments' leaves of a leaf of the chosen arguments."""
    counts = [tree.structure(arg).num_leaves for arg in args]
    for number in numbers:
        if leaf < counts[number]:
            return sum(counts[:number]) + leaf
        leaf -= counts[number]
    raise IndexError(leaf)


def _cotangent_values(cotangent: Any, out_tree: tree.TreeDef, types: Sequence[Type]) -> list[Any]:
    try:
        leaves = tree.flatten_up_to(out_tree, cotangent)
    except TreeError as error:
        raise TreeError(f"the cotangent given to a vjp function must have the structure of the result {out_tree}: "
                        f"{error}") from None
    return [_matching(leaf, type, "cotangent") for leaf, type in zip(leaves, types, strict=True)]


def _matching(leaf: Any, type: Type, what: str) -> Any:
    """A tangent or cotangent as a value of the given type (None: zero)."""
    if leaf is None:
        return Zero(type)
    value = to_value(leaf, lambda: f"a {what}")
    if value.shape != type.shape:
        raise ShapeError(f"a {what} of {value.type} is given where the value is {type}; their shapes must be equal")
    if is_weak(leaf):
        return convert(value, type.dtype)
    if value.dtype != type.dtype and dtypes.is_float(type.dtype):
        raise GradientError(f"a {what} of {value.type} is given where the value is {type}; convert it with "
                            f".astype({type.dtype.name!r})")
    return value


def vjp(fun: Function, *primals: Any, has_aux: bool = False, reduce_axes: Sequence[Any] = ()) -> Any:
    """The result of `fun` and the function from a cotangent of the result to cotangents of all arguments (a tuple).

    With has_aux: (result, vjp function, aux). Integer leaves get zeros.
    """
    result, pullback, aux = _vjp(fun, primals, {}, range(len(primals)), has_aux, None)
    return (result, pullback, aux) if has_aux else (result, pullback)


# ---- jvp, linearize -------------------------------------------------------------------------------------------------

def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """The result of `fun` at `primals` and its derivative along `tangents` (pytrees like the primals; None: zero).

    >>> import fungrad
    >>> y, dy = fungrad.jvp(lambda x: x ** 2, (3.0,), (1.0,))
    >>> float(y), float(dy)
    (9.0, 6.0)
    """
    if not (isinstance(primals, (tuple, list)) and isinstance(tangents, (tuple, list))):
        raise TypeError(f"jvp takes tuples or lists of primals and tangents, got {type(primals).__name__} and "
                        f"{type(tangents).__name__}")
    if len(primals) != len(tangents):
        raise TypeError(f"jvp needs one tangent for each primal, got {len(primals)} and {len(tangents)}")
    leaves, in_tree = tree.flatten(tuple(primals))
    tangent_leaves = tree.flatten_up_to(in_tree, tuple(tangents))
    values = [to_value(leaf, lambda i=i: leaf_name(fun, primals, i)) for i, leaf in enumerate(leaves)]
    directions = [_tangent(t, value, lambda i=i: leaf_name(fun, primals, i))
                  for i, (t, value) in enumerate(zip(tangent_leaves, values, strict=True))]
    aux: list[Any] = []

    def without_aux(*args: Any) -> Any:
        result = fun(*args)
        if has_aux:
            result, extra = result
            aux.append(extra)
        return result
    flat = FlatFunction(without_aux, in_tree, function_name(fun))
    results, result_tangents = jvp_values(flat, values, directions, [is_weak(leaf) for leaf in leaves], current_trace())
    out = tree.unflatten(flat.result_tree, results)
    out_tangent = tree.unflatten(flat.result_tree, [_tangent_result(t) for t in result_tangents])
    return (out, out_tangent, _primal_of(aux[0])) if has_aux else (out, out_tangent)


def _primal_of(aux: Any) -> Any:
    return tree.tree_map(lambda x: x.concrete() if hasattr(x, "primal") else x, aux)


def _tangent_result(tangent: Any) -> Any:
    if type(tangent) is Zero and not dtypes.is_float(tangent.type.dtype):
        return full(tangent.type.shape, 0.0, dtypes.default_float())
    return instantiate(tangent)


def _tangent(tangent: Any, value: Value, name: Callable[[], str]) -> Any:
    if not dtypes.is_float(value.dtype):
        return Zero(value.type)   # an integer has no tangent; whatever is given for it stands for zero
    return _matching(tangent, value.type, f"tangent for {name()}")


def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The result of `fun` and its derivative as a linear function of tangents; `fun` runs once."""
    leaves, in_tree = tree.flatten(primals)
    values = [to_value(leaf, lambda i=i: leaf_name(fun, primals, i)) for i, leaf in enumerate(leaves)]
    differentiated = [dtypes.is_float(value.dtype) for value in values]
    flat = FlatFunction(fun, in_tree)
    linearized = linearize_values(flat, values, differentiated, [is_weak(leaf) for leaf in leaves])
    result = tree.unflatten(flat.result_tree, linearized.outputs)
    out_tree, aux = flat.result_tree, None
    if has_aux:
        result, aux = result
        out_tree = tree.structure(result)
    traced = linearized.traced

    def apply_linear(*tangents: Any) -> Any:
        given = [_tangent(t, value, lambda i=i: leaf_name(fun, primals, i)) for i, (t, value) in
                 enumerate(zip(tree.flatten_up_to(in_tree, tangents), values, strict=True))]
        flowing = [instantiate(t) for t, flag in zip(given, differentiated, strict=True) if flag]
        results = iter(evaluate(traced.program, [*flowing, *traced.captured], traced.locations))
        out = [next(results) if flag else _tangent_result(Zero(type))
               for flag, type in zip(linearized.nonzero, linearized.output_types, strict=True)]
        return tree.unflatten(out_tree, out[:out_tree.num_leaves])
    return (result, apply_linear, aux) if has_aux else (result, apply_linear)


def linear_transpose(fun: Function, *primals: Any) -> Function:
    """The transpose of a linear function: takes a cotangent of its result, answers a tuple of cotangents.

    `primals` give the arguments' types only (arrays or anything with shape and dtype).
    """
    leaves, in_tree = tree.flatten(primals)
    types = [type_of(leaf) for leaf in leaves]
    flat = FlatFunction(fun, in_tree)
    traced = trace_program(flat, types)
    out_tree = flat.result_tree
    linear = [i < len(types) for i in range(len(traced.program.input_types))]

    def transposed(cotangent: Any) -> tuple[Any, ...]:
        given = _cotangent_values(cotangent, out_tree, traced.program.output_types)
        results = backward_pass(traced.program, linear, traced.captured, given, traced.locations)
        return tree.unflatten(in_tree, [instantiate(result) for result in results])
    return transposed


# ---- vmap -----------------------------------------------------------------------------------------------------------

def vmap(fun: Function, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None, axis_size: int | None = None,
         spmd_axis_name: Any = None) -> Function:
    """Map a function over an axis of its arguments.

    in_axes: an axis number or None (not mapped) for all arguments, or a tuple with one entry an argument, each of
    which may be
    a pytree that stops above the leaves. out_axes likewise for the result. Keyword arguments are mapped over axis 0.

    >>> import fungrad, fungrad.numpy as fnp
    >>> fungrad.vmap(lambda x, y: x @ y, in_axes=(0, None))(fnp.ones((3, 2)), fnp.ones(2)).tolist()
    [2.0, 2.0, 2.0]
    """
    @functools.wraps(fun, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes_tree = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        if isinstance(axes_tree, tuple) and len(axes_tree) != len(args):
            raise TreeError(f"vmap of {function_name(fun)}: in_axes has {len(axes_tree)} entries, but the function was "
                            f"called with {len(args)} positional arguments")
        leaves, in_tree = tree.flatten((args, kwargs))
        axes = _prefix_axes(axes_tree, args, "in_axes") + [0] * tree.structure(kwargs).num_leaves
        name = lambda i: leaf_name(fun, (*args, kwargs), i)
        values = [to_value(leaf, lambda i=i: name(i)) for i, leaf in enumerate(leaves)]
        axes = [_mapped_axis(axis, value, name, i) for i, (axis, value) in enumerate(zip(axes, values, strict=True))]
        size = _mapped_size(fun, values, axes, axis_size, name)
        flat = FlatFunction(lambda a, k: fun(*a, **k), in_tree, function_name(fun))
        results, batch_axes = batch_values(flat, size, values, axes, axis_name)
        out_tree = flat.result_tree
        wanted = _prefix_axes(out_axes, tree.unflatten(out_tree, results), "out_axes")
        placed = [_place(result, axis, want, size)
                  for result, axis, want in zip(results, batch_axes, wanted, strict=True)]
        return tree.unflatten(out_tree, placed)
    return mapped


def _prefix_axes(axes: Any, value: Any, what: str) -> list[int | None]:
    found = tree.broadcast_prefix(axes, value, f"vmap's {what}")
    for axis in found:
        if axis is not None and (not isinstance(axis, (int, np.integer)) or isinstance(axis, bool)):
            raise TypeError(f"vmap's {what} holds integers and None, got {axis!r}")
    return found


def _mapped_axis(axis: int | None, value: Value, name: Callable[[int], str], number: int) -> int | None:
    if axis is None:
        return None
    if not -value.ndim <= axis < value.ndim:
        raise ShapeError(f"vmap maps axis {axis} of {name(number)}, but that is {value.type}. "
                         f"Use None in in_axes for an argument that is not mapped.")
    return int(axis) % value.ndim


def _mapped_size(fun: Function, values: Sequence[Value], axes: Sequence[int | None], given: int | None,
                 name: Callable[[int], str]) -> int:
    sizes = {i: value.shape[axis] for i, (value, axis) in enumerate(zip(values, axes, strict=True)) if axis is not None}
    distinct = set(sizes.values()) | ({given} if given is not None else set())
    if len(distinct) > 1:
        listed = ", ".join(f"{name(i)} has {size}" for i, size in sizes.items())
        raise ShapeError(f"vmap of {function_name(fun)}: the mapped axes have different sizes: {listed}"
                         + (f"; axis_size={given}" if given is not None else ""))
    if not distinct:
        raise ShapeError(f"vmap of {function_name(fun)}: no argument is mapped; give axis_size= or an axis in in_axes")
    return distinct.pop()


def _place(result: Any, axis: Any, wanted: Any, size: int) -> Any:
    if wanted is None:
        if axis is not None:
            raise ShapeError("vmap: out_axes is None for a result that differs along the mapped axis; give an axis "
                             "number")
        return result
    rank = result.ndim + (axis is None)
    if not -rank <= wanted < rank:
        raise ShapeError(f"vmap: out_axes {wanted} is not an axis of a result of rank {rank}")
    wanted = int(wanted) % rank
    if axis is None:
        shape = (*result.shape[:wanted], size, *result.shape[wanted:])
        return broadcast(result, shape, tuple(a for a in range(rank) if a != wanted))
    return move_axis(result, axis, wanted)


# ---- Jacobians ------------------------------------------------------------------------------------------------------

def _basis(types: Sequence[Type]) -> list[Any]:
    """For each type the rows of the identity over all elements of all types: arrays (total, *shape)."""
    total = sum(type.size for type in types)
    rows, start = [], 0
    for type in types:
        shape = (total, type.size)
        row = iota(shape, 0, dtypes.int64)
        column = add(iota(shape, 1, dtypes.int64), full(shape, start, dtypes.int64))
        rows.append(reshape(convert(eq(row, column), type.dtype), (total, *type.shape)))
        start += type.size
    return rows


def _differentiable(fun: Function, args: Sequence[Any], numbers: Sequence[int], what: str) -> list[Type]:
    types = []
    for i, leaf in enumerate(tree.leaves(tuple(args[n] for n in numbers))):
        type = to_value(leaf, lambda i=i: f"{what}: leaf {i}").type
        if not dtypes.is_float(type.dtype):
            raise GradientError(f"{what} needs floating arguments, got {type} (int) for leaf {i} of "
                                f"{function_name(fun)}")
        types.append(type)
    return types


def jacfwd(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The Jacobian by forward mode: good for functions with few inputs. The result's axes come first, then the
    argument's."""
    @functools.wraps(fun, updated=())
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = normalize_argnums(argnums, len(args), f"jacfwd of {function_name(fun)}")
        types = _differentiable(fun, args, numbers, "jacfwd")
        in_tree = tree.structure(tuple(args[n] for n in numbers))
        partial, chosen = _partial(fun, args, kwargs, numbers)
        pushed = vmap(lambda *t: jvp(partial, chosen, tree.unflatten(in_tree, t), has_aux=has_aux),
                      out_axes=(None, -1, None) if has_aux else (None, -1))(*_basis(types))
        columns = pushed[1]
        blocks = tree.tree_map(lambda c: _split_columns(c, types, in_tree, argnums), columns)
        return (blocks, pushed[2]) if has_aux else blocks
    return jacobian


def _partial(fun: Function, args: Sequence[Any], kwargs: dict[str, Any],
             numbers: Sequence[int]) -> tuple[Function, tuple]:
    """`fun` as a function of the chosen arguments alone, and those."""
    def partial(*parts: Any) -> Any:
        whole = list(args)
        for number, part in zip(numbers, parts, strict=True):
            whole[number] = part
        return fun(*whole, **kwargs)
    return partial, tuple(args[number] for number in numbers)


def _split_columns(columns: Any, types: Sequence[Type], in_tree: tree.TreeDef, argnums: Any) -> Any:
    """[*result, total] -> for each argument leaf [*result, *leaf]."""
    parts, start = [], 0
    for type in types:
        piece = columns[..., start:start + type.size]
        parts.append(reshape(piece, (*columns.shape[:-1], *type.shape)))
        start += type.size
    blocks = tree.unflatten(in_tree, parts)
    return blocks[0] if isinstance(argnums, (int, np.integer)) else blocks


def jacrev(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The Jacobian by reverse mode: good for functions with few outputs. The result's axes come first, then the
    argument's."""
    @functools.wraps(fun, updated=())
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = normalize_argnums(argnums, len(args), f"jacrev of {function_name(fun)}")
        _differentiable(fun, args, numbers, "jacrev")
        result, pullback, aux = _vjp(fun, args, kwargs, numbers, has_aux, _check_gradient_input)
        leaves, out_tree = tree.flatten(result)
        types = [leaf.type for leaf in leaves]
        for type in types:
            if not dtypes.is_float(type.dtype):
                raise GradientError(f"jacrev needs floating results, but {function_name(fun)} gives {type}")
        rows = vmap(lambda *c: pullback(tree.unflatten(out_tree, c)))(*_basis(types))
        blocks, start = [], 0
        for type in types:
            part = tree.tree_map(lambda r, s=start, t=type: reshape(r[s:s + t.size], (*t.shape, *r.shape[1:])), rows)
            blocks.append(part[0] if isinstance(argnums, (int, np.integer)) else part)
            start += type.size
        jacobian_tree = tree.unflatten(out_tree, blocks)
        return (jacobian_tree, aux) if has_aux else jacobian_tree
    return jacobian


jacobian = jacrev


def hessian(fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The matrix of second derivatives of a scalar function: forward over reverse mode."""
    return jacfwd(jacrev(fun, argnums, has_aux), argnums, has_aux)


def hvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of the Hessian of a scalar function of one or more arguments (argument 0) with a vector."""
    return jvp(grad(fun), primals, tangents)[1]


# ---- looking at programs --------------------------------------------------------------------------------------------

class ShapeDtypeStruct:
    """A shape and dtype that stand for an array in `eval_shape` and `make_program`."""

    __slots__ = ("shape", "dtype")

    def __init__(self, shape: Sequence[int], dtype: Any):
        self.shape = tuple(shape)
        self.dtype = dtypes.canonical(dtype)

    @property
    def type(self) -> Type:
        return array_type(self.shape, self.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self.type is other.type

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name})"


def type_of(leaf: Any) -> Type:
    """The type of an array, scalar or anything with shape and dtype."""
    if isinstance(leaf, (Value, ShapeDtypeStruct)):
        return leaf.type
    if isinstance(leaf, (bool, int, float)) and not isinstance(leaf, np.generic):
        return array_type((), dtypes.of_scalar(leaf))
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return array_type(tuple(leaf.shape), dtypes.canonical(leaf.dtype))
    return to_value(leaf, lambda: "an argument").type


def eval_shape(fun: Function, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of fun's result, without computing it."""
    leaves, in_tree = tree.flatten((args, kwargs))
    flat = FlatFunction(lambda a, k: fun(*a, **k), in_tree, function_name(fun))
    traced = trace_program(flat, [type_of(leaf) for leaf in leaves], [is_weak(leaf) for leaf in leaves])
    return tree.unflatten(flat.result_tree, [ShapeDtypeStruct(t.shape, t.dtype) for t in traced.program.output_types])


def make_program(fun: Function, static_argnums: int | Sequence[int] = ()) -> Callable[..., Program]:
    """A function that takes fun's arguments and answers its Program (arrays it closes over are trailing inputs).

    >>> import fungrad, fungrad.numpy as fnp
    >>> print(fungrad.make_program(lambda x: fnp.sin(x))(1.0))
    program (v0: float32[]) {
      v1: float32[] = sin{}(v0)
      return v1
    }
    """
    @functools.wraps(fun, updated=())
    def programmed(*args: Any, **kwargs: Any) -> Program:
        static = set(normalize_argnums(static_argnums, len(args), "make_program"))
        dynamic = tuple(arg for i, arg in enumerate(args) if i not in static)
        leaves, in_tree = tree.flatten((dynamic, kwargs))

        def call(given: Any, keywords: Any) -> Any:
            rest = iter(given)
            return fun(*[arg if i in static else next(rest) for i, arg in enumerate(args)], **keywords)
        return trace_program(FlatFunction(call, in_tree), [type_of(leaf) for leaf in leaves],
                             [is_weak(leaf) for leaf in leaves]).program
    return programmed


make_jaxpr = make_program
