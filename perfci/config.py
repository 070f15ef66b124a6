"""`perfci.toml`: read once, checked whole, never changed.

Standard library only, since a node reads its suites from the same file. Every setting has a default; a
misspelt one is an error that names the nearest right one.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from perfci import toml
from perfci.errors import SettingsError

FILE_NAME = "perfci.toml"
T = TypeVar("T")

RESULTS = ("pytest-benchmark",)
CHANNELS = ("email", "slack", "webhook")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@dataclass(frozen=True, slots=True)
class Suite:
    """What is put under perfci. Commands run in a checkout of one commit."""

    name: str
    repo: str  # a path (relative to perfci.toml) or a URL that git can fetch
    run: str  # e.g. "pytest benchmarks"
    paths: tuple[str, ...] = ()  # what of the repository matters; empty: all of it
    branch: str = "main"
    environment: str = ""  # a pip requirements or lock file inside the repository; empty: the runner's own
    build: str = ""
    results: str = "pytest-benchmark"
    runs: int = 3  # fresh processes a commit and night
    timeout_s: float = 1800.0  # of one process, and of the build
    hardware: tuple[str, ...] = ()  # where it is measured, by name; empty: everywhere
    devices: int = 1  # that one process of it needs
    deploy_key: str = ""  # ssh key file for `repo`, relative to perfci.toml; empty: the user's own

    def __post_init__(self) -> None:
        where = f"suite.{self.name}"
        _check_name(where, self.name)
        for key in ("repo", "run", "branch"):
            if not getattr(self, key).strip():
                raise SettingsError(f"{where}.{key} is empty", next_step="give it a value")
        if self.results not in RESULTS:
            raise SettingsError(f"{where}.results = {self.results!r}", next_step=f"use one of {', '.join(RESULTS)}")
        if not 1 <= self.runs <= 100:
            raise SettingsError(f"{where}.runs = {self.runs}", next_step="use 1 to 100 processes")
        if not 1 <= self.devices <= 64:
            raise SettingsError(f"{where}.devices = {self.devices}", next_step="use 1 to 64 devices")
        if not 1 <= self.timeout_s <= 86400:
            raise SettingsError(f"{where}.timeout_s = {self.timeout_s}", next_step="use 1 to 86400 seconds")
        for key in ("run", "build"):
            _check_command(f"{where}.{key}", getattr(self, key))
        for path in (*self.paths, self.environment):
            if path.startswith("/") or ".." in Path(path).parts:
                raise SettingsError(f"{where} names {path!r}", next_step="use a path inside the repository")

    @property
    def files(self) -> tuple[str, ...]:
        """What of the repository a run may read: `paths` and the lock file; empty: all of it."""
        return (*self.paths, self.environment) if self.paths and self.environment else self.paths


@dataclass(frozen=True, slots=True)
class HardwareRule:
    """How a class of device is reached. `match` is part of the device's model name, e.g. "H200"."""

    name: str
    match: str = ""
    queue: str = ""  # Airflow queue; empty: the default one
    launch: str = "{cmd}"  # wraps every command, e.g. "srun --gpus=1 {cmd}"
    price_per_hour: float | None = None  # US dollars for all its devices together
    slots: int = 1  # devices of this class over all nodes: so many may be at work at once
    night_minutes: float | None = None  # device minutes that a night may take

    def __post_init__(self) -> None:
        _check_name(f"hardware.{self.name}", self.name)
        if not 1 <= self.slots <= 10_000:
            raise SettingsError(f"hardware.{self.name}.slots = {self.slots}", next_step="use 1 to 10000 devices")
        if self.night_minutes is not None and not 0 < self.night_minutes < math.inf:
            raise SettingsError(
                f"hardware.{self.name}.night_minutes = {self.night_minutes}", next_step="use more than 0 minutes"
            )
        if self.launch.count("{cmd}") != 1:
            raise SettingsError(
                f"hardware.{self.name}.launch = {self.launch!r}", next_step="write {cmd} once, where the command goes"
            )
        _check_command(f"hardware.{self.name}.launch", self.launch)
        if self.price_per_hour is not None and not 0 <= self.price_per_hour < math.inf:
            raise SettingsError(
                f"hardware.{self.name}.price_per_hour = {self.price_per_hour}", next_step="use 0 or more"
            )


@dataclass(frozen=True, slots=True)
class Service:
    """Where state lives, and how the embedded services run."""

    state: str = ".perfci"
    database: str = ""  # SQLAlchemy URL; empty: SQLite in the state folder; PERFCI_DATABASE_URL goes first
    schedule: str = "0 2 * * *"  # cron, of the nightly
    timezone: str = "UTC"
    airflow_port: int = 8080
    dashboard_port: int = 8501
    executor: str = ""  # Airflow executor of measuring tasks; empty: the scheduler's own
    bind: str = "127.0.0.1"  # address that Airflow's API server and `perfci serve` listen on
    server_port: int = 8090  # of `perfci serve`
    server: str = ""  # its URL as nodes reach it; empty: results are handed over in the state folder
    airflow_url: str = ""  # as nodes reach it; empty: bind and airflow_port
    airflow_database: str = ""  # SQLAlchemy URL; empty: SQLite; PERFCI_AIRFLOW_DATABASE_URL goes first
    absent_minutes: float = 30.0  # what waits for a queue without a live node is given up after so long
    runner: str = ""  # on a node: Python of the environment that measures; empty: the one that runs perfci
    subject: str = ""  # on a node: user that a suite's commands run as; empty: the one that runs perfci

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_address(self.bind)
        except ValueError as error:
            raise SettingsError(
                f"service.bind = {self.bind!r} is no address", next_step='use one of this machine, e.g. "127.0.0.1"'
            ) from error
        if not 0 < self.absent_minutes < math.inf:
            raise SettingsError(f"service.absent_minutes = {self.absent_minutes}", next_step="use more than 0 minutes")
        for key in ("server", "airflow_url"):
            if url := getattr(self, key):
                _check_url(f"service.{key}", url)
        for key in ("airflow_port", "dashboard_port", "server_port"):
            if not 0 <= getattr(self, key) <= 65535:
                raise SettingsError(f"service.{key} = {getattr(self, key)}", next_step="use a port, 0 for any free one")


@dataclass(frozen=True, slots=True)
class Policy:
    """What is worth a person's attention. Fractions, not per cent."""

    relevance: float = 0.01  # a change smaller than this is reported, but alerts nobody
    # 8 points before a first alarm: with fewer, a 4-sigma rule on normal noise alarms too often.
    minimum_history: int = 8
    raw_samples_days: int | None = None  # raw samples older than this may be thinned; None: kept
    # A night without a new commit measures nothing, but every so many of them the newest commit again: how much two
    # measurements of the same code differ is what every verdict rests on. A week costs a seventh of the device time.
    audit_nights: int = 7

    def __post_init__(self) -> None:
        if self.raw_samples_days is not None and self.raw_samples_days < 1:
            raise SettingsError(f"policy.raw_samples_days = {self.raw_samples_days}", next_step="use 1 or more days")
        if self.audit_nights < 1:
            raise SettingsError(f"policy.audit_nights = {self.audit_nights}", next_step="use 1 or more nights")
        if not 0 < self.relevance < 1:
            raise SettingsError(f"policy.relevance = {self.relevance}", next_step="use a fraction between 0 and 1")
        if self.minimum_history < 2:
            raise SettingsError(f"policy.minimum_history = {self.minimum_history}", next_step="use 2 or more")


@dataclass(frozen=True, slots=True)
class Channel:
    """Where people are told. `url`, `user` and `password` may be "env:NAME": the value of that variable, read when it
    is needed, so that no secret stands in the file."""

    name: str
    kind: str  # one of CHANNELS
    url: str = ""  # of a Slack or generic webhook; secret
    key: str = ""  # signs the body of a generic webhook (HMAC-SHA256); secret
    to: tuple[str, ...] = ()  # e-mail addresses
    sender: str = ""
    smtp: str = ""  # host:port
    user: str = ""
    password: str = ""

    def __post_init__(self) -> None:
        where = f"notify.{self.name}"
        _check_name(where, self.name)
        if self.kind not in CHANNELS:
            raise SettingsError(f"{where}.kind = {self.kind!r}", next_step=f"use one of {', '.join(CHANNELS)}")
        needed = ("to", "sender", "smtp") if self.kind == "email" else ("url",)
        if absent := [key for key in needed if not getattr(self, key)]:
            raise SettingsError(f"[{where}] lacks {', '.join(absent)}", next_step="add it")
        if self.url and not self.url.startswith("env:"):
            _check_url(f"{where}.url", self.url)


@dataclass(frozen=True, slots=True)
class Settings:
    """`root` is the folder of perfci.toml."""

    root: Path
    suites: Mapping[str, Suite] = field(default_factory=dict)
    hardware: Mapping[str, HardwareRule] = field(default_factory=dict)
    service: Service = Service()
    policy: Policy = Policy()
    channels: Mapping[str, Channel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for suite in self.suites.values():
            for name in suite.hardware:
                if name not in self.hardware:
                    near = difflib.get_close_matches(name, self.hardware, n=1)
                    hint = f"did you mean {near[0]!r}?" if near else f"add a [hardware.{name}]"
                    raise SettingsError(f"suite.{suite.name}.hardware names {name!r}", next_step=hint)
            for name in suite.hardware or self.hardware:
                if suite.devices > self.hardware[name].slots:
                    raise SettingsError(
                        f"suite.{suite.name}.devices = {suite.devices}, and hardware.{name}.slots is "
                        f"{self.hardware[name].slots}",
                        next_step="say how many devices there are",
                    )

    @property
    def airflow_database_url(self) -> str:
        """Empty: SQLite in Airflow's own folder."""
        return os.environ.get("PERFCI_AIRFLOW_DATABASE_URL") or self.service.airflow_database

    @property
    def secrets(self) -> Path:
        """Made once, readable by their owner alone."""
        return self.state / "secrets"

    @property
    def bundles(self) -> Path:
        """Sources on their way to nodes: may be deleted when nothing runs."""
        return self.state / "bundles"

    @property
    def outgoing(self) -> Path:
        """On a node: results that are not handed over yet."""
        return self.state / "outgoing"

    @property
    def nodes(self) -> Path:
        """Public keys of the nodes that may work here."""
        return self.state / "nodes"

    @property
    def state(self) -> Path:
        return self.root / self.service.state

    @property
    def database_url(self) -> str:
        default = f"sqlite:///{self.state / 'perfci.db'}"
        return os.environ.get("PERFCI_DATABASE_URL") or self.service.database or default

    @property
    def incoming(self) -> Path:
        """Results that wait to be ingested; a file lies here until the database has it."""
        return self.state / "incoming"

    @property
    def artifacts(self) -> Path:
        return self.state / "artifacts"

    @property
    def cache(self) -> Path:
        """Mirrors, environments and builds: may be deleted at any time."""
        return self.state / "cache"

    @property
    def worktrees(self) -> Path:
        return self.state / "worktrees"

    def suite(self, name: str) -> Suite:
        return _named("suite", name, self.suites)

    def rule(self, hardware: str) -> HardwareRule | None:
        """Of a class of device; of several of them together, `NAME-xN`, that of one. None where there is none."""
        base, mark, count = hardware.rpartition("-x")
        return self.hardware.get(hardware) or (self.hardware.get(base) if mark and count.isdigit() else None)

    def repository(self, suite: Suite) -> str:
        """A URL as it stands; a path made absolute against perfci.toml."""
        if "://" in suite.repo or (":" in suite.repo and not Path(suite.repo).exists()):
            return suite.repo
        return str((self.root / Path(suite.repo).expanduser()).resolve())


def find(start: Path) -> Path:
    """perfci.toml in `start` or the nearest folder above it."""
    if explicit := os.environ.get("PERFCI_CONFIG"):
        return Path(explicit).resolve()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise SettingsError(f"no {FILE_NAME} in {start} or above it", next_step="go to a folder that has one, or write one")


def load(path: Path) -> Settings:
    """Raises SettingsError for a file that is missing, no TOML, or has a key or value perfci does not know."""
    try:
        body = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}", next_step=f"name a readable {FILE_NAME}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: {error}", next_step="mend the file") from error
    toml.check_keys(str(path), body, {"suite", "hardware", "service", "policy", "notify"})
    return Settings(
        root=path.resolve().parent,
        suites={
            name: toml.built(Suite, f"suite.{name}", table, name=name) for name, table in toml.tables(body, "suite")
        },
        hardware={
            name: toml.built(HardwareRule, f"hardware.{name}", table, name=name)
            for name, table in toml.tables(body, "hardware")
        },
        service=toml.built(Service, "service", toml.table("service", body.get("service", {}))),
        policy=toml.built(Policy, "policy", toml.table("policy", body.get("policy", {}))),
        channels={
            name: toml.built(Channel, f"notify.{name}", table, name=name) for name, table in toml.tables(body, "notify")
        },
    )


def _check_name(where: str, name: str) -> None:
    if not name or not set(name) <= _NAME or name.startswith((".", "-")):
        raise SettingsError(f"{where} is no usable name", next_step="use letters, digits, '-', '_' and '.'")


def _check_url(where: str, url: str) -> None:
    """A password in it would be told wherever the URL is."""
    try:
        parts = urlsplit(url)
        fine = not url or (
            parts.scheme in ("http", "https") and parts.hostname and not parts.username and parts.port != 0
        )
    except ValueError:
        fine = False
    if not fine:
        raise SettingsError(
            f"{where} = {url!r} is no URL", next_step="write http:// or https://, host, and a port or none"
        )


def _check_command(where: str, command: str) -> None:
    try:
        shlex.split(command)
    except ValueError as error:
        raise SettingsError(f"{where} = {command!r} ({error})", next_step="close the quote") from error


def _named(kind: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"
        raise SettingsError(f"no {kind} named {name!r} in {FILE_NAME}", next_step=hint)
    return known[name]
