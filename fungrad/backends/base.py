"""What a device must offer: at most ten methods, all described here.

A backend turns a `Lowered` program into a `Loaded` object, which runs it. Both sides talk in one *table* of 64-bit
words:

    word 0 .. n-1        the memory of the program's inputs, in order
    word n .. n+m-1      the memory of its distinct results that are not inputs, in order of first appearance
    word n+m             the arena, which holds the temporaries

For a device whose memory the host reaches (`host`), a word is an address; elsewhere it is the handle that the backend's
`allocate` gave out.
"""
from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import DeviceError
from ..ir.types import Type

if TYPE_CHECKING:
    from ..ir.instructions import InstructionList
    from ..ir.kernel import Fused
    from ..ir.lowered import Lowered, MemoryPlan
    from ..ir.target import Target

ALIGNMENT = 64
SMALL_BYTES = 4096


class ObjectStore(Protocol):
    """Where compiled objects are kept between processes (`runtime/cache.py`)."""

    def get(self, key: str) -> bytes | None:
        """What was stored under this key, or None."""

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under this key; failing silently is allowed."""


@dataclass(frozen=True, slots=True)
class Table:
    """Which word of the table, and which byte offset from it, is the memory of each slot of a lowered program.

    words: a pair for every slot (None: the slot is unused). results: the slots of the words that are results.
    """
    inputs: int
    results: tuple[int, ...]
    words: tuple[tuple[int, int] | None, ...]

    @property
    def arena(self) -> int:
        """The number of the arena's word."""
        return self.inputs + len(self.results)


def table(lowered: Lowered) -> Table:
    """The layout of the table of a lowered program."""
    return table_of(lowered.fused, lowered.memory)


def table_of(fused: Fused, plan: MemoryPlan) -> Table:
    """The layout of the table of a program, or of a loop's body, whose memory is planned."""
    offsets = plan.offsets
    inputs = {slot: number for number, slot in reversed(list(enumerate(fused.inputs)))}
    results = tuple(dict.fromkeys(slot for slot in fused.outputs if slot not in inputs))
    numbers = inputs | {slot: len(fused.inputs) + number for number, slot in enumerate(results)}
    arena = len(fused.inputs) + len(results)
    words: list[tuple[int, int] | None] = []
    for slot in range(len(fused.slots)):
        offset = offsets[slot]
        words.append((numbers[slot], 0) if slot in numbers else None if offset is None else (arena, offset))
    return Table(len(fused.inputs), results, tuple(words))


class Loaded(ABC):
    """A program loaded on its device. `arena_bytes`: how much memory the arena's word must stand for."""

    __slots__ = ("lowered", "arena_bytes")
    lowered: Lowered
    arena_bytes: int

    @abstractmethod
    def run(self, words: bytes) -> None:
        """Run the whole program once. `words`: the table, as native 64-bit integers."""

    @abstractmethod
    def profile(self, words: bytes) -> list[float]:
        """Run the program launch by launch; the seconds that each took."""


class Backend(ABC):
    """A device.

    host: the host may read and write the device's memory at the addresses that stand in the table.
    lowers: programs are lowered before `compile`; otherwise `Lowered` holds no launches (the reference executes
    Programs).
    """

    name: str
    host: bool = False
    lowers: bool = True

    @abstractmethod
    def target(self) -> Target:
        """The facts that lowering may know of this device."""

    @abstractmethod
    def render(self, code: InstructionList) -> str:
        """The source of one kernel, in the backend's language."""

    @abstractmethod
    def assembly(self, code: InstructionList) -> str:
        """The machine code of one kernel as text, as far as the device's tools show it."""

    def prepare(self, code: InstructionList, store: ObjectStore) -> None:  # noqa: B027  (optional)
        """Begin to compile a kernel, in the background, that `compile` will be asked for; may do nothing."""

    @abstractmethod
    def compile(self, lowered: Lowered, store: ObjectStore) -> Loaded:
        """Render, compile and load a program. Raises CompilationError."""

    @abstractmethod
    def allocate(self, nbytes: int) -> tuple[int, Any]:
        """New memory: its address (aligned to 64 bytes) or handle, and what keeps it alive. Raises DeviceError."""

    @abstractmethod
    def write(self, word: int, array: np.ndarray) -> None:
        """Copy a host array into the device's memory."""

    @abstractmethod
    def read(self, word: int, owner: Any, type: Type) -> np.ndarray:
        """The array of this type at `word`: a read-only view that keeps `owner` alive (`host`), else a copy."""

    def synchronize(self) -> None:  # noqa: B027  (a backend that runs synchronously has nothing to do)
        """Wait until everything that was started has finished. Nothing to do where `run` returns when it is done."""


class _Holder:
    """Makes NumPy see memory at an address; NumPy keeps this object, which keeps the memory, alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, owner: Any, nbytes: int, writable: bool):
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, not writable)}
        self.owner = owner


def host_view(address: int, owner: Any, type: Type, writable: bool = False) -> np.ndarray:
    """A NumPy array over memory of this process, which keeps `owner` alive."""
    flat = np.asarray(_Holder(address, owner, type.nbytes, writable))
    return flat.view(type.dtype).reshape(type.shape)


class HostBackend(Backend):
    """Shared by the backends whose memory is the process's own."""

    host = True

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        try:
            raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        except MemoryError as error:
            raise DeviceError(f"device {self.name!r} has no {nbytes} bytes of memory left.") from error
        address = raw.ctypes.data
        return address + (-address) % ALIGNMENT, raw

    def write(self, word: int, array: np.ndarray) -> None:
        if array.nbytes <= SMALL_BYTES:   # three times as fast as making a view
            ctypes.memmove(word, array.tobytes(), array.nbytes)
        else:
            shape = Type(array.shape, array.dtype)
            np.copyto(host_view(word, None, shape, writable=True), array)

    def read(self, word: int, owner: Any, type: Type) -> np.ndarray:
        return host_view(word, owner, type)
