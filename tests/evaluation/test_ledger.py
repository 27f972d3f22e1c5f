import hashlib
import json
import resource
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.evaluation.ledger import Ledger, Record, summarize_trajectory
from agent_rl.evaluation.settings import read_settings
from agent_rl.trajectory import Message, Score, StopReason, Trajectory, Turn

SCORE = Score(0.9, {"correctness": 1.0, "efficiency": -0.1, "format": 0.0, "overlong": 0.0})


def trajectory(row, sample, score=SCORE, error=None):
    return Trajectory(
        prompt=[Message("user", "?")], stop_reason=StopReason.ANSWERED, turns=[Turn("a", 3), Turn("b", 4)], answer="b",
        score=score, error=error, seconds=2.0, data_source="sums",
        info={"row": row, "sample": sample, "input_tokens": 50, "requests": 2},
    )  # fmt: skip


def settings(data, *words, **flags):
    return read_settings({"data": data, "model": "m", **flags}, words)


def begun(folder, given):
    with Ledger(folder, given) as ledger:
        ledger.append(trajectory(0, 0))


def test_what_was_appended_is_read_back(tmp_path, data):
    with Ledger(tmp_path / "out", settings(data)) as ledger:
        records = [ledger.append(trajectory(row, 0)) for row in range(3)]
    with Ledger(tmp_path / "out", settings(data)) as ledger:
        assert ledger.read() == {(row, 0): records[row] for row in range(3)}
    (first, *_) = records
    assert (first.reward, first.components, first.seconds, first.error) == (0.9, SCORE.components, 2.0, None)
    assert first.tokens == {"input": 50, "sampled": 7, "requests": 2}
    assert first.metrics["turns"] == 2
    assert first.metrics.keys().isdisjoint(SCORE.components)


def test_an_unscored_episode_says_why_and_is_replaced_by_a_later_one(tmp_path, data):
    with Ledger(tmp_path / "out", settings(data)) as ledger:
        ledger.append(trajectory(0, 0, None, "the engine failed"))
        assert ledger.read()[0, 0].error == "the engine failed"
        ledger.append(trajectory(0, 0))
        assert ledger.read()[0, 0].error is None
    assert summarize_trajectory(trajectory(0, 0, None)) == Record(
        0, 0, "sums", "no score", tokens={"input": 50, "sampled": 7, "requests": 2}, seconds=2.0
    )


def test_a_file_that_cannot_grow_is_named(tmp_path, data):
    with Ledger(tmp_path / "out", settings(data)) as ledger:
        ledger.append(trajectory(0, 0))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (ledger.path.stat().st_size, hard))
        try:
            with pytest.raises(OSError, match="File too large") as caught:
                ledger.append(trajectory(1, 0))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert caught.value.filename == str(ledger.path)
        assert len(ledger.read()) == 1


def test_a_torn_line_anywhere_is_no_episode(tmp_path, data):
    with Ledger(tmp_path / "out", settings(data)) as ledger:
        ledger.append(trajectory(0, 0))
        whole = ledger.path.read_bytes()
        for cut in range(1, len(whole) - 1, 7):
            ledger.path.write_bytes(whole + whole[:cut])  # a kill in the middle of the second line
            assert list(ledger.read()) == [(0, 0)]
            ledger.append(trajectory(1, 0))
            ledger.append(trajectory(2, 0))
            assert list(ledger.read()) == [(0, 0), (1, 0), (2, 0)]


def test_a_line_that_is_whole_and_no_trajectory_is_an_error(tmp_path, data):
    with Ledger(tmp_path / "out", settings(data)) as ledger:
        ledger.path.write_text('{"version": 99}\n')
        with pytest.raises(ValueError, match="line 1: trajectory version 99"):
            ledger.read()


@pytest.mark.parametrize(
    ("flags", "words", "said"),
    [
        ({"n": 2}, [], "n: 2, but .* was started with 1"),
        ({"model": "other"}, [], "model: 'other'"),
        ({}, ["sampling.temperature=0"], r"sampling\.temperature: 0\.0, but .* 1\.0"),
        ({}, ["agent_rl.budget.max_malformed=1"], r"agent_rl\.budget\.max_malformed: 1"),
        ({}, ["sampling.body.min_p=0.1"], r"sampling\.body\.min_p: 0\.1, but .* None"),
        ({"loop": "react_agent"}, [], "loop: 'react_agent'"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path, data, flags, words, said):
    begun(tmp_path / "out", settings(data))
    with pytest.raises(ConfigError, match=f"^{said}"):
        Ledger(tmp_path / "out", settings(data, *words, **flags))


def test_other_content_of_a_file_is_refused_and_another_place_is_not(tmp_path, data, tools):
    (tmp_path / "tools.yaml").write_text(Path(tools).read_text())
    begun(tmp_path / "out", settings(data, tools=tools))
    moved = settings(data, "concurrency=3", "timeout_s=9", tools=str(tmp_path / "tools.yaml"), endpoint="http://other")
    Ledger(tmp_path / "out", moved).close()
    (tmp_path / "tools.yaml").write_text("tools: [{name: python}]")
    with pytest.raises(ConfigError, match=r"^tools: the content has changed"):
        Ledger(tmp_path / "out", moved)
    with pytest.raises(ConfigError, match=r"^data: .* cannot be read"):
        Ledger(tmp_path / "out", settings(str(tmp_path / "none.parquet")))


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("agent_rl.reward.correctness.scorer=FILE:f", "agent_rl.reward.correctness.scorer"),
        ("agent_rl.reward.correctness.scorer=mine.f", "agent_rl.reward.correctness.scorer"),
        ("agent_rl.reward.components.own.kind=FILE:C", "agent_rl.reward.components.own.kind"),
        ("agent_rl.reward.components.judge={kind: judge, config: {rubric: FILE, models: [{template: FILE}]}}",
         "agent_rl.reward.components.judge.config.rubric"),
        ("agent_rl.reward.components.judge={kind: judge, config: {models: [{template: FILE}]}}",
         "agent_rl.reward.components.judge.config.models"),
        ("agent_rl.reward.combine=FILE:f", "agent_rl.reward.combine"),
        ("agent_rl.hooks=FILE:H", "agent_rl.hooks"),
        ("agent_rl.user_sim.user=FILE:U", "agent_rl.user_sim.user"),
        ("reward.custom_reward_function.path=FILE", "reward.custom_reward_function.path"),
    ],
)  # fmt: skip
def test_files_that_a_setting_names_are_compared_by_their_content(tmp_path, data, monkeypatch, word, key):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    file, copy = tmp_path / "mine.py", tmp_path / "elsewhere/mine.py"
    file.write_text("first")
    copy.write_text("first")
    begun(tmp_path / "out", settings(data, word.replace("FILE", str(file))))
    Ledger(tmp_path / "out", settings(data, word.replace("FILE", str(copy)))).close()
    file.write_text("second")
    with pytest.raises(ConfigError, match=f"^{key}: the content has changed"):
        Ledger(tmp_path / "out", settings(data, word.replace("FILE", str(file))))


def test_files_that_a_tool_file_names_are_compared_and_what_a_run_writes_is_not(tmp_path, data):
    (tmp_path / "code.py").write_text("first")
    (tmp_path / "trace.jsonl").write_text("first")
    (tmp_path / "tools.yaml").write_text("tools: [{function: 'code.py:f'}]")
    given = settings(data, f"agent_rl.trace.path={tmp_path}/trace.jsonl", tools=str(tmp_path / "tools.yaml"))
    begun(tmp_path / "out", given)
    (tmp_path / "trace.jsonl").write_text("second")
    Ledger(tmp_path / "out", given).close()
    (tmp_path / "code.py").write_text("second")
    with pytest.raises(ConfigError, match=r"^tools: the content has changed"):
        Ledger(tmp_path / "out", given)


def test_other_weights_are_refused_where_both_are_known(tmp_path, data):
    given, weights = settings(data), tmp_path / "model.safetensors"
    weights.write_text("first")
    with Ledger(tmp_path / "out", given, tmp_path) as ledger:
        ledger.append(trajectory(0, 0))
        assert ledger.about()["weights"] == f"sha256:{hashlib.sha256(b'first').hexdigest()}"
    weights.write_text("second")
    Ledger(tmp_path / "out", settings(data, endpoint="http://other")).close()
    with pytest.raises(ConfigError, match=r"^weights: the content has changed"):
        Ledger(tmp_path / "out", given, tmp_path)


def test_settings_may_change_before_the_first_episode(tmp_path, data):
    Ledger(tmp_path / "out", settings(data)).close()
    begun(tmp_path / "out", settings(data, n=2))
    with pytest.raises(ConfigError, match=r"^n: 1, but"):
        Ledger(tmp_path / "out", settings(data))


def test_one_process_at_a_time(tmp_path, data):
    with Ledger(tmp_path / "out", settings(data)):
        with pytest.raises(ConfigError, match="another process is evaluating in"):
            Ledger(tmp_path / "out", settings(data))
    Ledger(tmp_path / "out", settings(data)).close()


def test_trajectories_without_settings_are_refused(tmp_path, data):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/trajectories.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="exists without the settings"):
        Ledger(tmp_path / "out", settings(data))


def test_no_key_is_kept(tmp_path, data, monkeypatch):
    monkeypatch.setenv("EVAL_KEY", "sk-very-secret")
    Ledger(tmp_path / "out", settings(data, "api_key_env=EVAL_KEY")).close()
    kept = json.loads((tmp_path / "out/settings.json").read_text())
    assert "api_key_env" not in kept
    assert "sk-very-secret" not in str(kept)


def test_folder_that_cannot_be_made_is_named_with_its_option(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out: .*file/eval: Not a directory"):
        Ledger(tmp_path / "file" / "eval", read_settings({"data": "rows.parquet", "model": "m"}, []))
