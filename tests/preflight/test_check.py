from collections.abc import Iterator

import pytest

from agent_rl.errors import ConfigError, FatalError
from agent_rl.launch.doctor.diagnosis import all_checks
from agent_rl.preflight import check as check_module
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import GROUPS, Finding, Status, check, problem, reason, refuse


@pytest.fixture(autouse=True)
def nothing_stays_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    all_checks()
    monkeypatch.setattr(check_module, "_registered", dict(check_module._registered))


def test_every_check_says_what_it_looks_for_and_groups_are_in_order() -> None:
    checks = all_checks()
    assert all(each.function.__doc__ for each in checks)
    assert len({each.function for each in checks}) == len(checks) > 40
    assert tuple(dict.fromkeys(each.group for each in checks)) == GROUPS


def test_a_check_returns_a_finding_several_or_none() -> None:
    @check("machine")
    def one_thing(case: RunCase) -> Finding:
        """Finds one thing."""
        return Finding("", Status.OK, "found")

    @check("machine", "both")
    def two_things(case: RunCase) -> Iterator[Finding]:
        """Finds two things."""
        yield Finding("", Status.OK, "first")
        yield problem("second", "change it", "another")

    @check("machine")
    def nothing(case: RunCase) -> None:
        """Finds nothing."""

    assert list(one_thing(RunCase())) == [Finding("one thing", Status.OK, "found", group="machine")]
    assert [finding.subject for finding in two_things(RunCase())] == ["both", "another"]
    assert list(nothing(RunCase())) == [Finding("nothing", Status.OK, "no problem found", group="machine")]


def test_launcher_and_trainer_raise_what_the_doctor_shows() -> None:
    @check("weather", at=("hill", "doctor"))
    def wind(case: RunCase) -> Iterator[Finding | FatalError]:
        """Finds two errors."""
        yield Finding("", Status.OK, "no snow")
        yield ConfigError("wind.speed", "it is too high", "Wait")
        yield FatalError("a branch fell")

    @check("weather", at=("valley",))
    def sun(case: RunCase) -> None:
        """Raises."""
        raise ConfigError("sun", "it burns", "Sit down")

    refuse("sea", RunCase())
    with pytest.raises(ConfigError, match=r"wind\.speed: it is too high\. Wait"):
        refuse("hill", RunCase())
    with pytest.raises(ConfigError, match="sun: it burns"):
        refuse("valley", RunCase())
    assert [(each.status, each.text, each.remedy) for each in wind(RunCase())] == [
        (Status.OK, "no snow", ""),
        (Status.PROBLEM, "wind.speed: it is too high", "Wait"),
        (Status.PROBLEM, "a branch fell", "Correct the code that the error names"),
    ]
    assert [each.text for each in sun(RunCase())] == ["sun: it burns"]


def test_the_reason_is_the_first_cause_in_one_line() -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = ValueError("a\n b")
    assert reason(error) == "ValueError: a b"
