"""Contractions: matrix products and convolutions as tiled, packed, register-blocked loop trees.

`schedule_contraction(kernel, target)` picks a tiling and builds it; `apply(kernel, opts)` builds the one that a list
of Opts describes, so that a search can try others and a user can pin one. `contraction_analysis` says what a
contraction is, `contraction_tiling` what the Opts mean, `contraction_build` what the result looks like.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir.kernel import Kernel, Opt
from ..ir.target import Target
from .contraction_analysis import analyse
from .contraction_build import build
from .contraction_heuristics import choose
from .contraction_tiling import from_opts


def schedule_contraction(kernel: Kernel, target: Target) -> Kernel:
    """A kernel of kind "contraction" with a body and the schedule that gives it. Raises CompilationError."""
    contraction = analyse(kernel)
    if any(a.extent == 0 for a in (*contraction.batch, *contraction.m, *contraction.n)):
        return replace(kernel, outer=(), nests=(), scratch=(), body=())
    return build(kernel, contraction, choose(contraction, target))


def apply(kernel: Kernel, opts: Sequence[Opt]) -> Kernel:
    """A kernel of kind "contraction" scheduled as `opts` say. CompilationError for Opts that do not fit it."""
    return build(kernel, analyse(kernel), from_opts(opts))
