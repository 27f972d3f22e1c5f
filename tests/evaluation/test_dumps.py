"""verl's dumps, written as its trainer writes them from real conversations."""

import asyncio
import json

import pytest

from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.react import ReactFormat
from agent_rl.agents.registry import make_loop
from agent_rl.errors import ConfigError
from agent_rl.evaluation.dumps import DumpedSample, read_dump, score_dump, step_table, to_trajectory
from agent_rl.rewards import extra_info
from agent_rl.settings import AgentRLSettings, RewardSettings
from agent_rl.tools import ToolSession, load_tools
from agent_rl.trajectory import StopReason
from tests.scoring import score

CALL = 'Thought: I compute.\nAction: calculator\nAction Input: {"expression": "12+30"}'
SCRIPTS = {
    "right": [CALL, "Thought: I see.\nFinal Answer: 42"],
    "wrong": ["Final Answer: 41"],
    "malformed": ["I do not know.", "Action: calculator", CALL, "Final Answer: 42"],
    "wasteful": [CALL, CALL, CALL, CALL, CALL, "Final Answer: 42"],
    "endless": [CALL] * 6,
    "two lines": [CALL, "Thought: first\n\nsecond\nFinal Answer: 42"],
}


@pytest.fixture(scope="module")
def tokenizer(model_dir):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_dir)


@pytest.fixture
def specs(tools):
    return load_tools(tools)


def episode(specs, script):
    async def run():
        policy = ScriptedPolicy(script)
        async with ToolSession(specs, default_timeout_s=5) as session:
            prompt = [{"role": "user", "content": "What is 12+30?"}]
            return await run_episode(
                policy, ReactFormat(), session, prompt, EpisodeBudget(max_turns=6)
            ), policy.messages

    trajectory, messages = asyncio.run(run())
    trajectory.ground_truth = "42"
    return trajectory, messages


def dumped(tokenizer, messages, prompt_messages):
    """What verl writes: prompt and response, each decoded without special tokens."""

    def decoded(text):
        return tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True)

    prompt = tokenizer.apply_chat_template(messages[:prompt_messages], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    assert whole.startswith(prompt)
    return decoded(prompt), decoded(whole[len(prompt) :])


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_dumped_episode_is_read_as_it_was_and_scored_alike(name, specs, tokenizer):
    trajectory, messages = episode(specs, SCRIPTS[name])
    text_in, text_out = dumped(tokenizer, messages, len(trajectory.prompt))
    found = to_trajectory(DumpedSample(1, "r", text_in, text_out, "42", 0.0), ReactFormat(), specs)
    assert [message.role for message in found.prompt] == ["system", "user"]
    assert [message.content for message in found.prompt] == [message.content for message in trajectory.prompt]
    for ours, theirs in zip(found.turns, trajectory.turns, strict=True):
        assert (ours.text, ours.calls, ours.malformed) == (theirs.text, theirs.calls, theirs.malformed)
        assert ours.observation == theirs.observation
    assert found.answer == trajectory.answer
    assert (found.stop_reason is StopReason.ANSWERED) == (trajectory.stop_reason is StopReason.ANSWERED)
    assert score(found, RewardSettings()) == score(trajectory, RewardSettings())


CUT = {
    "an answer": ("Thought: it is clear.\nFinal Answer: 42 and more", 6),
    "a malformed turn": ("I do not know what to do here", 4),
    "a call": ('Action: calculator\nAction Input: {"expression": "1"} and then', 5),
    "a second turn": (f"{CALL}|Final Answer: 42 of course", 13),
}


@pytest.mark.parametrize("name", CUT)
def test_an_episode_that_was_cut_off_is_scored_as_in_training(name, specs, tokenizer):
    script, tokens = CUT[name]

    async def run():
        policy = ScriptedPolicy(script.split("|"), max_tokens=tokens)
        async with ToolSession(specs, default_timeout_s=5) as session:
            prompt = [{"role": "user", "content": "What is 12+30?"}]
            return await run_episode(policy, ReactFormat(), session, prompt, EpisodeBudget()), policy.messages

    trajectory, messages = asyncio.run(run())
    trajectory.ground_truth = "42"
    assert trajectory.stop_reason is StopReason.MAX_TOKENS
    trained = score(trajectory, RewardSettings())
    text_in, text_out = dumped(tokenizer, messages, len(trajectory.prompt))
    sample = DumpedSample(1, "r", text_in, text_out, "42", trained.total, extra_info(trajectory, trained))
    found = to_trajectory(sample, ReactFormat(), specs)
    assert found.stop_reason is StopReason.MAX_TOKENS
    assert score(found, RewardSettings()) == trained


def test_the_line_of_a_dump_has_what_the_reward_manager_reports(tmp_path):
    data = {**json.loads(line(1, "a_0_0")), "stop_max_tokens": 1.0, "answered": 0.0, "malformed_turns": 0.0}
    (tmp_path / "1.jsonl").write_text(json.dumps(data) + "\n")
    (sample,) = read_dump(tmp_path)
    found = to_trajectory(sample, ReactFormat(), [])
    assert (found.stop_reason, found.answer) == (StopReason.MAX_TOKENS, None)


def test_a_turn_that_was_cut_off_is_one(specs):
    found = to_trajectory(DumpedSample(1, "r", "user\nq\nassistant\n", "Thought: I", "42", 0.0), ReactFormat(), specs)
    assert [turn.text for turn in found.turns] == ["Thought: I"]
    assert found.answer is None


def line(step, uid, output="Final Answer: 42", value=1.0):
    return json.dumps(
        {"input": "user\nq\nassistant\n", "output": output, "gts": "42", "score": value, "step": step, "uid": uid}
    )


@pytest.fixture
def dump(tmp_path):
    """Two steps of two rows with two samples each; one trajectory has two sequences."""
    for step in (1, 2):
        wrong = "Final Answer: 1"
        lines = [line(step, f"a{step}_0_0", value=0.5), line(step, f"a{step}_1_0", wrong, 0.0)]
        lines += [line(step, f"b{step}_0_0", wrong, 0.0), line(step, f"b{step}_0_1"), line(step, f"b{step}_1_0")]
        (tmp_path / "dump").mkdir(exist_ok=True)
        (tmp_path / f"dump/{step}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "dump"


@pytest.mark.parametrize(
    ("agent", "turn", "said"),
    [
        ("search_agent", "<search>faust</search>", "<answer>1808</answer>"),
        ("plan_act_agent", "Plan:\n1. compute\n" + CALL, "Final Answer: 1808"),
    ],
)
def test_formats_that_keep_a_tag_or_remember_a_plan(agent, turn, said, specs):
    text = f"{turn}\nuser\nfound\nassistant\n{said}"
    format = make_loop(agent, EpisodeSetup(AgentRLSettings())).format()
    for _ in range(2):
        trajectory = to_trajectory(DumpedSample(1, "a", "user\nWhen?\nassistant\n", text, "1808", 1.0), format, specs)
        assert [turn.malformed for turn in trajectory.turns] == [None, None]
        assert trajectory.answer == "1808"
    alone = to_trajectory(DumpedSample(1, "a", "user\nWhen?\nassistant\n", said, "1808", 1.0), format, specs)
    assert alone.malformed_turns == (agent == "plan_act_agent")


def test_a_folder_is_scored_by_step(dump):
    steps = asyncio.run(score_dump(read_dump(dump), ReactFormat(), [], RewardSettings()))
    assert {step: len(records) for step, records in steps.items()} == {1: 4, 2: 4}
    _, summary = step_table(steps, "dump")
    for step in ("1", "2"):
        assert summary[step]["pass"]["1"]["mean"] == 0.75
        assert summary[step]["pass"]["2"]["mean"] == 1.0
        assert summary[step]["metrics"]["verl_score"]["mean"] == pytest.approx(2.5 / 4)
        assert summary[step]["reward"]["rows"] == 2


def test_rows_that_only_fill_up_a_batch_are_no_samples(dump):
    before = read_dump(dump)
    with open(dump / "1.jsonl", "a") as file:
        for number in range(2):
            file.write(line(1, f"pad{'0af5' * 8}_{number}_0", "", 0.0) + "\n")
    assert read_dump(dump) == before


def test_one_file_and_other_weights(dump):
    weights = RewardSettings.model_validate({"correctness": {"weight": 10}, "overlong": {"penalty": 1.0}})
    scored = asyncio.run(score_dump(read_dump(dump / "2.jsonl"), ReactFormat(), [], weights))
    ((step, records),) = scored.items()
    assert (step, [record.reward for record in records]) == (2, [10.0, 0.0, 10.0, 10.0])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", r"1\.jsonl, line 1: it has no input"),
        ("text", "line 1: not a line of a dump"),
        ("", "there are no samples"),
    ],
)
def test_other_files_are_refused_as_dumps(tmp_path, content, said):
    (tmp_path / "1.jsonl").write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_dump(tmp_path)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_dump(tmp_path / "nothing")


def test_reward_score_reads_a_folder_of_dumps(dump, tmp_path):
    from typer.testing import CliRunner

    from agent_rl.cli.main import app

    done = CliRunner().invoke(
        app,
        ["reward", "score", str(dump), "--out", str(tmp_path / "scores.json"), "agent_rl.reward.correctness.weight=2"],
    )
    assert done.exit_code == 0, done.output
    assert "pass@1" in done.output
    assert json.loads((tmp_path / "scores.json").read_text())["1"]["reward"]["mean"] == 1.5
    done = CliRunner().invoke(app, ["reward", "score", str(dump), "reward.x=1"])
    assert isinstance(done.exception, ConfigError)
