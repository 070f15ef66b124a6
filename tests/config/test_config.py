"""Settings are taken whole, or refused in one line that names the setting and what to write instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfci import config
from perfci.errors import SettingsError

FOUR_LINES = '[suite.x]\nrepo = "."\npaths = ["bench"]\nrun = "pytest bench"\nbranch = "main"\n'


def load(folder: Path, text: str) -> config.Settings:
    (folder / "perfci.toml").write_text(text, "utf-8")
    return config.load(folder / "perfci.toml")


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(folder, text)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.next_step
    return message


def test_four_lines_are_enough(tmp_path: Path) -> None:
    suite = load(tmp_path, FOUR_LINES).suite("x")
    assert (suite.results, suite.environment, suite.build, suite.runs) == ("pytest-benchmark", "", "", 3)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("repos = '.'", "did you mean 'repo'"),
        ("runs = 1.5", "suite.x.runs = 1.5"),
        ("runs = true", "suite.x.runs = True"),
        ("runs = 0", "suite.x.runs = 0"),
        ("timeout_s = inf", "suite.x.timeout_s = inf"),
        ("timeout_s = nan", "suite.x.timeout_s = nan"),
        ("results = 'xml'", "suite.x.results = 'xml'"),
        ('build = "echo \'x"', "suite.x.build"),
        ("environment = '../lock.txt'", "'../lock.txt'"),
        ('build = "a\\u0000b"', "control character"),
        ('build = "a\\u001bb"', "suite.x.build"),
        ("[hardware.h]\nprice_per_hour = -1", "price_per_hour = -1"),
        ("[hardware.h]\nprice_per_hour = inf", "price_per_hour = inf"),
        ("[hardware.h]\nprice_per_hour = nan", "price_per_hour = nan"),
        ("[hardware.h]\nlaunch = 'srun'", "hardware.h.launch = 'srun'"),
        ('[hardware.h]\nlaunch = "srun\' {cmd}"', "hardware.h.launch"),
        ("[hardware.'a/b']\nmatch = 'x'", "hardware.a/b"),
        ("[service]\nstate = 7", "service.state = 7"),
        ("[policy]\nrelevance = nan", "policy.relevance = nan"),
        ('hardware = ["h200"]', "suite.x.hardware names 'h200'"),
        ("devices = 0", "suite.x.devices = 0"),
        ('devices = 2\nhardware = ["h"]\n[hardware.h]', "hardware.h.slots is 1"),
        ("devices = 2\n[hardware.h]", "hardware.h.slots is 1"),
        ("[hardware.h]\nslots = 0", "hardware.h.slots = 0"),
        ("[hardware.h]\nnight_minutes = 0", "hardware.h.night_minutes = 0"),
        ("[service]\nbind = 'localhost'", "service.bind = 'localhost'"),
        ("[service]\nserver = 'ftp://x'", "service.server = 'ftp://x'"),
        ("[service]\nserver = 'https://me:secret@x'", "service.server"),
        ("[service]\nabsent_minutes = 0", "service.absent_minutes = 0"),
        ("[service]\nserver_port = 70000", "service.server_port = 70000"),
        ("[policy]\nraw_samples_days = 0", "policy.raw_samples_days = 0"),
        ("[policy]\naudit_nights = 0", "policy.audit_nights = 0"),
        ("[notify.team]\nkind = 'pager'", "notify.team.kind = 'pager'"),
        ("[notify.team]\nkind = 'slack'", "[notify.team] lacks url"),
        ("[notify.team]\nkind = 'email'\nto = ['a@example.org']", "[notify.team] lacks sender, smtp"),
        ("[notify.team]\nkind = 'webhook'\nurl = 'example.org'", "notify.team.url = 'example.org'"),
        ("[polcy]", "did you mean 'policy'"),
        (f"x = {'[' * 5000}", "perfci.toml"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, line: str, named: str) -> None:
    assert named in refusal(tmp_path, f"{FOUR_LINES}{line}\n")


@pytest.mark.parametrize("key", ["repo", "run", "branch"])
@pytest.mark.parametrize("character", ["\0", "\x1b", "\r"])
def test_no_text_holds_a_control_character(tmp_path: Path, key: str, character: str) -> None:
    text = f"[suite.x]\n{key} = {json.dumps('a' + character)}\n"
    assert f"suite.x.{key} = " in refusal(tmp_path, text)


def test_a_list_is_looked_at_text_by_text(tmp_path: Path) -> None:
    text = FOUR_LINES.replace('["bench"]', '["bench", "a\\u0000"]')
    assert "suite.x.paths = 'a\\x00'" in refusal(tmp_path, text)


def test_a_command_may_have_lines_and_a_path_any_letter(tmp_path: Path) -> None:
    text = FOUR_LINES.replace('"pytest bench"', '"""\npip list\n\tpytest bench"""').replace(
        '"bench"', '"b\u00e4nch\u00a0\U0001f600"'
    )
    suite = load(tmp_path, text).suite("x")
    assert suite.run == "pip list\n\tpytest bench"
    assert suite.paths == ("b\u00e4nch\u00a0\U0001f600",)
