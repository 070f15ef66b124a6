"""A box made into a node. May be killed and repeated: what is there already is kept.

Nothing of the machine is changed but the node's folder and, where they are asked for, two users and a systemd unit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfci import config
from perfci.bench import cpu, gpu, probe, process
from perfci.bench import subject as subjects
from perfci.config import FILE_NAME, Settings
from perfci.errors import ServiceError, SettingsError
from perfci.runner import box, environments, installed, roster, units, users, worker
from perfci.runner.environments import Source
from perfci.runner.findings import Finding, Level, failed, ok, warn
from perfci.runner.installed import Installed
from perfci.runner.users import Users

Echo = Callable[[str], None]
_KEY = "from pathlib import Path; from perfci.runner import keys; keys.main(Path({path!r}))"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What `perfci runner setup` was asked for. runner: a Python that has torch; empty: make an environment.

    slots: devices to use; 0: all that are there. users: None: everything is this user's.
    """

    server: str
    airflow: str
    name: str
    hardware: str
    folder: Path
    source: Source
    queue: str = ""
    slots: int = 0
    runner: str = ""
    users: Users | None = None
    units: Path | None = None


def look(wish: Wish) -> tuple[Finding, ...]:
    """What speaks against it. Changes nothing."""
    roster.check_name(wish.name)
    return (
        *box.programs(),
        *box.processors(),
        box.disk(wish.folder, with_torch=not wish.runner),
        *box.reach(wish.server, wish.airflow, otherwise=Level.WARN),
    )


def make(wish: Wish, *, echo: Echo) -> tuple[Finding, ...]:
    """Raises ServiceError, SettingsError."""
    found: list[Finding] = []
    _check_idle(wish)
    try:
        wish.folder.mkdir(parents=True, exist_ok=True)
        python = environments.make(wish.folder / "worker", wish.source.worker(), wish.source, echo=echo)
        runner = wish.runner or str(
            environments.make(wish.folder / "runner", wish.source.runner(), wish.source, echo=echo)
        )
        if wish.users:
            found += users.make(wish.users)
        node = Installed(wish.name, wish.hardware, wish.queue or wish.hardware, _slots(wish), str(python))
        found.append(_settings(wish, node, runner))
        settings = config.load(wish.folder / FILE_NAME)
        (wish.folder / installed.FILE).write_text(node.text(), "utf-8")
        _own(settings, wish.users)
        found.append(_key(settings, node, wish.users))
        if wish.units:
            found.append(_unit(wish, wish.units))
    except OSError as error:
        raise ServiceError(
            f"{error.filename or wish.folder}: {error.strerror}",
            next_step="make it writable, or choose another --folder",
        ) from error
    if wish.users is None and os.geteuid() == 0:
        found.append(
            warn("users", "what is measured runs as root, beside the node's key", next_step="repeat it with --users")
        )
    return tuple(found)


def _check_idle(wish: Wish) -> None:
    """An environment is not replaced below a worker that runs in it."""
    parts = ((wish.folder / "worker", wish.source.worker()), (wish.folder / "runner", wish.source.runner()))
    left = [folder for folder, wanted in parts[: 1 if wish.runner else 2] if not _is_made(folder, wanted, wish)]
    path = wish.folder / FILE_NAME
    if left and path.is_file() and (pid := worker.at_work(config.load(path))):
        raise ServiceError(f"the worker (process {pid}) runs in {wish.folder}", next_step="end it, then run this again")


def _is_made(folder: Path, wanted: tuple[str, ...], wish: Wish) -> bool:
    return environments.is_made(folder, wanted, wish.source)


def next_steps(wish: Wish) -> tuple[str, ...]:
    """What the person does now."""
    folder, queue, slots = wish.folder, wish.queue or wish.hardware, _slots(wish)
    start = f"{folder}/worker/bin/perfci --config {folder}/{FILE_NAME} runner start"
    systemctl = "systemctl" if os.geteuid() == 0 else "systemctl --user"
    enable = f"{systemctl} daemon-reload && {systemctl} enable --now perfci-worker"
    return (
        f"1. on the control plane, with {folder}/{wish.name}.key.json copied there:",
        f"     perfci nodes add {wish.name} {wish.name}.key.json",
        "   and in its perfci.toml, if it is not there yet (slots: devices of all nodes of this hardware):",
        f"     [hardware.{wish.hardware}]",
        f'     queue = "{queue}"',
        f"     slots = {slots}",
        "2. here:",
        f"     {enable if wish.units else start}",
        "3. if something is wrong, on either side: perfci doctor",
    )


def _slots(wish: Wish) -> int:
    return wish.slots or max(1, len(gpu.gpus()))


def _settings(wish: Wish, node: Installed, runner: str) -> Finding:
    """Written once: people add to it, e.g. `launch`."""
    path, text = wish.folder / FILE_NAME, _toml(wish, node, runner)
    if not path.exists():
        path.write_text(text, "utf-8")
        return ok("settings", f"{path} was written")
    if path.read_text("utf-8") == text:
        return ok("settings", f"{path} is as it should be")
    config.load(path)
    other = path.with_suffix(".toml.new")
    other.write_text(text, "utf-8")
    return warn("settings", f"{path} is there, and kept", next_step=f"compare it with {other}")


def _toml(wish: Wish, node: Installed, runner: str) -> str:
    service = {
        "executor": "EdgeExecutor",
        "server": wish.server,
        "airflow_url": wish.airflow,
        "runner": runner,
        **({"subject": wish.users.subject} if wish.users else {}),
    }
    hardware: dict[str, object] = {"queue": node.queue, "slots": node.slots}
    if match := _match(wish.hardware):
        hardware["match"] = match
    lines = ["# Written by perfci runner setup. A node needs no suites: jobs bring them along.", "", "[service]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in service.items()]
    lines += ["", f"[hardware.{json.dumps(wish.hardware)}]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in hardware.items()]
    return "\n".join(lines) + "\n"


def _match(hardware: str) -> str:
    """What of the device's model makes it that hardware; empty where it has the name by itself."""
    found = gpu.gpus()
    model = found[0].model if found else cpu.parse_cpuinfo(cpu.cpuinfo()).model
    own = probe.gpu_slug(model) if found else probe.hardware().name
    return "" if own == hardware else model


def _own(settings: Settings, made: Users | None) -> None:
    home = installed.airflow_home(settings)
    if made:
        users.own(settings.state, made.worker, mode=0o755)
        users.own(home, made.worker, mode=0o700)
        return
    settings.state.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    home.chmod(0o700)


def _key(settings: Settings, node: Installed, made: Users | None) -> Finding:
    """Made by the worker's environment, which has the means, as the worker, whose it is."""
    said = process.run(
        (node.worker, "-c", _KEY.format(path=str(installed.key_file(settings)))),
        folder=Path("/"),
        environment=process.scrubbed(os.environ),
        timeout_s=120,
        log=Path(os.devnull),
        subject=subjects.of(made.worker) if made else None,
    )
    last = said.tail.rpartition("\n")[2]
    if said.code != 0:
        raise ServiceError(f"no key could be made: {last}", next_step="mend that and run this again")
    public = installed.public_key_file(settings, node)
    public.write_text(installed.public_text(json.loads(last)), "utf-8")
    return ok("key", f"{installed.key_file(settings)}; its public half: {public}")


def _unit(wish: Wish, folder: Path) -> Finding:
    path = folder / units.NAME
    folder.mkdir(parents=True, exist_ok=True)
    user, system = wish.users.worker if wish.users else "", folder == units.SYSTEM or wish.users is not None
    path.write_text(units.text(wish.folder, node=wish.name, user=user, system=system), "utf-8")
    return ok("systemd", f"{path} was written")


def check(wish: Wish, *, echo: Echo) -> bool:
    """Say what was found; False where something has to be mended first."""
    found = look(wish)
    for finding in found:
        echo(str(finding))
    return not failed(found)


def default_folder() -> Path:
    return Path("/opt/perfci") if os.geteuid() == 0 else Path.home() / "perfci"


def pip_options(given: tuple[str, ...]) -> tuple[str, ...]:
    """With the versions that are known to work, unless other ones are named."""
    known = environments.constraints()
    named = any(word in ("-c", "--constraint") for word in given)
    return given if named or known is None else (*given, "-c", str(known))


def checked_url(option: str, url: str) -> str:
    """Raises SettingsError."""
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"{option} {url!r} is no URL", next_step="write http:// or https:// before it")
    return url.rstrip("/")
