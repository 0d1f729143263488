"""Loops and choices on the CPU: their commands in a program's list of launches, and the native code that runs them.

A body is a program of its own, with a table of its own: its inputs, its outputs, its arena, and the scratch memory
that it shares with the program around it. A loop fills the body's table before each iteration: an entry is a word of
the outer table, plus an offset, plus a stride times the iteration's number (a slice of xs or ys). A carry is written
alternately to the place of the result and to a second one, the last time to the place of the result, so that nothing
is copied. A carry that is updated in place is copied to the place of the result once, at the start, and stays there.

    command: 0, its number of words, kind (0 scan, 1 while, 2 cond), then
    scan:  body, length, reverse, words of its table, carries, bindings, carries in place, [bindings], [carries],
           [carries in place]
    while: body, condition, flag (word, offset), words of the body's table, of the condition's, carries, bindings of the
           body, of the condition, carries in place, [bindings of the body], [bindings of the condition], [carries],
           [carries in place]
    cond:  branches, index (word, offset), then for each branch: program, words, bindings, place of its first binding
           in the command; [bindings]
    binding: inner word, outer word, offset, stride
    carry:   inner words of input, output and the condition's input; (word, offset) of the first value, of the
             result, of the second place; bytes
"""
from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.instructions import InstructionList
from ..ir.kernel import Control, Fused
from ..ir.lowered import Lowered, MemoryPlan
from ..ir.types import Type
from .base import Table, table_of

Place = tuple[int, int]   # (word, offset)
Command = Callable[[InstructionList, Sequence[Place]], bytes]


@dataclass(frozen=True, slots=True)
class Blob:
    """A program in memory: `buffer` for the whole, `singles` with one command each."""
    buffer: Any
    singles: tuple[Blob, ...] = ()

    @property
    def address(self) -> int:
        return ctypes.addressof(self.buffer)


class Encoder:
    """Writes a lowered program as commands. `kept`: the bodies' blobs, which the program refers to by address."""

    def __init__(self, lowered: Lowered, command: Command) -> None:
        self.lowered = lowered
        self.kernel_command = command
        self.code: Iterator[InstructionList] = iter(lowered.code)
        self.kept: list[Blob] = []

    def whole(self, layout: Table, scratch_offset: int) -> Blob:
        """The blob of the program itself."""
        scratch = layout.arena, scratch_offset
        commands, most = self._commands(self.lowered.fused, self.lowered.memory, layout, (layout.arena, 0), scratch)
        return Blob(
            _blob(commands, scratch, most), tuple([Blob(_blob([command], scratch, most)) for command in commands])
        )

    def _commands(
        self, fused: Fused, plan: MemoryPlan, layout: Table, arena: Place, scratch: Place
    ) -> tuple[list[bytes], int]:
        commands, most = [], 0
        nested = iter(plan.nested)
        for launch in fused.launches:
            places = [layout.words[slot] or (0, 0) for slot in launch.slots]
            if not isinstance(launch, Control):
                most = max(most, len(places))
                commands.append(self.kernel_command(next(self.code), places))
                continue
            offset, plans = next(nested)
            inner = arena[0], arena[1] + offset
            bodies = [self._body(body, body_plan) for body, body_plan in zip(launch.bodies, plans, strict=True)]
            words = _ENCODE[launch.kind](launch, bodies, fused.slots, places, inner, scratch)
            commands.append(struct.pack(f"{len(words) + 2}q", 0, len(words) + 2, *words))
        return commands, most

    def _body(self, fused: Fused, plan: MemoryPlan) -> tuple[Fused, int]:
        """A body and the address of its blob. Its table: inputs, outputs, arena, scratch."""
        layout = table_of(fused, plan)
        commands, most = self._commands(fused, plan, layout, (layout.arena, 0), (layout.arena + 1, 0))
        blob = Blob(_blob(commands, (layout.arena + 1, 0), most))
        self.kept.append(blob)
        return fused, blob.address


def _blob(commands: Sequence[bytes], scratch: Place, most: int) -> Any:
    data = struct.pack("4q", len(commands), *scratch, most) + b"".join(commands)
    return ctypes.create_string_buffer(data, len(data))


Binding = tuple[int, int, int, int]
Bodies = Sequence[tuple[Fused, int]]


def _words_of(body: Fused, launch: Control | None = None) -> int:
    """The words of a body's table: inputs, outputs that are no inputs, arena, scratch."""
    return len(body.inputs) + len(body.outputs) - (len(launch.in_place) if launch else 0) + 2


def _output_word(body: Fused, in_place: Sequence[int]) -> list[int]:
    """The word of each output (of one that is updated in place: the next one's, to be ignored)."""
    words, word = [], len(body.inputs)
    for number in range(len(body.outputs)):
        words.append(word)
        word += number not in in_place
    return words


def _by_place(rows: Sequence[tuple[int, ...]], launch: Control) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The rows of carries that are written to two places in turn, and of those that are updated in place."""
    return ([row for number, row in enumerate(rows) if number not in launch.in_place],
            [row for number, row in enumerate(rows) if number in launch.in_place])


def _bound(first: int, places: Sequence[Place], strides: Sequence[int]) -> list[Binding]:
    return [(first + i, *place, stride) for i, (place, stride) in enumerate(zip(places, strides, strict=True))]


def _memory(body: Fused, launch: Control | None, arena: Place, scratch: Place) -> list[Binding]:
    """The bindings of a body's arena and scratch."""
    first = _words_of(body, launch) - 2
    return [(first, *arena, 0), (first + 1, *scratch, 0)]


def _flat(rows: Sequence[tuple[int, ...]]) -> list[int]:
    return [value for row in rows for value in row]


def _parts(launch: Control, places: Sequence[Place]) -> tuple[list[Place], list[Place], list[Place]]:
    """The places of outputs, inputs and the loop's own memory."""
    last = launch.outputs + launch.inputs
    return list(places[:launch.outputs]), list(places[launch.outputs:last]), list(places[last:])


def _scan(launch: Control, bodies: Bodies, slots: Sequence[Type], places: Sequence[Place], arena: Place,
          scratch: Place) -> list[int]:
    (body, address), = bodies
    results, operands, second = _parts(launch, places)
    consts, carry = launch.consts[0], launch.carry
    first = _output_word(body, launch.in_place)
    xs = [body.slots[slot].nbytes for slot in body.inputs[consts + carry:]]
    ys = [body.slots[slot].nbytes for slot in body.outputs[carry:]]
    bindings = _bound(0, operands[:consts], [0] * consts)
    bindings += _bound(consts + carry, operands[consts + carry:], xs)
    bindings += _bound(first[carry] if ys else 0, results[carry:], ys)
    bindings += [(consts + i, *results[i], 0) for i in launch.in_place]
    bindings += _memory(body, launch, arena, scratch)
    rows = [
        (consts + i, first[i], 0, *operands[consts + i], *results[i], *second[i], body.slots[body.outputs[i]].nbytes)
        for i in range(carry)
    ]
    moving, fixed = _by_place(rows, launch)
    head = [0, address, launch.length, int(launch.reverse), _words_of(body, launch)]
    return [*head, len(moving), len(bindings), len(fixed), *_flat(bindings), *_flat(moving), *_flat(fixed)]


def _while(launch: Control, bodies: Bodies, slots: Sequence[Type], places: Sequence[Place], arena: Place,
           scratch: Place) -> list[int]:
    (condition, condition_address), (body, address) = bodies
    results, operands, own = _parts(launch, places)
    (first, second), carry = launch.consts, launch.carry
    of_body = [*_bound(0, operands[first:first + second], [0] * second),
               *[(second + i, *results[i], 0) for i in launch.in_place], *_memory(body, launch, arena, scratch)]
    of_condition = [*_bound(0, operands[:first], [0] * first), (len(condition.inputs), *own[-1], 0),
                    *[(first + i, *results[i], 0) for i in launch.in_place], *_memory(condition, None, arena, scratch)]
    start, words = first + second, _output_word(body, launch.in_place)
    rows = [(second + i, words[i], first + i, *operands[start + i], *results[i], *own[i],
             body.slots[body.outputs[i]].nbytes) for i in range(carry)]
    moving, fixed = _by_place(rows, launch)
    head = [1, address, condition_address, *own[-1], _words_of(body, launch), _words_of(condition)]
    counts = [len(moving), len(of_body), len(of_condition), len(fixed)]
    return [*head, *counts, *_flat(of_body), *_flat(of_condition), *_flat(moving), *_flat(fixed)]


def _cond(launch: Control, bodies: Bodies, slots: Sequence[Type], places: Sequence[Place], arena: Place,
          scratch: Place) -> list[int]:
    results, operands, _ = _parts(launch, places)
    index, *values = operands
    words: list[int] = []
    head: list[int] = []
    start = 2 + 4 + 4 * len(bodies)
    for body, address in bodies:
        everything = [*values, *results]
        bindings = [*_bound(0, everything, [0] * len(everything)), *_memory(body, None, arena, scratch)]
        head += [address, _words_of(body), len(bindings), start + len(words)]
        words += _flat(bindings)
    return [2, len(bodies), *index, *head, *words]


_ENCODE = {"scan": _scan, "while": _while, "cond": _cond}


def seconds(lowered: Lowered, alone: Callable[[InstructionList], float]) -> float:
    """A rough estimate of one thread's time for a whole program; infinite where it is unknown."""
    code = iter(lowered.code)

    def of(fused: Fused) -> float:
        total = 0.0
        for launch in fused.launches:
            if not isinstance(launch, Control):
                total += alone(next(code))
                continue
            inside = sum([of(body) for body in launch.bodies])
            total += math.inf if launch.kind == "while" else inside * launch.length if launch.kind == "scan" else inside
        return total
    return of(lowered.fused)


TEXT = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal ptr @place(ptr %table, ptr %pair) alwaysinline {
  %word = load i64, ptr %pair
  %offset_at = getelementptr i64, ptr %pair, i64 1
  %offset = load i64, ptr %offset_at
  %base_at = getelementptr ptr, ptr %table, i64 %word
  %base = load ptr, ptr %base_at
  %at = getelementptr i8, ptr %base, i64 %offset
  ret ptr %at
}

; Fills the entries of a body's table for iteration `it`.
define internal void @bind(ptr %inner, ptr %bindings, i64 %n, ptr %table, i64 %it) {
entry:
  %none = icmp sle i64 %n, 0
  br i1 %none, label %done, label %one
one:
  %i = phi i64 [0, %entry], [%i_next, %one]
  %row = phi ptr [%bindings, %entry], [%row_next, %one]
  %target = load i64, ptr %row
  %pair = getelementptr i64, ptr %row, i64 1
  %start = call ptr @place(ptr %table, ptr %pair)
  %stride_at = getelementptr i64, ptr %row, i64 3
  %stride = load i64, ptr %stride_at
  %moved = mul i64 %stride, %it
  %at = getelementptr i8, ptr %start, i64 %moved
  %entry_at = getelementptr ptr, ptr %inner, i64 %target
  store ptr %at, ptr %entry_at
  %i_next = add i64 %i, 1
  %row_next = getelementptr i64, ptr %row, i64 4
  %more = icmp slt i64 %i_next, %n
  br i1 %more, label %one, label %done
done:
  ret void
}

; Says where each carry is read and written; `odd`: it is written to its second place. `condition` may be null.
define internal void @carry(ptr %inner, ptr %condition, ptr %rows, i64 %n, ptr %table, i1 %first, i1 %odd) {
entry:
  %none = icmp sle i64 %n, 0
  br i1 %none, label %done, label %one
one:
  %i = phi i64 [0, %entry], [%i_next, %next]
  %row = phi ptr [%rows, %entry], [%row_next, %next]
  %start_at = getelementptr i64, ptr %row, i64 3
  %start = call ptr @place(ptr %table, ptr %start_at)
  %result_at = getelementptr i64, ptr %row, i64 5
  %result = call ptr @place(ptr %table, ptr %result_at)
  %second_at = getelementptr i64, ptr %row, i64 7
  %second = call ptr @place(ptr %table, ptr %second_at)
  %to = select i1 %odd, ptr %second, ptr %result
  %other = select i1 %odd, ptr %result, ptr %second
  %from = select i1 %first, ptr %start, ptr %other
  %in = load i64, ptr %row
  %in_at = getelementptr ptr, ptr %inner, i64 %in
  store ptr %from, ptr %in_at
  %o1 = getelementptr i64, ptr %row, i64 1
  %out = load i64, ptr %o1
  %out_at = getelementptr ptr, ptr %inner, i64 %out
  store ptr %to, ptr %out_at
  %lacks = icmp eq ptr %condition, null
  br i1 %lacks, label %next, label %too
too:
  %o2 = getelementptr i64, ptr %row, i64 2
  %c = load i64, ptr %o2
  %c_at = getelementptr ptr, ptr %condition, i64 %c
  store ptr %from, ptr %c_at
  br label %next
next:
  %i_next = add i64 %i, 1
  %row_next = getelementptr i64, ptr %row, i64 10
  %more = icmp slt i64 %i_next, %n
  br i1 %more, label %one, label %done
done:
  ret void
}

; Copies each carry to the place of its result: from its first value (3) or its second place (7).
define internal void @settle(ptr %rows, i64 %n, ptr %table, i64 %source) {
entry:
  %none = icmp sle i64 %n, 0
  br i1 %none, label %done, label %one
one:
  %i = phi i64 [0, %entry], [%i_next, %one]
  %row = phi ptr [%rows, %entry], [%row_next, %one]
  %from_at = getelementptr i64, ptr %row, i64 %source
  %from = call ptr @place(ptr %table, ptr %from_at)
  %result_at = getelementptr i64, ptr %row, i64 5
  %result = call ptr @place(ptr %table, ptr %result_at)
  %bytes_at = getelementptr i64, ptr %row, i64 9
  %bytes = load i64, ptr %bytes_at
  call void @llvm.memcpy.p0.p0.i64(ptr %result, ptr %from, i64 %bytes, i1 false)
  %i_next = add i64 %i, 1
  %row_next = getelementptr i64, ptr %row, i64 10
  %more = icmp slt i64 %i_next, %n
  br i1 %more, label %one, label %done
done:
  ret void
}

define internal i64 @field(ptr %command, i64 %number) alwaysinline {
  %at = getelementptr i64, ptr %command, i64 %number
  %value = load i64, ptr %at
  ret i64 %value
}

define internal void @run_scan(ptr %command, ptr %table) {
entry:
  %body_word = call i64 @field(ptr %command, i64 3)
  %body = inttoptr i64 %body_word to ptr
  %length = call i64 @field(ptr %command, i64 4)
  %backwards = call i64 @field(ptr %command, i64 5)
  %words = call i64 @field(ptr %command, i64 6)
  %carries = call i64 @field(ptr %command, i64 7)
  %n = call i64 @field(ptr %command, i64 8)
  %fixed = call i64 @field(ptr %command, i64 9)
  %reverse = icmp ne i64 %backwards, 0
  %bindings = getelementptr i64, ptr %command, i64 10
  %n4 = shl i64 %n, 2
  %rows = getelementptr i64, ptr %bindings, i64 %n4
  %c10 = mul i64 %carries, 10
  %fixed_rows = getelementptr i64, ptr %rows, i64 %c10
  call void @settle(ptr %fixed_rows, i64 %fixed, ptr %table, i64 3)
  %inner = alloca ptr, i64 %words, align 8
  %last = add i64 %length, -1
  %never = icmp sle i64 %length, 0
  br i1 %never, label %idle, label %step
idle:
  call void @settle(ptr %rows, i64 %carries, ptr %table, i64 3)
  ret void
step:
  %k = phi i64 [0, %entry], [%k_next, %step]
  %left = sub i64 %last, %k
  %it = select i1 %reverse, i64 %left, i64 %k
  call void @bind(ptr %inner, ptr %bindings, i64 %n, ptr %table, i64 %it)
  %first = icmp eq i64 %k, 0
  %odd = trunc i64 %left to i1
  call void @carry(ptr %inner, ptr null, ptr %rows, i64 %carries, ptr %table, i1 %first, i1 %odd)
  call void @fungrad_execute(ptr %body, ptr %inner)
  %k_next = add i64 %k, 1
  %more = icmp slt i64 %k_next, %length
  br i1 %more, label %step, label %done
done:
  ret void
}

define internal void @run_while(ptr %command, ptr %table) {
entry:
  %body_word = call i64 @field(ptr %command, i64 3)
  %body = inttoptr i64 %body_word to ptr
  %condition_word = call i64 @field(ptr %command, i64 4)
  %condition = inttoptr i64 %condition_word to ptr
  %flag_at = getelementptr i64, ptr %command, i64 5
  %flag = call ptr @place(ptr %table, ptr %flag_at)
  %words = call i64 @field(ptr %command, i64 7)
  %condition_words = call i64 @field(ptr %command, i64 8)
  %carries = call i64 @field(ptr %command, i64 9)
  %n = call i64 @field(ptr %command, i64 10)
  %m = call i64 @field(ptr %command, i64 11)
  %fixed = call i64 @field(ptr %command, i64 12)
  %bindings = getelementptr i64, ptr %command, i64 13
  %n4 = shl i64 %n, 2
  %condition_bindings = getelementptr i64, ptr %bindings, i64 %n4
  %m4 = shl i64 %m, 2
  %rows = getelementptr i64, ptr %condition_bindings, i64 %m4
  %c10 = mul i64 %carries, 10
  %fixed_rows = getelementptr i64, ptr %rows, i64 %c10
  call void @settle(ptr %fixed_rows, i64 %fixed, ptr %table, i64 3)
  %inner = alloca ptr, i64 %words, align 8
  %tested = alloca ptr, i64 %condition_words, align 8
  call void @bind(ptr %inner, ptr %bindings, i64 %n, ptr %table, i64 0)
  call void @bind(ptr %tested, ptr %condition_bindings, i64 %m, ptr %table, i64 0)
  br label %test
test:
  %k = phi i64 [0, %entry], [%k_next, %step]
  %first = icmp eq i64 %k, 0
  %odd = trunc i64 %k to i1
  call void @carry(ptr %inner, ptr %tested, ptr %rows, i64 %carries, ptr %table, i1 %first, i1 %odd)
  call void @fungrad_execute(ptr %condition, ptr %tested)
  %answer = load i8, ptr %flag
  %holds = icmp ne i8 %answer, 0
  br i1 %holds, label %step, label %over
step:
  call void @fungrad_execute(ptr %body, ptr %inner)
  %k_next = add i64 %k, 1
  br label %test
over:
  br i1 %first, label %idle, label %ran
idle:
  call void @settle(ptr %rows, i64 %carries, ptr %table, i64 3)
  ret void
ran:
  br i1 %odd, label %done, label %move
move:
  call void @settle(ptr %rows, i64 %carries, ptr %table, i64 7)
  ret void
done:
  ret void
}

define internal void @run_cond(ptr %command, ptr %table) {
  %branches = call i64 @field(ptr %command, i64 3)
  %index_at = getelementptr i64, ptr %command, i64 4
  %index_place = call ptr @place(ptr %table, ptr %index_at)
  %index = load i32, ptr %index_place
  %wide = sext i32 %index to i64
  %negative = icmp slt i64 %wide, 0
  %low = select i1 %negative, i64 0, i64 %wide
  %last = add i64 %branches, -1
  %beyond = icmp sgt i64 %low, %last
  %number = select i1 %beyond, i64 %last, i64 %low
  %skip = shl i64 %number, 2
  %heads = getelementptr i64, ptr %command, i64 6
  %head = getelementptr i64, ptr %heads, i64 %skip
  %body_word = call i64 @field(ptr %head, i64 0)
  %body = inttoptr i64 %body_word to ptr
  %words = call i64 @field(ptr %head, i64 1)
  %n = call i64 @field(ptr %head, i64 2)
  %start = call i64 @field(ptr %head, i64 3)
  %bindings = getelementptr i64, ptr %command, i64 %start
  %inner = alloca ptr, i64 %words, align 8
  call void @bind(ptr %inner, ptr %bindings, i64 %n, ptr %table, i64 0)
  call void @fungrad_execute(ptr %body, ptr %inner)
  ret void
}

; Runs a loop or choice; answers the command after it.
define internal ptr @fungrad_control(ptr %command, ptr %table) {
entry:
  %size = call i64 @field(ptr %command, i64 1)
  %kind = call i64 @field(ptr %command, i64 2)
  %after = getelementptr i64, ptr %command, i64 %size
  switch i64 %kind, label %cond [ i64 0, label %scan
                                  i64 1, label %while ]
scan:
  call void @run_scan(ptr %command, ptr %table)
  ret ptr %after
while:
  call void @run_while(ptr %command, ptr %table)
  ret ptr %after
cond:
  call void @run_cond(ptr %command, ptr %table)
  ret ptr %after
}
"""
