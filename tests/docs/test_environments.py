"""The page of environments has the environments that the tests of the families play."""

import re

import pytest

from agent_rl.environments.families import family_names
from tests.docs.pages import ROOT
from tests.environments.table import rollouts_of

pytestmark = pytest.mark.slow


def test_the_page_is_of_these_environments() -> None:
    page = (ROOT / "docs/reference/environments.md").read_text()
    rows = re.findall(r"^\| `(.*?)` \|.*\| (\w+) \|$", page, re.MULTILINE)
    played = [f"{family}:{id}" for family in family_names() for id in sorted(rollouts_of(family))]
    assert rows == [(target, "yes") for target in played], "write it again: python -m tests.environments.table"
