"""Where the temporaries of a program lie: lifetimes to offsets in one arena.

    memory: slots 2 (launch 0..1, 4096 bytes), 3 (launch 1..2, 4096 bytes), 4 (launch 2..3, 4096 bytes)
    ->      arena of 8192 bytes, offsets 0, 4096, 0

Two packings are tried and the smaller arena wins. *In order of time*: a temporary takes the smallest hole that holds
it when it is born, and its memory is a hole again after its last use; what was just freed is still in the cache. *In
order of size*: the largest first, each at the lowest place where nothing overlaps it in time and space (Pisarchyk and
Lee, "Efficient memory management for deep neural net inference", 2020, "greedy by size").

Outputs never lie in the arena, and a temporary never takes the place of an input of the launch that makes it: kernels
promise that their buffers do not overlap.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ..ir.kernel import Control, Fused, outputs_of
from ..ir.lowered import MemoryPlan
from ..ir.target import Target

ALIGNMENT = 64
_MOST_BY_SIZE = 256   # beyond, packing by size (quadratic) is not tried


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A slot's memory is needed from launch `first` to launch `last`, both included."""
    slot: int
    nbytes: int
    first: int
    last: int


def plan(fused: Fused, target: Target | None = None, donate: frozenset[int] = frozenset()) -> MemoryPlan:
    """The memory plan of a fused program; `donate` holds the numbers of the inputs whose memory may be taken over."""
    nested = [tuple([plan(body, target) for body in launch.bodies]) for launch in fused.launches
              if isinstance(launch, Control)]
    inner = [max(body.arena_bytes for body in bodies) for bodies in nested]
    temporaries = lifetimes(fused, inner)
    offsets = pack_by_time(temporaries)
    if 2 < len(temporaries) <= _MOST_BY_SIZE:
        offsets = min(offsets, pack_by_size(temporaries), key=lambda places: arena_bytes(temporaries, places))
    by_slot = {lifetime.slot: offset for lifetime, offset in zip(temporaries, offsets, strict=True)}
    return MemoryPlan(arena_bytes(temporaries, offsets), tuple([by_slot.get(slot) for slot in range(len(fused.slots))]),
                      donations(fused, donate),
                      tuple([(by_slot[-1 - number], bodies) for number, bodies in enumerate(nested)]))


def lifetimes(fused: Fused, inner: Sequence[int] = ()) -> list[Lifetime]:
    """The lifetimes of all temporaries that a launch uses, in order of birth. Sizes are rounded up to the alignment.

    inner: the arena bytes of the bodies of each loop or choice, in order: temporaries of that launch, as slots -1,
    -2, ...
    """
    fixed = {*fused.inputs, *fused.outputs}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, launch in enumerate(fused.launches):
        for slot in launch.slots:
            if slot not in fixed:
                first.setdefault(slot, number)
                last[slot] = number
    controls = [number for number, launch in enumerate(fused.launches) if isinstance(launch, Control)]
    bodies = [
        Lifetime(-1 - i, max(align(nbytes), ALIGNMENT), controls[i], controls[i]) for i, nbytes in enumerate(inner)
    ]
    found = [Lifetime(slot, max(align(fused.slots[slot].nbytes), ALIGNMENT), first[slot], last[slot]) for slot in first]
    return sorted([*found, *bodies], key=lambda item: item.first) if bodies else found


def align(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def arena_bytes(temporaries: Sequence[Lifetime], offsets: Sequence[int]) -> int:
    return max((offset + item.nbytes for item, offset in zip(temporaries, offsets, strict=True)), default=0)


def pack_by_time(temporaries: Sequence[Lifetime]) -> list[int]:
    """Offsets by best fit in order of birth."""
    holes: list[tuple[int, float]] = [(0, inf)]   # (offset, bytes), by offset; the last one has no end
    living: list[tuple[int, int, int]] = []       # (last launch, offset, bytes)
    offsets = []
    for item in temporaries:
        for dead in [entry for entry in living if entry[0] < item.first]:
            living.remove(dead)
            _add_hole(holes, dead[1], dead[2])
        number = min((n for n, hole in enumerate(holes) if hole[1] >= item.nbytes), key=lambda n: holes[n][1])
        offset, size = holes.pop(number)
        if size > item.nbytes:
            holes.insert(number, (offset + item.nbytes, size - item.nbytes))
        living.append((item.last, offset, item.nbytes))
        offsets.append(offset)
    return offsets


def _add_hole(holes: list[tuple[int, float]], offset: int, size: float) -> None:
    """Put a hole in its place and join it with the holes that it touches."""
    number = next((n for n, hole in enumerate(holes) if hole[0] > offset), len(holes))
    if number < len(holes) and holes[number][0] == offset + size:
        size += holes.pop(number)[1]
    if number and sum(holes[number - 1]) == offset:
        offset, size = holes[number - 1][0], holes[number - 1][1] + size
        number -= 1
        holes.pop(number)
    holes.insert(number, (offset, size))


def pack_by_size(temporaries: Sequence[Lifetime]) -> list[int]:
    """Offsets by placing the largest first, each as low as possible."""
    offsets = [0] * len(temporaries)
    placed: list[int] = []
    for number in sorted(range(len(temporaries)), key=lambda n: (-temporaries[n].nbytes, temporaries[n].first)):
        item = temporaries[number]
        offset = 0
        for other in sorted(placed, key=offsets.__getitem__):
            there = temporaries[other]
            apart = there.last < item.first or item.last < there.first
            if apart or offsets[other] + there.nbytes <= offset:
                continue
            if offset + item.nbytes <= offsets[other]:
                break
            offset = offsets[other] + there.nbytes
        offsets[number] = offset
        placed.append(number)
    return offsets


def donations(fused: Fused, donate: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """Pairs (output, donated input) of equal size where the output is first written after the input's last read."""
    if not donate:
        return ()
    first_write: dict[int, int] = {}
    last_use: dict[int, int] = {}
    for number, launch in enumerate(fused.launches):
        for position, slot in enumerate(launch.slots):
            if position < outputs_of(launch):
                first_write.setdefault(slot, number)
            last_use[slot] = number
    free = [number for number in sorted(donate)
            if fused.inputs.count(fused.inputs[number]) == 1 and fused.inputs[number] not in fused.outputs]
    pairs = []
    taken: set[int] = set()
    for output, slot in enumerate(fused.outputs):
        if slot in fused.inputs or slot in taken or slot not in first_write:
            continue
        for number in free:
            source = fused.inputs[number]
            if fused.slots[source].nbytes == fused.slots[slot].nbytes and last_use.get(source, -1) < first_write[slot]:
                pairs.append((output, number))
                taken.add(slot)
                free.remove(number)
                break
    return tuple(pairs)
