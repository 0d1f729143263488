"""JAX's names in lax that are not there yet: control flow and collectives. Calling one says what to write instead."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import RefusedError
from ..transforms.collective import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
)

__all__ = [
    "all_gather", "all_to_all", "axis_index", "axis_size", "cond", "custom_linear_solve", "custom_root", "fori_loop",
    "map",
    "pmax", "pmean", "pmin", "ppermute", "pshuffle", "psum", "psum_scatter", "scan", "switch", "while_loop",
]


def refused(name: str, instead: str) -> Callable[..., Any]:
    """A function that raises RefusedError with its advice."""
    def function(*args: Any, **kwargs: Any) -> Any:
        raise RefusedError(f"lax.{name} is not there yet. {instead}")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Not there yet. {instead}"
    return function


_UNROLLED = "Write a Python loop: under jit it is unrolled."
_CHOICE = "Write fungrad.numpy.where(condition, a, b), or lax.select_n, which compute all branches."

scan = refused("scan", _UNROLLED + " For an associative function use lax.associative_scan.")
map = refused("map", "Write fungrad.vmap(f)(xs).")
fori_loop = refused("fori_loop", _UNROLLED)
while_loop = refused("while_loop", "Outside jit write a Python loop.")
cond = refused("cond", _CHOICE)
switch = refused("switch", _CHOICE)
custom_linear_solve = refused("custom_linear_solve", "Solve with a fixed number of iterations.")
custom_root = refused("custom_root", "Iterate a fixed number of times.")
