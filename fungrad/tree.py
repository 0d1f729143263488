"""Pytrees: nested containers whose leaves are arrays. Names and meaning follow `jax.tree` and `jax.tree_util`.

Nodes are tuples, lists, dicts (keys sorted), None (no leaves), namedtuples, dataclasses (every field a child, except
those
with `metadata={"static": True}`) and registered classes. Everything else is a leaf.

>>> leaves, structure = flatten({"b": 2, "a": (1, None)})
>>> leaves
[1, 2]
>>> unflatten(structure, [10, 20])
{'a': (10, None), 'b': 20}
"""
from __future__ import annotations

import builtins
import dataclasses
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from .errors import TreeError

Leaf = Any
IsLeaf = Callable[[Any], bool] | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """How to take a node of one type apart (children, metadata, key names) and put it together."""
    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Any, Sequence[Any]], Any]
    keys: Callable[[Any, int], Sequence[Any]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class TreeDef:
    """The structure of a pytree. `kind` is None for a leaf. Equal structures are one object, so comparing is cheap."""
    kind: type | None
    metadata: Hashable
    children: tuple[TreeDef, ...]
    num_leaves: int

    def unflatten(self, leaves: Iterable[Leaf]) -> Any:
        return unflatten(self, leaves)

    def __repr__(self) -> str:
        return f"PyTreeDef({unflatten(self, [_Star()] * self.num_leaves)!r})"

    def __reduce__(self) -> Any:
        return _treedef, (self.kind, self.metadata, self.children)


_treedefs: WeakValueDictionary[Hashable, TreeDef] = WeakValueDictionary()


def _treedef(kind: type | None, metadata: Hashable, children: tuple[TreeDef, ...]) -> TreeDef:
    key = (kind, metadata, children)
    found = _treedefs.get(key)
    if found is None:
        count = 1 if kind is None else sum([child.num_leaves for child in children])
        found = _treedefs.setdefault(key, TreeDef(kind, metadata, children, count))
    return found


class _Star:
    def __repr__(self) -> str:
        return "*"


LEAF = _treedef(None, None, ())
NONE = _treedef(type(None), None, ())


@dataclasses.dataclass(frozen=True, slots=True)
class DictKey:
    """Entry of a key path into a dict."""
    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceKey:
    """Entry of a key path into a tuple or list."""
    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


@dataclasses.dataclass(frozen=True, slots=True)
class GetAttrKey:
    """Entry of a key path into an object with fields."""
    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class FlattenedIndexKey:
    """Entry of a key path into a registered class that names no keys."""
    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


def _sorted_keys(mapping: dict) -> tuple:
    try:
        return tuple(sorted(mapping))
    except TypeError:
        raise TreeError(f"the keys of a dict in a pytree must be sortable, got {list(mapping)!r}") from None


def _flatten_dict(mapping: dict) -> tuple[Sequence[Any], Hashable]:
    keys = _sorted_keys(mapping)
    return [mapping[key] for key in keys], keys


def _sequence_keys(metadata: Hashable, count: int) -> Sequence[Any]:
    return [SequenceKey(i) for i in range(count)]


def _mapping_keys(metadata: Any, count: int) -> Sequence[Any]:
    return [DictKey(key) for key in metadata]


def _index_keys(metadata: Hashable, count: int) -> Sequence[Any]:
    return [FlattenedIndexKey(i) for i in range(count)]


def _unflatten_defaultdict(metadata: Any, children: Sequence[Any]) -> Any:
    factory, keys = metadata
    return defaultdict(factory, zip(keys, children, strict=True))


_kinds: dict[type, _Kind] = {
    tuple: _Kind(lambda x: (x, None), lambda m, children: tuple(children), _sequence_keys),
    list: _Kind(lambda x: (x, None), lambda m, children: list(children), _sequence_keys),
    dict: _Kind(_flatten_dict, lambda keys, children: dict(zip(keys, children, strict=True)), _mapping_keys),
    OrderedDict: _Kind(lambda x: (list(x.values()), tuple(x)),
                       lambda keys, children: OrderedDict(zip(keys, children, strict=True)), _mapping_keys),
    defaultdict: _Kind(lambda x: (_flatten_dict(x)[0], (x.default_factory, _sorted_keys(x))), _unflatten_defaultdict,
                       lambda metadata, count: _mapping_keys(metadata[1], count)),
}


@functools.cache
def _implicit_kind(cls: type) -> _Kind | None:
    """The kind of a namedtuple or dataclass; None for a leaf type."""
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        fields: tuple[str, ...] = cls._fields   # type: ignore[attr-defined]  # a namedtuple has them
        return _Kind(lambda x: (x, None), lambda m, children: cls(*children),
                     lambda m, count: [GetAttrKey(name) for name in fields])
    if dataclasses.is_dataclass(cls):
        static = tuple(f.name for f in dataclasses.fields(cls) if f.metadata.get("static", False))
        return _dataclass_kind(cls, tuple(f.name for f in dataclasses.fields(cls) if f.name not in static), static)
    return None


def _dataclass_kind(cls: type, data: tuple[str, ...], static: tuple[str, ...]) -> _Kind:
    def flatten_fields(x: Any) -> tuple[Sequence[Any], Hashable]:
        return [getattr(x, name) for name in data], tuple(getattr(x, name) for name in static)

    def unflatten_fields(metadata: Any, children: Sequence[Any]) -> Any:
        x = object.__new__(cls)   # as is: __init__ and __post_init__ may check or convert what is now traced
        for name, value in (*zip(data, children, strict=True), *zip(static, metadata, strict=True)):
            object.__setattr__(x, name, value)
        return x
    return _Kind(flatten_fields, unflatten_fields, lambda m, count: [GetAttrKey(name) for name in data])


_resolved: dict[type, _Kind | None] = {}


def _kind_of(cls: type) -> _Kind | None:
    """How to take instances of a class apart; None for a leaf."""
    try:
        return _resolved[cls]
    except KeyError:
        found = _resolved[cls] = _kinds.get(cls) or _implicit_kind(cls)
        return found


def _register(cls: type, kind: _Kind) -> None:
    _kinds[cls] = kind
    _resolved.pop(cls, None)


def register_pytree_node(cls: type, flatten_func: Callable[[Any], tuple[Iterable[Any], Hashable]],
                         unflatten_func: Callable[[Any, Any], Any]) -> None:
    """Make instances of `cls` nodes: `flatten_func(x) -> (children, metadata)`, `unflatten_func(metadata, children)
    -> x`."""
    if cls in _kinds:
        raise ValueError(f"{cls.__name__} is already a pytree node")

    def flatten_node(x: Any) -> tuple[Sequence[Any], Hashable]:
        children, metadata = flatten_func(x)
        return tuple(children), metadata
    _register(cls, _Kind(flatten_node, lambda m, children: unflatten_func(m, tuple(children)), _index_keys))


def register_pytree_node_class(cls: type) -> type:
    """Class decorator: the class has methods `tree_flatten()` and classmethod `tree_unflatten(metadata, children)`."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_dataclass(cls: type, data_fields: Sequence[str] | None = None,
                       meta_fields: Sequence[str] | None = None) -> type:
    """Say which fields of a dataclass are children and which are static metadata. Usable as a decorator."""
    fields = dataclasses.fields(cls)
    static = tuple(meta_fields if meta_fields is not None else
                   (f.name for f in fields if f.metadata.get("static", False)))
    data = tuple(data_fields if data_fields is not None else (f.name for f in fields if f.name not in static))
    missing = {f.name for f in fields if f.init} - set(data) - set(static)
    if missing:
        raise ValueError(f"{cls.__name__}: fields {sorted(missing)} are in neither data_fields nor meta_fields")
    _register(cls, _dataclass_kind(cls, data, static))
    return cls


def register_static(cls: type) -> type:
    """Make instances of `cls` nodes without leaves: the instance itself is structure (it must be hashable)."""
    _register(cls, _Kind(lambda x: ((), x), lambda m, children: m, _index_keys))
    return cls


def _flatten_into(x: Any, leaves: list[Leaf], is_leaf: IsLeaf) -> TreeDef:
    if x is None and (is_leaf is None or not is_leaf(x)):
        return NONE
    cls = type(x)
    kind = _kind_of(cls)
    if kind is None or (is_leaf is not None and is_leaf(x)):
        leaves.append(x)
        return LEAF
    children, metadata = kind.flatten(x)
    return _treedef(cls, metadata, tuple([_flatten_into(child, leaves, is_leaf) for child in children]))


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Leaf], TreeDef]:
    """The leaves of a pytree, in a fixed order, and its structure."""
    leaves: list[Leaf] = []
    return leaves, _flatten_into(tree, leaves, is_leaf)


def unflatten(treedef: TreeDef, leaves: Iterable[Leaf]) -> Any:
    """The pytree with this structure and these leaves."""
    items = list(leaves)
    if len(items) != treedef.num_leaves:
        raise TreeError(f"a structure of {treedef.num_leaves} leaves cannot be built from {len(items)}: {treedef}")
    return _build(treedef, iter(items))


def _build(treedef: TreeDef, leaves: Any) -> Any:
    if treedef.kind is None:
        return next(leaves)
    if treedef is NONE or treedef.kind is type(None):
        return None
    kind = _kind_of(treedef.kind)
    assert kind is not None, "a TreeDef is made of registered kinds"
    return kind.unflatten(treedef.metadata, [_build(child, leaves) for child in treedef.children])


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Leaf]:
    """The leaves of a pytree."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> TreeDef:
    """The structure of a pytree."""
    return flatten(tree, is_leaf)[1]


def flatten_up_to(treedef: TreeDef, tree: Any, path: str = "") -> list[Any]:
    """The subtrees of `tree` at the leaves of `treedef`; TreeError naming the first place where they differ."""
    if treedef.kind is None:
        return [tree]
    if treedef.kind is type(None):
        if tree is not None:
            raise TreeError(f"expected None at {path or 'the root'}, got {type(tree).__name__}")
        return []
    kind = _kind_of(type(tree))
    if type(tree) is not treedef.kind or kind is None:
        raise TreeError(f"expected {treedef.kind.__name__} at {path or 'the root'}, got {type(tree).__name__}")
    children, metadata = kind.flatten(tree)
    if metadata != treedef.metadata or len(children) != len(treedef.children):
        expected = _describe(treedef.kind, treedef.metadata, treedef.children)
        raise TreeError(f"structures differ at {path or 'the root'}: {expected}"
                        f" and {_describe(type(tree), metadata, children)}")
    keys = kind.keys(metadata, len(children))
    return [item for child, sub, key in zip(treedef.children, children, keys, strict=True)
            for item in flatten_up_to(child, sub, f"{path}{key}")]


def _describe(cls: type, metadata: Any, children: Sequence[Any]) -> str:
    return f"{cls.__name__} with keys {list(metadata)}" if cls is dict else f"{cls.__name__} of {len(children)}"


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `f` to every leaf of `tree` and the subtrees of `rest` in the same places.

    >>> tree_map(lambda a, b: a + b, {"x": 1, "y": [2]}, {"x": 10, "y": [20]})
    {'x': 11, 'y': [22]}
    """
    items, treedef = flatten(tree, is_leaf)
    columns = [items, *(flatten_up_to(treedef, other) for other in rest)]
    return unflatten(treedef, [f(*row) for row in zip(*columns, strict=True)])


map = tree_map   # jax.tree.map


def reduce(function: Callable[[Any, Any], Any], tree: Any, *initializer: Any, is_leaf: IsLeaf = None) -> Any:
    """functools.reduce over the leaves."""
    return functools.reduce(function, leaves(tree, is_leaf), *initializer)


def all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true."""
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: Any) -> Any:
    """Turn a tree of structure outer(inner) into inner(outer)."""
    items = flatten_up_to(outer_treedef, pytree_to_transpose)
    inner = inner_treedef or structure(items[0])
    rows = [flatten_up_to(inner, item) for item in items]
    return unflatten(inner, [unflatten(outer_treedef, column) for column in zip(*rows, strict=True)])


def _paths(treedef: TreeDef, path: tuple[Any, ...], out: list[tuple[Any, ...]]) -> None:
    if treedef.kind is None:
        out.append(path)
        return
    kind = _kind_of(treedef.kind)
    if kind is None or not treedef.children:
        return
    for key, child in zip(kind.keys(treedef.metadata, len(treedef.children)), treedef.children, strict=True):
        _paths(child, (*path, key), out)


def flatten_with_path(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[tuple[Any, ...], Leaf]], TreeDef]:
    """Pairs (key path, leaf) and the structure."""
    items, treedef = flatten(tree, is_leaf)
    return list(zip(leaf_paths(treedef), items, strict=True)), treedef


def leaf_paths(treedef: TreeDef) -> list[tuple[Any, ...]]:
    """The key path of each leaf."""
    out: list[tuple[Any, ...]] = []
    _paths(treedef, (), out)
    return out


def leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[tuple[Any, ...], Leaf]]:
    """Pairs (key path, leaf)."""
    return flatten_with_path(tree, is_leaf)[0]


def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Like `map`, with the key path as first argument."""
    items, treedef = flatten_with_path(tree, is_leaf)
    columns = [flatten_up_to(treedef, other) for other in rest]
    rows = zip(*[[path for path, _ in items], [leaf for _, leaf in items], *columns], strict=True)
    return unflatten(treedef, [f(*row) for row in rows])


def keystr(path: Iterable[Any]) -> str:
    """A key path as Python would write it: `['dense']['w'][0]`."""
    return "".join(str(key) for key in path)


def broadcast_prefix(prefix: Any, tree: Any, what: str = "prefix", is_leaf: IsLeaf = None) -> list[Any]:
    """The leaf of `prefix` that governs each leaf of `tree`: `prefix` may stop above the leaves (as in vmap's
    in_axes)."""
    result: list[Any] = []

    def visit(prefix: Any, tree: Any, path: str) -> None:
        kind = _kind_of(type(prefix))
        if kind is None or prefix is None or (is_leaf is not None and is_leaf(prefix)):
            result.extend([prefix] * structure(tree).num_leaves)
            return
        tree_kind = _kind_of(type(tree))
        if type(tree) is not type(prefix) or tree_kind is None:
            raise TreeError(f"{what} has {type(prefix).__name__} at {path or 'the root'}, but the value there is "
                            f"{type(tree).__name__}")
        children, metadata = kind.flatten(prefix)
        others, other_metadata = tree_kind.flatten(tree)
        if metadata != other_metadata or len(children) != len(others):
            raise TreeError(f"{what} and the value differ at {path or 'the root'}: "
                            f"{_describe(type(prefix), metadata, children)} and "
                            f"{_describe(type(tree), other_metadata, others)}")
        for key, child, other in zip(kind.keys(metadata, len(children)), children, others, strict=True):
            visit(child, other, f"{path}{key}")
    visit(prefix, tree, "")
    return result


class Partial(functools.partial):
    """functools.partial that is a pytree: its arguments are children, its function is structure."""


register_pytree_node(Partial, lambda p: ((p.args, p.keywords), p.func),
                     lambda func, children: Partial(func, *children[0], **children[1]))
