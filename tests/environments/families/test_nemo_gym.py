"""The rewards of `nemo_gym:` equal those of its servers: recorded ones, and of a server without any of our code."""

import json
from typing import Any

import pytest

from agent_rl.environments import load_environment
from agent_rl.errors import ConfigError
from tests.environments.families.playing import Action, Rollouts
from tests.environments.families.served_family import Step, as_actions, in_family, needs, rollout, rows

pytestmark = [needs("nemo_gym"), pytest.mark.slow]

COUNTER = "nemo_gym:example_session_state_mgmt"

RECORDED = (
    *("example_session_state_mgmt", "arc_agi", "bunsenbench_chemistry_mcq", "calendar", "circle_click", "circle_count"),
    *("gpqa_diamond", "graphwalks", "mrcr", "nvarc", "proof_genselect"),
)
"""Servers that need neither a model nor further packages."""

RECORDINGS = """
import json, sys
from pathlib import Path
import nemo_gym
folder = Path(nemo_gym.__file__).parents[1] / "resources_servers" / json.load(sys.stdin) / "data"
print(json.dumps([json.loads(line) for line in (folder / "example_rollouts.jsonl").read_text().splitlines()]))
"""

BLACKJACK = """
import asyncio, json, random, sys
from types import SimpleNamespace
from resources_servers.blackjack.app import BlackjackEnv

async def play(seed, messages):
    environment, total = BlackjackEnv.model_construct(session_state={}), 0.0
    random.Random = lambda: original(seed)
    await environment.reset({}, "session")
    for message in messages:
        action = SimpleNamespace(output=[SimpleNamespace(type="message", content=message)])
        _, reward, terminated, _, _ = await environment.step(action, {}, "session")
        total += reward
        if terminated:
            break
    return total

original = random.Random
print(json.dumps([asyncio.run(play(*each)) for each in json.load(sys.stdin)]))
"""


def steps_of(recorded: dict[str, Any]) -> tuple[list[Step], str | None]:
    """Return the calls of a recorded rollout, and its answer."""
    steps: list[Step] = []
    answer = None
    for item in recorded["response"]["output"]:
        if item["type"] == "function_call":
            steps.append((item["name"], json.loads(item["arguments"])))
        elif item["type"] == "message":
            answer = "".join(part["text"] for part in item["content"])
    return steps, answer


def texts_of(recorded: dict[str, Any]) -> list[str]:
    return [message["content"] for message in recorded["responses_create_params"]["input"]]


def recording(server: str, row: dict[str, Any]) -> tuple[list[Action], float]:
    """Return the actions of the recorded rollout of a row, and its recorded reward."""
    recorded = in_family("nemo_gym", RECORDINGS, server)
    own = next(each for each in recorded if texts_of(each) == [message["content"] for message in row["prompt"]])
    return as_actions(*steps_of(own)), own["reward"]


def stood(row: dict[str, Any]) -> tuple[list[Action], float]:
    messages = ["<action>hit</action>", "<action>stand</action>"]
    return [*messages], in_family("nemo_gym", BLACKJACK, [(row["seed"], messages)])[0]


SERVERS = ("example_session_state_mgmt", "bunsenbench_chemistry_mcq", "calendar", "mrcr", "nvarc")
ROLLOUTS: Rollouts = {"blackjack": stood} | {
    server: lambda row, server=server: recording(server, row)  # type: ignore[misc]
    for server in SERVERS
}


def replayed(target: str, recorded: dict[str, Any]) -> float:
    """Return the reward of a recorded rollout, whose calls are made again."""
    steps, answer = steps_of(recorded)
    texts = texts_of(recorded)
    same = (row for row in rows(target) if [message["content"] for message in row["prompt"]] == texts)
    row = next(same, {"example": {}, "seed": 0, "prompt": ""})  # whose fields for the verifier a recorded row may lack
    row["example"] |= {key: value for key, value in recorded.items() if key not in ("response", "reward")}
    reward: float = rollout(target, row, steps, answer)[1]
    return reward


@pytest.mark.parametrize("server", RECORDED)
def test_recorded_rollouts_get_their_recorded_reward(server: str) -> None:
    recorded = in_family("nemo_gym", RECORDINGS, server)
    rewards = [each["reward"] for each in recorded]
    print(server, rewards)
    assert [replayed(f"nemo_gym:{server}", each) for each in recorded] == rewards


def test_rewards_of_a_server_with_tools() -> None:
    for row in rows(COUNTER):
        missing = row["example"]["expected_count"] - row["example"]["initial_count"]
        gold: list[Step] = [("increment_counter", {"count": missing}), ("get_counter_value", {})]
        texts, reward = rollout(COUNTER, row, gold)
        assert texts[1:] == [
            '{"success":true}',
            json.dumps({"count": row["example"]["expected_count"]}).replace(" ", ""),
        ]
        assert reward == 1.0
        assert rollout(COUNTER, row, gold + gold)[1] == 0.0
        assert rollout(COUNTER, row, [])[1] == 0.0


def test_rewards_of_a_server_in_the_style_of_gymnasium() -> None:
    stand, hit = "<action>stand</action>", "<action>hit</action>"
    played = [
        (row, messages) for row in rows("nemo_gym:blackjack")[:12] for messages in ([stand], [hit] * 9, ["?"], [])
    ]
    ours = [
        rollout("nemo_gym:blackjack", row, [("say", {"message": message}) for message in messages])
        for row, messages in played
    ]
    rewards = [reward for _, reward in ours]
    assert rewards == in_family("nemo_gym", BLACKJACK, [(row["seed"], messages) for row, messages in played])
    assert set(rewards) == {-1.0, 0.0, 1.0}
    assert all(str(texts[0]).startswith("Your hand: [") for texts, _ in ours)


def test_all_members_of_a_group_begin_alike() -> None:
    row = rows("nemo_gym:blackjack")[5]
    texts = {rollout("nemo_gym:blackjack", row, [])[0][0] for _ in range(4)}
    assert len(texts) == 1
    assert len({rollout("nemo_gym:blackjack", row, [])[0][0] for row in rows("nemo_gym:blackjack")}) > 20


def test_a_server_that_cannot_run() -> None:
    with pytest.raises(ConfigError, match=r"nemo_gym:red_jack: no resources server has this name; known: .*blackjack"):
        load_environment("it", "nemo_gym:red_jack")
