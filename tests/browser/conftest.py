"""A real browser in front of a real dashboard. Whatever it complains about fails the test: a refused script, a dialog, a request elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))

from playwright.sync_api import Browser, expect, sync_playwright
from support import Cluster
from visits import Visit

from forebay.devstack import DevStack

expect.set_options(timeout=20_000)  # a machine that others use as well

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


@pytest.fixture(scope="session")
def cluster(broker: DevStack) -> Cluster:
    return Cluster(broker)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is. Debian's package is installed where this is root; elsewhere these tests say that it is missing."""
    # Two workers of pytest must not install at once: apt-get refuses the second.
    with FileLock(Path(tempfile.gettempdir()) / "forebay-tests-chromium.lock"):
        for name in ("chromium", "chromium-browser", "google-chrome"):
            if found := shutil.which(name):
                return found
        if os.geteuid() == 0 and shutil.which("apt-get"):
            quiet = {"check": False, "capture_output": True, "timeout": 280}
            subprocess.run(["apt-get", "update", "-q"], **quiet)  # type: ignore[call-overload]
            subprocess.run(["apt-get", "install", "-qy", "--no-install-recommends", "chromium"], **quiet)  # type: ignore[call-overload]
            if found := shutil.which("chromium"):
                return found
    pytest.skip("Chromium is not installed, and cannot be here: apt-get install chromium")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """One a file: Playwright's event loop must not be left to the files that come after."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was on the screen is kept: in FOREBAY_SCREENSHOTS, or in pytest's own folder."""
    given = os.environ.get("FOREBAY_SCREENSHOTS")
    folder = Path(given) if given else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def visit(browser: Browser, address: str, screenshots: Path) -> Iterator[Visit]:
    """A window on the dashboard at `address`, which the file's own fixture gives."""
    made = Visit(browser, address, screenshots)
    yield made
    made.close()
