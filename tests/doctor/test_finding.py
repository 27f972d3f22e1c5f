import json

from agent_rl.doctor.finding import Finding, Status, ok, problem, reason, skipped, warning


def test_a_finding_survives_json() -> None:
    for finding in (ok("a"), warning("a", "b", "c"), problem("a", "b"), skipped("a", subject="b")):
        again = Finding.from_dict(json.loads(json.dumps(finding.to_dict())))
        assert again == finding
        assert isinstance(again.status, Status)


def test_the_reason_is_the_first_cause_in_one_line() -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = ValueError("a\n b")
    assert reason(error) == "ValueError: a b"
