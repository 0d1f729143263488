"""Program -> Program: calls inlined, constants folded, algebra, masks sunk.

Only rewrites that keep every bit of the result, NaN and the sign of zero included (so `x + 0.0` stays: it turns -0.0
into 0.0; and `x * 0` stays, it may be NaN), with three exceptions:
- the sum of n equal elements is n times the element, which is rounded once;
- the sum of zero-padded arrays that do not overlap (the gradient of a split) is their concatenation: -0.0 stays -0.0;
- *mask sinking*: select(m, c, 0) * d -> select(m, c * d, 0). Where the mask hides an infinite derivative, 0 * inf would
  give NaN; sunk, the gradient of where(x > 0, sqrt(x), 0) at 0 is 0.
Equal values are one node from the start, and what nothing reads is not there, so there is no pass for either.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import highest, is_float, lowest
from ..ir.primitive import PRIMITIVES, Refused
from ..ir.program import RESULT, Node, Program, apply, node as make_node, program as make_program
from ..ir.rewrite import Constant, Pattern, Rewriter, Rule
from ..ir.target import Target
from ..ir.types import Literal, Type, literal
from ..util import toposort
from .simplify_loops import simplify_loops

P = Pattern
MOST_ROUNDS = 4


def simplify(program: Program, target: Target) -> Program:
    """The program with calls inlined and all rules of `RULES` applied."""
    program = _rewriter(_sinker(simplify_bodies(inline_calls(program), target)))
    for _ in range(MOST_ROUNDS):   # what moves into and out of loops may allow more, on both sides
        changed = simplify_loops(program)
        if changed is program:
            break
        program = _rewriter(simplify_bodies(changed, target))
    return program


def simplify_bodies(program: Program, target: Target) -> Program:
    """The program with the bodies of loops and choices simplified."""
    if not any("control" in n.primitive.traits for n in program.nodes()):
        return program

    def simplified(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([simplified(item) for item in value])
        return simplify(value, target) if isinstance(value, Program) else value
    at: dict[Node, Node] = {}
    for n in program.nodes():
        operands = tuple([at[operand] for operand in n.operands])
        params = dict(n.params)
        if "control" in n.primitive.traits:
            params = {name: simplified(value) for name, value in params.items()}
        at[n] = make_node(n.primitive, operands, params, n.type)
    return make_program(program.input_types, tuple([at[output] for output in program.outputs]))


# ---- calls ----------------------------------------------------------------------------------------------------------

def inline_calls(program: Program) -> Program:
    """Replace every node with trait "call" by the nodes of its program (as often as it takes)."""
    while any("call" in n.primitive.traits for n in program.nodes()):
        program = make_program(program.input_types, _inlined(program, program.inputs))
    return program


def _inlined(program: Program, values: tuple[Node, ...]) -> tuple[Node, ...]:
    """The outputs of a program over other nodes as inputs, with the calls directly in it replaced."""
    at: dict[Node, Any] = dict(zip(program.inputs, values, strict=True))
    for n in program.nodes():
        if n in at:
            continue
        operands = tuple([at[operand] for operand in n.operands])
        if n.primitive is RESULT and isinstance(operands[0], tuple):
            at[n] = operands[0][n.param("number")]
        elif "call" in n.primitive.traits:
            at[n] = _copied(n.primitive.expansion(dict(n.params)), operands)
        else:
            at[n] = n if operands == n.operands else make_node(n.primitive, operands, dict(n.params), n.type)
    return tuple([at[output] for output in program.outputs])


def _copied(program: Program, values: tuple[Node, ...]) -> tuple[Node, ...]:
    """The outputs of a program over other nodes as inputs."""
    at: dict[Node, Node] = dict(zip(program.inputs, values, strict=True))
    for n in toposort(program.outputs, lambda n: n.operands):
        if n not in at:
            operands = tuple([at[operand] for operand in n.operands])
            at[n] = n if operands == n.operands else make_node(n.primitive, operands, dict(n.params), n.type)
    return tuple([at[output] for output in program.outputs])


# ---- building blocks of replacements --------------------------------------------------------------------------------

def _make(name: str, *operands: Node, **params: Any) -> Node:
    return apply(PRIMITIVES[name], operands, params)


def _full(type: Type, value: bool | int | float | Literal) -> Node:
    bits = value if isinstance(value, Literal) else literal(value, type.dtype)
    return _make("full", type=type, value=bits)


def _is(number: int) -> Constant:
    """A constant equal to this whole number (for 0: of either sign)."""
    return Constant(lambda value: value == number and not isinstance(value, bool))


def _positive_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool) and math.copysign(1, value) > 0


def _negative_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0


ZERO, ONE = _is(0), _is(1)
POSITIVE_ZERO, NEGATIVE_ZERO = Constant(_positive_zero), Constant(_negative_zero)
TRUE, FALSE = Constant(lambda value: value is True), Constant(lambda value: value is False)


# ---- constants ------------------------------------------------------------------------------------------------------

def _fold(root: Node) -> Node | None:
    """An elementwise operation on constants."""
    if not root.operands or any(operand.primitive.name != "full" for operand in root.operands) \
            or not isinstance(root.type, Type) or isinstance(root.primitive.reference, Refused):
        return None
    scalars = [np.frombuffer(operand.param("value").bits, operand.type.dtype)[0] for operand in root.operands]
    with np.errstate(all="ignore"):
        result = root.primitive.reference(*map(np.asarray, scalars), **dict(root.params))
    return _full(root.type, Literal(np.asarray(result, root.type.dtype).tobytes(), root.type.dtype))


def _spread(root: Node, x: Node) -> Node:
    """The elements of a constant elsewhere."""
    return _full(root.type, x.param("value"))


# ---- arithmetic -----------------------------------------------------------------------------------------------------

def _first(root: Node, x: Node, **others: Node) -> Node:
    return x


def _if_integer(root: Node, x: Node) -> Node | None:
    return None if is_float(root.type.dtype) else x


def _if_lowest(root: Node, x: Node, c: Node) -> Node | None:
    return x if c.primitive.name == "full" and c.param("value") == literal(lowest(c.type.dtype), c.type.dtype) \
        else None


def _if_highest(root: Node, x: Node, c: Node) -> Node | None:
    return x if c.primitive.name == "full" and c.param("value") == literal(highest(c.type.dtype), c.type.dtype) \
        else None


def _divide_by_power_of_two(root: Node, x: Node, c: Node) -> Node | None:
    """x / 2^k -> x * 2^-k, which is exact."""
    if c.primitive.name != "full" or not is_float(root.type.dtype):
        return None
    value = c.param("value").value
    if not math.isfinite(value) or value == 0 or abs(math.frexp(value)[0]) != 0.5:
        return None
    inverse = literal(1 / value, root.type.dtype)
    tiny = 2.0 ** -14 if root.type.dtype == np.dtype(np.float16) else 2.0 ** -126
    if inverse.value * value != 1 or not math.isfinite(inverse.value) or abs(inverse.value) < tiny:
        return None
    return _make("mul", x, _full(root.type, inverse))


def _constant_second(root: Node, c: Node, x: Node) -> Node | None:
    """Constants come second in commutative operations, so that other rules need one form."""
    if c.primitive.name != "full" or x.primitive.name == "full":
        return None
    return make_node(root.primitive, (x, c), dict(root.params), root.type)


# ---- movement -------------------------------------------------------------------------------------------------------

def _reshape(root: Node, x: Node) -> Node | None:
    if x.type.shape == root.type.shape:
        return x
    return _make("reshape", x.operands[0], shape=root.param("shape")) if x.primitive.name == "reshape" else None


def _transpose(root: Node, x: Node) -> Node | None:
    permutation = root.param("permutation")
    if permutation == tuple(range(len(permutation))):
        return x
    if x.primitive.name != "transpose":
        return None
    inner = x.param("permutation")
    return _make("transpose", x.operands[0], permutation=tuple([inner[i] for i in permutation]))


def _broadcast(root: Node, x: Node) -> Node | None:
    axes = root.param("axes")
    if x.type.shape == root.type.shape and axes == tuple(range(len(axes))):
        return x
    if x.primitive.name == "broadcast":
        inner = tuple([axes[i] for i in x.param("axes")])
        return _make("broadcast", x.operands[0], shape=root.param("shape"), axes=inner)
    return None


_LOSSLESS_BITS = {"float16": (11, 5), "bfloat16": (8, 8), "float32": (24, 8), "float64": (53, 11)}


def _keeps_all(a: np.dtype, b: np.dtype) -> bool:
    """Whether converting a to b loses nothing."""
    if is_float(a):
        return is_float(b) and all(x <= y for x, y in zip(_LOSSLESS_BITS[a.name], _LOSSLESS_BITS[b.name], strict=True))
    if a.kind == "b":
        return True
    bits = 8 * a.itemsize - (a.kind == "i")
    if is_float(b):
        return bits <= _LOSSLESS_BITS[b.name][0] and b.name != "float16"
    return b.kind in "iu" and bits <= 8 * b.itemsize - (b.kind == "i") and (b.kind == "i" or a.kind == "u")


def _convert(root: Node, x: Node) -> Node | None:
    if x.type.dtype == root.type.dtype:
        return x
    if x.primitive.name == "convert":
        first = x.operands[0]
        if first.type.dtype == root.type.dtype and _keeps_all(first.type.dtype, x.type.dtype):
            return first
        if _keeps_all(first.type.dtype, x.type.dtype) and first.type.dtype.kind == x.type.dtype.kind:
            return _make("convert", first, dtype=root.type.dtype)
    return None


def _is_zero(x: Node) -> bool:
    return x.primitive.name == "full" and not any(x.param("value").bits)


def _pad(root: Node, x: Node, v: Node) -> Node | None:
    return x if not any(map(any, root.param("config"))) else None


def _concatenate(root: Node) -> Node | None:
    """Concatenations of concatenations along one axis are one."""
    axis = root.param("axis")
    parts = [part for operand in root.operands for part in (
        operand.operands if operand.primitive is root.primitive and operand.param("axis") == axis else (operand,))]
    return None if len(parts) == len(root.operands) else make_node(root.primitive, tuple(parts), dict(root.params),
                                                                   root.type)


def _sum_of_pads(root: Node, p: Node, q: Node, x: Node, y: Node, v: Node, w: Node) -> Node | None:
    """The sum of arrays that zeros surround, side by side along one axis: one array that zeros surround."""
    first, second = p.param("config"), q.param("config")
    if not (_is_zero(v) and _is_zero(w)):
        return None
    differing = [a for a, (c, d) in enumerate(zip(first, second, strict=True)) if c != d]
    if len(differing) != 1:
        return None
    (axis,) = differing
    if x.type.shape[:axis] + x.type.shape[axis + 1:] != y.type.shape[:axis] + y.type.shape[axis + 1:]:
        return None
    if first[axis][0] > second[axis][0]:
        x, y, first, second = y, x, second, first
    (low, _, spread), (start, high, other) = first[axis], second[axis]
    gap = start - low - x.type.shape[axis]
    if spread or other or gap < 0 or low < 0 or high < 0:
        return None
    between = [_full(x.type.with_shape((*x.type.shape[:axis], gap, *x.type.shape[axis + 1:])), 0)] if gap else []
    joined = _make("concatenate", x, *between, y, axis=axis)
    return _make("pad", joined, v, config=(*first[:axis], (low, high, 0), *first[axis + 1:]))


# ---- reductions -----------------------------------------------------------------------------------------------------

def _reduce_ones(root: Node, x: Node) -> Node | None:
    """A reduction over axes of extent 1 is a reshape."""
    if x.type.dtype != root.type.dtype or any(x.type.shape[a] != 1 for a in root.param("axes")):
        return None
    return _make("reshape", x, shape=root.type.shape)


def _repeated(root: Node, b: Node) -> tuple[Node, int] | None:
    """Of a reduction of a broadcast over axes that only repeat: what is left, and how often each element is there."""
    axes = root.param("axes")
    kept = b.param("axes")
    x = b.operands[0]
    if any(a in kept and b.type.shape[a] != 1 for a in axes) or 0 in b.type.shape:
        return None
    count = math.prod(b.type.shape[a] for a in axes)
    dropped = [i for i, a in enumerate(kept) if a in axes]
    if dropped:
        x = _make("reshape", x, shape=tuple([e for i, e in enumerate(x.type.shape) if i not in dropped]))
    places = [a - sum(1 for other in axes if other < a) for a in kept if a not in axes]
    return _make("broadcast", x, shape=root.type.shape, axes=tuple(places)), count


def _sum_of_repeated(root: Node, b: Node) -> Node | None:
    found = _repeated(root, b)
    if found is None:
        return None
    x, count = found
    if is_float(root.type.dtype) and literal(count, root.type.dtype).value != count:
        return None
    return _make("mul", x, _full(root.type, count))


def _extremum_of_repeated(root: Node, b: Node) -> Node | None:
    found = _repeated(root, b)
    return None if found is None else found[0]


# ---- choices and masks ----------------------------------------------------------------------------------------------

def _choose_same(root: Node, m: Node, a: Node, b: Node, c: Node) -> Node:
    return _make("select", m, a, c)


def _swap_branches(root: Node, m: Node, a: Node, b: Node) -> Node:
    return _make("select", m, b, a)


def _sink_left(root: Node, s: Node, m: Node, c: Node, d: Node) -> Node:
    """op(select(m, c, 0), d) -> select(m, op(c, d), 0)"""
    inner = make_node(root.primitive, (c, d), dict(root.params), root.type)
    return _make("select", m, inner, _full(root.type, 0))


def _sink_right(root: Node, s: Node, m: Node, c: Node, d: Node) -> Node:
    inner = make_node(root.primitive, (d, c), dict(root.params), root.type)
    return _make("select", m, inner, _full(root.type, 0))


def _sink_through(root: Node, s: Node, m: Node, c: Node) -> Node:
    """A movement or conversion of a masked value masks the moved value."""
    moved = apply(root.primitive, (c,), dict(root.params))
    mask = m if "elementwise" in root.primitive.traits else apply(root.primitive, (m,), dict(root.params))
    return _make("select", mask, moved, _full(root.type, 0))


def _sink_negation(root: Node, s: Node, m: Node, c: Node) -> Node:
    zero = s.operands[2].param("value").value
    return _make("select", m, _make("neg", c), _full(root.type, -zero))


_MASKED = P("select", ("m", "c", ZERO), "s")

# ---- the table ------------------------------------------------------------------------------------------------------

# Applied alone first: folding constants beside a mask would put the NaN that it hides into the program.
SINKING: tuple[Rule, ...] = (
    Rule("sink mask through *", P("mul", (_MASKED, "d")), _sink_left),
    Rule("sink mask through * (second)", P("mul", ("d", _MASKED)), _sink_right),
    Rule("sink mask through /", P("div", (_MASKED, "d")), _sink_left),
    Rule("sink mask through -", P("neg", (_MASKED,)), _sink_negation),
    *[Rule(f"sink mask through {name}", P(name, (_MASKED,)), _sink_through)
      for name in ("broadcast", "reshape", "transpose", "convert")],
)

RULES: tuple[Rule, ...] = (
    Rule("fold constants", P("trait:elementwise"), _fold),
    *[Rule(f"{name} of a constant", P(name, (P("full", None, "x"),)), _spread)
      for name in ("reshape", "transpose", "broadcast", "slice", "flip")],

    *[Rule(f"constant second in {name}", P(name, ("c", "x")), _constant_second)
      for name in ("add", "mul", "max", "min", "and", "or", "xor")],
    Rule("x * 1", P("mul", ("x", ONE)), _first),
    Rule("x / 1", P("div", ("x", ONE)), _first),
    Rule("x - 0", P("sub", ("x", POSITIVE_ZERO)), _first),
    Rule("x + -0.0", P("add", ("x", NEGATIVE_ZERO)), _first),
    Rule("integer + 0", P("add", ("x", ZERO)), _if_integer),
    Rule("x * -1", P("mul", ("x", _is(-1))), lambda root, x: _make("neg", x)),
    Rule("x / 2^k", P("div", ("x", "c")), _divide_by_power_of_two),
    Rule("- - x", P("neg", (P("neg", ("x",)),)), _first),
    Rule("x + -y", P("add", ("x", P("neg", ("y",)))), lambda root, x, y: _make("sub", x, y)),
    Rule("-x + y", P("add", (P("neg", ("x",)), "y")), lambda root, x, y: _make("sub", y, x)),
    Rule("x - -y", P("sub", ("x", P("neg", ("y",)))), lambda root, x, y: _make("add", x, y)),
    Rule("max(x, lowest)", P("max", ("x", "c")), _if_lowest),
    Rule("min(x, highest)", P("min", ("x", "c")), _if_highest),
    Rule("max(x, x)", P("max", ("x", "x")), _first),
    Rule("min(x, x)", P("min", ("x", "x")), _first),
    Rule("stop_gradient", P("stop_gradient", ("x",)), _first),

    Rule("not not x", P("not", (P("not", ("x",)),)), _first),
    Rule("x and true", P("and", ("x", TRUE)), _first),
    Rule("x or false", P("or", ("x", FALSE)), _first),
    Rule("x and false", P("and", ("x", FALSE)), lambda root, x: _full(root.type, False)),
    Rule("x or true", P("or", ("x", TRUE)), lambda root, x: _full(root.type, True)),
    Rule("x and x", P("and", ("x", "x")), _first),
    Rule("x or x", P("or", ("x", "x")), _first),

    Rule("reshape", P("reshape", ("x",)), _reshape),
    Rule("transpose", P("transpose", ("x",)), _transpose),
    Rule("broadcast", P("broadcast", ("x",)), _broadcast),
    Rule("convert", P("convert", ("x",)), _convert),

    Rule("pad by nothing", P("pad", ("x", "v")), _pad),
    Rule("concatenate", P("concatenate"), _concatenate),
    Rule("sum of pads", P("add", (P("pad", ("x", "v"), "p"), P("pad", ("y", "w"), "q"))), _sum_of_pads),

    Rule("reduce extent 1", P("trait:reduction", ("x",)), _reduce_ones),
    Rule("sum of repeated elements", P("reduce_sum", (P("broadcast", None, "b"),)), _sum_of_repeated),
    *[Rule(f"{name} of repeated elements", P(name, (P("broadcast", None, "b"),)), _extremum_of_repeated)
      for name in ("reduce_max", "reduce_min", "reduce_and", "reduce_or")],

    Rule("select true", P("select", (TRUE, "x", "y")), lambda root, x, y: x),
    Rule("select false", P("select", (FALSE, "x", "y")), lambda root, x, y: y),
    Rule("select of equal branches", P("select", ("m", "x", "x")), _first),
    Rule("select by not", P("select", (P("not", ("m",)), "a", "b")), _swap_branches),
    Rule("select in its true branch", P("select", ("m", P("select", ("m", "a", "b")), "c")), _choose_same),
    Rule("select in its false branch", P("select", ("m", "c", P("select", ("m", "a", "b")))),
         lambda root, m, a, b, c: _make("select", m, c, b)),

    *SINKING,
)

_rewriter = Rewriter(RULES)
_sinker = Rewriter(SINKING)
