"""What `make test-engine` writes into docs/support.md: it has run with the SGLang that the package pins."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_shows_the_release_that_the_package_pins() -> None:
    pin = re.search(r'"sglang==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pin is not None
    page = (ROOT / "docs/support.md").read_text().partition("<!-- engine -->")[2]
    assert f" sglang {pin[1]}," in page, "run make test-engine"
