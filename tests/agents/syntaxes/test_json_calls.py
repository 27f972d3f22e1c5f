"""What is read from the corpus, for the syntaxes of `json_calls`."""

import pytest

from tests.agents.syntaxes.corpus import check, label, rows


@pytest.mark.parametrize("row", rows("hermes", "llama3_json", "mistral", "kimi", "gpt-oss"), ids=label)
def test_every_row_of_the_corpus_is_read_as_recorded(row):
    check(row)
