"""What a thread may execute before its wait, told from PTX: branches that constants decide, and others."""

from __future__ import annotations

import pytest

from kernels.ptx import instructions
from kernels.ptx_paths import before_wait

LOOP = """
.visible .entry k(.param .u64 k_param_0)
{
	.reg .b32 	%r<10>;
	ld.global.b32 	%r9, [%rd1];
	mov.b32 	%r1, 0;
	mov.b64 	%rd4, -24;
	bra.uni 	HEADER;
TAIL:
	st.global.b32 	[%rd1], %r2;
	add.s32 	%r1, %r1, 1;
	add.s64 	%rd4, %rd4, 8;
	setp.lt.s32 	%p2, %r1, 3;
	@%p2 bra 	HEADER;
	bra.uni 	OUT;
HEADER:
	setp.ne.b32 	%p1, %r1, 0;
	@%p1 bra 	TAIL;
	griddepcontrol.wait;
	ld.global.b32 	%r2, [%rd2];
	bra.uni 	TAIL;
OUT:
	ret;
}
"""


def names(text: str) -> tuple[list[str], bool]:
    before, waits = before_wait(instructions(text))
    return [one.name for one in before if one.words and one.words[0] in ("ld", "st")], waits


def test_the_first_pass_of_a_loop_waits_before_it_stores() -> None:
    assert names(LOOP) == (["ld.global.b32"], True)


def test_a_counter_that_was_made_to_count_in_bytes_tells_the_first_pass_as_well() -> None:
    assert names(LOOP.replace("setp.ne.b32 	%p1, %r1, 0", "setp.ne.b64 	%p1, %rd4, -24")) == (
        ["ld.global.b32"],
        True,
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mov.b32 	%r1, 0;", "mov.b32 	%r1, 1;"),  # the first pass is not the one that waits
        ("setp.ne.b32 	%p1, %r1, 0", "setp.eq.b32 	%p1, %r1, 0"),
        ("@%p1 bra 	TAIL", "@!%p1 bra 	TAIL"),
        ("setp.ne.b32 	%p1, %r1, 0", "setp.ne.b32 	%p1, %r9, 0"),  # it depends on what was loaded
        ("mov.b32 	%r1, 0;", "mov.b32 	%r1, %tid.x;"),
        (
            "mov.b32 	%r1, 0;",
            "mov.b32 	%r1, 0;\n@%p7 mov.b32 	%r1, 1;",
        ),  # on some threads it does not wait first
    ],
)
def test_a_store_that_may_come_first_is_among_what_is_executed_before_the_wait(old: str, new: str) -> None:
    assert old in LOOP
    found, _ = names(LOOP.replace(old, new))
    assert "st.global.b32" in found


@pytest.mark.parametrize(
    ("old", "new", "executed"),
    [
        ("bra.uni 	HEADER;\nTAIL", "@%p7 bra 	OUT;\n	bra.uni 	HEADER;\nTAIL", ["ld"]),
        ("bra.uni 	HEADER;\nTAIL", "@%p7 ret;\n	bra.uni 	HEADER;\nTAIL", ["ld"]),
        ("griddepcontrol.wait;", "", ["ld", "st", "ld"]),
    ],
)
def test_a_way_that_never_waits_is_told(old: str, new: str, executed: list[str]) -> None:
    assert old in LOOP
    found, waits = names(LOOP.replace(old, new))
    assert [name.split(".")[0] for name in found] == executed
    assert not waits


def test_a_loop_without_an_end_that_can_be_seen_is_followed_into_any_pass() -> None:
    endless = LOOP.replace("setp.ne.b32 	%p1, %r1, 0", "setp.ne.b32 	%p1, %r1, -1").replace("@%p2 bra", "bra")
    assert names(endless)[0] == ["ld.global.b32", "st.global.b32"]
