"""What orders memory between the programs of a megakernel beside tagged words, and how they stamp the time.

A program looks at all words (`words`) that it computes with. That is less than the tape's waits where it attends: of
its group's queries it awaits its own. Two counters remain, released and acquired by one thread of each program once a
step: `best` and `token`, which order everything that a step leaves in memory for the next.

A wait of some seconds traps: a deadlock becomes a launch failure instead of a device that never comes back.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

COUNTER_STRIDE = 32
"""int32 words from one counter to the next: 128 bytes, a cache line."""

# Renamed between Triton 3.6 and 3.7.
thread_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


@gluon.jit
def prefetch(pointer, count):
    """One thread asks the L2 for `count` bytes, a multiple of 16."""
    gl.inline_asm_elementwise(
        """{
        .reg .pred first; .reg .u32 thread;
        mov.u32 thread, %tid.x;
        setp.eq.u32 first, thread, 0;
        @first cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.u32 $0, 0;
        }""",
        "=r,l,r,~{memory}",
        [pointer, count],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def signal(counter):
    """Increment once, after all stores of this program so far are visible to whoever acquires the increment."""
    thread_barrier()
    gl.inline_asm_elementwise(
        """{
        .reg .pred first; .reg .u32 thread;
        mov.u32 thread, %tid.x;
        setp.eq.u32 first, thread, 0;
        @first red.release.gpu.global.add.u32 [$1], 1;
        mov.u32 $0, 0;
        }""",
        "=r,l,~{memory}",
        [counter],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def wait(counter, target):
    """Acquire: until the counter has reached `target`. What was stored before the increments is there then."""
    gl.inline_asm_elementwise(
        """{
        .reg .pred other, early, late; .reg .u32 thread, seen, polls; .reg .s32 ahead;
        mov.u32 thread, %tid.x;
        setp.ne.u32 other, thread, 0;
        @other bra RELEASED;
        mov.u32 polls, 0;
        POLL:
        ld.acquire.gpu.global.u32 seen, [$1];
        sub.s32 ahead, seen, $2;
        setp.ge.s32 early, ahead, 0;
        @early bra RELEASED;
        add.u32 polls, polls, 1;
        setp.gt.u32 late, polls, 16777216;
        @late trap;
        bra POLL;
        RELEASED:
        mov.u32 $0, 0;
        }""",
        "=r,l,r,~{memory}",
        [counter, target],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )
    thread_barrier()


@gluon.jit
def stamp(trace, at, TRACE: gl.constexpr):
    """trace[at] = globaltimer in nanoseconds, once all threads of the program are here."""
    if TRACE:
        thread_barrier()
        gl.inline_asm_elementwise(
            """{
            .reg .pred first; .reg .u32 thread; .reg .u64 now;
            mov.u32 thread, %tid.x;
            setp.eq.u32 first, thread, 0;
            mov.u64 now, %globaltimer;
            @first st.global.u64 [$1], now;
            mov.u32 $0, 0;
            }""",
            "=r,l,~{memory}",
            [trace + at],
            dtype=gl.int32,
            is_pure=False,
            pack=1,
        )


@gluon.jit
def stamp_place(trace, at, TRACE: gl.constexpr):
    """trace[at] = number of the multiprocessor, plus 1."""
    if TRACE:
        gl.inline_asm_elementwise(
            """{
            .reg .pred first; .reg .u32 thread, place; .reg .u64 wide;
            mov.u32 thread, %tid.x;
            setp.eq.u32 first, thread, 0;
            mov.u32 place, %smid;
            add.u32 place, place, 1;
            cvt.u64.u32 wide, place;
            @first st.global.u64 [$1], wide;
            mov.u32 $0, 0;
            }""",
            "=r,l,~{memory}",
            [trace + at],
            dtype=gl.int32,
            is_pure=False,
            pack=1,
        )
