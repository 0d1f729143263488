"""Executable: a compiled program that is called with arrays. The hot path of the library.

A call packs the inputs' cached addresses, fresh memory for the results and an arena into one table of words, makes one
foreign call, and wraps the results. Everything that does not depend on the arrays is worked out when the Executable is
made. There is no state that calls share except the allocator, so any number of threads may call at once.
"""
from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ..backends.base import Backend, Loaded, Table, table
from ..errors import DeviceError
from ..ir.program import Program
from ..ir.types import Type
from .alloc import Allocator
from .array import DEVICES_IN_USE as in_use, Array

if TYPE_CHECKING:
    from ..ir.lowered import Lowered

SLAB_BYTES = 32 << 10   # small results of one call share a block up to this size: one allocation for a whole tree
SLAB_PART = 4 << 10     # larger results get a block of their own, so that one cannot keep much of others alive
ALIGNMENT = 64

Call = Callable[[Sequence[Array]], list[Array]]


class Executable:
    """A loaded program. Call it with the program's inputs, in order; it gives the outputs.

    lowered: every stage of the program, for `fungrad.show`. calls are safe under threads. name, origin: what the log
    says.
    """

    __slots__ = ("lowered", "loaded", "device", "name", "donated", "compile_seconds", "call", "_layout", "_allocator",
                 "_parts", "_general", "_fast", "__weakref__")

    def __init__(self, lowered: Lowered, loaded: Loaded, backend: Backend, allocator: Allocator, name: str = "",
                 donate: frozenset[int] = frozenset()):
        self.lowered = lowered
        self.loaded = loaded
        self.device = backend.name
        self.name = name
        self.donated = donate
        self.compile_seconds = 0.0
        self._allocator = allocator
        self._layout = table(lowered)
        self._parts = [self._type(slot) for slot in self._layout.results]
        self._general = self._call_general()
        self._fast = self._fast_call(backend)
        self.call: Call = self._fast if not donate else self._call_donated

    @property
    def program(self) -> Program:
        return self.lowered.program

    def _type(self, slot: int) -> Type:
        return self.lowered.fused.slots[slot]

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for these inputs, which must have the program's input types and lie on its device.

        Raises DeletedArrayError for an input whose memory is gone.
        """
        return self.call(arrays)

    # how memory for results is found

    def _fast_call(self, backend: Backend) -> Call:
        types = self._parts
        simple = self.lowered.fused.outputs == self._layout.results
        slab = backend.host and len(types) > 1 and all(type.nbytes <= SLAB_PART for type in types)
        if simple and len(types) == 1:
            return self._call_one(types[0])
        if simple and slab and sum(_padded(type) for type in types) <= SLAB_BYTES:
            return self._call_slab(types)
        return self._general

    def _packer(self) -> Callable[..., bytes]:
        return struct.Struct(f"{self._layout.inputs + len(self._parts) + 1}q").pack

    def _arena(self) -> Callable[[], Any] | None:
        return self._allocator.maker(self.loaded.arena_bytes) if self.loaded.arena_bytes else None

    def _call_one(self, type: Type) -> Call:
        """For programs with one result that is not an input."""
        pack, run, device = self._packer(), self.loaded.run, self.device
        make, make_arena = self._allocator.maker(type.nbytes), self._arena()
        if make_arena is None:
            def call(arrays: Sequence[Array]) -> list[Array]:
                block = make()
                address = block.address
                if len(in_use) > 1:
                    _check_devices(arrays, device)
                try:
                    words = pack(*[array._address for array in arrays], address, 0)
                except struct.error:
                    words = pack(*_ready(arrays), address, 0)
                run(words)
                return [Array(type, address, block, device)]
            return call

        def call_with_arena(arrays: Sequence[Array]) -> list[Array]:
            block, arena = make(), make_arena()
            address = block.address
            if len(in_use) > 1:
                _check_devices(arrays, device)
            try:
                words = pack(*[array._address for array in arrays], address, arena.address)
            except struct.error:
                words = pack(*_ready(arrays), address, arena.address)
            run(words)
            return [Array(type, address, block, device)]
        return call_with_arena

    def _call_slab(self, types: list[Type]) -> Call:
        """For programs with several small results: they share one block."""
        pack, run, device = self._packer(), self.loaded.run, self.device
        offsets, total = [], 0
        for type in types:
            offsets.append(total)
            total += _padded(type)
        make, make_arena = self._allocator.maker(total), self._arena()

        def call(arrays: Sequence[Array]) -> list[Array]:
            if len(in_use) > 1:
                _check_devices(arrays, device)
            block = make()
            base = block.address
            results = [base + offset for offset in offsets]
            arena = make_arena() if make_arena is not None else None
            arena_address = arena.address if arena is not None else 0
            try:
                words = pack(*[array._address for array in arrays], *results, arena_address)
            except struct.error:
                words = pack(*_ready(arrays), *results, arena_address)
            run(words)
            return list(map(Array, types, results, repeat(block), repeat(device)))
        return call

    def _call_general(self) -> Callable[..., list[Array]]:
        """Any program: results in blocks of their own, forwarded inputs, results given twice."""
        pack, run, device = self._packer(), self.loaded.run, self.device
        makers = [self._allocator.maker(type.nbytes) for type in self._parts]
        make_arena = self._arena()
        sources = _sources(self.lowered, self._layout)
        types = [self._type(slot) for slot in self.lowered.fused.outputs]
        launches = bool(self.lowered.fused.launches) or bool(makers)

        def call(arrays: Sequence[Array], given: dict[int, Any] | None = None) -> list[Array]:
            if len(in_use) > 1:
                _check_devices(arrays, device)
            blocks = [make() for make in makers]
            if given:
                for number, block in given.items():
                    blocks[number] = block
            addresses = [block.address for block in blocks]
            arena = make_arena() if make_arena is not None else None
            arena_address = arena.address if arena is not None else 0
            try:
                words = pack(*[array._address for array in arrays], *addresses, arena_address)
            except struct.error:
                words = pack(*_ready(arrays), *addresses, arena_address)
            if launches:
                run(words)
            return [Array(type, addresses[number], blocks[number], device) if number >= 0
                    else Array(type, arrays[~number]._address, arrays[~number]._owner, device)
                    for type, number in zip(types, sources)]
        return call

    def _call_donated(self, arrays: Sequence[Array]) -> list[Array]:
        """Take over the memory of donated inputs where the plan allows and nobody else holds it; delete them."""
        _ready(arrays)
        positions = {slot: number for number, slot in enumerate(self._layout.results)}
        given = {positions[self.lowered.fused.outputs[output]]: arrays[number]._owner
                 for output, number in self.lowered.memory.donated if _sole_holder(arrays, number)}
        results = self._general(arrays, given) if given else self._fast(arrays)
        for number in self.donated:
            arrays[number]._delete(f"donated to {self.name or 'a jitted function'}")
        return results

    def profile(self, arrays: Sequence[Array]) -> list[float]:
        """Run once, launch by launch; the seconds of each."""
        blocks = [self._allocator.allocate(type.nbytes) for type in self._parts]
        arena = self._allocator.allocate(self.loaded.arena_bytes) if self.loaded.arena_bytes else None
        words = self._packer()(*_ready(arrays), *[block.address for block in blocks], arena.address if arena else 0)
        return self.loaded.profile(words)


def _check_devices(arrays: Sequence[Array], device: str) -> None:
    """Raise DeviceError for an array on another device: its address would mean something else here."""
    for number, array in enumerate(arrays):
        if array.device != device:
            raise DeviceError(f"argument {number}, a {array.type} array, lies on device {array.device!r}, but the "
                              f"function runs on {device!r}. Move it with fungrad.device_put(x, {device!r}).")


def _sole_holder(arrays: Sequence[Array], number: int) -> bool:
    """Whether nothing but this one input holds its memory: no other array, NumPy view or input."""
    array = arrays[number]
    if sum(other is array for other in arrays) != 1:
        return False
    return sys.getrefcount(array._owner) == 2   # the array's reference and the argument's


def _padded(type: Type) -> int:
    return max(-(-type.nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)


def _ready(arrays: Sequence[Array]) -> list[int]:
    """The addresses of arrays after running what is pending."""
    return [array._ready() for array in arrays]


def _sources(lowered: Lowered, layout: Table) -> list[int]:
    """For each output: the number of its result word, or ~number of the input that is forwarded."""
    inputs = {slot: number for number, slot in enumerate(lowered.fused.inputs)}
    results = {slot: number for number, slot in enumerate(layout.results)}
    return [~inputs[slot] if slot in inputs else results[slot] for slot in lowered.fused.outputs]
