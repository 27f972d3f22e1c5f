import json
from collections.abc import Iterator

import pytest

from agent_rl.doctor import check as check_module
from agent_rl.doctor.case import Case
from agent_rl.doctor.check import (
    GROUPS,
    Check,
    Finding,
    Status,
    all_checks,
    check,
    ok,
    problem,
    reason,
    skipped,
    warning,
)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], Check]:
    """What is registered here is forgotten afterwards."""
    all_checks()
    copy = dict(check_module._found)
    monkeypatch.setattr(check_module, "_found", copy)
    return copy


def test_every_check_says_what_it_looks_for_and_groups_are_in_order() -> None:
    checks = all_checks()
    assert all(each.run.__doc__ for each in checks)
    assert len({each.run for each in checks}) == len(checks) > 40
    assert tuple(dict.fromkeys(each.group for each in checks)) == GROUPS


def test_a_check_returns_a_finding_several_or_none() -> None:
    @check("machine")
    def one_thing(case: Case) -> Finding:
        """Finds one thing."""
        return ok("found")

    @check("machine", "both")
    def two_things(case: Case) -> Iterator[Finding]:
        """Finds two things."""
        yield ok("first")
        yield problem("second", "change it", "another")

    @check("machine")
    def nothing(case: Case) -> None:
        """Finds nothing."""

    assert list(one_thing(Case())) == [Finding("one thing", Status.OK, "found", group="machine")]
    assert [finding.subject for finding in two_things(Case())] == ["both", "another"]
    assert list(nothing(Case())) == []


def test_a_check_of_a_new_group_stands_at_the_end() -> None:
    @check("weather")
    def rain(case: Case) -> None:
        """No group of ours."""

    assert all_checks()[-1].name == "rain"


def test_a_finding_survives_json() -> None:
    for finding in (ok("a"), warning("a", "b", "c"), problem("a", "b"), skipped("a", subject="b")):
        again = Finding.from_dict(json.loads(json.dumps(finding.to_dict())))
        assert again == finding
        assert isinstance(again.status, Status)


def test_the_reason_is_the_first_cause_in_one_line() -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = ValueError("a\n b")
    assert reason(error) == "ValueError: a b"
