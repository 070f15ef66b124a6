from __future__ import annotations

import pytest

from kernels.llama.megakernel.show import main


def test_a_tape_is_shown_stage_by_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode/llama-tiny/b1-ctx21-fp32", "--programs", "3", "--rows", "16"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["stage", "tiles", "least", "most", "waits", "signals"]
    assert lines[1][:2] == ["QKV", "32"] and lines[5][:2] == ["DOWN", "32"]  # two layers of 16 tiles
    assert lines[7] == ["PICK", "1", "0", "1", "1", "1"]
    assert lines[8][:2] == ["all", "177"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["decode/llama-huge", "--programs", "3", "--rows", "16"], "no workload 'decode/llama-huge'"),
        (["decode/llama-tiny/b1-ctx21-fp32", "--programs", "3", "--rows", "12"], "rows 12 is none of"),
    ],
)
def test_what_makes_no_tape_is_told_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
