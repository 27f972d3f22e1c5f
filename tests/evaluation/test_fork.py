"""Forks of real token conversations: what ran before a turn runs again, and each way to lose its state is refused."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents import registry
from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.react import ReactFormat
from agent_rl.data import write_parquet
from agent_rl.environments.kind import environment_rows
from agent_rl.environments.loading import load_environment
from agent_rl.errors import ConfigError, FatalError
from agent_rl.evaluation.fork import ForkEvaluation, recordings_of, values, write_rows
from agent_rl.evaluation.ledger import Ledger
from agent_rl.evaluation.runner import Evaluation, run
from agent_rl.evaluation.settings import read_settings
from agent_rl.trajectory import StopReason, Trajectory, trace
from tests.agents.policies.test_tokens import Scripted
from tests.environments.sessions import act, say
from tests.support.cli import invoke
from tests.support.rows import sum_row

pytestmark = pytest.mark.trainer

WORDS = ("agent_rl.trace.tokens=true", "policy=local", "concurrency=1")
COUNTER = '''
from agent_rl import Environment

class Counter(Environment):
    """Count to the goal."""

    def rows(self, split, seed):
        yield {"prompt": "Count to 3.", "goal": 3}

    def reset(self, goal, **row):
        self.count, self.goal = 0, goal
        return "You are at 0."

    def add(self, number: int) -> str:
        """Add a number."""
        self.count += number
        self.reward_turn(number / 10)
        return f"You are at {self.count}."

    def state_key(self):
        return self.count

    def get_reward(self):
        return float(self.count == self.goal)
'''
ADDER = '''
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b{extra})

def name() -> str:
    """The name."""
    return "Ann"
'''
TOOLS = "tools:\n  - function: adder.py:add\n  - function: adder.py:name\n"


class Case:
    """A folder with data, a recorded trajectory and its forks."""

    def __init__(self, folder: Path, model: str, row: dict[str, Any], *words: str) -> None:
        self.folder, self.model, self.words = folder, model, (*WORDS, *words)
        write_parquet([row], folder / "rows.parquet")

    def settings(self, data: Path, *words: str, n: int = 1) -> Any:
        return read_settings({"data": str(data), "model": self.model, "n": n}, [*self.words, *words])

    def record(self, *texts: str) -> Trajectory:
        settings = self.settings(self.folder / "rows.parquet")
        self._run(Evaluation.load(settings), "recorded", texts)
        (trajectory,) = trace.read(self.folder / "recorded/trajectories.jsonl", tokens=True)
        assert trajectory.error is None
        return trajectory

    def fork(self, turns: str, *texts: str, name: str = "forked", words: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Continue from each turn once; `texts` are the sampled turns of all episodes, in order."""
        self.recordings = list(recordings_of(self.folder / "recorded/trajectories.jsonl", turns, [], None))
        write_rows(self.recordings, self.folder / "fork.parquet")
        base = Evaluation.load(self.settings(self.folder / "fork.parquet", *words))
        evaluation = ForkEvaluation.of(base, self.recordings)
        records = self._run(evaluation, name, texts)
        self.forks = list(trace.read(self.folder / name / "trajectories.jsonl", tokens=True))
        return values(self.recordings, records)

    def _run(self, evaluation: Evaluation, name: str, texts: Sequence[str]) -> Any:
        self.source = Scripted(self.model, evaluation.settings.sampling, texts)
        self.source.logprobs = True
        with Ledger(self.folder / name, evaluation.settings) as ledger:
            asyncio.run(run(evaluation, self.source, ledger, lambda record: None))
            return ledger.read().values()


@pytest.fixture
def counter(tmp_path: Path, model_dir: str) -> Case:
    (tmp_path / "counter.py").write_text(COUNTER)
    target = str(tmp_path / "counter.py")
    (row,) = environment_rows(load_environment("counter", target), "test", seed=0)
    row["agent_name"] = "react_agent"
    turns = "agent_rl.reward.components.turns"
    words = [f"{turns}.kind=tool_rewards", f"{turns}.weight=1", f"{turns}.config.repeats=true"]
    return Case(tmp_path, model_dir, row, f"agent_rl.environments.counter={target}", *words)


@pytest.fixture
def adder(tmp_path: Path, model_dir: str) -> Case:
    (tmp_path / "adder.py").write_text(ADDER.format(extra=""))
    (tmp_path / "tools.yaml").write_text(TOOLS)
    return Case(tmp_path, model_dir, sum_row(2, index=0, split="test"), f"tools={tmp_path}/tools.yaml")


def test_each_turn_is_restored_with_its_tokens_and_its_state(counter: Case) -> None:
    recorded = counter.record(act("add", number=1), act("add", number=5), say("done"))
    assert recorded.prompt[-1].content.endswith("You are at 0.")
    assert recorded.info["state"] == 0
    (own,) = counter.fork("all", act("add", number=3), say("a"), act("add", number=2), say("b"), say("c"))
    assert [fork.score and fork.score.total for fork in counter.forks] == pytest.approx([1.3, 1.3, 0.6])
    assert [turn["value"] for turn in own["turns"]] == pytest.approx([1.3, 1.3, 0.6])
    assert [turn["difference"] for turn in own["turns"]] == pytest.approx([0.0, -0.7, 0.0])
    assert [(turn["turn"], turn["calls"], turn["episodes"]) for turn in own["turns"]] == [
        *((1, ["add"], 1), (2, ["add"], 1), (3, [], 1))
    ]
    assert (own["id"], own["reward"]) == (recorded.id, pytest.approx(0.6))
    assert [fork.turns[-2].notes["state"] for fork in counter.forks] == [3, 3, 6]
    assert [fork.row["extra_info"]["fork"] for fork in counter.forks] == [
        {"id": recorded.id, "turn": turn} for turn in (1, 2, 3)
    ]
    sequence = recorded.info["tokens"]["sequences"][0]
    starts = [
        n for n, (one, two) in enumerate(zip([0, *sequence["mask"]], sequence["mask"], strict=False)) if two > one
    ]
    asked = [ids for ids, _ in counter.source.asked]
    contexts = [[*sequence["prompt_ids"], *sequence["response_ids"][:start]] for start in starts]
    assert [asked[0], asked[2], asked[4]] == contexts  # the first request of each episode
    for start, fork in zip(starts, counter.forks, strict=True):
        own_sequence = fork.info["tokens"]["sequences"][0]
        for name in ("response_ids", "mask", "logprobs"):
            assert own_sequence[name][:start] == sequence[name][:start]


def test_a_range_has_the_differences_that_it_knows(counter: Case) -> None:
    counter.record(act("add", number=1), act("add", number=2), say("done"))
    (own,) = counter.fork("1-2", say("a"), say("b"))
    assert [turn["difference"] for turn in own["turns"]] == [pytest.approx(0.1), None]


def test_recorded_calls_run_again_and_a_difference_is_refused(adder: Case) -> None:
    calls = [act("add", a=1, b=2), act("name"), act("add", a=2, b=2)]
    adder.record(*calls, say("3"))
    (own,) = adder.fork("3", say("3"))
    assert own["turns"][0]["value"] > 0.9
    assert [result.text for result in adder.forks[0].results] == ["3", "Ann"]
    (adder.folder / "other.py").write_text(ADDER.format(extra=" + 1"))
    (adder.folder / "tools.yaml").write_text(TOOLS.replace("adder.py", "other.py"))
    with pytest.raises(FatalError) as refused:
        adder.fork("3", say("3"), name="other")
    place = "trajectory 0_0, turn 1, tool 'add'"
    said = f"{place}: the record has 'ok: 3', but the repeated episode has 'ok: 4'"
    assert str(refused.value) == said
    assert adder.source.asked == []
    adder.fork("1", say("3"), name="first")  # nothing is repeated


def test_other_environments_are_refused(counter: Case) -> None:
    counter.record(act("add", number=1), act("add", number=2), say("done"))
    for name, change, said in (
        ("reset", ("You are at 0.", "You start at 0."), "turn 0, reset: the record has 'Count to 3"),
        ("silent", ('return "You are at 0."', "return None"), "turn 0, reset: the record has 'Count to 3"),
        ("end", ("self.count += number", "self.count += number; self.done = True"), "turn 1, the observation: the rec"),
        ("start", ("return self.count", "return self.count or 9"), "turn 0, the state: the record has 0, but the rep"),
        ("state", ("return self.count", "return self.count and 9"), "turn 1, the state: the record has 1, but the rep"),
        ("reward", ("number / 10", "number"), "turn 1, the reward of tool 'add': the record has 0.1, but the rep"),
    ):
        (counter.folder / f"{name}.py").write_text(COUNTER.replace(*change))
        words = [f"agent_rl.environments.counter={counter.folder}/{name}.py"]
        with pytest.raises(FatalError, match=said):
            counter.fork("3", say("a"), name=name, words=words)


def test_a_turn_that_is_longer_than_the_limit_is_refused(counter: Case) -> None:
    tokens = counter.record(act("add", number=1), say("done")).turns[0].tokens
    said = f"turn 1: the recorded turn has {tokens} tokens, but the limit leaves {tokens - 1}: raise sampling.max_resp"
    counter.words = (*counter.words, f"sampling.max_response_tokens={tokens - 1}")
    with pytest.raises(FatalError, match=said):
        counter.fork("2", say("a"))


def test_another_template_is_refused(counter: Case) -> None:
    counter.record(act("add", number=1), say("done"))
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (counter.folder / "model").mkdir()
    for file in Path(counter.model).iterdir():
        (counter.folder / "model" / file.name).write_bytes(file.read_bytes())
    (counter.folder / "model/chat_template.jinja").write_text(template)
    counter.model = str(counter.folder / "model")
    with pytest.raises(FatalError, match="turn 1: the model's chat template or tokenizer encodes the context diff"):
        counter.fork("2", say("a"))


def test_a_tool_that_reaches_the_outside_is_refused_unless_its_file_allows_it(adder: Case) -> None:
    source = """
from agent_rl import Tool

class Ask(Tool):
    name, description, parameters, outside = "ask", "Ask.", {"type": "object", "properties": {}}, True

    async def call(self, arguments):
        return "yes"
"""
    (adder.folder / "ask.py").write_text(source)
    tools = "tools:\n  - class_name: ask.py:Ask\n"
    (adder.folder / "tools.yaml").write_text(tools)
    adder.record(act("ask"), say("3"))
    said = r"^trajectory 0_0, turn 1, tool 'ask': the tool may reach an external service, .*Write `reusable: true`"
    with pytest.raises(ConfigError, match=said):
        adder.fork("2", say("3"))
    adder.fork("1", say("3"))
    (adder.folder / "tools.yaml").write_text(f"{tools}    reusable: true\n")
    adder.fork("2", say("3"), name="allowed")
    assert [result.text for result in adder.forks[0].results] == ["yes"]


USER = """
from agent_rl import Reply, User

class Asker(User):
    log = []

    async def respond(self, message, trajectory):
        self.log.append(message)
        return Reply(f"asked {len(self.log)}", done="bye" in message, reward=0.5)

    async def resume(self, opening, exchanges):
        self.log.append((opening, [(message, reply.text, reply.reward) for message, reply in exchanges]))
"""


def test_a_users_recorded_replies_are_given_and_not_asked_for(tmp_path: Path, model_dir: str) -> None:
    (tmp_path / "asker.py").write_text(USER)
    asked = sum_row(question="Hello.", split="test", agent_name="user_sim_agent", extra_info={"user": {"goal": "x"}})
    case = Case(tmp_path, model_dir, asked, f"agent_rl.user_sim.user={tmp_path}/asker.py:Asker")
    case.record("Message: one", "Message: two", "Message: bye")
    from agent_rl.agents.users.user import load_user

    log: list[Any] = load_user(f"{tmp_path}/asker.py:Asker", {}).log  # type: ignore[attr-defined]
    assert log == ["one", "two", "bye"]
    log.clear()
    case.fork("3", "Message: bye now")
    assert log == [("Hello.", [("one", "asked 1", 0.5), ("two", "asked 2", 0.5)]), "bye now"]
    (fork,) = case.forks
    assert [turn.observation for turn in fork.turns] == ["asked 1", "asked 2", None]
    assert fork.stop_reason is StopReason.ANSWERED
    log.clear()
    case.fork("1", "Message: bye", name="whole")
    assert log == [("Hello.", []), "bye"]


def test_notes_of_a_fold_are_restored(counter: Case) -> None:
    words = ["loop=folding_agent", "agent_rl.folding.reserve_tokens=60", "sampling.max_response_tokens=140"]
    counter.words += (*words, "agent_rl.folding.instructions=Notes?")
    counter.record(*[act("add", number=1)] * 2, "Notes: two.", act("add", number=1), say("done"))
    (own,) = counter.fork("all", say("a"), say("b"), say("c"), say("d"))
    assert "fold" in counter.recordings[0].trajectory.turns[1].notes
    assert [turn["value"] for turn in own["turns"]] == pytest.approx([0.0, 0.1, 0.2, 1.3])
    assert len(counter.forks[3].info["tokens"]["sequences"]) == 2


def command(case: Case, *words: str, out: str = "out", trace: str = "recorded") -> Any:
    limits = ["sampling.max_response_tokens=150", "multi_turn.max_assistant_turns=3"]
    given = [case.folder / trace, "--model", case.model, *case.words, *limits, "--out", case.folder / out]
    return invoke("fork", *given, *words)


def test_the_command_with_a_local_model(counter: Case) -> None:
    recorded = counter.record(act("add", number=1), act("add", number=2), say("done"))
    words = ("--turn", "all", "-n", "2", "--json")
    result = json.loads(command(counter, *words).stdout)
    (own,) = result["trajectories"]
    assert (own["id"], own["reward"]) == (recorded.id, pytest.approx(1.3))
    assert [(turn["turn"], turn["episodes"]) for turn in own["turns"]] == [(1, 2), (2, 2), (3, 2)]
    assert own["turns"][2]["value"] == pytest.approx(1.3)  # whatever it says, the count is 3
    assert own["turns"][1]["difference"] == pytest.approx(1.3 - own["turns"][1]["value"], abs=1e-5)
    assert result["of"]["weights"].startswith("sha256:")
    folder = counter.folder / "out"
    assert json.loads((folder / "values.json").read_text()) | {"folder": str(folder)} == result
    forks = list(trace.read(folder / "trajectories.jsonl", tokens=True))
    assert len(forks) == 6
    assert all(any(fork.info["tokens"]["sequences"][0]["mask"]) for fork in forks)
    assert json.loads(command(counter, *words).stdout) == result  # nothing runs again
    assert len(list(trace.read(folder / "trajectories.jsonl"))) == 6
    shown = command(counter, "--turn", "all", "-n", "2").stdout.splitlines()
    assert shown[0].split() == ["trajectory", "turn", "calls", "value", "before", "the", "turn", "difference"]
    assert [line.split()[:3] for line in shown[1:4]] == [["0_0", "1", "add"], ["0_0", "2", "add"], ["0_0", "3", "-"]]


def test_the_command_says_why_episodes_have_no_score(counter: Case) -> None:
    counter.record(act("add", number=1), say("done"))
    source = COUNTER.replace("return float", "raise UnscoredError('closed'); float")
    (counter.folder / "closed.py").write_text(f"from agent_rl.errors import UnscoredError\n{source}")
    target = f"agent_rl.environments.counter={counter.folder}/closed.py"
    *_, last = command(counter, "--turn", "all", "-n", "2", target).stdout.splitlines()
    assert last == "4 unscored: closed"


def test_all_rows_of_a_fork_are_used(counter: Case) -> None:
    counter.record(act("add", number=1), say("done"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent_rl.cli._evaluation.recipe_values", lambda recipe, choices: {"limit": 1})
        patch.setattr("agent_rl.cli._evaluation.split_words", lambda recipe, words: ({}, words))
        own = json.loads(command(counter, "--turn", "all", "-n", "1", "--json", "--recipe", "x").stdout)["trajectories"]
    assert [turn["episodes"] for turn in own[0]["turns"]] == [1, 1]


def test_the_default_folder_is_named_after_the_trace(counter: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    counter.record(say("done"))
    monkeypatch.chdir(counter.folder / "recorded")
    words = ("--turn", "1", "-n", "1", "--json", "sampling.max_response_tokens=50", "--model", counter.model)
    result = invoke("fork", "trajectories.jsonl", *words, *counter.words)
    assert json.loads(result.stdout)["folder"] == "outputs/fork/recorded_first_1_turn_1"


def test_a_fork_can_be_forked(counter: Case) -> None:
    counter.record(act("add", number=1), say("done"))
    command(counter, "--turn", "2", "-n", "1")
    again = json.loads(command(counter, "--turn", "2", "-n", "1", "--json", trace="out", out="again").stdout)
    assert again["trajectories"][0]["turns"][0]["episodes"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--turn", "4"], "--turn: trajectory 0_0 has no turn 4. Choose a turn from 1 to 3"),
        (["--turn", "2-9"], "--turn: trajectory 0_0 has no turn 4. Choose a turn from 1 to 3"),
        (["--turn", "3-2"], "--turn: '3-2' is not a turn. Write a number, a range such as 2-5, or all"),
        *((["--turn", text], f"--turn: '{text}' is not a turn. Write a number") for text in ("3-", "-", "²", "")),
        (["--turn=-5"], "--turn: '-5' is not a turn. Write a number, a range such as 2-5, or all"),
        (["--turn", "last"], "--turn: 'last' is not a turn. Write a number, a range such as 2-5, or all"),
        (["--turn", "1", "--id", "7_7"], "has no trajectory '7_7'. `agent-rl view` shows the ids"),
        (["--turn", "1", "policy=chat"], "policy: a chat endpoint renders the conversation again, so it cannot"),
    ],
)
def test_what_cannot_be_forked(counter: Case, words: list[str], said: str) -> None:
    counter.record(act("add", number=1), act("add", number=2), say("done"))
    counter.words = tuple(word for word in counter.words if "policy" not in word or "policy=chat" not in words)
    with pytest.raises(ConfigError, match=re.escape(said)):
        command(counter, *words)


def test_an_agent_with_its_own_episodes_is_refused(counter: Case) -> None:
    async def own_episode(loop: Any, row: Any, policy: Any, format: Any, trajectory: Trajectory) -> None:
        """Never called."""

    counter.record(act("add", number=1), say("done"))
    agents = {"own_agent": Agent("own_agent", lambda settings, limits: ReactFormat(), run=own_episode)}
    path = counter.folder / "recorded/trajectories.jsonl"
    (other,) = (replace(each, agent="own_agent") for each in trace.read(path, tokens=True))
    trace.append(counter.folder / "own.jsonl", other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "registered", agents)
        with pytest.raises(ConfigError, match="trajectory 0_0: 'own_agent' runs its episodes with its own code, whose"):
            command(counter, "--turn", "2", trace="own.jsonl")
        with pytest.raises(ConfigError, match="trajectory 0_0: 'own_agent' runs its episodes with its own code, whose"):
            command(counter, "--turn", "2", "loop=own_agent")


def test_which_trajectory(counter: Case) -> None:
    first = counter.record(act("add", number=3), say("done"))
    path = counter.folder / "recorded/trajectories.jsonl"
    second = replace(first, id="0_1")
    trace.append(path, second)
    with pytest.raises(ConfigError, match=r"has 2 trajectories. Choose some with --id, such as --id 0_0, or the first"):
        command(counter, "--turn", "1")
    assert [each.trajectory.id for each in recordings_of(path, "1", [], 1)] == ["0_0"]
    assert [each.trajectory.id for each in recordings_of(path, "1", ["0_1", "0_0", "0_1"], None)] == ["0_1", "0_0"]
    first.info = {}
    trace.append(counter.folder / "bare.jsonl", first)
    with pytest.raises(ConfigError, match=r"has no scored trajectory with tokens\. Set agent_rl.trace.tokens=tr"):
        command(counter, "--turn", "1", trace="bare.jsonl")
    with pytest.raises(ConfigError, match="the trace does not contain its tokens"):
        command(counter, "--turn", "1", "--id", "0_0", trace="bare.jsonl")
    (counter.folder / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ConfigError, match=r"other.jsonl, line 1: .*Pass the trace of a run or an evaluation"):
        command(counter, "--turn", "1", trace="other.jsonl")
