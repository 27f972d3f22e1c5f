"""What `make test-engine` writes into docs/support.md; it has run with the SGLang that the package pins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import try_sglang
from tests.try_sglang import Result, shown, with_result

ROOT = Path(__file__).parents[1]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_runs"><properties><property name="run" value="quickstart"/>
<property name="steps" value="4"/><property name="current" value="3"/><property name="greatest" value="3.9e-07"/>
</properties></testcase>
<testcase classname="tests.a" name="test_fails"><failure message="no">trace</failure></testcase>
<testcase classname="tests.a" name="test_skips"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""


def test_the_result_is_written_between_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(try_sglang, "version", lambda name: f"{len(name)}.0")
    (tmp_path / "report.xml").write_text(REPORT)
    result = Result()
    result.add(tmp_path / "report.xml")
    page = with_result("# Support\n<!-- engine -->\nold\n\nlines\n<!-- end -->\nmore\n", shown(result, 12.4))
    assert page.startswith("# Support\n<!-- engine -->\n2")
    assert page.endswith("- `tests.a::test_fails`\n<!-- end -->\nmore\n")
    assert "sglang 6.0, torch 5.0" in page
    assert "1 tests passed, 1 failed, 1 were skipped, in 12 minutes." in page
    assert "| quickstart | 4 | 3 | 3.9e-07 |" in page
    assert "old" not in page


def test_the_page_shows_the_release_that_the_package_pins() -> None:
    pin = re.search(r'"sglang==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pin is not None
    page = (ROOT / "docs/support.md").read_text().partition("<!-- engine -->")[2]
    assert f" sglang {pin[1]}," in page, "run make test-engine"
