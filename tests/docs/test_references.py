"""The generated pages are what the package says."""

import runpy
from typing import Any

import pytest

from tests.docs.pages import ROOT, read


@pytest.fixture(scope="module")
def references() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/references.py"))


@pytest.mark.parametrize(
    "page",
    [
        "results.md",
        "reference/settings.md",
        "reference/commands.md",
        "reference/built_in.md",
        "reference/python.md",
        "reference/metrics.md",
        "reference/gpu_node.md",
        "../README.md",
        "start.md",
        "guides/migration.md",
        "comparison.md",
        pytest.param("start.ipynb", marks=pytest.mark.trainer),
    ],
)
def test_a_reference_is_up_to_date(references: dict[str, Any], page: str) -> None:
    assert references["PAGES"][page]() == read(f"docs/{page}"), "run `make docs`"


def test_the_address_of_the_repository_is_set_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    references = runpy.run_path(str(ROOT / "docs/references.py"))
    monkeypatch.setitem(references["with_address"].__globals__, "REPOSITORY", "https://host/agent_rl")
    for page, count in {"../README.md": 2, "start.md": 1, "reference/gpu_node.md": 1}.items():
        text = references["PAGES"][page]()
        assert text.count("https://host/agent_rl") == count
        assert "<this repository>" not in text


def test_every_setting_has_a_meaning() -> None:
    rows = [line for line in read("docs/reference/settings.md").splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == []
