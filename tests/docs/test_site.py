"""The site can be built without warnings, and needs nothing from the network to be read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

pytestmark = pytest.mark.slow

NOT_ON_THE_SITE = {"tests/README.md"}


def test_the_site(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", ".", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    made = {str(path.relative_to(tmp_path).with_suffix(".md")) for path in tmp_path.rglob("*.html")}
    assert set(PAGES) - NOT_ON_THE_SITE <= made
    fetched = r'<(?:script|img|link)[^>]+(?:src|href)="https?://|url\(["\']?https?://|@import'
    for page in [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]:
        assert not re.search(fetched, page.read_text()), page
