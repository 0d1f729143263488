"""Small pure helpers without a subject of their own."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def partition(mask: Sequence[bool], items: Sequence[T]) -> tuple[list[T], list[T]]:
    """Split `items` into those whose mask is false and those whose mask is true."""
    no = [item for chosen, item in zip(mask, items, strict=True) if not chosen]
    yes = [item for chosen, item in zip(mask, items, strict=True) if chosen]
    return no, yes


def merge(mask: Sequence[bool], no: Sequence[T], yes: Sequence[T]) -> list[T]:
    """The inverse of `partition`."""
    no_items, yes_items = iter(no), iter(yes)
    return [next(yes_items) if chosen else next(no_items) for chosen in mask]


def toposort(roots: Iterable[T], inputs: Callable[[T], Iterable[T]]) -> list[T]:
    """Everything reachable from `roots`, inputs before users, without recursion; order follows the inputs' order."""
    order: list[T] = []
    done: set[int] = set()
    stack: list[tuple[T, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        item, expanded = stack.pop()
        if expanded:
            order.append(item)
            continue
        if id(item) in done:
            continue
        done.add(id(item))
        stack.append((item, True))
        stack.extend((operand, False) for operand in reversed(list(inputs(item))) if id(operand) not in done)
    return order


def canonical_axis(axis: int, rank: int) -> int:
    """A non-negative axis number; ValueError for an axis outside an array of this rank."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of bounds for an array of rank {rank}")
    return axis % rank
