"""The native side of a call on the CPU: one function that runs a list of launches, and the thread pool under it.

Both are written in LLVM IR and compiled once (the object lies in the disk cache), so that a whole program costs one
foreign call and a parallel kernel needs no lock, no allocation and, while the pool is warm, no system call.

    void execute(i64* program, ptr* table)
        program: count, arena word, offset of the caller's scratch in the arena, greatest number of buffers,
                 then for every launch: kernel, extent, scratch bytes, helpers, buffers, (word, offset) for each buffer
        kernel:  void (ptr* buffers, ptr scratch, i64 begin, i64 end)

A null kernel marks a loop or choice (`loops.py`).

A launch with `helpers` 0 runs in the calling thread. Otherwise its range is cut into blocks that the caller and up to
`helpers` workers take from a shared counter, so a busy core takes fewer and delays nobody; a caller that finds the pool
in use by another thread runs its launch alone.

How a job is handed over: `state` holds a generation (high half), an `open` bit and the number of workers inside. The
caller writes the job, then opens it under a new generation; a worker enters by adding one to an open state. When no
block is left the caller closes the state, after which nobody enters, and waits for those inside. So a worker that
wakes late never touches a job that is over, and the caller never waits for one that has not come.

Idle workers spin for `SPIN_NANOSECONDS`, then sleep on a condition variable. `sleepers` and `state` are written and
read in opposite orders by the two sides, sequentially consistent, so that no wake-up is lost.
"""
from __future__ import annotations

import signal
import sys
import time

from . import jobs, loops

SPIN_NANOSECONDS = 30_000
BLOCKS_PER_THREAD = 8
MOST_THREADS = 256
EXPORTS = ("fungrad_execute", "fungrad_set_threads", "fungrad_initialize", "fungrad_stop", "fungrad_workers",
           *jobs.EXPORTS)


def has_pthreads() -> bool:
    """Whether the pool can run here; elsewhere launches run in the calling thread."""
    return sys.platform != "win32"


def module_text(machine: str) -> str:
    """The LLVM IR of `execute`, the pool and the jobs (`jobs.py`) for a machine ("x86_64", "arm64", ...)."""
    if not has_pthreads():
        return _EXECUTE + loops.TEXT + _NO_POOL
    x86, arm = "call void @llvm.x86.sse2.pause()", "call void @llvm.aarch64.hint(i32 1)"
    pause = {"x86_64": x86, "AMD64": x86, "aarch64": arm, "arm64": arm}.get(machine, "")
    declare = pause.replace("call", "declare").replace("(i32 1)", "(i32)")
    text = _EXECUTE + loops.TEXT + _POOL + jobs.TEXT
    values = {"PAUSE": pause, "DECLARE": declare, "CLOCK": int(time.CLOCK_MONOTONIC), "SIGBLOCK": int(signal.SIG_BLOCK),
              "SPIN": SPIN_NANOSECONDS, "BLOCKS": BLOCKS_PER_THREAD, "MOST": MOST_THREADS}
    for name, value in values.items():
        text = text.replace("$" + name, str(value))
    return text


_EXECUTE = """
define void @fungrad_execute(ptr %program, ptr %table) {
entry:
  %count = load i64, ptr %program
  %p1 = getelementptr i64, ptr %program, i64 1
  %arena_word = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %program, i64 2
  %scratch_offset = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %program, i64 3
  %most = load i64, ptr %p3
  %first = getelementptr i64, ptr %program, i64 4
  %arena_at = getelementptr ptr, ptr %table, i64 %arena_word
  %arena = load ptr, ptr %arena_at
  %scratch = getelementptr i8, ptr %arena, i64 %scratch_offset
  %buffers = alloca ptr, i64 %most, align 8
  %empty = icmp sle i64 %count, 0
  br i1 %empty, label %done, label %launch
launch:
  %number = phi i64 [0, %entry], [%number_next, %next]
  %command = phi ptr [%first, %entry], [%command_next, %next]
  %kernel = load ptr, ptr %command
  %special = icmp eq ptr %kernel, null
  br i1 %special, label %control, label %plain
control:
  %control_next = call ptr @fungrad_control(ptr %command, ptr %table)
  br label %next
plain:
  %c1 = getelementptr i64, ptr %command, i64 1
  %extent = load i64, ptr %c1
  %c2 = getelementptr i64, ptr %command, i64 2
  %scratch_bytes = load i64, ptr %c2
  %c3 = getelementptr i64, ptr %command, i64 3
  %helpers = load i64, ptr %c3
  %c4 = getelementptr i64, ptr %command, i64 4
  %n = load i64, ptr %c4
  %operands = getelementptr i64, ptr %command, i64 5
  %none = icmp sle i64 %n, 0
  br i1 %none, label %filled, label %fill
fill:
  %i = phi i64 [0, %plain], [%i_next, %fill]
  %twice = shl i64 %i, 1
  %word_at = getelementptr i64, ptr %operands, i64 %twice
  %word = load i64, ptr %word_at
  %offset_at = getelementptr i64, ptr %word_at, i64 1
  %offset = load i64, ptr %offset_at
  %base_at = getelementptr ptr, ptr %table, i64 %word
  %base = load ptr, ptr %base_at
  %pointer = getelementptr i8, ptr %base, i64 %offset
  %buffer_at = getelementptr ptr, ptr %buffers, i64 %i
  store ptr %pointer, ptr %buffer_at
  %i_next = add i64 %i, 1
  %more = icmp slt i64 %i_next, %n
  br i1 %more, label %fill, label %filled
filled:
  %alone = icmp sle i64 %helpers, 0
  br i1 %alone, label %direct, label %pool
direct:
  call void %kernel(ptr %buffers, ptr %scratch, i64 0, i64 %extent)
  br label %ran
pool:
  call void @parallel(ptr %kernel, ptr %buffers, ptr %scratch, i64 %extent, i64 %scratch_bytes, i64 %helpers)
  br label %ran
ran:
  %n2 = shl i64 %n, 1
  %launch_next = getelementptr i64, ptr %operands, i64 %n2
  br label %next
next:
  %command_next = phi ptr [%control_next, %control], [%launch_next, %ran]
  %number_next = add i64 %number, 1
  %again = icmp slt i64 %number_next, %count
  br i1 %again, label %launch, label %done
done:
  ret void
}
"""

_NO_POOL = """
define internal void @parallel(ptr %kernel, ptr %buffers, ptr %scratch, i64 %extent, i64 %scratch_bytes, i64 %helpers) {
  call void %kernel(ptr %buffers, ptr %scratch, i64 0, i64 %extent)
  ret void
}
define void @fungrad_set_threads(i64 %n) { ret void }
define void @fungrad_initialize() { ret void }
define void @fungrad_stop() { ret void }
define i64 @fungrad_workers() { ret i64 0 }
define i64 @fungrad_submit(ptr %job, i64 %limit) { ret i64 0 }
define void @fungrad_wait(ptr %job) { ret void }
define void @fungrad_reset_jobs() { ret void }
"""

_POOL = """
$DECLARE
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(ptr, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @clock_gettime(i32, ptr)

; Each on cache lines of its own: workers hammer `state` and `next`.
@state = internal global [16 x i64] zeroinitializer, align 128
@next = internal global [16 x i64] zeroinitializer, align 128
@busy = internal global [16 x i64] zeroinitializer, align 128
@sleepers = internal global [16 x i64] zeroinitializer, align 128
@waiting = internal global [16 x i64] zeroinitializer, align 128
; kernel, buffers, extent, grain, scratch bytes
@job = internal global [16 x i64] zeroinitializer, align 128
@threads = internal global i64 1, align 128
@started = internal global i64 0
@stopping = internal global i64 0
@ids = internal global [$MOST x ptr] zeroinitializer
@mutex = internal global [256 x i8] zeroinitializer, align 128
@wake = internal global [256 x i8] zeroinitializer, align 128
@finished = internal global [256 x i8] zeroinitializer, align 128

define void @fungrad_set_threads(i64 %n) {
  %small = icmp slt i64 %n, $MOST
  %m = select i1 %small, i64 %n, i64 $MOST
  store i64 %m, ptr @threads
  ret void
}

define i64 @fungrad_workers() {
  %n = load i64, ptr @started
  ret i64 %n
}

; At load, and in the child of a fork, where no worker lives and a lock may have been held.
define void @fungrad_initialize() {
  store i64 0, ptr @state
  store i64 0, ptr @next
  store i64 0, ptr @busy
  store i64 0, ptr @sleepers
  store i64 0, ptr @waiting
  store i64 0, ptr @started
  store i64 0, ptr @stopping
  call void @llvm.memset.p0.i64(ptr @mutex, i8 0, i64 256, i1 false)
  call void @llvm.memset.p0.i64(ptr @wake, i8 0, i64 256, i1 false)
  call void @llvm.memset.p0.i64(ptr @finished, i8 0, i64 256, i1 false)
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @wake, ptr null)
  call i32 @pthread_cond_init(ptr @finished, ptr null)
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Ends the workers, unless a job is running. At exit, and before the number of threads shrinks.
define void @fungrad_stop() {
entry:
  %taken = cmpxchg ptr @busy, i64 0, i64 1 seq_cst seq_cst
  %ours = extractvalue { i64, i1 } %taken, 1
  br i1 %ours, label %own, label %leave
own:
  call i32 @pthread_mutex_lock(ptr @mutex)
  store atomic i64 1, ptr @stopping seq_cst, align 8
  call i32 @pthread_cond_broadcast(ptr @wake)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %count = load i64, ptr @started
  br label %test
test:
  %i = phi i64 [0, %own], [%i_next, %join]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %join, label %gone
join:
  %id_at = getelementptr ptr, ptr @ids, i64 %i
  %id = load ptr, ptr %id_at
  call i32 @pthread_join(ptr %id, ptr null)
  %i_next = add i64 %i, 1
  br label %test
gone:
  store i64 0, ptr @started
  store i64 0, ptr @sleepers
  store atomic i64 0, ptr @stopping seq_cst, align 8
  store atomic i64 0, ptr @busy seq_cst, align 8
  br label %leave
leave:
  ret void
}

define internal i64 @now() {
  %time = alloca [2 x i64], align 8
  call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %second = getelementptr i64, ptr %time, i64 1
  %nanoseconds = load i64, ptr %second
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanoseconds
  ret i64 %sum
}

; Runs blocks of the open job until none is left.
define internal void @take(ptr %scratch) {
entry:
  %kernel = load ptr, ptr @job
  %j1 = getelementptr i64, ptr @job, i64 1
  %buffers = load ptr, ptr %j1
  %j2 = getelementptr i64, ptr @job, i64 2
  %extent = load i64, ptr %j2
  %j3 = getelementptr i64, ptr @job, i64 3
  %grain = load i64, ptr %j3
  br label %again
again:
  %begin = atomicrmw add ptr @next, i64 %grain monotonic
  %some = icmp slt i64 %begin, %extent
  br i1 %some, label %block, label %out
block:
  %whole = add i64 %begin, %grain
  %inside = icmp slt i64 %whole, %extent
  %end = select i1 %inside, i64 %whole, i64 %extent
  call void %kernel(ptr %buffers, ptr %scratch, i64 %begin, i64 %end)
  br label %again
out:
  ret void
}

; Waits until a generation other than `seen` is open (returns the state) or the pool stops (returns 0).
define internal i64 @await(i64 %seen) {
entry:
  %start = call i64 @now()
  br label %spin
spin:
  %round = phi i64 [0, %entry], [%round_next, %idle]
  %s = load atomic i64, ptr @state seq_cst, align 8
  %open = trunc i64 %s to i32
  %is_open = icmp slt i32 %open, 0
  %generation = lshr i64 %s, 32
  %fresh = icmp ne i64 %generation, %seen
  %go = and i1 %is_open, %fresh
  br i1 %go, label %found, label %idle_test
found:
  ret i64 %s
idle_test:
  %low = and i64 %round, 15
  %look = icmp eq i64 %low, 15
  br i1 %look, label %clock, label %idle
clock:
  %time = call i64 @now()
  %spent = sub i64 %time, %start
  %over = icmp sgt i64 %spent, $SPIN
  br i1 %over, label %sleep, label %idle
idle:
  $PAUSE
  %round_next = add i64 %round, 1
  br label %spin
sleep:
  call i32 @pthread_mutex_lock(ptr @mutex)
  %before = atomicrmw add ptr @sleepers, i64 1 seq_cst
  br label %check
check:
  %s2 = load atomic i64, ptr @state seq_cst, align 8
  %open2 = trunc i64 %s2 to i32
  %is_open2 = icmp slt i32 %open2, 0
  %generation2 = lshr i64 %s2, 32
  %fresh2 = icmp ne i64 %generation2, %seen
  %go2 = and i1 %is_open2, %fresh2
  %stop = load atomic i64, ptr @stopping seq_cst, align 8
  %stops = icmp ne i64 %stop, 0
  %leave = or i1 %go2, %stops
  br i1 %leave, label %awake, label %wait
wait:
  call i32 @pthread_cond_wait(ptr @wake, ptr @mutex)
  br label %check
awake:
  %after = atomicrmw sub ptr @sleepers, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %result = select i1 %stops, i64 0, i64 %s2
  ret i64 %result
}

define internal ptr @worker(ptr %first_seen) {
entry:
  %mask = alloca [256 x i8], align 16
  %block_at = alloca ptr, align 8
  call i32 @sigfillset(ptr %mask)
  call i32 @pthread_sigmask(i32 $SIGBLOCK, ptr %mask, ptr null)
  %initial = ptrtoint ptr %first_seen to i64
  br label %idle
idle:
  %seen = phi i64 [%initial, %entry], [%generation, %left]
  %scratch = phi ptr [null, %entry], [%scratch_now, %left]
  %scratch_size = phi i64 [0, %entry], [%size_now, %left]
  br label %await
await:
  %s0 = call i64 @await(i64 %seen)
  %stops = icmp eq i64 %s0, 0
  br i1 %stops, label %stop, label %enter
enter:
  %s = phi i64 [%s0, %await], [%found, %retry]
  %one_more = add i64 %s, 1
  %pair = cmpxchg ptr @state, i64 %s, i64 %one_more seq_cst seq_cst
  %entered = extractvalue { i64, i1 } %pair, 1
  br i1 %entered, label %inside, label %again
again:
  %found = extractvalue { i64, i1 } %pair, 0
  %low = trunc i64 %found to i32
  %still_open = icmp slt i32 %low, 0
  %found_generation = lshr i64 %found, 32
  %fresh = icmp ne i64 %found_generation, %seen
  %try = and i1 %still_open, %fresh
  br i1 %try, label %retry, label %await
retry:
  br label %enter
inside:
  %generation = lshr i64 %s, 32
  %need_at = getelementptr i64, ptr @job, i64 4
  %need = load i64, ptr %need_at
  %small = icmp sgt i64 %need, %scratch_size
  br i1 %small, label %grow, label %work
grow:
  call void @free(ptr %scratch)
  %error = call i32 @posix_memalign(ptr %block_at, i64 128, i64 %need)
  %grown = load ptr, ptr %block_at
  %bad = icmp ne i32 %error, 0
  br i1 %bad, label %no_memory, label %work
no_memory:
  br label %leave
work:
  %scratch_work = phi ptr [%scratch, %inside], [%grown, %grow]
  %size_work = phi i64 [%scratch_size, %inside], [%need, %grow]
  call void @take(ptr %scratch_work)
  br label %leave
leave:
  %scratch_now = phi ptr [%scratch_work, %work], [null, %no_memory]
  %size_now = phi i64 [%size_work, %work], [0, %no_memory]
  %old = atomicrmw sub ptr @state, i64 1 seq_cst
  %old_low = trunc i64 %old to i32
  %last = icmp eq i32 %old_low, 1
  br i1 %last, label %tell, label %left
tell:
  %sleeping = load atomic i64, ptr @waiting seq_cst, align 8
  %nobody = icmp eq i64 %sleeping, 0
  br i1 %nobody, label %left, label %signal
signal:
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_cond_signal(ptr @finished)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %left
left:
  br label %idle
stop:
  call void @free(ptr %scratch)
  ret ptr null
}

; Brings the number of workers up to threads - 1. Called by the owner of `busy` while no job is open.
define internal void @start_workers(i64 %wanted) {
entry:
  %s = load i64, ptr @state
  %generation = lshr i64 %s, 32
  %seen = inttoptr i64 %generation to ptr
  br label %test
test:
  %count = load i64, ptr @started
  %missing = icmp slt i64 %count, %wanted
  br i1 %missing, label %create, label %out
create:
  %id_at = getelementptr ptr, ptr @ids, i64 %count
  %error = call i32 @pthread_create(ptr %id_at, ptr null, ptr @worker, ptr %seen)
  %bad = icmp ne i32 %error, 0
  br i1 %bad, label %out, label %count_it
count_it:
  %more = add i64 %count, 1
  store i64 %more, ptr @started
  br label %test
out:
  ret void
}

define internal void @parallel(ptr %kernel, ptr %buffers, ptr %scratch, i64 %extent, i64 %scratch_bytes, i64 %most) {
entry:
  %threads = load i64, ptr @threads
  %others = add i64 %threads, -1
  %fewer = icmp slt i64 %most, %others
  %h0 = select i1 %fewer, i64 %most, i64 %others
  %rest = add i64 %extent, -1
  %short = icmp slt i64 %rest, %h0
  %helpers = select i1 %short, i64 %rest, i64 %h0
  %alone = icmp sle i64 %helpers, 0
  br i1 %alone, label %direct, label %acquire
acquire:
  %taken = cmpxchg ptr @busy, i64 0, i64 1 seq_cst seq_cst
  %ours = extractvalue { i64, i1 } %taken, 1
  br i1 %ours, label %own, label %direct
direct:
  call void %kernel(ptr %buffers, ptr %scratch, i64 0, i64 %extent)
  ret void
own:
  %running = load i64, ptr @started
  %missing = icmp slt i64 %running, %others
  br i1 %missing, label %start, label %ready
start:
  call void @start_workers(i64 %others)
  br label %ready
ready:
  %shares = add i64 %helpers, 1
  %blocks = mul i64 %shares, $BLOCKS
  %up = add i64 %blocks, -1
  %padded = add i64 %extent, %up
  %grain = sdiv i64 %padded, %blocks
  store ptr %kernel, ptr @job
  %j1 = getelementptr i64, ptr @job, i64 1
  store ptr %buffers, ptr %j1
  %j2 = getelementptr i64, ptr @job, i64 2
  store i64 %extent, ptr %j2
  %j3 = getelementptr i64, ptr @job, i64 3
  store i64 %grain, ptr %j3
  %j4 = getelementptr i64, ptr @job, i64 4
  store i64 %scratch_bytes, ptr %j4
  store i64 0, ptr @next
  %s = load atomic i64, ptr @state monotonic, align 8
  %generation = lshr i64 %s, 32
  %g1 = add i64 %generation, 1
  %g2 = shl i64 %g1, 32
  %opened = or i64 %g2, 2147483648
  store atomic i64 %opened, ptr @state seq_cst, align 8
  %asleep = load atomic i64, ptr @sleepers seq_cst, align 8
  %somebody = icmp sgt i64 %asleep, 0
  br i1 %somebody, label %rouse, label %work
rouse:
  call i32 @pthread_mutex_lock(ptr @mutex)
  %fewest = icmp slt i64 %helpers, %asleep
  %calls = select i1 %fewest, i64 %helpers, i64 %asleep
  %crowd = icmp sge i64 %calls, 8
  br i1 %crowd, label %rouse_all, label %rouse_one
rouse_all:
  call i32 @pthread_cond_broadcast(ptr @wake)
  br label %roused_all
rouse_one:
  %roused = phi i64 [0, %rouse], [%roused_next, %rouse_one]
  call i32 @pthread_cond_signal(ptr @wake)
  %roused_next = add i64 %roused, 1
  %again = icmp slt i64 %roused_next, %calls
  br i1 %again, label %rouse_one, label %roused_all
roused_all:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %work
work:
  call void @take(ptr %scratch)
  %old = atomicrmw and ptr @state, i64 -2147483649 seq_cst
  %inside = and i64 %old, 2147483647
  %free_now = icmp eq i64 %inside, 0
  br i1 %free_now, label %done, label %linger
linger:
  %begun = call i64 @now()
  br label %spin
spin:
  %round = phi i64 [0, %linger], [%round_next, %idle]
  %t = load atomic i64, ptr @state seq_cst, align 8
  %still = trunc i64 %t to i32
  %none = icmp eq i32 %still, 0
  br i1 %none, label %done, label %idle_test
idle_test:
  %low = and i64 %round, 15
  %look = icmp eq i64 %low, 15
  br i1 %look, label %clock, label %idle
clock:
  %time = call i64 @now()
  %spent = sub i64 %time, %begun
  %over = icmp sgt i64 %spent, $SPIN
  br i1 %over, label %sleep, label %idle
idle:
  $PAUSE
  %round_next = add i64 %round, 1
  br label %spin
sleep:
  call i32 @pthread_mutex_lock(ptr @mutex)
  store atomic i64 1, ptr @waiting seq_cst, align 8
  br label %check
check:
  %u = load atomic i64, ptr @state seq_cst, align 8
  %left = trunc i64 %u to i32
  %gone = icmp eq i32 %left, 0
  br i1 %gone, label %awake, label %wait
wait:
  call i32 @pthread_cond_wait(ptr @finished, ptr @mutex)
  br label %check
awake:
  store atomic i64 0, ptr @waiting seq_cst, align 8
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %done
done:
  store atomic i64 0, ptr @busy seq_cst, align 8
  ret void
}
"""
