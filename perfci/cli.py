"""The command line: parse, call, print.

Exit codes: 0 all well; 1 a relevant regression or an incorrect output; 2 could not be done or measured; 130 Ctrl-C.
Everything that a single command needs is imported by that command: `perfci run` works on a node that has no database
library, and `perfci --help` is quick.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from perfci import __version__, config, logs
from perfci.commands import db as keeping
from perfci.commands import metrics, nodes, notify, runner, serve, units
from perfci.config import Settings
from perfci.errors import PerfciError, SettingsError

app = typer.Typer(
    name="perfci",
    help="Did this commit change tokens per second? perfci builds a repository's benchmarks, measures them in fresh "
    "processes, keeps the results in a database, and finds the commit that changed a number. Settings are read from "
    "perfci.toml in this folder or the nearest one above it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
db = typer.Typer(help="Make the database, look at it, take it away and bring it back.", rich_markup_mode=None)
# typer keeps its own copy of click in some versions and uses the installed one in others.
UsageProblem: Any = typer.BadParameter.__mro__[2]
assert UsageProblem.__name__ == "ClickException"

Revs = Annotated[
    list[str] | None, typer.Option("--rev", metavar="REV", help="Commit, tag or branch to measure; repeatable.")
]
Last = Annotated[
    int, typer.Option(metavar="N", help="The newest N commits of the tracked branch, where not measured yet.")
]
Suites = Annotated[
    list[str] | None, typer.Option("--suite", metavar="NAME", help="Suite of perfci.toml; repeatable. Default: all.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
Session = Annotated[
    str, typer.Option(metavar="NAME", help="The night's name, as `perfci nightly` or `perfci plan` tells it.")
]
Plan = Annotated[
    str, typer.Argument(metavar="PLAN", help="File with the output of `perfci plan`, or with one job of it.")
]


@app.callback(invoke_without_command=True)
def _options(
    ctx: typer.Context,
    config_path: Annotated[str, typer.Option("--config", metavar="PATH", help="perfci.toml to use.")] = "",
) -> None:
    logs.configure(level=logging.ERROR)  # PERFCI_LOG=json tells more
    if config_path:
        # Processes that this one starts read the same file.
        os.environ["PERFCI_CONFIG"] = str(Path(config_path).resolve())
    _help_without_command(ctx)


@app.command()
def nightly(revs: Revs = None, last: Last = 1, suites: Suites = None, as_json: AsJson = False) -> None:
    """Tonight's run: build, measure, store, judge, and a table of it.

    Builds and measures the newest commit of each suite's branch on this machine's device, under an Airflow that ends
    with the command; stores the results and looks for changes. Run again, it adds evidence for the same commit.

    Exit code: 0 all well, 1 a regression or an incorrect output, 2 something could not be measured.
    """
    from perfci import embedded, report, tonight
    from perfci import nightly as steps

    settings = _settings()
    # Planned here first: what is wrong with the settings or the repository is told at once, before Airflow starts.
    planned = steps.plan(_config(), revs=revs or (), last=last, suites=suites or ())
    for line in tonight.announced(planned):
        _progress(line)
    conf = {"revs": revs or [], "last": last, "suites": suites or [], "session": planned["session"]}
    outcome = embedded.run_nightly(settings, conf=conf, echo=_progress)
    failed = [(step.task, step.log_tail) for step in outcome.failed]
    if not outcome.ok and not failed:
        failed = [("the run", f"it failed; look at it at {outcome.url} (perfci up)")]
    night = tonight.after(settings, planned, failed=failed)
    again = f"This table again: perfci report --session {night.session}\nTo look around: perfci dashboard"
    table = f"\n{report.night_table(night)}\n{again}"
    typer.echo(_json(report.night_json(night)) if as_json else table)
    raise typer.Exit(report.exit_code(night))


@app.command()
def up(
    dashboard: Annotated[bool, typer.Option(help="With the dashboard.")] = True,
    airflow: Annotated[bool, typer.Option(help="With Airflow, which runs the nightly on its schedule.")] = True,
) -> None:
    """The service: Airflow and the dashboard, until Ctrl-C."""
    from perfci import embedded, nightly

    settings = _settings()
    nightly.opened(settings).dispose()
    embedded.up(settings, dashboard=dashboard, airflow=airflow, echo=typer.echo)


@app.command()
def dashboard() -> None:
    """The dashboard alone, until Ctrl-C."""
    up(dashboard=True, airflow=False)


@app.command()
def demo(load: Annotated[bool, typer.Option("--load", help="Fill the database and return.")] = False) -> None:
    """Recorded results and a made-up year, to look around in.

    The year has a planted regression. Both go into the ordinary database, labelled as what they are. Without --load
    the dashboard follows.
    """
    from perfci import demo as rooms
    from perfci import nightly

    settings = _settings()
    nightly.opened(settings).dispose()
    rooms.load(settings, echo=typer.echo)
    if not load:
        up(dashboard=True, airflow=False)


@app.command()
def results(
    as_json: AsJson = False,
    suites: Suites = None,
    hardware: Annotated[str, typer.Option(metavar="NAME", help="This hardware alone.")] = "",
) -> None:
    """The newest result of every series, on all hardware."""
    from perfci import nightly, report
    from perfci.results import newest

    settings = _settings()
    stored = newest(nightly.opened(settings, read_only=True))
    # The database may have a suite that perfci.toml no longer has; a name that neither has is a slip.
    for name in set(suites or ()) - {row.suite for row in stored}:
        settings.suite(name)
    known = sorted({row.hardware for row in stored})
    if hardware and known and hardware not in known:
        raise SettingsError(f"nothing was measured on {hardware!r}", next_step=f"known: {', '.join(known)}")
    found = [row for row in stored if (not suites or row.suite in suites) and hardware in ("", row.hardware)]
    typer.echo(_json([report.fields(row) for row in found]) if as_json else report.results_table(found))


@app.command()
def alerts(
    as_json: AsJson = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also closed ones and those that later data took back.")
    ] = False,
) -> None:
    """Changes that ask for an answer by `perfci triage`."""
    from perfci import changes, nightly, report
    from perfci.artifact import plain
    from perfci.store import reads

    stored = reads.alerts(nightly.opened(_settings(), read_only=True), open_only=not everything)
    found = [alert for alert in stored if everything or changes.stands(alert)]
    typer.echo(_json([plain(alert) for alert in found]) if as_json else report.alerts_text(found))


@app.command()
def triage(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="The alert, as `perfci alerts` numbers it.")],
    state: Annotated[
        str, typer.Option(metavar="STATE", help="What it is now, e.g. confirmed, accepted, fixed, invalid.")
    ],
    assignee: Annotated[str, typer.Option(metavar="NAME", help="Who looks after it.")] = "",
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
) -> None:
    """Say what became of an alert."""
    from perfci import nightly
    from perfci.model import AlertState
    from perfci.store import writes

    if state not in list(AlertState):
        raise SettingsError(f"--state {state}", next_step=f"use one of {', '.join(AlertState)}")
    engine = nightly.opened(_settings())
    writes.triage(engine, number, state=AlertState(state), assignee=assignee, note=note)
    typer.echo(f"alert {number} is {state}")


@app.command()
def run(
    suite: Annotated[str, typer.Option(metavar="NAME", help="Suite of perfci.toml. Default: the only one.")] = "",
    revs: Revs = None,
    last: Annotated[int, typer.Option(metavar="N", help="The newest N commits of the tracked branch.")] = 1,
    repo: Annotated[
        str, typer.Option(metavar="SOURCE", help="Path, URL or git bundle instead of the suite's repo.")
    ] = "",
    runs: Annotated[
        int | None, typer.Option(metavar="N", help="Fresh processes a commit. Default: the suite's.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where results go. Default: .perfci/incoming.")
    ] = None,
    hardware: Annotated[str, typer.Option(metavar="NAME", help="Refuse to run on anything else.")] = "",
    gpu: Annotated[bool, typer.Option("--gpu", help="Refuse to run without a GPU.")] = False,
) -> None:
    """Measure commits here, into result files; needs no database.

    Each fresh process leaves one file. Where the database is, `perfci ingest` stores them.
    """
    from perfci import measure

    settings = _settings()
    if gpu:
        measure.check_gpu(settings)
    jobs = measure.jobs_by_hand(
        settings, suite, hardware=hardware, repository=repo, revs=revs or (), last=last, runs=runs
    )
    paths = [path for job in jobs for path in measure.measure(_config(), job, out=out, echo=_progress)]
    for line in paths:
        typer.echo(line)
    raise typer.Exit(measure.exit_code(map(Path, paths)))


@app.command()
def plan(
    revs: Revs = None,
    last: Last = 1,
    suites: Suites = None,
    session: Annotated[str, typer.Option(metavar="NAME", help="Name of the night. Default: made from the time.")] = "",
) -> None:
    """Step 1 of a night: what is to be measured, as JSON."""
    from perfci import nightly

    typer.echo(_json(nightly.plan(_config(), revs=revs or (), last=last, session=session or None, suites=suites or ())))


@app.command()
def build(plan_file: Plan = "-") -> None:
    """Step 2 of a night: environment and build of each job of a plan."""
    from perfci import measure

    told = [measure.build(_config(), job, echo=_progress) for job in _jobs(plan_file)]
    typer.echo(_json(told))


@app.command(name="measure")
def measure_(plan_file: Plan = "-") -> None:
    """Step 3: run each job of a plan, into result files."""
    from perfci import measure

    told = [path for job in _jobs(plan_file) for path in measure.measure(_config(), job, echo=_progress)]
    typer.echo(_json(told))


@app.command()
def ingest(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Default: all results that wait.")] = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="They were measured elsewhere and delivered.")] = False,
) -> None:
    """Step 4: store result files in the database, each only once."""
    from perfci import nightly

    told = nightly.ingest(_config(), [str(file) for file in files or ()] or None, recorded=recorded)
    typer.echo(_json(told))
    for refused in told["refused"]:
        _complain(refused["reason"])
    raise typer.Exit(2 if told["refused"] else 0)


@app.command()
def detect(
    session: Session,
    synthetic: Annotated[bool, typer.Option("--synthetic", help="Generated series too.")] = False,
) -> None:
    """Step 5: look for changes in what a night touched; raise alerts."""
    from perfci import nightly

    typer.echo(_json(nightly.detect(_config(), session, synthetic=synthetic)))


@app.command()
def report(
    session: Annotated[str, typer.Option(metavar="NAME", help="The night's name. Default: the newest.")] = "",
    as_json: AsJson = False,
) -> None:
    """The table of a night that was stored earlier."""
    from perfci import report as words
    from perfci import tonight

    settings = _settings()
    night = tonight.after(settings, {"session": session or tonight.newest(settings)})
    typer.echo(_json(words.night_json(night)) if as_json else words.night_table(night), nl=as_json)
    raise typer.Exit(words.exit_code(night))


@db.callback(invoke_without_command=True)
def _db(ctx: typer.Context) -> None:
    _help_without_command(ctx)


@db.command()
def upgrade() -> None:
    """Make the database, or bring it to the newest schema."""
    from perfci import measure
    from perfci.store import schema

    settings = _settings()
    measure.prepare(settings)
    schema.upgrade(settings.database_url)
    typer.echo("the database has the newest schema")


@db.command()
def check() -> None:
    """Is the database there, with the newest schema?"""
    from perfci.store import engine, schema

    schema.check(engine.connect(_settings().database_url))
    typer.echo("the database has the newest schema")


keeping.register(db)
app.add_typer(db, name="db")
for commands in (metrics, nodes, notify, runner, serve, units):
    commands.register(app)


@app.command()
def version() -> None:
    """This perfci's version."""
    typer.echo(__version__)


def _help_without_command(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


def _config() -> str:
    return str(config.find(Path.cwd()))


def _settings() -> Settings:
    return config.load(Path(_config()))


def _jobs(plan_file: str) -> list[dict[str, Any]]:
    try:
        text = sys.stdin.read() if plan_file == "-" else Path(plan_file).read_text("utf-8")
        body = json.loads(text)
    except OSError as error:
        raise SettingsError(f"{plan_file}: {error.strerror}", next_step="name a file, or - for the input") from error
    except ValueError as error:
        raise SettingsError(
            f"{plan_file} is no plan ({error})", next_step="give it the output of `perfci plan`"
        ) from error
    jobs = body.get("jobs", [body]) if isinstance(body, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise SettingsError(f"{plan_file} holds no jobs", next_step="give it the output of `perfci plan`")
    return jobs


def _json(body: object) -> str:
    return json.dumps(body, indent=1, allow_nan=False, ensure_ascii=False)


def _progress(line: str) -> None:
    """Beside the result, so that what a command prints can be piped on."""
    typer.echo(line, err=True)


def _complain(text: str) -> None:
    typer.echo(f"perfci: {' '.join(text.split())}", err=True)


def main() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        # A name that this terminal cannot show must not end the night.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(_code())


def _code() -> int:
    try:
        return int(app(standalone_mode=False) or 0)
    except PerfciError as error:
        _complain(str(error))
    except UsageProblem as error:
        where = error.ctx.command_path if getattr(error, "ctx", None) else "perfci"
        _complain(f"{error.format_message().rstrip('.')}; see `{where} --help`")
    except (BrokenPipeError, SystemExit):
        # Whoever read the output has seen enough (typer tells it as SystemExit). Python would complain once more when
        # it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        remedy = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it accessible"
        _complain(f"{place}{error.strerror or error}; {remedy}, then try again")
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return 2


if __name__ == "__main__":
    main()
