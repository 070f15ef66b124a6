"""The command line: parse, call, print.

Exit codes: 0 all well; 1 a relevant regression or an incorrect output; 2 could not be done or measured; 130 Ctrl-C.
Everything that a single command needs is imported by that command: `perfci run` works on a node that has no database
library, and `perfci --help` is quick.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from perfci import __version__, logs
from perfci.commands import backfill, doctor, metrics, nodes, notify, runner, serve, steps, units
from perfci.commands import db as keeping
from perfci.commands.arguments import AsJson, Hardware, Last, Revs, Suites, as_text, complain, config_path, progress
from perfci.commands.arguments import settings as settings_here
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
def nightly(
    revs: Revs = None, last: Last = 1, suites: Suites = None, hardware: Hardware = None, as_json: AsJson = False
) -> None:
    """Tonight's run: build, measure, store, judge, and a table of it.

    Builds and measures the newest commit of each suite's branch on this machine's device, under an Airflow that ends
    with the command; stores the results and looks for changes. Run again, it adds evidence for the same commit.

    Exit code: 0 all well, 1 a regression or an incorrect output, 2 something could not be measured.
    """
    from perfci import embedded, report, tonight
    from perfci import nightly as night_steps

    settings = settings_here()
    # Planned here first: what is wrong with the settings or the repository is told at once, before Airflow starts.
    planned = night_steps.plan(config_path(), revs=revs or (), last=last, suites=suites or (), hardware=hardware or ())
    for line in tonight.announced(planned):
        progress(line)
    asked = {"revs": revs or [], "last": last, "suites": suites or [], "hardware": hardware or []}
    conf = {**asked, "session": planned["session"]}
    outcome = embedded.run_nightly(settings, conf=conf, echo=progress)
    failed = [(step.task, step.log_tail) for step in outcome.failed]
    if not outcome.ok and not failed:
        failed = [("the run", f"it failed; look at it at {outcome.url} (perfci up)")]
    night = tonight.after(settings, planned, failed=failed)
    again = f"This table again: perfci report --session {night.session}\nTo look around: perfci dashboard"
    table = f"\n{report.night_table(night)}\n{again}"
    typer.echo(as_text(report.night_json(night)) if as_json else table)
    raise typer.Exit(report.exit_code(night))


@app.command()
def up(
    dashboard: Annotated[bool, typer.Option(help="With the dashboard.")] = True,
    airflow: Annotated[bool, typer.Option(help="With Airflow, which runs the nightly on its schedule.")] = True,
) -> None:
    """The service: Airflow and the dashboard, until Ctrl-C."""
    from perfci import embedded, nightly

    settings = settings_here()
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

    settings = settings_here()
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

    settings = settings_here()
    stored = newest(nightly.opened(settings, read_only=True))
    # The database may have a suite that perfci.toml no longer has; a name that neither has is a slip.
    for name in set(suites or ()) - {row.suite for row in stored}:
        settings.suite(name)
    known = sorted({row.hardware for row in stored})
    if hardware and known and hardware not in known:
        raise SettingsError(f"nothing was measured on {hardware!r}", next_step=f"known: {', '.join(known)}")
    found = [row for row in stored if (not suites or row.suite in suites) and hardware in ("", row.hardware)]
    typer.echo(as_text([report.fields(row) for row in found]) if as_json else report.results_table(found))


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

    stored = reads.alerts(nightly.opened(settings_here(), read_only=True), open_only=not everything)
    found = [alert for alert in stored if everything or changes.stands(alert)]
    typer.echo(as_text([plain(alert) for alert in found]) if as_json else report.alerts_text(found))


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
    engine = nightly.opened(settings_here())
    writes.triage(engine, number, state=AlertState(state), assignee=assignee, note=note)
    typer.echo(f"alert {number} is {state}")


@app.command()
def report(
    session: Annotated[str, typer.Option(metavar="NAME", help="The night's name. Default: the newest.")] = "",
    as_json: AsJson = False,
) -> None:
    """The table of a night that was stored earlier."""
    from perfci import report as words
    from perfci import tonight

    settings = settings_here()
    night = tonight.after(settings, {"session": session or tonight.newest(settings)})
    typer.echo(as_text(words.night_json(night)) if as_json else words.night_table(night), nl=as_json)
    raise typer.Exit(words.exit_code(night))


@db.callback(invoke_without_command=True)
def _db(ctx: typer.Context) -> None:
    _help_without_command(ctx)


@db.command()
def upgrade() -> None:
    """Make the database, or bring it to the newest schema."""
    from perfci import measure
    from perfci.store import schema

    settings = settings_here()
    measure.prepare(settings)
    schema.upgrade(settings.database_url)
    typer.echo("the database has the newest schema")


@db.command()
def check() -> None:
    """Is the database there, with the newest schema?"""
    from perfci.store import engine, schema

    schema.check(engine.connect(settings_here().database_url))
    typer.echo("the database has the newest schema")


keeping.register(db)
app.add_typer(db, name="db")
for commands in (steps, backfill, doctor, metrics, nodes, notify, runner, serve, units):
    commands.register(app)


@app.command()
def version() -> None:
    """This perfci's version."""
    typer.echo(__version__)


def _help_without_command(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


def main() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        # A name that this terminal cannot show must not end the night.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(_code())


def _code() -> int:
    try:
        return int(app(standalone_mode=False) or 0)
    except PerfciError as error:
        complain(str(error))
    except UsageProblem as error:
        where = error.ctx.command_path if getattr(error, "ctx", None) else "perfci"
        complain(f"{error.format_message().rstrip('.')}; see `{where} --help`")
    except (BrokenPipeError, SystemExit):
        # Whoever read the output has seen enough (typer tells it as SystemExit). Python would complain once more when
        # it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        remedy = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it accessible"
        complain(f"{place}{error.strerror or error}; {remedy}, then try again")
    except (KeyboardInterrupt, typer.Abort):
        return 130
    return 2


if __name__ == "__main__":
    main()
