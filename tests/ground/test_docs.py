"""The documents name what the code has: each command, each noun, each setting with its default."""

from __future__ import annotations

import dataclasses
import re
from enum import StrEnum
from pathlib import Path

import click
import pytest
import typer.main

from perfci import config, model


def documents(repository: Path) -> str:
    return "\n".join(
        path.read_text() for path in (repository / "README.md", *sorted((repository / "docs").glob("*.md")))
    )


def commands() -> dict[str, click.Command]:
    from perfci import cli

    found: dict[str, click.Command] = {}

    def walk(name: str, command: click.Command) -> None:
        if isinstance(command, click.Group):
            for child, inner in command.commands.items():
                walk(f"{name} {child}", inner)
        else:
            found[name] = command

    walk("perfci", typer.main.get_command(cli.app))
    return found


def test_every_command_has_help_and_stands_in_the_documents(repository: Path) -> None:
    text = documents(repository)
    assert {name for name, command in commands().items() if not (command.help or "").strip()} == set()
    assert {name for name in commands() if f"`{name}" not in text and f"\n{name}" not in text} == set()


def test_no_document_names_a_command_or_option_that_is_gone(repository: Path) -> None:
    known = commands()
    options = {opt for command in known.values() for param in command.params for opt in param.opts} | {"--help"}
    text = documents(repository)
    named = set(re.findall(r"`(perfci(?: [a-z]+)+)", text))
    assert {
        name
        for name in named
        if not any(k == name or k.startswith(name + " ") or name.startswith(k + " ") for k in known)
    } == set()
    lines = [line for line in text.splitlines() if "perfci " in line]
    assert {o for line in lines for o in re.findall(r"(?<=[\s`\[|])--[a-z][a-z-]+", line)} <= options


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
