"""A copy of a recipe whose twin is tiny."""

import pytest

from tests.evaluation.experiments.tiny_twins import tiny_twin


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory):
    """text_to_sql with few rows, whose cold start takes two steps; its folder `world` beside it."""
    return tiny_twin("text_to_sql", tmp_path_factory.mktemp("gallery"))
