"""The real server and a real browser: what a person does with the mouse, and what a link brings back."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import ProxyHandler, build_opener

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from perfci import synthetic
from perfci.model import Status
from tests.build import H200, a_commit, a_measurement, a_run
from tests.dashboard.conftest import Home

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Without them a fresh Chromium asks the internet for updates before it opens a page.
FLAGS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")  # fmt: skip  # noqa: E501
PATIENCE_MS = 60_000
HOSTILE = "<img src=x onerror=\"document.title='taken'\"> **b** [l](http://127.0.0.1:1/) :smile: :red[r]"


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def server(home: Home) -> Iterator[str]:
    """Address of a Streamlit that reads the home's database."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(home.app), "--server.headless=true"]
    command += ["--server.address=127.0.0.1", f"--server.port={port}", "--server.fileWatcherType=none"]
    environment = os.environ | {
        "PERFCI_CONFIG": str(home.config),
        "HOME": str(home.root),
        "PYTHONPATH": str(home.app.parents[1]),
    }
    log = home.root / "streamlit.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=environment, cwd=home.root, stdout=stream, stderr=subprocess.STDOUT)
    try:
        wait_for(f"http://127.0.0.1:{port}/_stcore/health", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    opener = build_opener(ProxyHandler({}))
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            with opener.open(address, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"no answer from {address}: {log.read_text()}")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield opened
    context.close()


def selected(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def points(page: Page) -> Locator:
    """The marks of the first line; waits until the chart has stopped moving."""
    marks = page.locator(".scatterlayer .trace").first.locator(".points path")
    marks.first.wait_for()
    before = None
    while before != (before := marks.first.bounding_box()):
        page.wait_for_timeout(300)
    return marks


def click(page: Page, mark: Locator) -> None:
    box = mark.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def heading(page: Page) -> Locator:
    return page.get_by_role("heading", level=3)


def test_a_click_on_a_point_shows_the_runs_of_its_commit_and_a_link_brings_them_back(
    home: Home, server: str, page: Page, browser: Browser
) -> None:
    home.store(*synthetic.year(1, nights=20))
    commits = synthetic.commits(1)
    # The first request of a new server, and a deep link.
    page.goto(f"{server}/series?implementation=modular-pdl&hardware=synthetic-h200")
    marks = points(page)
    assert marks.count() == 20
    click(page, marks.nth(6))
    expect(heading(page)).to_contain_text(commits[6].sha[:9])
    expect(heading(page)).to_contain_text(commits[6].subject)
    expect(page.get_by_text("driver 580.159")).to_be_visible()
    expect(page.get_by_text("synthetic: made by a generator")).to_be_visible()
    assert selected(page)["commit"] == [commits[6].sha]

    click(page, points(page).nth(12))
    expect(heading(page)).to_contain_text(commits[12].sha[:9])
    page.go_back()
    expect(heading(page)).to_contain_text(commits[6].sha[:9])

    elsewhere = browser.new_context()
    other = elsewhere.new_page()
    other.goto(page.url)
    expect(heading(other)).to_contain_text(commits[6].sha[:9])
    expect(other.get_by_text("3 runs and the controls of the newest")).to_be_visible()
    assert selected(other) == selected(page)
    elsewhere.close()


def test_from_tonight_a_dot_leads_to_the_history_of_its_series(home: Home, server: str, page: Page) -> None:
    home.store(*synthetic.year(1, nights=3))
    page.goto(server)
    expect(page.get_by_role("heading", level=1)).to_have_text("Tonight")
    click(page, points(page).first)  # drawn from below: the last implementation of the glossary
    expect(page.get_by_role("heading", level=1)).to_have_text("Series")
    expect(heading(page)).to_contain_text(synthetic.commits(1)[2].sha[:9])
    assert selected(page)["implementation"] == ["megakernel-graph"]
    assert selected(page)["workload"] == ["decode/llama-1b/b1-ctx512-bf16"]


@pytest.mark.parametrize("path", ["/", f"/series?commit={a_commit().sha}"])
def test_hostile_names_are_text_on_the_screen(home: Home, server: str, page: Page, path: str) -> None:
    commit = a_commit(subject=HOSTILE)
    hardware = H200.__class__(name=HOSTILE, model="x")
    home.store(a_run([a_measurement(HOSTILE, workload=HOSTILE)], commit=commit, hardware=hardware))
    page.goto(server + path)
    points(page)
    assert page.locator("img[src=x]").count() == 0
    assert page.locator(".stMainBlockContainer a[href*='127.0.0.1:1/']").count() == 0
    assert page.title() != "taken"
    shown = "\n".join(page.get_by_role("heading").all_inner_texts()).replace("\u2060", "")
    assert "**b** [l](http://127.0.0.1:1/) :smile: :red[r]" in shown
    badge = page.locator(".stMarkdownBadge").first.inner_text().replace("\u2060", "")
    assert "**b** [l](http://127.0.0.1:1/) :smile: :red[r]" in badge
    labels = page.locator(".js-plotly-plot").first.text_content() or ""
    assert "<img src=x" in labels


def test_the_pages_ask_nobody_but_their_server_for_anything(home: Home, server: str, page: Page) -> None:
    home.store(a_run([a_measurement(), a_measurement("modular", status=Status.UNSUPPORTED)]))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in ("/", "/series"):
        page.goto(server + path)
        points(page)
    assert asked
    assert [u for u in asked if not u.startswith((server, "data:", "blob:"))] == []


def test_a_dead_database_is_a_sentence_and_comes_back(home: Home, server: str, page: Page) -> None:
    database = home.root / ".perfci" / "perfci.db"
    kept = database.read_bytes()
    database.unlink()
    page.goto(f"{server}/series")
    expect(page.get_by_text("there is no database at")).to_be_visible()
    expect(page.get_by_text("perfci db upgrade")).to_be_visible()
    assert not re.search(r"Traceback|StoreError", page.content())
    database.write_bytes(kept)
    page.reload()
    expect(page.get_by_text("No measurements yet.")).to_be_visible()
