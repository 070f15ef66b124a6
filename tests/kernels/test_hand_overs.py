"""How the megakernel's programs hand over to each other, in its compiled code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.kernels.test_memory_order import LARGE, compiling


@pytest.fixture(scope="module")
def handed_over(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = compiling(repository, "tests.kernels.hand_overs")
    return found


def test_the_megakernel_releases_behind_a_barrier_and_acquires_before_one(
    repository: Path, handed_over: dict[str, Any]
) -> None:
    text = (repository / "kernels/llama/megakernel/kernel.py").read_text("utf-8")
    calls = {name: len(re.findall(rf"(?<![.\w]){name}\(", text)) for name in ("wait", "signal", "release")}
    large = [found for name, found in handed_over.items() if name in LARGE]
    assert large
    for found in large:
        assert found["faults"] == []
        assert found["waits"] == calls["wait"]
        assert 1 <= found["signals"] <= calls["signal"] + calls["release"]


def test_tagged_words_are_neither_loaded_nor_stored_as_plain_memory(handed_over: dict[str, Any]) -> None:
    large = [found for name, found in handed_over.items() if name in LARGE]
    assert large
    for found in large:
        assert found["plain"] == []
        assert (
            len(found["touched"]) == 5
        )  # x, mid, rows, attended, hidden: the numbers are those of buffers that it writes
        assert len(found["planted"]) >= 20


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("relaxed signal", "red.relaxed.gpu.global.add.u32 orders nothing"),
        ("signal to the block alone", "is not ordered for other multiprocessors"),
        ("relaxed wait", "ld.relaxed.gpu.global.u32 at %rd1 is compared with no tag"),
        ("volatile wait", "ld.volatile.global.u32 orders nothing"),
        ("no barriers", "red.release.gpu.global.add.u32 has no barrier before it"),
        ("no barriers", "ld.acquire.gpu.global.u32 has no barrier behind it"),
    ],
)
def test_a_hand_over_that_orders_less_is_found_in_its_machine_s_code(
    fault: str, message: str, handed_over: dict[str, Any]
) -> None:
    assert (handed_over["right"]["faults"], handed_over["right"]["signals"], handed_over["right"]["waits"]) == (
        [],
        1,
        1,
    )
    assert any(message in found for found in handed_over[fault]["faults"]), handed_over[fault]["faults"]
