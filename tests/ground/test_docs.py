"""The documents name what the code has: each command, each noun, each setting with its default."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import typer.main

from perfci import config, model


def documents(repository: Path) -> str:
    return "\n".join(
        path.read_text() for path in (repository / "README.md", *sorted((repository / "docs").glob("*.md")))
    )


def commands() -> dict[str, Any]:
    """Every leaf by its full name. Which click typer rests on depends on its version, so its types are not named."""
    from perfci import cli

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        for child in inner or ():
            yield from walk(f"{name} {child}", inner[child])

    return dict(walk("perfci", typer.main.get_command(cli.app)))


def test_every_command_has_help_and_stands_in_the_documents(repository: Path) -> None:
    text = documents(repository)
    assert len(commands()) > 10
    assert {name for name, command in commands().items() if not (command.help or "").strip()} == set()
    assert {name for name in commands() if f"`{name}" not in text and f"\n{name}" not in text} == set()


def test_no_document_names_a_command_that_is_gone(repository: Path) -> None:
    known = commands()
    named = set(re.findall(r"`(perfci(?: [a-z]+)+)", documents(repository)))
    assert len(named) > 10
    assert {name for name in named if not any(f"{name} ".startswith(f"{k} ") for k in known)} == set()


def test_every_option_of_every_command_is_told_and_no_other(repository: Path) -> None:
    rows = dict(re.findall(r"(?m)^\| `(perfci[ a-z]*)` \| (.*) \|$", (repository / "docs" / "commands.md").read_text()))
    told = {name: set(re.findall(r"--[a-z][a-z-]+", rows.get(name, ""))) for name in commands()}
    assert told == {name: options(command) for name, command in commands().items()}


def options(command: Any) -> set[str]:
    """Of an on-and-off pair that is on by default, `--no-…` alone is worth a word."""
    chosen = [(p.secondary_opts if p.default is True and p.secondary_opts else p.opts) for p in command.params]
    return {name for names in chosen for name in names if name.startswith("--")}


def test_every_noun_of_the_model_is_in_the_glossary(repository: Path) -> None:
    architecture = (repository / "ARCHITECTURE.md").read_text()
    glossary = architecture.split("## Glossary")[1].split("\n## ")[0]
    nouns = {
        name
        for name, value in vars(model).items()
        if isinstance(value, type)
        and value.__module__ == model.__name__
        and (dataclasses.is_dataclass(value) or issubclass(value, StrEnum))
    }
    assert len(nouns) > 15
    assert {noun for noun in nouns if not re.search(rf"(?m)^\| \*\*{noun}\*\*|`{noun}`", glossary)} == set()


def test_the_page_about_the_result_file_names_every_key_of_it(repository: Path) -> None:
    page = (repository / "docs" / "artifact.md").read_text()
    nouns = (
        *(model.Run, model.Commit, model.Hardware, model.Node, model.Environment, model.Measurement, model.Workload),
        *(model.Metric, model.Timing, model.Control, model.Telemetry),
    )
    keys = {field.name for noun in nouns for field in dataclasses.fields(noun)}
    assert len(keys) > 50
    assert {key for key in keys if f'"{key}": ' not in page} == set()


@pytest.mark.parametrize("status", sorted(model.Status))
def test_every_status_is_explained(repository: Path, status: model.Status) -> None:
    assert f"`{status}`" in (repository / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize(
    ("table", "cls"),
    [
        ("suite.NAME", config.Suite),
        ("hardware.NAME", config.HardwareRule),
        ("service", config.Service),
        ("policy", config.Policy),
        ("notify.NAME", config.Channel),
    ],
)
def test_every_setting_is_documented_with_its_default(repository: Path, table: str, cls: type) -> None:
    section = (repository / "docs" / "settings.md").read_text().split(f"## [{table}]")[1].split("\n## ")[0]
    rows = dict(re.findall(r"(?m)^\| `(\w+)` \| (.*?) \|", section))
    expected = {field.name: shown(field) for field in dataclasses.fields(cls) if field.name != "name"}
    assert rows == expected


def shown(field: dataclasses.Field[object]) -> str:
    if field.default is dataclasses.MISSING:
        return "required"
    value = field.default
    if value is None:
        return "none"
    return (
        f"`{list(value)}`" if isinstance(value, tuple) else f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
    )


def test_every_picture_and_page_that_a_document_points_at_is_there(repository: Path) -> None:
    missing = []
    for path in (*repository.glob("*.md"), *(repository / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                missing.append(f"{path.name}: {target}")
    assert missing == []
