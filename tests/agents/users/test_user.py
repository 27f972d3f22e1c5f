"""Simulated users: what a class may do, and what an episode with one is."""

import asyncio
import math

import pytest

from agent_rl.agents.episode.episode import FinalTurn
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.agents.users.user import Reply, ScriptedUser, User, load_user
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.trajectory import StopReason, Trajectory
from tests.agents import episodes
from tests.agents.episodes import episode

PROMPT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi."}]
ACT = 'Action: calculator\nAction Input: {"expression": "6*7"}'


class Probe(User):
    """Does what its row says, and keeps a record of its life."""

    def __init__(self, row):
        super().__init__({}, row)
        self.life, self.heard = [], asyncio.Event()

    async def start(self, opening):
        self.life.append(f"start {opening}")
        if self.row.get("fails") == "start":
            raise UnscoredError("no user today")
        return self.row.get("opening", opening)

    async def respond(self, message, trajectory):
        self.heard.set()
        self.life.append(f"hears {message} after {len(trajectory.results)} results")
        if self.row.get("fails") == "respond":
            raise UnscoredError("the user is gone")
        if self.row.get("waits"):
            await asyncio.sleep(60)
        done = "42" in message
        return Reply("bye" if done else "How much is 6*7?", done, reward=1.0 if done else None)

    async def score(self, trajectory):
        self.life.append(f"score {trajectory.stop_reason.value}")
        return 0.75

    async def finish(self):
        self.life.append("finish")
        if self.row.get("fails") == "finish":
            raise UnscoredError("the user does not leave")


def run(user, *texts, policy=None, **budget):
    return episodes.run(policy or list(texts), form=UserSimFormat(), prompt=PROMPT, user=user, **budget)


def test_conversation_continues_until_the_user_is_done():
    user = Probe({})
    policy = ScriptedPolicy(["Message: What do you need?", ACT, "Thought: t\nMessage: It is 42."])
    trajectory = run(user, policy=policy)
    assert (trajectory.stop_reason, trajectory.answer, trajectory.verdict) == (StopReason.ANSWERED, "It is 42.", 0.75)
    assert [turn.observation for turn in trajectory.turns] == ["How much is 6*7?", "Observation: 42", None]
    assert [turn.notes for turn in trajectory.turns] == [{}, {}, {"reward": 1.0, "last_word": "bye"}]
    assert user.life == [
        "start Hi.",
        "hears What do you need? after 0 results",
        "hears It is 42. after 1 results",
        "score answered",
        "finish",
    ]
    roles = [message["role"] for message in policy.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert policy.messages[3]["content"] == "How much is 6*7?"
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


def test_user_may_begin_in_other_words():
    trajectory = run(Probe({"opening": "Good day."}), "It is 42.")
    assert [message.content for message in trajectory.prompt[1:]] == ["Good day."]
    assert "Be kind." in trajectory.prompt[0].content
    assert PROMPT[1]["content"] == "Hi.", "the row is shared by its samples"


@pytest.mark.parametrize(
    ("budget", "reason"), [({"max_turns": 2}, StopReason.MAX_TURNS), ({"max_seconds": 0.3}, StopReason.MAX_SECONDS)]
)
def test_conversation_without_an_end_has_no_answer_but_a_verdict(budget, reason):
    user = Probe({"waits": "max_seconds" in budget})
    trajectory = run(user, "a", "b", "c", **budget)
    assert (trajectory.stop_reason, trajectory.answer, trajectory.verdict) == (reason, None, 0.75)
    assert user.life[-2:] == [f"score {reason.value}", "finish"]


def test_reply_that_does_not_fit_ends_the_episode():
    trajectory = run(Probe({}), policy=ScriptedPolicy(["a b"], max_tokens=5))
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.MAX_TOKENS, None)


def test_last_turn_is_announced_with_what_the_user_says():
    policy = ScriptedPolicy(["What?", "It is 41."])
    trajectory = run(Probe({}), policy=policy, max_turns=2, final=FinalTurn("Last turn."))
    assert policy.messages[-2] == {"role": "user", "content": "How much is 6*7?\n\nLast turn."}
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.MAX_TURNS, None)


@pytest.mark.parametrize(("where", "turns"), [("start", 0), ("respond", 1), ("finish", 1)])
def test_user_that_fails_is_unscored(where, turns):
    user = Probe({"fails": where})
    trajectory = run(user, "42", "b")
    verdict = 0.75 if where == "finish" else None
    assert (trajectory.stop_reason, trajectory.verdict) == (StopReason.ERROR, verdict)
    assert trajectory.error in ("no user today", "the user is gone", "the user does not leave")
    assert len(trajectory.turns) == turns
    assert trajectory.prompt[-1].content == "Hi."
    assert user.life[-1] == "finish"


@pytest.mark.parametrize("verdict", [math.nan, "good"])
def test_verdict_that_is_no_finite_number_is_a_bug_of_the_user(verdict):
    class Judging(Probe):
        async def score(self, trajectory):
            return verdict

    trajectory = run(Judging({}), "a", max_turns=1)
    assert (trajectory.stop_reason, trajectory.verdict) == (StopReason.ERROR, None)
    assert f"the user's verdict is {verdict!r}, not a finite number" in trajectory.error


async def test_cancelled_episode_finishes_its_user():
    user = Probe({"waits": True})

    work = episode(ScriptedPolicy(["a"]), form=UserSimFormat(), prompt=PROMPT, user=user)
    task = asyncio.ensure_future(work)
    await user.heard.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert user.life[-1] == "finish"


def test_script_is_played_and_then_the_conversation_is_over():
    trajectory = run(ScriptedUser({}, {"replies": ["one", "two"]}), "a", "b", "c", "d")
    assert [turn.observation for turn in trajectory.turns] == ["one", "two", None]
    assert (trajectory.answer, trajectory.verdict) == ("c", None)


@pytest.mark.parametrize("row", [{}, {"replies": None}, {"replies": "one"}])
def test_row_without_replies_is_refused(row):
    with pytest.raises(ConfigError, match="expected a list of strings") as caught:
        ScriptedUser({}, row)
    assert caught.value.key == "extra_info.user.replies"


USERS = """
from agent_rl.agents.users.user import Reply, User
class Mine(User):
    @classmethod
    def check_config(cls, config):
        if "mood" not in config:
            raise ValueError("mood: missing")
    async def respond(self, message, trajectory):
        return Reply(self.config["mood"], done=True)
class Other:
    pass
"""


def test_a_users_own_class_is_named_by_path(tmp_path):
    (tmp_path / "users.py").write_text(USERS)
    assert load_user("scripted", {}) is ScriptedUser
    assert load_user("agent_rl.agents.users.user.ScriptedUser", {}) is ScriptedUser
    cls = load_user(f"{tmp_path}/users.py:Mine", {"mood": "fine"})
    assert run(cls({"mood": "fine"}, {}), "a").turns[0].notes == {"last_word": "fine"}
    for name, config, key, problem in (
        (f"{tmp_path}/users.py:Mine", {}, "config", "mood: missing"),
        (f"{tmp_path}/users.py:Other", {}, "user", "not a subclass"),
        (f"{tmp_path}/users.py:Mien", {}, "user", "has no 'Mien'"),
        ("scriptd", {}, "user", "there is no user 'scriptd'. Did you mean 'scripted'"),
    ):
        with pytest.raises(ConfigError, match=problem) as caught:
            load_user(name, config)
        assert caught.value.key == f"agent_rl.user_sim.{key}"


def test_a_user_continues_a_recorded_conversation():
    exchanges = [("Who?", Reply("Ann."))]
    scripted = ScriptedUser({}, {"replies": ["Ann.", "Bob.", "Bye."]})
    asyncio.run(scripted.resume("Hi.", exchanges))
    assert asyncio.run(scripted.respond("And?", Trajectory([], StopReason.ERROR))) == Reply("Bob.")
    probe = Probe({})
    with pytest.raises(ConfigError, match=r"Probe cannot continue a recorded conversation. Define resume\(opening"):
        asyncio.run(probe.resume("Hi.", exchanges))
    assert probe.life == []
    asyncio.run(probe.resume("Hi.", []))
    assert probe.life == ["start Hi."]
