"""LLVM at work beside Python: kernels are compiled by native threads while the next kernels are still being lowered.

A thread that runs Python would wait up to 5 ms for the interpreter's lock after every call into LLVM, because lowering
keeps the lock busy. So the two calls that take long, running the passes and emitting the object, are made by threads
that never touch Python: they take jobs from a list, each a row of words with the two functions' addresses and their
operands, and end when the list is empty. Everything else about a job is done by the Python thread that submits it and
waits for it.

The text is appended to the launcher's module (`threads.py`), whose declarations it uses.
"""
from __future__ import annotations

EXPORTS = ("fungrad_submit", "fungrad_wait", "fungrad_reset_jobs")

# Words of a job. The first six are set by the submitter; message and buffer are the second call's results.
WORDS = ("run", "passes", "module", "builder", "emit", "machine", "message", "buffer", "done", "next")

TEXT = """
declare i32 @pthread_detach(ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)

@jobs_mutex = internal global [256 x i8] zeroinitializer, align 128
@jobs_done = internal global [256 x i8] zeroinitializer, align 128
@jobs_head = internal global ptr null
@jobs_tail = internal global ptr null
@jobs_threads = internal global i64 0

; At load and in the child of a fork.
define void @fungrad_reset_jobs() {
  store ptr null, ptr @jobs_head
  store ptr null, ptr @jobs_tail
  store i64 0, ptr @jobs_threads
  call void @llvm.memset.p0.i64(ptr @jobs_mutex, i8 0, i64 256, i1 false)
  call void @llvm.memset.p0.i64(ptr @jobs_done, i8 0, i64 256, i1 false)
  call i32 @pthread_mutex_init(ptr @jobs_mutex, ptr null)
  call i32 @pthread_cond_init(ptr @jobs_done, ptr null)
  ret void
}

; Puts a job at the list's end and starts a thread, unless `limit` are running. 0: no thread could be started.
define i64 @fungrad_submit(ptr %job, i64 %limit) {
entry:
  %attributes = alloca [256 x i8], align 16
  %id = alloca ptr, align 8
  %next = getelementptr i64, ptr %job, i64 9
  store ptr null, ptr %next
  call i32 @pthread_mutex_lock(ptr @jobs_mutex)
  %tail = load ptr, ptr @jobs_tail
  %empty = icmp eq ptr %tail, null
  br i1 %empty, label %first, label %append
first:
  store ptr %job, ptr @jobs_head
  br label %listed
append:
  %tail_next = getelementptr i64, ptr %tail, i64 9
  store ptr %job, ptr %tail_next
  br label %listed
listed:
  store ptr %job, ptr @jobs_tail
  %running = load i64, ptr @jobs_threads
  %enough = icmp sge i64 %running, %limit
  br i1 %enough, label %out, label %start
start:
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 8388608)
  %error = call i32 @pthread_create(ptr %id, ptr %attributes, ptr @jobs_work, ptr null)
  call i32 @pthread_attr_destroy(ptr %attributes)
  %bad = icmp ne i32 %error, 0
  br i1 %bad, label %failed, label %started
started:
  %thread = load ptr, ptr %id
  call i32 @pthread_detach(ptr %thread)
  %more = add i64 %running, 1
  store i64 %more, ptr @jobs_threads
  br label %out
failed:
  %none = icmp eq i64 %running, 0
  br i1 %none, label %withdraw, label %out
withdraw:
  store ptr null, ptr @jobs_head
  store ptr null, ptr @jobs_tail
  call i32 @pthread_mutex_unlock(ptr @jobs_mutex)
  ret i64 0
out:
  call i32 @pthread_mutex_unlock(ptr @jobs_mutex)
  ret i64 1
}

define void @fungrad_wait(ptr %job) {
entry:
  %done_at = getelementptr i64, ptr %job, i64 8
  call i32 @pthread_mutex_lock(ptr @jobs_mutex)
  br label %test
test:
  %done = load i64, ptr %done_at
  %finished = icmp ne i64 %done, 0
  br i1 %finished, label %out, label %wait
wait:
  call i32 @pthread_cond_wait(ptr @jobs_done, ptr @jobs_mutex)
  br label %test
out:
  call i32 @pthread_mutex_unlock(ptr @jobs_mutex)
  ret void
}

define internal ptr @jobs_work(ptr %unused) {
entry:
  %mask = alloca [256 x i8], align 16
  call i32 @sigfillset(ptr %mask)
  call i32 @pthread_sigmask(i32 $SIGBLOCK, ptr %mask, ptr null)
  br label %look
look:
  call i32 @pthread_mutex_lock(ptr @jobs_mutex)
  %job = load ptr, ptr @jobs_head
  %empty = icmp eq ptr %job, null
  br i1 %empty, label %leave, label %take
leave:
  %running = load i64, ptr @jobs_threads
  %fewer = sub i64 %running, 1
  store i64 %fewer, ptr @jobs_threads
  call i32 @pthread_mutex_unlock(ptr @jobs_mutex)
  ret ptr null
take:
  %next_at = getelementptr i64, ptr %job, i64 9
  %next = load ptr, ptr %next_at
  store ptr %next, ptr @jobs_head
  %was_last = icmp eq ptr %next, null
  br i1 %was_last, label %last, label %taken
last:
  store ptr null, ptr @jobs_tail
  br label %taken
taken:
  call i32 @pthread_mutex_unlock(ptr @jobs_mutex)
  %run = load ptr, ptr %job
  %passes_at = getelementptr i64, ptr %job, i64 1
  %passes = load ptr, ptr %passes_at
  %module_at = getelementptr i64, ptr %job, i64 2
  %module = load ptr, ptr %module_at
  %builder_at = getelementptr i64, ptr %job, i64 3
  %builder = load ptr, ptr %builder_at
  call void %run(ptr %passes, ptr %module, ptr %builder)
  %emit_at = getelementptr i64, ptr %job, i64 4
  %emit = load ptr, ptr %emit_at
  %machine_at = getelementptr i64, ptr %job, i64 5
  %machine = load ptr, ptr %machine_at
  %message_at = getelementptr i64, ptr %job, i64 6
  %buffer = call ptr %emit(ptr %machine, ptr %module, i32 1, ptr %message_at)
  %buffer_at = getelementptr i64, ptr %job, i64 7
  store ptr %buffer, ptr %buffer_at
  call i32 @pthread_mutex_lock(ptr @jobs_mutex)
  %done_at = getelementptr i64, ptr %job, i64 8
  store i64 1, ptr %done_at
  call i32 @pthread_cond_broadcast(ptr @jobs_done)
  call i32 @pthread_mutex_unlock(ptr @jobs_mutex)
  br label %look
}
"""
