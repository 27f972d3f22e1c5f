"""Audits of real token conversations: what is sound stays silent, and each way to break it is found at its turn."""

import asyncio
import copy
import json
import shutil

import pytest

from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
from agent_rl.agents.policies import Sampling
from agent_rl.agents.policies.chat_template import ChatTemplate
from agent_rl.agents.policies.source import PolicyUsage
from agent_rl.agents.react import ReactFormat
from agent_rl.errors import ConfigError
from agent_rl.evaluation.audit import audit_trajectory
from agent_rl.evaluation.model_log_probs import ModelLogProbs
from agent_rl.tools import ToolSession, load_tools
from agent_rl.trajectory import trace
from tests.agents.policies.test_tokens import Scripted

CALL = 'Thought: I compute.\nAction: calculator\nAction Input: {"expression": "12+30"}'
ANSWER = "Thought: I see.\nFinal Answer: 42"


class Split(Scripted):
    """Samples its first turn letter by letter, as no tokenizer would."""

    async def sample(self, prompt_ids, params):
        first = not self.asked
        sampled = await super().sample(prompt_ids, params)
        if first:
            text = self.tokenizer.decode(sampled.token_ids[:-1])
            letters = [token for letter in text for token in self.tokenizer.encode(letter)]
            sampled.token_ids = [*letters, sampled.token_ids[-1]]
            sampled.log_probs = [-0.5] * len(sampled.token_ids)
        return sampled


def episode(model_dir, tools, texts=(CALL, CALL, ANSWER), kind=Scripted, instructions=None):
    async def run():
        source = kind(model_dir, Sampling(), texts)
        source.logprobs = True
        policy = source.policy(PolicyUsage())
        async with ToolSession(load_tools(tools), default_timeout_s=5) as session:
            prompt = [{"role": "user", "content": "What is 12+30?"}]
            trajectory = await run_episode(policy, ReactFormat(instructions), session, prompt, EpisodeBudget())
        assert trajectory.error is None
        trajectory.info["tokens"] = policy.record()
        trajectory.agent, trajectory.id = "react_agent", "0_0"
        return trajectory

    return asyncio.run(run())


@pytest.fixture
def template(model_dir):
    from transformers import AutoTokenizer

    return ChatTemplate(AutoTokenizer.from_pretrained(model_dir), name="tiny")


@pytest.fixture
def sound(model_dir, tools):
    return episode(model_dir, tools)


def broken(trajectory, change):
    """A copy with a change in its only training sequence."""
    copied = copy.deepcopy(trajectory)
    change(copied.info["tokens"]["sequences"][0])
    return copied


def test_a_sound_conversation_has_no_findings(sound, template):
    audits = audit_trajectory(sound, template)
    assert [audit.tokens for audit in audits] == [turn.tokens for turn in sound.turns]
    for audit in audits:
        assert (audit.mask, audit.logprobs, audit.retokenized, audit.drift) == (None, None, False, "none")


def test_it_survives_a_trace(sound, template, tmp_path):
    trace.append(tmp_path / "trace.jsonl", sound)
    (read,) = trace.read(tmp_path / "trace.jsonl", tokens=True)
    assert "tokens" in read.info
    assert audit_trajectory(read, template) == audit_trajectory(sound, template)


def shift_mask(by):
    return lambda sequence: sequence.update(mask=[*sequence["mask"][by:], *sequence["mask"][:by]])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (shift_mask(-1), "mask 1"),
        (shift_mask(1), "mask 1"),
        (lambda sequence: sequence.update(mask=[1] * len(sequence["mask"])), "1 stretches of sampled tokens"),
        (lambda sequence: sequence.update(mask=[0] * len(sequence["mask"])), "0 stretches of sampled tokens"),
        (lambda sequence: sequence["mask"].append(1), "entries for"),
    ],
    ids=["late", "early", "on an observation", "nowhere", "too long"],
)
def test_a_mask_that_is_wrong(sound, template, change, said):
    audits = audit_trajectory(broken(sound, change), template)
    assert any(said in (audit.mask or "") for audit in audits)


def test_a_turn_that_says_something_else(sound, template):
    sound.turns[1].text = "Thought: another turn."
    first, second, third = audit_trajectory(sound, template)
    assert (first.mask, third.mask) == (None, None)
    assert "but the turn is 'Thought: another turn.'" in second.mask


def change_value(position, value):
    def change(sequence):
        sequence["logprobs"][position] = value

    return change


def shift_values(sequence):
    sequence["logprobs"] = [0.0, *sequence["logprobs"][:-1]]


def no_values(sequence):
    sequence["logprobs"] = [0.0] * len(sequence["logprobs"])


@pytest.mark.parametrize(
    ("change", "said", "turns"),
    [
        (change_value(0, 0.5), "0.5 is not a log-probability", [0]),
        (change_value(1, float("nan")), "nan is no", [0]),
        (shift_values, "tokens that were not sampled have log-probs", [1, 2]),
        (no_values, "all values are 0", [0, 1, 2]),
        (lambda sequence: sequence["logprobs"].pop(), "values for", [0, 1, 2]),
    ],
)
def test_log_probs_that_are_wrong(sound, template, change, said, turns):
    audits = audit_trajectory(broken(sound, change), template)
    assert [audit.turn for audit in audits if audit.logprobs] == turns
    assert all(said in audits[turn].logprobs for turn in turns)


def test_log_probs_of_the_tokens_beside_are_found_with_the_model(sound, template, model_dir):
    compute = ModelLogProbs(model_dir)
    (sequence,) = sound.info["tokens"]["sequences"]
    prompt, ids = sequence["prompt_ids"], sequence["response_ids"]
    own = compute([*prompt, *ids])[len(prompt) - 1 :]
    right = [value if mask else 0.0 for value, mask in zip(own, sequence["mask"], strict=True)]
    late = [value if mask else 0.0 for value, mask in zip([0.0, *own[:-1]], sequence["mask"], strict=True)]
    sequence["logprobs"] = right
    assert not any(audit.logprobs for audit in audit_trajectory(sound, template, compute))
    sequence["logprobs"] = late
    found = audit_trajectory(sound, template, compute)
    assert all("values fit better one place earlier" in audit.logprobs for audit in found)
    assert not any(audit.logprobs for audit in audit_trajectory(sound, template))  # nothing shows without the model


def test_other_tokens_of_the_same_text_are_a_drift_in_tokens(model_dir, tools, template):
    first, second, third = audit_trajectory(episode(model_dir, tools, kind=Split), template)
    assert (first.retokenized, second.retokenized) == (True, False)
    assert (first.drift, second.drift, third.drift) == ("none", "tokens", "tokens")
    assert (first.mask, first.logprobs) == (None, None)


def test_a_stop_string_that_was_sampled_is_a_drift_in_text(model_dir, tools, template):
    trajectory = episode(model_dir, tools, [f"{CALL}\nObservation: 7", ANSWER])
    first, second = audit_trajectory(trajectory, template)
    assert (first.mask, first.drift, second.drift) == (None, "none", "text")
    assert "Observation:" in second.difference


def test_templates_that_rewrite_history_are_detected(sound, template):
    tokenizer = copy.deepcopy(template.tokenizer)
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "(message.content or '')", "(message.content or '')|upper"
    )
    other = ChatTemplate(tokenizer, name="other")
    assert {audit.drift for audit in audit_trajectory(sound, other)} == {"text"}
    assert other.label != template.label


def run(*arguments):
    from typer.testing import CliRunner

    from agent_rl.cli.main import app

    return CliRunner().invoke(app, ["audit", "tokens", *map(str, arguments)], env={"COLUMNS": "200"})


def test_the_command_counts_by_template_and_agent(sound, model_dir, tmp_path):
    trace.append(tmp_path / "run/trace.jsonl", sound)
    done = run(tmp_path / "run", "--tokenizer", model_dir, "--out", tmp_path / "turns.jsonl")
    assert done.exit_code == 0, done.output
    assert "react_agent" in done.output
    lines = [json.loads(line) for line in (tmp_path / "turns.jsonl").read_text().splitlines()]
    assert [(line["trajectory"], line["turn"], line["drift"]) for line in lines] == [
        ("0_0", n, "none") for n in range(3)
    ]

    trace.append(tmp_path / "run/trace.jsonl", broken(sound, shift_values))
    done = run(tmp_path / "run", "--tokenizer", model_dir, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    (agent,) = found["agents"]
    assert (found["ok"], agent["turns"], agent["mask_errors"]) == (False, 6, 0)
    assert agent["logprob_errors"] > 0
    assert found["examples"][0]["text"] == "0_0, turn 1: tokens that were not sampled have log-probs"
    assert "0_0, turn 1: tokens that" in run(tmp_path / "run", "--tokenizer", model_dir).output


def test_tokenizers_in_folders_of_the_same_name_are_counted_separately(sound, model_dir, tmp_path):
    trace.append(tmp_path / "run/trace.jsonl", sound)
    for step in ("1", "2"):
        shutil.copytree(model_dir, tmp_path / step / "huggingface")
    folders = [str(tmp_path / step / "huggingface") for step in ("1", "2")]
    done = run(tmp_path / "run", "--tokenizer", folders[0], "--tokenizer", folders[1], "--json")
    agents = json.loads(done.stdout)["agents"]
    assert [(each["template"].split(" ")[0], each["turns"]) for each in agents] == [(folder, 3) for folder in folders]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--tokenizer MODEL", "the trace has no tokens. Write the trace with agent_rl.trace.tokens=true"),
        ("--tokenizer MODEL --template-options []", "--template-options: expected a JSON object"),
        ("--tokenizer MODEL --template-options x", "--template-options: this is not JSON"),
        ("--tokenizer MODEL --model EMPTY", "--model: transformers cannot load"),
        ("--tokenizer EMPTY", "there is no tokenizer"),
    ],
)
def test_mistakes_of_the_user(sound, model_dir, tmp_path, arguments, said):
    del sound.info["tokens"]
    trace.append(tmp_path / "trace.jsonl", sound)
    words = arguments.replace("MODEL", str(model_dir)).replace("EMPTY", str(tmp_path)).split()
    done = run(tmp_path / "trace.jsonl", *words)
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)
