"""What is said about other frameworks says in which version, when and where it was read."""

import datetime
import re
from typing import Any

import pytest
import yaml

from tests.docs.pages import read

FACTS: dict[str, Any] = yaml.safe_load(read("docs/comparison.yaml"))
NAMES = sorted({name for peer in FACTS["peers"] for name in peer.split(", ")})


@pytest.mark.parametrize("name", FACTS["peers"])
def test_a_peer_has_a_version_and_the_day_it_was_read(name: str) -> None:
    peer = FACTS["peers"][name]
    assert peer.keys() == {"link", "is", "version", "read"}
    assert re.search(r"\d+\.\d+|\b[0-9a-f]{7}\b", peer["version"])
    assert isinstance(peer["read"], datetime.date)


def test_each_peer_has_one_claim_in_each_row_with_its_place() -> None:
    claims = [(claim["peer"], claim["row"]) for claim in FACTS["claims"]]
    assert sorted(claims) == sorted((peer, row) for peer in FACTS["peers"] for row in FACTS["ours"])
    assert [claim for claim in FACTS["claims"] if not (claim["words"] and claim["place"])] == []


def test_a_sentence_about_a_peer_has_its_place() -> None:
    named = [each for each in FACTS["statements"] if any(re.search(rf"\b{name}\b", each["words"]) for name in NAMES)]
    assert len(named) > 5
    assert [each["title"] for each in named if not each.get("places")] == []
