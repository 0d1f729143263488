"""Flatten and unflatten for one known structure: what `jit` calls on its hot path.

`flattener(treedef)` answers a function that takes a pytree apart if it has exactly this structure, and raises Mismatch
otherwise; it does not look whether the leaves are leaves (the caller checks their types). Both run C code
(itemgetter, dict,
zip) for containers of leaves.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from . import tree
from .tree import TreeDef


class Mismatch(Exception):
    """The pytree has another structure."""


Flatten = Callable[[Any, list[Any]], None]      # appends the leaves of the tree
Build = Callable[[Sequence[Any]], Any]          # makes the tree of all its leaves


@lru_cache(maxsize=256)
def flattener(treedef: TreeDef) -> Callable[[Any], list[Any]]:
    """The function from a pytree of this structure to its leaves."""
    visit = _flatten(treedef)

    def flatten(x: Any) -> list[Any]:
        leaves: list[Any] = []
        visit(x, leaves)
        return leaves
    return flatten


def _flatten(treedef: TreeDef) -> Flatten:
    if treedef.kind is None:
        return lambda x, leaves: leaves.append(x)
    if treedef.kind is type(None):
        return _flatten_none
    if treedef.kind is dict:
        return _flatten_dict(treedef)
    if treedef.kind in (tuple, list):
        return _flatten_sequence(treedef)
    return _flatten_other(treedef)


def _flatten_none(x: Any, leaves: list[Any]) -> None:
    if x is not None:
        raise Mismatch


def _visits(treedef: TreeDef) -> list[Flatten] | None:
    """The children's functions; None if every child is a leaf."""
    if all(child.kind is None for child in treedef.children):
        return None
    return [_flatten(child) for child in treedef.children]


def _flatten_dict(treedef: TreeDef) -> Flatten:
    keys: Any = treedef.metadata   # a dict's metadata are its keys
    count, visits = len(keys), _visits(treedef)
    values: Callable[[dict], Sequence[Any]] = itemgetter(*keys) if count > 1 else lambda x: [x[key] for key in keys]

    def visit(x: Any, leaves: list[Any]) -> None:
        if type(x) is not dict or len(x) != count:
            raise Mismatch
        try:
            found = values(x)
        except KeyError:
            raise Mismatch from None
        if visits is None:
            leaves.extend(found)
            return
        for child, value in zip(visits, found, strict=True):
            child(value, leaves)
    return visit


def _flatten_sequence(treedef: TreeDef) -> Flatten:
    kind, count, visits = treedef.kind, len(treedef.children), _visits(treedef)

    def visit(x: Any, leaves: list[Any]) -> None:
        if type(x) is not kind or len(x) != count:
            raise Mismatch
        if visits is None:
            leaves.extend(x)
            return
        for child, value in zip(visits, x, strict=True):
            child(value, leaves)
    return visit


def _flatten_other(treedef: TreeDef) -> Flatten:
    def visit(x: Any, leaves: list[Any]) -> None:
        items, found = tree.flatten(x)
        if found is not treedef:
            raise Mismatch
        leaves.extend(items)
    return visit


@lru_cache(maxsize=256)
def builder(treedef: TreeDef) -> Build:
    """The function from leaves to the pytree of this structure."""
    if treedef.kind is None:
        return itemgetter(0)
    leaves_only = all(child.kind is None for child in treedef.children)
    if leaves_only and treedef.kind is tuple:
        return tuple
    if leaves_only and treedef.kind is list:
        return list
    if leaves_only and treedef.kind is dict:
        keys: Any = treedef.metadata   # a dict's metadata are its keys
        return lambda leaves: dict(zip(keys, leaves, strict=True))
    if treedef.kind not in (tuple, list, dict):
        return lambda leaves: tree.unflatten(treedef, leaves)
    return _build_nested(treedef)


def _build_nested(treedef: TreeDef) -> Build:
    parts, start = [], 0
    for child in treedef.children:
        parts.append((builder(child), start, start + child.num_leaves))
        start += child.num_leaves
    if treedef.kind is dict:
        keys: Any = treedef.metadata
        return lambda leaves: dict(zip(keys, [build(leaves[a:b]) for build, a, b in parts], strict=True))
    kind: Any = treedef.kind
    return lambda leaves: kind([build(leaves[a:b]) for build, a, b in parts])
