"""Fused kernel -> scheduled kernel: its loop tree, made by applying Opts one by one (see plan.py for the Opts)."""
from __future__ import annotations

from dataclasses import replace

from ..errors import CompilationError
from ..ir.expr import Axis, Expr, axis, index_constant, operation
from ..ir.kernel import Kernel, Loop, Opt
from ..ir.target import Target
from .contraction import apply as apply_to_contraction, schedule_contraction
from .decompose import Rewriter
from .decompose.dtypes import converts_float16
from .heuristics import heuristics
from .loop_tree import build, replace_in
from .plan import apply, make_plan


def schedule(kernel: Kernel, target: Target, opts: tuple[Opt, ...] | None = None) -> Kernel:
    """The kernel with its `body`: by the Opts given, else by the heuristics."""
    if kernel.kind == "loops":
        return schedule_loops(kernel)
    if kernel.kind == "nests":
        return schedule_nests(kernel, target, opts)
    if kernel.kind == "contraction":
        return schedule_contraction(kernel, target) if opts is None else apply_to_contraction(kernel, opts)
    raise CompilationError(f"kernel {kernel.name} is of unknown kind {kernel.kind!r}")


def schedule_nests(kernel: Kernel, target: Target, opts: tuple[Opt, ...] | None = None) -> Kernel:
    """Apply Opts to a kernel of nests and write its loops."""
    if opts is None:
        opts = heuristics(kernel, target)
    plan = make_plan(kernel)
    for opt in opts:
        plan = apply(plan, opt)
    body, scratch = build(plan, kernel.scratch)
    if not converts_float16(target):   # accumulators in float32 are rounded to float16 here
        body = Rewriter(target).body(body)
    return replace(kernel, body=body, scratch=scratch, schedule=opts)


def schedule_loops(kernel: Kernel) -> Kernel:
    """Run the outer axes of a kernel with loops of its own in parallel, as one flat axis."""
    if kernel.body is None:
        raise CompilationError(f"kernel {kernel.name} has neither nests nor a body")
    outer = tuple(a for a in kernel.outer if a.extent != 1)
    by: dict[Axis, Expr] = {a: index_constant(0) for a in kernel.outer if a.extent == 1}
    if not outer:
        return replace(kernel, body=replace_in(kernel.body, by))
    total = 1
    for a in outer:
        total *= a.extent
    flat = Axis("".join(a.name for a in outer), total)
    stride = total
    for a in outer:
        stride //= a.extent
        position = operation("div", axis(flat), index_constant(stride))
        by[a] = operation("rem", position, index_constant(a.extent))
    loop = Loop(flat, replace_in(kernel.body, by), "parallel")
    return replace(kernel, body=(loop,))
