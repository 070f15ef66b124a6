"""The checks of PTX on small pieces of it, right ones and wrong ones."""

from __future__ import annotations

import pytest

from kernels import memory_order
from kernels.ptx import instructions, parameters_of_addresses

HEADER = """
.version 8.7
.target sm_90a
.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0,
	.param .u64 .ptr .global .align 1 k_param_1,
	.param .align 64 .b8 k_param_2[128]
)
.reqntid 128
{
	.reg .pred 	%p<9>;
	.reg .b64 	%rd<25>;
	.loc	1 38 0                          // k.py:38:0
$L__func_begin0:
// %bb.0:
	ld.param.b64 	%rd1, [k_param_0];
	ld.param.b64 	%rd2, [k_param_1];
"""
END = """
$L__tmp9:
	ret;
}
	.section .debug_abbrev
	{
.b8 1
	}
"""
SIGNAL = """
        // begin inline asm
        {
        .reg .pred first; .reg .u32 thread;
        bar.sync 0;
        mov.u32 thread, %tid.x;
        setp.eq.u32 first, thread, 0;
        @first red.release.gpu.global.add.u32 [%rd1], 1;
        }
        // end inline asm
"""
WAIT = """
        {
        .reg .pred other; .reg .u32 thread, seen;
        mov.u32 thread, %tid.x; setp.ne.u32 other, thread, 0;
        @other bra RELEASED;
        POLL:
        ld.acquire.gpu.global.u32 seen, [%rd1];
        setp.lt.s32 other, seen, 7;
        @other bra POLL;
        RELEASED:
        bar.sync 0;
        }
"""
WORK = """
	mul.wide.s32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd2, %rd3;
	ld.global.v4.b32 	{%r2, %r3, %r4, %r5}, [%rd4+16];
	st.global.b32 	[ %rd4 + 0 ], { %r2 };
"""


def kernel(*parts: str) -> str:
    return HEADER + "".join(parts) + END


def test_a_release_behind_a_barrier_and_an_acquire_before_one_are_right() -> None:
    text = kernel(RIGHT, RIGHT)
    assert memory_order.hand_over_faults(text) == ()
    assert (memory_order.signals(text), memory_order.waits(text)) == (2, 2)


def test_a_warp_may_signal_for_others_that_arrived_behind_a_barrier() -> None:
    assert memory_order.hand_over_faults(kernel(HANDED_ON)) == ()


RIGHT = WAIT + WORK + SIGNAL
ARRIVE = """
	bar.sync 	0, 128;
	@%p126 mbarrier.arrive.shared::cta.b64 _, [%r310];
"""
SIGNAL_OF_A_WARP = """
	bar.warp.sync 	-1;
	{
	.reg .pred complete;
	waitLoop:
	mbarrier.try_wait.parity.shared::cta.b64 complete, [%r186], %r3652;
	@!complete bra.uni waitLoop;
	}
	add.s64 	%rd43, %rd44, -128;
	@first red.release.gpu.global.add.u32 [%rd43], 1;
"""
HANDED_ON = f"{WAIT} @%p1 bra OTHER_WARP; {WORK} {ARRIVE} OTHER_WARP: {SIGNAL_OF_A_WARP}"


def replaced(old: str, new: str, text: str = RIGHT) -> str:
    assert old in text
    return text.replace(old, new)


HAND_OVER_FAULTS = {
    "a relaxed signal": (replaced(".release", ".relaxed"), "red.relaxed.gpu.global.add.u32 orders nothing"),
    "a signal without an order": (replaced("red.release.gpu", "red"), "is relaxed, as every atomic without an order"),
    "an exchange without an order": (
        replaced("bar.sync", "atom.global.exch.b32 %r1, [%rd1], 1;\nbar.sync"),
        "is relaxed",
    ),
    "a signal to its own block": (replaced("release.gpu", "release.cta"), "not ordered for other multiprocessors"),
    "a signal without a barrier": (
        WAIT + WORK + replaced("bar.sync 0;", "", SIGNAL),
        "no barrier before it, but st.global.b32",
    ),
    "a signal before the store": (
        WAIT + WORK + replaced("bar.sync 0;", "bar.sync 0; st.global.b32 [%rd4], %r2;", SIGNAL),
        "no barrier before it, but st.global.b32",
    ),
    "a barrier of one warp": (
        WAIT + WORK + replaced("bar.sync 0", "bar.warp.sync -1", SIGNAL),
        "no barrier before it, but st.global.b32",
    ),
    "a barrier of some threads": (
        WAIT + WORK + replaced("bar.sync", "@first bar.sync", SIGNAL),
        "no barrier before it, but st.global.b32",
    ),
    "a signal that is jumped to": (
        WAIT + WORK + replaced("@first", "HERE:\n@first", SIGNAL) + "bra HERE;",
        "no barrier before it, but the label HERE",
    ),
    "a relaxed wait": (replaced(".acquire", ".relaxed"), "ld.relaxed.gpu.global.u32 orders nothing"),
    "a volatile wait": (replaced(".acquire.gpu", ".volatile"), "ld.volatile.global.u32 orders nothing"),
    "a wait without a barrier": (
        replaced("bar.sync 0;", "", WAIT) + WORK + SIGNAL,
        "no barrier behind it, but ld.global.v4.b32",
    ),
    "a wait at the end": (
        WORK + SIGNAL + replaced("bar.sync 0;", "", WAIT),
        "no barrier behind it, but the kernel's end",
    ),
    "data read in the wait": (
        replaced("bar.sync", "ld.global.u32 %r9, [%rd2];\nbar.sync", WAIT) + WORK + SIGNAL,
        "no barrier behind it, but ld.global.u32",
    ),
    "a copy started in the wait": (
        replaced("bar.sync", "cp.async.bulk.shared::cta.global [%r1], [%rd2], 64, [%r2];\nbar.sync", WAIT)
        + WORK
        + SIGNAL,
        "no barrier behind it, but cp.async",
    ),
    "an arrival without a barrier": (
        replaced("bar.sync 	0, 128;", "", HANDED_ON),
        "mbarrier.arrive.shared::cta.b64 has no barrier before it, but st.global.b32",
    ),
    "a warp that does not wait": (
        replaced("@!complete bra.uni waitLoop;", "", HANDED_ON),
        "red.release.gpu.global.add.u32 has no barrier before it, but the label OTHER_WARP",
    ),
    "a warp that leaves too early": (replaced("@!complete", "@complete", HANDED_ON), "but the label waitLoop"),
    "an arrival that orders nothing": (
        replaced("arrive.", "arrive.relaxed.cta.", HANDED_ON),
        "mbarrier.arrive.relaxed.cta.shared::cta.b64 orders nothing",
    ),
    "a store of the warp itself": (
        replaced("add.s64 	%rd43", "st.global.b32 [%rd4], %r2;\nadd.s64 	%rd43", HANDED_ON),
        "no barrier before it, but st.global.b32",
    ),
    "no signal": (WAIT + WORK, "no signal"),
    "no wait": (WORK + SIGNAL, "no wait"),
    "a plain poll": (replaced(".acquire.gpu", ""), "no wait"),
}


@pytest.mark.parametrize("name", HAND_OVER_FAULTS)
def test_a_hand_over_that_orders_less_is_found(name: str) -> None:
    text, message = HAND_OVER_FAULTS[name]
    faults = memory_order.hand_over_faults(kernel(text))
    assert any(message in fault for fault in faults), faults


TAGGED = """
	and.b32 	%r20, %r2, -4;
	or.b32 	%r21, %r20, %r7;
	or.b32 	%r22, %r20, 3;
	mov.b32 	%r23, %r22;
	st.relaxed.gpu.global.v2.b32 [%rd4], {%r21, %r23};
	AGAIN:
	ld.relaxed.gpu.global.v2.b32 {%r30, %r31}, [%rd4+32];
	mov.b32 	%r32, %r31;
	xor.b32 	wrong, %r30, %r7;
	xor.b32 	one, %r32, %r7;
	@missing bra AGAIN;
"""


def test_words_with_a_tag_of_their_own_may_be_relaxed_where_that_is_said() -> None:
    text = kernel(RIGHT, TAGGED)
    assert memory_order.hand_over_faults(text, tagged=True) == ()
    assert len(memory_order.hand_over_faults(text)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (replaced("or.b32 	%r21, %r20", "add.s32 	%r21, %r20", TAGGED), "has no tag put in"),
        (replaced("mov.b32 	%r23, %r22", "mov.b32 	%r23, %r20", TAGGED), "has no tag put in"),
        (replaced("xor.b32 	one, %r32", "xor.b32 	one, %r30", TAGGED), "is compared with no tag"),
        (TAGGED.replace("v2.b32", "v2.b64"), "orders nothing"),
        (TAGGED.replace("relaxed.gpu", "volatile"), "orders nothing"),
        (TAGGED + "red.relaxed.gpu.global.add.u32 [%rd1], 1;", "red.relaxed.gpu.global.add.u32 orders nothing"),
    ],
)
def test_a_word_whose_tag_is_not_looked_at_is_found(text: str, message: str) -> None:
    faults = memory_order.hand_over_faults(kernel(RIGHT, text), tagged=True)
    assert any(message in fault for fault in faults), faults


def test_barriers_and_atomics_in_shared_memory_are_no_hand_over() -> None:
    text = """
	mbarrier.init.shared::cta.b64 [%r1], 1;
	atom.shared.add.u32 %r2, [%r1], 1;
	ld.volatile.shared.u32 %r2, [%r1];
"""
    assert memory_order.hand_over_faults(kernel(WAIT, text, WORK, SIGNAL)) == ()


DEPENDENT = """
	griddepcontrol.launch_dependents;
	cvta.to.global.u64 	%rd5, %rd1;
	mad.wide.s32 	%rd6, %r1, 2, %rd5;
	ld.global.v4.b32 	{%r2, %r3, %r4, %r5}, [%rd6];
	cp.async.cg.shared.global [ %r9 + 0 ], [ %rd6 + 0 ], 0x10, %r5;
	griddepcontrol.wait;
"""


def test_a_dependent_kernel_reads_what_is_its_own_before_the_wait() -> None:
    assert memory_order.dependent_launch_faults(kernel(DEPENDENT, WORK), {1}) == ()
    assert memory_order.written_parameters(kernel(DEPENDENT, WORK)) == {1}


DEPENDENT_FAULTS = {
    "a load of what is written": (DEPENDENT.replace("%rd1;", "%rd2;"), "ld.global.v4.b32 reads parameter 1 before"),
    "a copy of what is written": (DEPENDENT.replace("[ %rd6 + 0 ]", "[ %rd2 + 0 ]"), "cp.async.cg.shared.global reads"),
    "a store": (
        DEPENDENT.replace("griddepcontrol.wait", "st.global.b32 [%rd1], %r2;\ngriddepcontrol.wait"),
        "st.global.b32",
    ),
    "an atomic": (
        DEPENDENT.replace("griddepcontrol.wait", "red.global.add.u32 [%rd1], 1;\ngriddepcontrol.wait"),
        "red.",
    ),
    "a way around": (
        DEPENDENT.replace("griddepcontrol.wait", "@%p1 bra OUT;\ngriddepcontrol.wait") + "OUT:",
        "there is a way around the wait",
    ),
    "no wait": (DEPENDENT.replace("griddepcontrol.wait;", ""), "0 waits for the predecessor"),
    "two waits": (DEPENDENT + "griddepcontrol.wait;", "2 waits for the predecessor"),
    "a pointer from memory": (
        DEPENDENT.replace(
            "griddepcontrol.wait", "ld.global.b64 %rd7, [%rd5];\nld.global.b32 %r7, [%rd7];\ngriddepcontrol.wait"
        ),
        "address of unknown origin",
    ),
}


@pytest.mark.parametrize("name", DEPENDENT_FAULTS)
def test_a_dependent_kernel_that_is_too_early_is_found(name: str) -> None:
    text, message = DEPENDENT_FAULTS[name]
    faults = memory_order.dependent_launch_faults(kernel(text, WORK), {1})
    assert any(message in fault for fault in faults), faults


def test_an_address_comes_from_the_parameters_that_it_is_computed_of_and_not_from_what_was_loaded() -> None:
    text = """
	mov.b64 	%rd9, k_param_2;
	ld.global.b32 	%r7, [%rd1];
	mul.wide.s32 	%rd3, %r7, 4;
	add.s64 	%rd4, %rd2, %rd3;
	selp.b64 	%rd6, %rd4, %rd1, %p1;
"""
    found = parameters_of_addresses(instructions(kernel(text)))
    assert [found[name] for name in ("%rd4", "%rd6", "%rd9")] == [{1}, {0, 1}, {2}]
    assert found["%rd3"] == frozenset()


def test_declarations_debug_information_and_labels_that_nobody_jumps_to_are_no_instructions() -> None:
    names = [one.name or one.label for one in instructions(kernel(WAIT))]
    assert names[:2] == ["ld.param.b64", "ld.param.b64"]
    assert names[2:] == [
        "mov.u32",
        "setp.ne.u32",
        "bra",
        "POLL",
        "ld.acquire.gpu.global.u32",
        "setp.lt.s32",
        "bra",
        "RELEASED",
        "bar.sync",
        "ret",
    ]
