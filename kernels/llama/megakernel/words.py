"""Activations that say themselves whether they are there: float32 words with a tag.

The two lowest bits of a float32 say which write of that word it is. A program
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

A wait of some seconds traps: a deadlock becomes a launch failure instead of a device that never comes back.
"""

from collections.abc import Sequence

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

_POLLS = 1 << 24  # of some hundred nanoseconds each


def _look(loads: Sequence[str], words: Sequence[int], tag: int, *, seen: str = "", after: str = "") -> str:
    """PTX that does `loads` until all `words`, numbers of outputs, have the tag that operand `tag` holds.

    seen: fills the words for a first look without loading. after: what follows once all are there.
    """
    first, *others = words
    wrong = [f"xor.b32 wrong, ${first}, ${tag};"]
    wrong += [f"xor.b32 one, ${word}, ${tag}; or.b32 wrong, wrong, one;" for word in others]
    return f"""{{
        .reg .pred missing, late; .reg .b32 wrong, one; .reg .u32 polls;
        mov.u32 polls, 0;
        {seen + " bra LOOK;" if seen else ""}
        POLL:
        {" ".join(loads)}
        {"LOOK:" if seen else ""}
        {" ".join(wrong)}
        and.b32 wrong, wrong, 3;
        setp.ne.b32 missing, wrong, 0;
        add.u32 polls, polls, 1;
        setp.gt.u32 late, polls, {_POLLS};
        @late trap;
        @missing bra POLL;
        {after}
        }}"""


def _load_eight(first: int, pointer: int) -> str:
    """8 words at operand `pointer` into the outputs from `first` on."""
    low, high = (", ".join(f"${first + n}" for n in range(begin, begin + 4)) for begin in (0, 4))
    return (
        f"ld.relaxed.gpu.global.v4.b32 {{{low}}}, [${pointer}]; "
        f"ld.relaxed.gpu.global.v4.b32 {{{high}}}, [${pointer}+16];"
    )


def _load_pair(first: int, second: int, pointer: int) -> str:
    """The two words beside 8 at operand `pointer`."""
    return f"ld.relaxed.gpu.global.v2.b32 {{${first}, ${second}}}, [${pointer}+32];"


def _spread(first: int) -> str:
    """Output `first` into the 7 after it."""
    return " ".join(f"mov.b32 ${first + n}, ${first};" for n in range(1, 8))


# Operands are numbered outputs first, 8 for each tensor, then pointers, then the tag.
_OUT, _POINTER, _WORD = "=&r," * 8, "l," * 8, "r," * 8
_GLANCE = gl.constexpr("{ " + _load_eight(0, 8) + " }")
_RECEIVED = gl.constexpr(_look([_load_eight(0, 8)], range(8), 16))
_CONFIRMED = gl.constexpr(
    _look([_load_eight(0, 16)], range(8), 24, seen=" ".join(f"mov.b32 ${n}, ${n + 8};" for n in range(8)))
)
_THREE = gl.constexpr(_look([_load_eight(0, 24), _load_eight(8, 32), _load_eight(16, 40)], range(24), 48))
_EIGHT = gl.constexpr(
    _look([_load_eight(0, 24), _load_pair(8, 16, 24)], (*range(8), 8, 16), 32, after=_spread(8) + " " + _spread(16))
)
_TWO_EIGHTS = gl.constexpr(
    _look(
        [_load_eight(0, 48), _load_pair(8, 16, 48), _load_eight(24, 56), _load_pair(32, 40, 56)],
        (*range(8), 8, 16, *range(24, 32), 32, 40),
        64,
        after=" ".join(map(_spread, (8, 16, 32, 40))),
    )
)
_GLANCE_OPERANDS = gl.constexpr(_OUT + _POINTER + "~{memory}")
_RECEIVED_OPERANDS = gl.constexpr(_OUT + _POINTER + _WORD + "~{memory}")
_CONFIRMED_OPERANDS = gl.constexpr(_OUT + _WORD + _POINTER + _WORD + "~{memory}")
_THREE_OPERANDS = gl.constexpr(_OUT * 3 + _POINTER * 3 + _WORD + "~{memory}")
_EIGHT_OPERANDS = gl.constexpr(_OUT * 3 + _POINTER + _WORD + "~{memory}")
_TWO_EIGHTS_OPERANDS = gl.constexpr(_OUT * 6 + _POINTER * 2 + _WORD + "~{memory}")


@gluon.jit
def tag_of(epoch, layer, LAYERS: gl.constexpr):
    """1, 2 or 3: of what layer `layer` of step number `epoch` writes (see `tags.tag`). The epoch may wrap around."""
    return ((epoch * LAYERS + layer) & 0x7FFFFFFF) % 3 + 1


@gluon.jit
def tagged(value, tag):
    """float32 -> its bits with the tag in the lowest two."""
    return (value.to(gl.int32, bitcast=True) & -4) | tag


@gluon.jit
def _value(words):
    """The float32 without its tag."""
    return (words & -4).to(gl.float32, bitcast=True)


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
def glance(pointer):
    """8 neighbouring words in each thread as they are now, whatever their tags; `confirmed` looks at them later."""
    return gl.inline_asm_elementwise(_GLANCE, _GLANCE_OPERANDS, [pointer], dtype=gl.int32, is_pure=False, pack=8)


@gluon.jit
def received(pointer, tag):
    """float32 values once all words have the tag. pointer: 8 neighbouring words in each thread, 16-byte aligned."""
    words = gl.inline_asm_elementwise(
        _RECEIVED, _RECEIVED_OPERANDS, [pointer, tag], dtype=gl.int32, is_pure=False, pack=8
    )
    return _value(words)


@gluon.jit
def confirmed(words, pointer, tag):
    """What `glance` saw at `pointer` if all of it had the tag, otherwise `received`."""
    words = gl.inline_asm_elementwise(
        _CONFIRMED, _CONFIRMED_OPERANDS, [words, pointer, tag], dtype=gl.int32, is_pure=False, pack=8
    )
    return _value(words)


@gluon.jit
def received_three(first, second, third, tag):
    """`received` of three vectors at once: one trip instead of three."""
    a, b, c = gl.inline_asm_elementwise(
        _THREE,
        _THREE_OPERANDS,
        [first, second, third, tag],
        dtype=(gl.int32, gl.int32, gl.int32),
        is_pure=False,
        pack=8,
    )
    return _value(a), _value(b), _value(c)


@gluon.jit
def received_eight(pointer, tag):
    """What `post_eight` stored: values, and for each the peak and the total that lie beside its 8."""
    a, b, c = gl.inline_asm_elementwise(
        _EIGHT, _EIGHT_OPERANDS, [pointer, tag], dtype=(gl.int32, gl.int32, gl.int32), is_pure=False, pack=8
    )
    return _value(a), _value(b), _value(c)


@gluon.jit
def received_two_eights(first, second, tag):
    """`received_eight` of two at once: one trip instead of two."""
    a, b, c, d, e, f = gl.inline_asm_elementwise(
        _TWO_EIGHTS,
        _TWO_EIGHTS_OPERANDS,
        [first, second, tag],
        dtype=(gl.int32, gl.int32, gl.int32, gl.int32, gl.int32, gl.int32),
        is_pure=False,
        pack=8,
    )
    return _value(a), _value(b), _value(c), _value(d), _value(e), _value(f)
