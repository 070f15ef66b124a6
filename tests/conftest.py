"""What every test may rely on: settings of the person who runs them do not reach it, and in CI nothing skips."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]
R = TypeVar("R", pytest.TestReport, pytest.CollectReport)
CI = os.environ.get("CI", "").lower() in {"1", "true"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_MISSING = "no Chromium on the PATH; on Debian: sudo apt-get install chromium"

for _name in (
    *("PERFCI_CONFIG", "PERFCI_DATABASE_URL", "PERFCI_NODE", "PERFCI_IMAGE", "PYTEST_ADDOPTS"),
    *("PERFCI_AIRFLOW_DATABASE_URL", "PERFCI_LOG", "PERFCI_REPORT", "PERFCI_SEED", "PERFCI_INDEX"),
):
    os.environ.pop(_name, None)  # before anything is imported, so that child processes do not see them either

# A run in the background of a shell, or under nohup, inherits these as ignored, and so would every process it starts.
for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)

# No deadline: a busy machine is no fault. In CI the same examples each time.
hypothesis.settings.register_profile("perfci", deadline=None, derandomize=CI)
hypothesis.settings.load_profile("perfci")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout that the tests belong to."""
    return ROOT


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium; a test that asks for it carries the mark `browser`."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, BROWSER_MISSING
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without Chromium browser tests are skipped (in CI they fail), `gpu` tests are left out without a device."""
    if not CI and not any(map(shutil.which, BROWSERS)):
        for item in items:
            if "browser" in item.keywords:
                item.add_marker(pytest.mark.skip(reason=BROWSER_MISSING))
    if shutil.which("nvidia-smi") is None:
        elsewhere = [item for item in items if item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=elsewhere)
        items[:] = [item for item in items if item not in elsewhere]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _no_skip_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _no_skip_in_ci((yield))


def _no_skip_in_ci(report: R) -> R:
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report
