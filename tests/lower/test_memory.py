"""Memory plans: temporaries that live at the same time never overlap, and packing is good."""
from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from fungrad.ir.expr import Buffer
from fungrad.ir.kernel import Fused, Kernel, Launch
from fungrad.ir.types import array_type
from fungrad.lower.memory import (
    ALIGNMENT,
    Lifetime,
    arena_bytes,
    donations,
    lifetimes,
    pack_by_size,
    pack_by_time,
    plan,
)

BYTE = np.dtype("uint8")


def launch(outputs: tuple[int, ...], inputs: tuple[int, ...]) -> Launch:
    buffers = [Buffer(f"b{slot}", array_type((1,), BYTE)) for slot in (*outputs, *inputs)]
    kernel = Kernel("k", tuple(buffers[:len(outputs)]), tuple(buffers[len(outputs):]))
    return Launch(kernel, (*outputs, *inputs))


def fused(sizes: list[int], launches: list[Launch], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Fused:
    return Fused(tuple(launches), tuple(array_type((size,), BYTE) for size in sizes), inputs, outputs)


@st.composite
def programs(draw: st.DrawFn) -> Fused:
    """Random launch sequences: every launch reads earlier slots and writes one or two new ones."""
    sizes = [draw(st.integers(0, 500))]
    launches = []
    for _ in range(draw(st.integers(1, 12))):
        reads = draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3, unique=True))
        writes = []
        for _ in range(draw(st.integers(1, 2))):
            writes.append(len(sizes))
            sizes.append(draw(st.integers(0, 500)))
        launches.append(launch(tuple(writes), tuple(reads)))
    outputs = draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3))
    return fused(sizes, launches, (0,), tuple(outputs))


def check_no_overlap(items: list[Lifetime], offsets: list[int]) -> None:
    for number, (a, at) in enumerate(zip(items, offsets, strict=True)):
        assert at % ALIGNMENT == 0
        for b, bt in zip(items[:number], offsets[:number], strict=True):
            together = a.first <= b.last and b.first <= a.last
            assert not (together and at < bt + b.nbytes and bt < at + a.nbytes), (a, at, b, bt)


@settings(max_examples=200)
@given(programs())
def test_living_temporaries_never_overlap(program: Fused) -> None:
    result = plan(program)
    items = lifetimes(program)
    offsets = [result.offsets[item.slot] for item in items]
    check_no_overlap(items, offsets)
    assert all(offset + item.nbytes <= result.arena_bytes for item, offset in zip(items, offsets, strict=True))
    fixed = {*program.inputs, *program.outputs}
    assert all(result.offsets[slot] is None for slot in fixed)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 6)), max_size=25))
def test_both_packings_are_sound(raw: list[tuple[int, int, int]]) -> None:
    items = [Lifetime(n, size * ALIGNMENT, first, first + length) for n, (size, first, length) in enumerate(raw)]
    items.sort(key=lambda item: item.first)
    most = max((sum(i.nbytes for i in items if i.first <= t <= i.last) for t in range(30)), default=0)
    for pack in (pack_by_time, pack_by_size):
        offsets = pack(items)
        check_no_overlap(items, offsets)
        assert arena_bytes(items, offsets) >= most


def test_a_chain_needs_two_buffers() -> None:
    steps = [launch((n + 1,), (n,)) for n in range(10)]
    result = plan(fused([4096] * 11, steps, (0,), (10,)))
    assert result.arena_bytes == 2 * 4096
    assert result.offsets[0] is None and result.offsets[10] is None


def test_an_unused_slot_has_no_place() -> None:
    result = plan(fused([64, 64, 64], [launch((1,), (0,))], (0,), (1,)))
    assert result.offsets == (None, None, None) and result.arena_bytes == 0


def test_donation_only_after_the_last_read() -> None:
    early = fused([64, 64, 64], [launch((1,), (0,)), launch((2,), (1,))], (0,), (2,))
    late = fused([64, 64, 64], [launch((1,), (0,)), launch((2,), (1, 0))], (0,), (2,))
    assert donations(early, frozenset({0})) == ((0, 0),)
    assert donations(late, frozenset({0})) == ()
    assert donations(early, frozenset()) == ()


def test_donation_needs_equal_sizes_and_its_own_memory() -> None:
    other_size = fused([64, 64, 128], [launch((1,), (0,)), launch((2,), (1,))], (0,), (2,))
    forwarded = fused([64, 64, 64], [launch((1,), (0,)), launch((2,), (1,))], (0,), (2, 0))
    twice = fused([64, 64, 64], [launch((1,), (0,)), launch((2,), (1,))], (0,), (2, 2))
    assert donations(other_size, frozenset({0})) == ()
    assert donations(forwarded, frozenset({0})) == ()
    assert donations(twice, frozenset({0})) == ((0, 0),)
