"""How the programs of a megakernel hand over to each other, and how they stamp the time.

Activations travel as *tagged words*: the two lowest bits of a float32 say which write of that word it is. A program
that needs a vector loads it, looks at the tags, and loads again what is not there yet; the value and its tag are one
word, so nothing has to be ordered, and nobody waits for a fence. (A store that is followed by a release and a flag, and
a load that follows an acquire, take three trips through a loaded memory system; a tagged word takes one and a half.)
Two of float32's 24 bits are lost; they are masked off on arrival, so that a value does not depend on the number of its
write.

Tags run 1, 2, 3, 1, …, and 0, which is what a poisoned or fresh buffer holds, is never right. Whoever looks at a word
finds the write that it needs or the one before, never an older or a later one: `tag_order` proves that of a tape. It
rests on one order of each word's writes for all multiprocessors, as the L2 gives it, which the memory model of PTX does
not promise without a release and an acquire. A number that is none (NaN) stays one as long as its payload does not lie
in the two bits alone; what arithmetic makes does not.

A program looks at all words that it computes with. That is less than the tape's waits where it attends: of its group's
queries it awaits its own. Two counters remain, released and acquired by one thread of each program once a step: `best`
and `token`, which order everything that a step leaves in memory for the next.

A wait of some seconds traps: a deadlock becomes a launch failure instead of a device that never comes back.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

COUNTER_STRIDE = 32
"""int32 words from one counter to the next: 128 bytes, a cache line."""

# Renamed between Triton 3.6 and 3.7.
thread_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


@gluon.jit
def tag_of(epoch, layer, LAYERS: gl.constexpr):
    """1, 2 or 3: of what layer `layer` of step number `epoch` writes (see `tags.tag`). The epoch may wrap around."""
    return ((epoch * LAYERS + layer) & 0x7FFFFFFF) % 3 + 1


@gluon.jit
def tagged(value, tag):
    """float32 -> its bits with the tag in the lowest two."""
    return (value.to(gl.int32, bitcast=True) & -4) | tag


@gluon.jit
def post_row(pointer, value, tag):
    """Store one tagged word of each warp, whose lanes all hold it."""
    gl.inline_asm_elementwise(
        """{
        .reg .pred first; .reg .u32 lane;
        mov.u32 lane, %laneid;
        setp.eq.u32 first, lane, 0;
        @first st.relaxed.gpu.global.b32 [$1], $2;
        mov.u32 $0, 0;
        }""",
        "=r,l,r,~{memory}",
        [pointer, tagged(value, tag)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def post_eight(pointer, value, peak, total, tag, THREADS: gl.constexpr):
    """Store 8 tagged values, a tagged peak and a tagged total side by side, from each of the first THREADS threads.

    pointer, value: [8 THREADS], 8 neighbours in each thread; peak, total: scalars. Words 0 .. 7, 8 and 9 at each 8th
    pointer.
    """
    words = tagged(value, tag)
    gl.inline_asm_elementwise(
        """{
        .reg .pred mine; .reg .u32 thread;
        mov.u32 thread, %tid.x;
        setp.lt.u32 mine, thread, $40;
        @mine st.relaxed.gpu.global.v4.b32 [$8], {$16, $17, $18, $19};
        @mine st.relaxed.gpu.global.v4.b32 [$8+16], {$20, $21, $22, $23};
        @mine st.relaxed.gpu.global.v2.b32 [$8+32], {$24, $32};
        mov.u32 $0, 0; mov.u32 $1, 0; mov.u32 $2, 0; mov.u32 $3, 0;
        mov.u32 $4, 0; mov.u32 $5, 0; mov.u32 $6, 0; mov.u32 $7, 0;
        }""",
        "=r,=r,=r,=r,=r,=r,=r,=r," + "l,l,l,l,l,l,l,l," + "r,r,r,r,r,r,r,r," * 4 + "~{memory}",
        [pointer, words, words * 0 + tagged(peak, tag), words * 0 + tagged(total, tag), words * 0 + THREADS],
        dtype=gl.int32,
        is_pure=False,
        pack=8,
    )


@gluon.jit
def received(pointer, tag):
    """float32 values once all words have the tag. pointer: 8 neighbouring words in each thread, 16-byte aligned."""
    words = gl.inline_asm_elementwise(
        """{
        .reg .pred missing, late; .reg .b32 wrong, one; .reg .u32 polls;
        mov.u32 polls, 0;
        POLL:
        ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$8];
        ld.relaxed.gpu.global.v4.b32 {$4, $5, $6, $7}, [$8+16];
        xor.b32 wrong, $0, $16;
        xor.b32 one, $1, $16; or.b32 wrong, wrong, one;
        xor.b32 one, $2, $16; or.b32 wrong, wrong, one;
        xor.b32 one, $3, $16; or.b32 wrong, wrong, one;
        xor.b32 one, $4, $16; or.b32 wrong, wrong, one;
        xor.b32 one, $5, $16; or.b32 wrong, wrong, one;
        xor.b32 one, $6, $16; or.b32 wrong, wrong, one;
        xor.b32 one, $7, $16; or.b32 wrong, wrong, one;
        and.b32 wrong, wrong, 3;
        setp.ne.b32 missing, wrong, 0;
        add.u32 polls, polls, 1;
        setp.gt.u32 late, polls, 16777216;
        @late trap;
        @missing bra POLL;
        }""",
        "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r," + "l,l,l,l,l,l,l,l," + "r,r,r,r,r,r,r,r," + "~{memory}",
        [pointer, tag],
        dtype=gl.int32,
        is_pure=False,
        pack=8,
    )
    return (words & -4).to(gl.float32, bitcast=True)


@gluon.jit
def glance(pointer):
    """8 neighbouring words in each thread as they are now, whatever their tags; `confirmed` looks at them later."""
    return gl.inline_asm_elementwise(
        """{
        ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$8];
        ld.relaxed.gpu.global.v4.b32 {$4, $5, $6, $7}, [$8+16];
        }""",
        "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r," + "l,l,l,l,l,l,l,l," + "~{memory}",
        [pointer],
        dtype=gl.int32,
        is_pure=False,
        pack=8,
    )


@gluon.jit
def confirmed(words, pointer, tag):
    """What `glance` saw at `pointer` if all of it had the tag, otherwise `received`."""
    words = gl.inline_asm_elementwise(
        """{
        .reg .pred missing, late; .reg .b32 wrong, one; .reg .u32 polls;
        mov.u32 polls, 0;
        mov.b32 $0, $8; mov.b32 $1, $9; mov.b32 $2, $10; mov.b32 $3, $11;
        mov.b32 $4, $12; mov.b32 $5, $13; mov.b32 $6, $14; mov.b32 $7, $15;
        bra CHECK;
        POLL:
        ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$16];
        ld.relaxed.gpu.global.v4.b32 {$4, $5, $6, $7}, [$16+16];
        CHECK:
        xor.b32 wrong, $0, $24;
        xor.b32 one, $1, $24; or.b32 wrong, wrong, one;
        xor.b32 one, $2, $24; or.b32 wrong, wrong, one;
        xor.b32 one, $3, $24; or.b32 wrong, wrong, one;
        xor.b32 one, $4, $24; or.b32 wrong, wrong, one;
        xor.b32 one, $5, $24; or.b32 wrong, wrong, one;
        xor.b32 one, $6, $24; or.b32 wrong, wrong, one;
        xor.b32 one, $7, $24; or.b32 wrong, wrong, one;
        and.b32 wrong, wrong, 3;
        setp.ne.b32 missing, wrong, 0;
        add.u32 polls, polls, 1;
        setp.gt.u32 late, polls, 16777216;
        @late trap;
        @missing bra POLL;
        }""",
        "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r," + "r,r,r,r,r,r,r,r," + "l,l,l,l,l,l,l,l," + "r,r,r,r,r,r,r,r," + "~{memory}",
        [words, pointer, tag],
        dtype=gl.int32,
        is_pure=False,
        pack=8,
    )
    return (words & -4).to(gl.float32, bitcast=True)


@gluon.jit
def received_three(first, second, third, tag):
    """`received` of three vectors at once: one trip instead of three."""
    a, b, c = gl.inline_asm_elementwise(
        """{
        .reg .pred missing, late; .reg .b32 wrong, one; .reg .u32 polls;
        mov.u32 polls, 0;
        POLL:
        ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$24];
        ld.relaxed.gpu.global.v4.b32 {$4, $5, $6, $7}, [$24+16];
        ld.relaxed.gpu.global.v4.b32 {$8, $9, $10, $11}, [$32];
        ld.relaxed.gpu.global.v4.b32 {$12, $13, $14, $15}, [$32+16];
        ld.relaxed.gpu.global.v4.b32 {$16, $17, $18, $19}, [$40];
        ld.relaxed.gpu.global.v4.b32 {$20, $21, $22, $23}, [$40+16];
        xor.b32 wrong, $0, $48;
        xor.b32 one, $1, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $2, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $3, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $4, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $5, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $6, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $7, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $8, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $9, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $10, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $11, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $12, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $13, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $14, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $15, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $16, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $17, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $18, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $19, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $20, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $21, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $22, $48; or.b32 wrong, wrong, one;
        xor.b32 one, $23, $48; or.b32 wrong, wrong, one;
        and.b32 wrong, wrong, 3;
        setp.ne.b32 missing, wrong, 0;
        add.u32 polls, polls, 1;
        setp.gt.u32 late, polls, 16777216;
        @late trap;
        @missing bra POLL;
        }""",
        "=&r," * 24 + "l," * 24 + "r," * 8 + "~{memory}",
        [first, second, third, tag],
        dtype=(gl.int32, gl.int32, gl.int32),
        is_pure=False,
        pack=8,
    )
    return (
        (a & -4).to(gl.float32, bitcast=True),
        (b & -4).to(gl.float32, bitcast=True),
        (c & -4).to(gl.float32, bitcast=True),
    )


@gluon.jit
def received_eight(pointer, tag):
    """What `post_eight` stored: values, and for each the peak and the total that lie beside its 8."""
    a, b, c = gl.inline_asm_elementwise(
        """{
        .reg .pred missing, late; .reg .b32 wrong, one; .reg .u32 polls;
        mov.u32 polls, 0;
        POLL:
        ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$24];
        ld.relaxed.gpu.global.v4.b32 {$4, $5, $6, $7}, [$24+16];
        ld.relaxed.gpu.global.v2.b32 {$8, $16}, [$24+32];
        xor.b32 wrong, $0, $32;
        xor.b32 one, $1, $32; or.b32 wrong, wrong, one;
        xor.b32 one, $2, $32; or.b32 wrong, wrong, one;
        xor.b32 one, $3, $32; or.b32 wrong, wrong, one;
        xor.b32 one, $4, $32; or.b32 wrong, wrong, one;
        xor.b32 one, $5, $32; or.b32 wrong, wrong, one;
        xor.b32 one, $6, $32; or.b32 wrong, wrong, one;
        xor.b32 one, $7, $32; or.b32 wrong, wrong, one;
        xor.b32 one, $8, $32; or.b32 wrong, wrong, one;
        xor.b32 one, $16, $32; or.b32 wrong, wrong, one;
        and.b32 wrong, wrong, 3;
        setp.ne.b32 missing, wrong, 0;
        add.u32 polls, polls, 1;
        setp.gt.u32 late, polls, 16777216;
        @late trap;
        @missing bra POLL;
        mov.b32 $9, $8; mov.b32 $10, $8; mov.b32 $11, $8; mov.b32 $12, $8; mov.b32 $13, $8; mov.b32 $14, $8;
        mov.b32 $15, $8; mov.b32 $17, $16; mov.b32 $18, $16; mov.b32 $19, $16; mov.b32 $20, $16; mov.b32 $21, $16;
        mov.b32 $22, $16; mov.b32 $23, $16;
        }""",
        "=&r," * 24 + "l," * 8 + "r," * 8 + "~{memory}",
        [pointer, tag],
        dtype=(gl.int32, gl.int32, gl.int32),
        is_pure=False,
        pack=8,
    )
    return (
        (a & -4).to(gl.float32, bitcast=True),
        (b & -4).to(gl.float32, bitcast=True),
        (c & -4).to(gl.float32, bitcast=True),
    )


@gluon.jit
def received_two_eights(first, second, tag):
    """`received_eight` of two at once: one trip instead of two."""
    a, b, c, d, e, f = gl.inline_asm_elementwise(
        """{
        .reg .pred missing, late; .reg .b32 wrong, one; .reg .u32 polls;
        mov.u32 polls, 0;
        POLL:
        ld.relaxed.gpu.global.v4.b32 {$0, $1, $2, $3}, [$48];
        ld.relaxed.gpu.global.v4.b32 {$4, $5, $6, $7}, [$48+16];
        ld.relaxed.gpu.global.v2.b32 {$8, $16}, [$48+32];
        ld.relaxed.gpu.global.v4.b32 {$24, $25, $26, $27}, [$56];
        ld.relaxed.gpu.global.v4.b32 {$28, $29, $30, $31}, [$56+16];
        ld.relaxed.gpu.global.v2.b32 {$32, $40}, [$56+32];
        xor.b32 wrong, $0, $64;
        xor.b32 one, $1, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $2, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $3, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $4, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $5, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $6, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $7, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $8, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $16, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $24, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $25, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $26, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $27, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $28, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $29, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $30, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $31, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $32, $64; or.b32 wrong, wrong, one;
        xor.b32 one, $40, $64; or.b32 wrong, wrong, one;
        and.b32 wrong, wrong, 3;
        setp.ne.b32 missing, wrong, 0;
        add.u32 polls, polls, 1;
        setp.gt.u32 late, polls, 16777216;
        @late trap;
        @missing bra POLL;
        mov.b32 $9, $8; mov.b32 $10, $8; mov.b32 $11, $8; mov.b32 $12, $8;
        mov.b32 $13, $8; mov.b32 $14, $8; mov.b32 $15, $8;
        mov.b32 $17, $16; mov.b32 $18, $16; mov.b32 $19, $16; mov.b32 $20, $16;
        mov.b32 $21, $16; mov.b32 $22, $16; mov.b32 $23, $16;
        mov.b32 $33, $32; mov.b32 $34, $32; mov.b32 $35, $32; mov.b32 $36, $32;
        mov.b32 $37, $32; mov.b32 $38, $32; mov.b32 $39, $32;
        mov.b32 $41, $40; mov.b32 $42, $40; mov.b32 $43, $40; mov.b32 $44, $40;
        mov.b32 $45, $40; mov.b32 $46, $40; mov.b32 $47, $40;
        }""",
        "=&r," * 48 + "l," * 16 + "r," * 8 + "~{memory}",
        [first, second, tag],
        dtype=(gl.int32, gl.int32, gl.int32, gl.int32, gl.int32, gl.int32),
        is_pure=False,
        pack=8,
    )
    return (
        (a & -4).to(gl.float32, bitcast=True),
        (b & -4).to(gl.float32, bitcast=True),
        (c & -4).to(gl.float32, bitcast=True),
        (d & -4).to(gl.float32, bitcast=True),
        (e & -4).to(gl.float32, bitcast=True),
        (f & -4).to(gl.float32, bitcast=True),
    )


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
