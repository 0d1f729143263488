"""custom_jvp: a function whose forward derivative the user gives."""
from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from ..errors import TreeError
from ..ir.interpret import interpret
from ..ir.primitive import Primitive, Refused, Zero, declare
from ..ir.program import Program
from ..ir.types import Type
from ..ir.value import Value
from ..ops.rules import add_tangents, move_axis
from ..trace import Tracer, active, bind, current_trace, evaluate, thread_state, trace_program, with_named_axes
from .batch import batch_program, batch_program_over, mapped_axis_name
from .call import call_p
from .custom import Call, RuleTrace, captured_tangents, checked, differentiable, positional, static_numbers, zero_for
from .flat import function_name, to_value
from .jvp import JVPTrace
from .linearize import LinearizeTrace


class JvpRule(ABC):
    """The rule of a staged call. `arguments`: how many of the operation's operands are arguments (the rest is
    captured).
    """

    __slots__ = ("arguments", "name")
    arguments: int
    name: str

    @abstractmethod
    def traced(self) -> tuple[Program, tuple[Value, ...]]:
        """The rule as a Program, traced when it is first asked for, and values for its last inputs.

        [arguments..., captured..., tangents of floating arguments..., values...] -> [outputs..., tangents of floating
        ones...]
        """

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


class UserRule(JvpRule):
    """A rule that is a Python function."""

    __slots__ = ("_rule", "_types", "_captured", "_axes", "_found")

    def __init__(self, name: str, rule: Callable[[Sequence[Any], Sequence[Any]], tuple[list[Any], list[Any]]],
                 types: Sequence[Type], captured: Sequence[Value]):
        self.name = name
        self.arguments = len(types)
        self._rule = rule
        self._types = types
        self._captured = captured
        self._axes = thread_state.axes
        self._found: tuple[Program, tuple[Value, ...]] | None = None

    def traced(self) -> tuple[Program, tuple[Value, ...]]:
        if self._found is None:
            floats = [type for type in self._types if differentiable(type)]
            count = len(self._types)

            def both(*values: Any) -> list[Any]:
                given = iter(values[count:])
                tangents = [next(given) if differentiable(type) else zero_for(type) for type in self._types]
                results, result_tangents = self._rule(values[:count], tangents)
                kept = [t for t, result in zip(result_tangents, results, strict=True) if differentiable(result.type)]
                return [*results, *map(_instantiated, kept)]
            with with_named_axes(self._axes):
                traced = trace_program(both, [*self._types, *floats], captured=self._captured)
            program = _reordered(traced.program, count, len(floats), len(self._captured))
            self._found = program, traced.captured[len(self._captured):]
        return self._found


def _instantiated(tangent: Any) -> Any:
    return zero_for(tangent.type) if type(tangent) is Zero else tangent


def _reordered(program: Program, arguments: int, tangents: int, captured: int) -> Program:
    """[arguments, tangents, captured, rest] -> [arguments, captured, tangents, rest]"""
    types = program.input_types
    first, second, third = arguments, arguments + tangents, arguments + tangents + captured
    order = (*types[:first], *types[second:third], *types[first:second], *types[third:])
    middle = first + captured
    return trace_program(lambda *v: evaluate(program, [*v[:first], *v[middle:third], *v[first:middle], *v[third:]]),
                         order).program


class BatchedRule(JvpRule):
    """A rule mapped over an axis; all its results are."""

    __slots__ = ("_rule", "_size", "_mapped", "_axis_name")

    def __init__(self, rule: JvpRule, size: int, mapped: tuple[bool, ...], axis_name: Any):
        self.name = f"vmap({rule.name})"
        self.arguments = rule.arguments
        self._rule = rule
        self._size = size
        self._mapped = mapped
        self._axis_name = axis_name

    def traced(self) -> tuple[Program, tuple[Value, ...]]:
        program, values = self._rule.traced()
        flags = [flag for flag, type in zip(self._mapped[:self.arguments], program.input_types) if differentiable(type)]
        mapped = (*self._mapped, *flags, *[False] * len(values))
        batched, _ = batch_program_over(program, self._size, mapped, (True,) * len(program.outputs), self._axis_name)
        return batched, values


@functools.lru_cache(maxsize=1024)
def _batched_rule(rule: JvpRule, size: int, mapped: tuple[bool, ...], axis_name: Any) -> JvpRule:
    return BatchedRule(rule, size, mapped, axis_name)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, rule: JvpRule) -> tuple[Any, Any]:
    count = rule.arguments
    if all([type(t) is Zero for t in tangents[:count]]):
        results: Sequence[Any] = bind(custom_jvp_p, *primals, program=program, rule=rule)
        found: list[Any] = [Zero(result.type) for result in results]
    else:
        forward, values = rule.traced()
        given = [_instantiated(t) for t in tangents[:count] if differentiable(t.type)]
        both = evaluate(forward, [*primals, *given, *values])
        results, along = both[:len(program.outputs)], iter(both[len(program.outputs):])
        found = [next(along) if differentiable(result.type) else Zero(result.type) for result in results]
    return tuple(results), tuple(captured_tangents(program, count, primals, tangents, found))


def _batch(size: int, operands: Sequence[Any], axes: Sequence[int | None], *, program: Program,
           rule: JvpRule) -> tuple[Any, Any]:
    mapped = tuple(axis is not None for axis in axes)
    everything = (True,) * len(program.outputs)
    batched, _ = batch_program(program, size, mapped, everything)
    aligned = [x if axis is None else move_axis(x, axis, 0) for x, axis in zip(operands, axes, strict=True)]
    results = bind(custom_jvp_p, *aligned, program=batched, rule=_batched_rule(rule, size, mapped, mapped_axis_name()))
    return results, (0,) * len(results)


def _transpose(cotangents: Sequence[Any], operands: Sequence[Any], *, program: Program, rule: JvpRule) -> Any:
    return call_p.transpose(cotangents, operands, program=program, name=rule.name)


custom_jvp_p = declare(Primitive(
    "custom_jvp", lambda *types, program, rule: program.output_types,
    lambda *arrays, program, rule: tuple(interpret(program, arrays)), _jvp, _transpose, _batch,
    Refused("a function with a rule of its own is inlined before lowering"), frozenset({"call"}),
    "A program whose derivative is given by the user's rule.", multiple_results=True))


class custom_jvp:
    """A function with a user's rule for its forward derivative, from which its gradient follows.

    nondiff_argnums: arguments that are given to the function and, first, to the rule as they are.

    >>> import fungrad, fungrad.numpy as fnp
    >>> @fungrad.custom_jvp
    ... def f(x):
    ...     return fnp.log1p(fnp.exp(x))
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return f(x), t * (1 - 1 / (1 + fnp.exp(x)))
    >>> float(fungrad.grad(f)(100.0))
    1.0
    """

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: int | Sequence[int] = ()):
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = nondiff_argnums
        self.jvp: Callable[..., Any] | None = None
        self._rules: dict[Any, JvpRule] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule: jvp(*nondiff, primals, tangents) -> (result, tangent of the result). Answers it."""
        if symbolic_zeros:
            raise NotImplementedError(
                "custom_jvp: symbolic_zeros=True is not supported; a zero tangent is an array of zeros"
            )
        self.jvp = jvp
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set one rule for each argument: jvps[i](tangent, result, *primals) -> tangent; None: it does not matter."""
        if self.nondiff_argnums != () and self.nondiff_argnums != []:
            raise TypeError("defjvps does not go with nondiff_argnums; use defjvp")

        def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            if len(jvps) != len(primals):
                raise TypeError(
                    f"defjvps of {function_name(self.fun)} got {len(jvps)} rules for {len(primals)} arguments"
                )
            result = self(*primals)
            parts = [rule(t, result, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            if not parts:
                return result, tree.tree_map(lambda x: zero_for(to_value(x, str).type), result)
            return result, tree.tree_map(lambda *ts: functools.reduce(lambda a, b: a + b, ts), *parts)
        self.jvp = jvp

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.jvp is None:
            raise TypeError(f"custom_jvp of {function_name(self.fun)} has no rule yet. Set it with @f.defjvp.")
        args = positional(self.fun, args, kwargs, "custom_jvp")
        call = Call(self.fun, args, static_numbers(self.nondiff_argnums, len(args)))
        if not any(isinstance(leaf, Tracer) for leaf in call.leaves):
            return self.fun(*args)
        values, trace = call.values(), current_trace()
        if isinstance(trace, (JVPTrace, LinearizeTrace)):
            primals, tangents = zip(*[trace.split(value) for value in values], strict=True)
            if any(type(t) is not Zero for t in tangents):
                return self._differentiated(call, trace, primals, tangents)
        traced = trace_program(call.flat, [value.type for value in values], call.weak())
        rule = self._rule_of(call, values, traced.captured, call.flat.result_tree)
        results = bind(custom_jvp_p, *values, *traced.captured, program=traced.program, rule=rule)
        return tree.unflatten(call.flat.result_tree, results)

    def _rule_of(self, call: Call, values: Sequence[Value], captured: tuple[Value, ...],
                 out_tree: tree.TreeDef) -> JvpRule:
        """The rule of a staged call; the same object for equal calls that close over nothing."""
        make = lambda: UserRule(function_name(self.fun), lambda p, t: self._run_rule(call, p, t, out_tree),
                                [value.type for value in values], captured)
        if captured:
            return make()
        key = call.key()
        try:
            return self._rules.get(key) or self._rules.setdefault(key, make())
        except TypeError:   # a static argument that is not hashable
            return make()

    def _run_rule(self, call: Call, primals: Sequence[Any], tangents: Sequence[Any],
                  out_tree: tree.TreeDef | None) -> tuple[list[Any], list[Any]]:
        """The user's rule on flat values; checks what it answers."""
        name = f"the rule of custom_jvp {function_name(self.fun)}"
        assert self.jvp is not None
        answer = self.jvp(*call.static_values(), tree.unflatten(call.in_tree, primals),
                          tree.unflatten(call.in_tree, tangents))
        if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
            raise TypeError(f"{name} must answer a pair (result, tangent), but it answers {type(answer).__name__}")
        leaves, structure = tree.flatten(answer[0])
        if out_tree is not None and structure != out_tree:
            raise TreeError(f"{name} answers a result of structure {structure}, but the function's is {out_tree}")
        call.flat.out_tree = structure
        paths = tree.leaf_paths(structure)
        results = [to_value(leaf, lambda i=i: f"{name}: its result{tree.keystr(paths[i])}") for i,
                   leaf in enumerate(leaves)]
        try:
            given = tree.flatten_up_to(structure, answer[1])
        except TreeError as error:
            raise TreeError(f"{name}: the tangent must have the structure of the result {structure}: {error}") from None
        tangents = [checked(t, result.type, lambda i=i: f"{name}: the tangent{tree.keystr(paths[i])}")
                    for i, (t, result) in enumerate(zip(given, results, strict=True))]
        return results, tangents

    def _differentiated(self, call: Call, trace: JVPTrace | LinearizeTrace, primals: Sequence[Any],
                        tangents: Sequence[Any]) -> Any:
        """Run the rule now, under the trace that differentiates with respect to an argument."""
        given = [zero_for(t.type) if type(t) is Zero else t for t in tangents]
        linearizes = isinstance(trace, LinearizeTrace)
        with active(RuleTrace(trace) if linearizes else trace):
            results, result_tangents = self._run_rule(call, primals, given, None)
        outputs = []
        with active(trace.split_trace if isinstance(trace, LinearizeTrace) else trace.parent):
            for result, tangent in zip(results, result_tangents, strict=True):
                primal, along_captured = trace.split(result)
                own = tangent if type(tangent) is Zero else trace.split(tangent)[0]
                outputs.append(trace.join(primal, add_tangents(own, along_captured)))
        return tree.unflatten(call.flat.result_tree, outputs)
