"""The progress of a run, read from its folder, also for a run that was killed and resumed."""

import json

import pytest

from agent_rl.errors import ConfigError
from agent_rl.evaluation.experiments.outcome import read_outcome, success
from agent_rl.trajectory import Score, StopReason, Trajectory, Turn, trace


def test_the_gain_is_of_the_same_rows():
    before, after = {n: [float(n < 30)] for n in range(100)}, {n: [float(n < 80)] for n in range(100)}
    first, last, gain = success(before, after)
    assert (first.mean, last.mean, gain.mean) == pytest.approx((0.3, 0.8, 0.5))
    assert 0.2 < first.low < 0.3 < first.high < 0.41
    assert 0.39 < gain.low < 0.5 < gain.high < 0.61
    with pytest.raises(ConfigError, match="1 rows were scored only once"):
        success(before, {n: before[n] for n in range(99)})


def write(folder, split, step, index, value, text="!", **more):
    """Append an episode with this correctness."""
    info = {"split": split, "step": step, "index": index}
    score = Score(value, {"correctness": value})
    trace.append(
        folder / "trace.jsonl", Trajectory([], StopReason.ANSWERED, [Turn(text)], score=score, info=info, **more)
    )


@pytest.fixture
def folder(tmp_path):
    """A run of two steps with two samples of a row each; it was killed in its second step, which was done again."""
    sizes = {"data": {"train_batch_size": 1}, "actor_rollout_ref": {"rollout": {"n": 2}}}
    (tmp_path / "run.json").write_text(json.dumps({"configuration": sizes}))
    steps = [{"step": 0, "data": {}}, *({"step": n, "data": {"critic/score/mean": 0.5, "timing_s/step": 2.0,
             "training/rollout_probs_diff_mean": n / 10}} for n in (1, 2))]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in steps))
    written = [("test", 0, 0, 0.0), ("test", 0, 1, 0.5), ("train", 1, 0, 1.0), ("train", 1, 0, 0.9),
               ("train", 2, 0, 0.0), ("test", 1, 0, 0.0), ("test", 1, 1, 0.0),
               ("train", 2, 0, 1.0), ("train", 2, 0, 1.0), ("test", 2, 0, 1.0), ("test", 2, 1, 1.0)]  # fmt: skip
    for split, step, index, value in written:
        write(tmp_path, split, step, index, value)
        if (split, step) == ("train", 2) and value == 0:
            with open(tmp_path / "trace.jsonl", "a") as file:
                file.write('{"torn')
    return tmp_path


def test_a_run_that_was_killed_counts_what_it_was_trained_on(folder):
    found = read_outcome(folder)
    assert (found.before.mean, found.after.mean, found.gain.mean) == (0.0, 1.0, 1.0)
    assert found.curve == [(1, 0.5), (2, 1.0)]  # in parts right is not right
    assert found.judgements == ()
    assert found.plain()["before"] == {**found.plain()["before"], "mean": 0.0, "rows": 2}
    assert (found.seconds, found.probs_diff) == (4.0, 0.2)


def test_a_run_that_scores_answers(folder):
    (folder / "trace.jsonl").unlink()
    for step, said in ((0, [3, 3, 0, None]), (2, [0, 2, 3, 4])):
        for index, verdict in enumerate(said):
            text = "I cannot say" if verdict is None else f"<think>\nWell.\n</think>\n<score>{verdict}</score>"
            row = {"extra_info": {"question": "?", "sample": {"answers": ["!"], "scores": [float(index)]}}}
            write(folder, "test", step, index, 0.0, text, row=row)
    before, after = read_outcome(folder).judgements
    assert before == {"spearman": -0.866, "unparsable": 0.25}
    assert after == {"spearman": 1.0, "unparsable": 0.0}


def test_a_run_without_an_evaluation_at_the_end(folder):
    kept = [line for line in (folder / "trace.jsonl").read_text().splitlines() if '"step": 0' in line]
    (folder / "trace.jsonl").write_text("\n".join(kept) + "\n")
    with pytest.raises(ConfigError, match="the run was evaluated only once"):
        read_outcome(folder)


def test_rows_of_several_files_and_several_samples_of_a_row(tmp_path):
    """Two files that number their rows alike, two samples of a row; the last evaluation was killed and repeated."""
    (tmp_path / "metrics.jsonl").write_text("")
    (tmp_path / "run.json").write_text("{}")
    written = [("a", 0, (0.0, 0.0)), ("b", 0, (1.0, 0.0)), ("a", 2, (0.0,)), ("a", 2, (1.0, 0.0)), ("b", 2, (1.0, 1.0))]
    for number, (source, step, values) in enumerate(written):
        for sample, value in enumerate(values):
            write(tmp_path, "test", step, 0, value, id=f"{number}_{sample}", data_source=source,
                  row={"extra_info": {"index": 0}})  # fmt: skip
    found = read_outcome(tmp_path)
    assert (found.before.mean, found.after.mean, found.gain.mean) == (0.25, 0.75, 0.5)
    assert found.before.rows == 2
