"""A real browser for tests of pages: Chromium, and axe's findings on a page."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Page, sync_playwright

__all__ = ["DEMANDED", "chromium", "findings", "served"]

DEMANDED = "CI"
"""A variable of the environment: where it is set, a test without a browser fails."""
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium of `$CHROMIUM`, else one on the path, else playwright's own; the test is skipped without one."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path)
        except Error as error:
            reason = f"no Chromium starts: install one, or name it in $CHROMIUM ({str(error).splitlines()[0]})"
            if os.environ.get(DEMANDED):
                pytest.fail(reason)
            pytest.skip(reason)
        yield browser
        browser.close()


def findings(page: Page) -> list[str]:
    """What axe finds on a page, by all its rules."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{each['id']}: {node['target']} {node['html'][:200]}" for each in found for node in each["nodes"]]


@contextmanager
def served(cache: Path, places: Sequence[Path]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`agent-rl view` as a process: its address without the last slash, and the process."""
    words = [sys.executable, "-m", "agent_rl.cli.main", "view", *map(str, places), "--port", "0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            yield found[0].rstrip("/"), process
        finally:
            process.terminate()
            process.wait(20)
