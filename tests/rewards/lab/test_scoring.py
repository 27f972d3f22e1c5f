import json

from rich.console import Console

from agent_rl.rewards.lab.scoring import summary, summary_table
from agent_rl.trajectory import Score, StopReason, Trajectory


def one(source, total, error=None):
    score = None if total is None else Score(total, {"correctness": total})
    return Trajectory([], StopReason.ANSWERED, data_source=source, score=score, error=error)


def test_the_summary_has_means_by_data_source_and_errors():
    found = summary([one("a", 1.0), one("a", 0.0), one("b", 0.5), one("b", None, "the judge is down")])
    assert found["all"]["scored"] == 3
    assert found["all"]["unscored"] == 1
    assert found["all"]["reward"]["mean"] == 0.5
    assert found["data_sources"]["a"]["components"] == {"correctness": {"mean": 0.5, "std": 0.5}}
    assert found["data_sources"]["b"]["reward"] == {"mean": 0.5, "std": 0.0}
    assert found["errors"] == {"the judge is down": 1}
    assert json.loads(json.dumps(found)) == found


def test_nothing_scored_is_no_zero():
    found = summary([one("a", None, "x")])
    assert found["all"]["reward"] is None
    assert found["data_sources"] == {}
    console = Console(width=80)
    with console.capture() as capture:
        console.print(summary_table(found, "title"))
        console.print(summary_table(summary([one("a", 1.0), one("b", 0.0)]), "title"))
    shown = capture.get()
    assert "│ reward   │   - │" in shown
    assert "+0.500 ± 0.500" in shown
