"""Agents are found by name: the package's own by their files, a user's own by their registration."""

from pathlib import Path

import pytest

import agent_rl.agents
from agent_rl import Agent, register_agent_loop
from agent_rl.agents import registry
from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.loop import EpisodeLoop, EpisodeSetup
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.folding import FoldingPolicy
from agent_rl.agents.react import ReactFormat
from agent_rl.agents.registry import agent_names, find_agent, load_script, make_loop
from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.agents.users.user import ScriptedUser
from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setattr(registry, "registered", {})


def loop(name, limits=None, **sections):
    settings = AgentRLSettings.from_config({"agent_rl": sections})
    return make_loop(name, EpisodeSetup(settings, limits or EpisodeLimits()))


def test_each_file_of_the_folder_is_an_agent_of_its_name():
    files = {path.stem for path in Path(agent_rl.agents.__file__).parent.glob("*.py")} - {"__init__", "registry"}
    assert set(agent_names()) == {f"{name}_agent" for name in files}
    for name in agent_names():
        assert find_agent(name).name == name
        assert loop(name).format()


def test_a_format_is_as_configured():
    format = loop("react_agent", react={"instructions": "Go.", "observation_role": "tool"}).format()
    assert format.prompt([{"role": "user", "content": "?"}], [])[0] == {"role": "system", "content": "Go."}
    assert format.reply("seen", []) == [{"role": "tool", "content": "seen"}]


def test_the_folding_agent_is_another_with_a_policy_around_its_own():
    sections = {"folding": {"loop": "user_sim_agent", "reserve_tokens": 64}, "user_sim": {"user": "scripted"}}
    folding = loop("folding_agent", EpisodeLimits(response_length=128), **sections)
    assert isinstance(folding.format(), UserSimFormat)
    assert isinstance(folding.user({"extra_info": {"user": {"replies": ["Yes."]}}}), ScriptedUser)
    policy = ScriptedPolicy(["Hello."])
    assert isinstance(folding.conversation(policy), FoldingPolicy)
    assert loop("react_agent", **sections).conversation(policy) is policy
    with pytest.raises(ConfigError, match=r"agent_rl\.folding\.reserve_tokens: 64 is not less than"):
        loop("folding_agent", EpisodeLimits(response_length=64), **sections).conversation(policy)


def test_the_error_for_an_agent_that_cannot_be_folded_names_the_key():
    with pytest.raises(ConfigError, match=r"agent_rl\.folding\.loop: there is no agent 'folding_agent'"):
        loop("folding_agent", folding={"loop": "folding_agent"}).format()


def test_only_the_user_sim_agent_needs_a_user_in_the_row():
    assert loop("react_agent").user({}) is None
    with pytest.raises(ConfigError, match=r"extra_info\.user: the row has no user"):
        loop("user_sim_agent").user({})


def test_a_registered_record_is_found_and_made():
    agent = Agent("terse", lambda settings, limits: ReactFormat("Be terse."))
    assert register_agent_loop(agent) is agent
    assert find_agent("terse") is agent
    assert loop("terse").agent == "terse"
    assert loop("terse").format().prompt([], [])[0]["content"] == "Be terse."


def test_a_registered_class_is_made_with_the_setup_and_gets_its_name():
    @register_agent_loop("mine")
    class Mine(EpisodeLoop):
        def format(self):
            return ReactFormat("Mine.")

        async def run(self):
            return None

    assert (Mine.agent, type(loop("mine"))) == ("mine", Mine)


def test_a_class_that_only_verl_can_run_is_refused():
    register_agent_loop("verls", type("Verls", (), {"run": lambda self: None}))
    with pytest.raises(ConfigError, match="only verl's worker can run Verls"):
        loop("verls")


@pytest.mark.parametrize("thing", [42, "module.Class", type("NoRun", (), {}), lambda: None])
def test_a_class_that_is_no_loop_is_refused(thing):
    with pytest.raises(ConfigError, match="is not an agent loop"):
        register_agent_loop("mine", thing)


def test_a_name_of_the_package_is_refused():
    with pytest.raises(ConfigError, match="the name belongs to agent_rl"):
        register_agent_loop(Agent("react_agent", lambda settings, limits: ReactFormat()))


SCRIPT = """
from beside import GREETING
from agent_rl import Agent, register_agent_loop
from agent_rl.agents.react import ReactFormat

register_agent_loop(Agent("of_script", lambda settings, limits: ReactFormat(GREETING)))

if __name__ == "__main__":
    raise SystemExit("trains")
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_script_is_run_up_to_its_main_block(tmp_path, monkeypatch, encoding):
    monkeypatch.syspath_prepend("")  # what the script adds to sys.path goes with it
    (tmp_path / "beside.py").write_text("GREETING = 'Hello.'")
    (tmp_path / "train.py").write_text(SCRIPT, encoding=encoding)
    load_script(str(tmp_path / "train.py"))
    assert loop("of_script").format().prompt([], [])[0]["content"] == "Hello."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from verl.trainer import main_ppo\nmain_ppo.main()", "line 2, starts the training.*under `if __name__"),
        ("1 +", "cannot be read"),
        ("raise ValueError('no')", "ValueError: no"),
    ],
)
def test_a_script_that_cannot_be_run_is_refused(tmp_path, monkeypatch, text, said):
    monkeypatch.syspath_prepend("")
    (tmp_path / "train.py").write_text(text)
    with pytest.raises(ConfigError, match=f"--script: .*{said}"):
        load_script(str(tmp_path / "train.py"))
