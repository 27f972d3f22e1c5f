"""TRL's classes do here what they do under TRL: `trl/reference.py` has recorded that with TRL itself."""

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.registry import make_loop
from agent_rl.agents.syntaxes import SYNTAXES
from agent_rl.environments import load_environment
from agent_rl.environments.kind import environment_rows
from agent_rl.environments.trl import ADDED
from agent_rl.errors import ConfigError
from agent_rl.launch.task import task_recipe
from agent_rl.settings import AgentRLSettings
from tests.environments.trl.reference import IDIOMS, RECORDED, as_data

pytestmark = pytest.mark.trainer  # TRL's schemas are those of transformers

FOLDER = Path(__file__).parent / "trl"
RECORD = json.loads(RECORDED.read_text())


class Script(ScriptedPolicy):
    """Keeps messages with images too."""

    async def begin(self, messages, tools):
        self.messages, self.tools = list(messages), tools

    async def extend(self, messages):
        self.messages.extend(messages)
        return True


def messages_of(policy, specs):
    """Return the conversation as TRL writes it: parsed calls, and text instead of one block of text."""
    messages = []
    for message in policy.messages:
        content, calls = message["content"], []
        if message["role"] == "assistant":
            content, calls = SYNTAXES["hermes"].read(content, specs)
        functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
        called = {"tool_calls": [{"type": "function", "function": each} for each in functions]} if calls else {}
        messages.append({**message, "content": content or "", **called})
    return as_data(messages)


def plain_text(messages):
    return [
        {**message, "content": message["content"][0]["text"]}
        if isinstance(message["content"], list) and [part["type"] for part in message["content"]] == ["text"]
        else message
        for message in messages
    ]


def play(target, row, turns, name="mine", **identity):
    """Run one episode; return its trajectory and its policy."""
    setup = EpisodeSetup(AgentRLSettings(environments={name: str(target)}))
    loop, policy = make_loop(row["agent_name"], setup), Script(turns)
    columns = {**row, "raw_prompt": row["prompt"], **identity}
    return asyncio.run(loop.run_row(columns, policy, loop.format())), policy


@pytest.mark.parametrize("idiom", IDIOMS)
def test_schemas_messages_and_rewards_are_trls(idiom):
    recorded = RECORD[idiom]
    kind = load_environment("mine", str(FOLDER / f"{idiom}.py"))
    assert {str(name): [spec.schema() for spec in each.specs] for name, each in kind.factories.items()} == recorded[
        "schemas"
    ]
    rows = environment_rows(kind, "train", seed=0)
    script = __import__(f"tests.environments.trl.{idiom}", fromlist=["SCRIPT"]).SCRIPT
    for row, turns, sample in zip(rows, script, recorded["samples"], strict=False):
        trajectory, policy = play(kind.target, row, turns)
        assert trajectory.error is None
        assert messages_of(policy, []) == plain_text(sample["messages"])
        rewards = {name: trajectory.rewards.get(name) for name in sample["rewards"]}
        assert rewards == pytest.approx(sample["rewards"], abs=1e-6)
        assert set(trajectory.rewards) <= {*kind.parts, "reset_differs"}
        assert set(kind.parts) == set(sample["rewards"])


ENV = '''
class Env:
    def reset(self, **row):
        self.calls = 0

    def act(self, word: str) -> str:
        """Act.

        Args:
            word: a word.
        """
        self.calls += 1
        return word

    def get_reward(self):
        return float(self.calls)
'''
CALL = '<tool_call>\n{"name": "act", "arguments": {"word": "a"}}\n</tool_call>'


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file, each under a name of its own, and returns its path."""

    def write(text, name="env"):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return path

    return write


def changed(*pairs, more=""):
    text = ENV + more
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(("        Args:\n            word: a word.\n", "")), r"the tool act \(.*env.py:6\).*Args:"),
        (changed(("word: str", "word")), r"cannot describe the tool act .*type hint"),
        (changed(("    def reset", "    async def reset")), r"Env \(.*env.py:2\) has an async reset"),
        (changed(more=ENV.replace("Env", "Other")), r"several classes .*: Env, Other. Name one"),
        (changed(("self.calls += 1", "import signal; signal.alarm(1)")), r"signal.alarm, which fails outside the main"),
        (changed(more="def f(completion_ids, **more): ...\nreward_funcs = f\n"), r"takes completion_ids"),
        (changed(more="reward_funcs = ['org/model']\n"), r"the reward 'org/model' is a model"),
        (changed(more="environment_factory = {'a': Env, 'b': Env}\n"), r"several factories, but no rows"),
    ],
)
def test_mistake_is_named_with_its_remedy(write, text, message):
    with pytest.raises(ConfigError, match=message):
        load_environment("mine", str(write(text)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(("**row", "goal"), more="train_dataset = [{'prompt': 'x'}]\n"), r"reset \(.*\): missing a.* 'goal'"),
        (
            changed(("**row", "prompt"), more="train_dataset = [{'prompt': 'x', 'goal': 1}]\n"),
            r"keyword argument 'goal'",
        ),
        (changed(more="environment_factory = {'a': Env}\ntrain_dataset = [{'environment': 'b'}]\n"), r"has no 'b'"),
    ],
)
def test_row_that_reset_cannot_take_is_refused(write, text, message):
    with pytest.raises(ConfigError, match=message):
        environment_rows(load_environment("mine", str(write(text))), "train", seed=0)


def test_rows_and_reward_functions_are_added_to_a_file(write, tmp_path):
    file = write(changed(("    def get_reward", "    def _unused")))
    rewards = write("def longer(completions, goal, **more):\n    return [float(len(completions[0]) > goal[0])]\n", "r")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"Say {n}.", "goal": n}) + "\n" for n in range(9)))
    target = ADDED.join([str(file), f"{rewards}:longer", str(rows)])
    kind = load_environment("mine", target)
    train, test = (environment_rows(kind, split, seed=0) for split in ("train", "test"))
    assert [row["prompt"][0]["content"] for row in test] == ["Say 7."]
    assert len(train) == 8
    trajectories = [play(kind.target, row, [CALL, "done"])[0] for row in (train[1], train[-1])]
    assert [each.rewards["longer"] for each in trajectories] == [1.0, 0.0]


def test_samples_that_begin_differently_are_counted_and_warned_of_once(write, caplog):
    text = changed(("self.calls = 0", "import random; self.calls, self.secret = 0, random.random()"))
    kind = load_environment("mine", str(write(text)))
    (row, *_), alike = environment_rows(kind, "train", seed=0), write(ENV, "alike")
    identities = [{"uid": uid, "session_id": n} for uid in ("a", "b") for n in range(3)]
    differ = [play(kind.target, row, ["done"], **each)[0].rewards["reset_differs"] for each in identities]
    assert differ == [0, 1, 1, 0, 1, 1]
    assert [each.message.partition(":")[0] for each in caplog.records] == [
        "Env.reset differs between the samples of a row"
    ]
    assert [play(alike, row, ["done"], **each)[0].rewards["reset_differs"] for each in identities] == [0] * 6


def test_an_exhausted_iterator_is_an_observation(write):
    kind = load_environment("mine", str(write(changed(("self.calls += 1", "next(iter(()))")))))
    (row, *_) = environment_rows(kind, "train", seed=0)
    trajectory, _ = play(kind.target, row, [CALL, "done"])
    assert trajectory.results[0].text == "{'error': ''}"


def test_instance_is_reused_on_its_thread_unless_a_call_did_not_end(write):
    body = "import threading, time; time.sleep(word == 'hang'); self.calls += 1; return str(threading.get_ident())"
    text = changed(("self.calls += 1\n        return word", body), ("    def reset", "    made = 0\n\n    def reset"))
    text += "\ndef environment_factory():\n    Env.made += 1\n    return Env()\n"
    kind = load_environment("mine", str(write(text)))
    (row, *_) = environment_rows(kind, "train", seed=0)
    kind.cls.made = 0
    threads = [play(kind.target, row, [CALL, "done"])[0].results[0].text for _ in range(2)]
    assert threads[0] == threads[1]
    settings = AgentRLSettings(environments={"mine": kind.target}, budget={"tool_timeout_s": 0.2})
    loop, policy = make_loop("tool_call_agent", EpisodeSetup(settings)), Script([CALL.replace('"a"', '"hang"'), "done"])
    late = asyncio.run(loop.run_row({**row, "raw_prompt": row["prompt"]}, policy, loop.format()))
    assert late.error == "mine.act did not finish within 0.2 s"
    assert kind.cls.made == 1
    play(kind.target, row, ["done"])
    assert kind.cls.made == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (changed(("return float", "return 1 / 0 + float")), r"get_reward failed at .*env.py:\d+: ZeroDivisionError"),
        (
            changed(("float(self.calls)", "'much'")),
            r"Env.get_reward failed at .*env.py:15: TypeError: it returned 'much', not a",
        ),
        (
            changed(more="def f(**more): return [1.0, 2.0]\nreward_funcs = [f]"),
            r"the reward f failed at .*env.py:17: .*not a list with one",
        ),
        (changed(("self.calls = 0", "return 7")), r"Env.reset failed at .*env.py:3: TypeError: it returned 7; it must"),
    ],
)
def test_bug_in_a_reward_or_in_reset_leaves_the_trajectory_unscored(write, text, error):
    kind = load_environment("mine", str(write(text)))
    (row, *_) = environment_rows(kind, "train", seed=0)
    trajectory, _ = play(kind.target, row, ["done"])
    assert re.search(error, trajectory.error)


def test_recipe_has_a_component_for_each_reward(here):
    config = yaml.safe_load((task_recipe(str(FOLDER / "one_of_two.py")) / "config.yaml").read_text())
    parts = {name: each["weight"] for name, each in config["agent_rl"]["reward"]["components"].items()}
    assert parts == {"rolled": 1.0, "Coin": 1.0, "reset_differs": 0.0}


def test_a_data_set_with_a_length_is_read_whole_and_an_endless_one_in_part(tmp_path, monkeypatch):
    (tmp_path / "task.py").write_text(
        "import itertools\n"
        "train_dataset = [{'prompt': str(number)} for number in range(8)]\n"
        "eval_dataset = ({'prompt': str(number)} for number in itertools.count())\n"
        "class Task:\n"
        "    def reset(self, **row): pass\n"
        "    def get_reward(self): return 0.0\n"
    )
    monkeypatch.setattr("agent_rl.environments.trl.MOST_ROWS", 3)
    kind = load_environment("task", str(tmp_path / "task.py"))
    assert [len(kind.rows(split, 0)) for split in ("train", "test")] == [8, 3]
