"""The READMEs show the published results of the cards, between two comments that a command fills."""

import os
import runpy
from typing import Any

import pytest

from tests.docs.pages import ROOT, read

PAGE = "recipes/geo3k/README.md"


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/published.py"))


def test_the_command_restores_a_changed_figure_and_its_difference(
    published: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")  # must not matter
    page = read(PAGE)
    for text, other in (("Geometry3K: 65.4", "Geometry3K: 70"), ("prompt_tokens 1024 (here 2048)", "nothing differs")):
        assert text in page
        assert published["with_results"](page.replace(text, other), "geo3k") == page
    assert os.environ["VERL_PLATFORM"] == "cpu"


def test_a_readme_without_a_place_for_the_results_is_an_error(published: dict[str, Any]) -> None:
    page = read(PAGE).replace(published["MARKS"][0], "")
    with pytest.raises(SystemExit, match="must each occur once"):
        published["with_results"](page, "geo3k")


def test_a_recipe_without_cards_stays_as_it_is(published: dict[str, Any]) -> None:
    assert published["with_results"]("# code\n", "code") == "# code\n"


def test_the_check_fails_and_names_a_stale_readme(published: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    names = published["main"].__globals__
    monkeypatch.setitem(names, "with_results", lambda page, recipe: page + "x" * (recipe == "service"))
    with pytest.raises(SystemExit, match=r"READMEs of service .*make docs"):
        published["main"](["--check"])
