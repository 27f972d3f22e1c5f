"""Agent loops of one's own: registration in this process, and in Ray workers that cannot import them."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("verl")

import verl.experimental.agent_loop.agent_loop as agent_loop
import verl.trainer.constants_ppo as constants
from hydra._internal.utils import _locate

from agent_rl import ReactAgentLoop, register_agent_loop
from agent_rl.agents import registry
from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.react import ReactFormat
from agent_rl.errors import ConfigError
from agent_rl.verl_adapter import loops, verl_loop


class Mine(ReactAgentLoop):
    """A loop of one's own."""

    agent = "mine"


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(registry, "registered", {})
    monkeypatch.delenv(loops.VARIABLE, raising=False)
    monkeypatch.setattr(agent_loop, "_agent_loop_registry", dict(agent_loop._agent_loop_registry))
    environment = {**constants.PPO_RAY_RUNTIME_ENV, "env_vars": dict(constants.PPO_RAY_RUNTIME_ENV["env_vars"])}
    monkeypatch.setattr(constants, "PPO_RAY_RUNTIME_ENV", environment)


def registered(name):
    """The class that verl's worker would instantiate."""
    return _locate(agent_loop._agent_loop_registry[name]["_target_"])


def test_every_agent_of_the_package_is_registered_with_verl():
    assert registered("react_agent") is ReactAgentLoop
    for name in registry.agent_names():
        cls = registered(name)
        assert issubclass(cls, agent_loop.AgentLoopBase)
        assert cls.agent == name
        assert pickle.loads(pickle.dumps(cls)) is cls


class Plain(ReactAgentLoop):
    """A loop that says nothing about its name."""


def test_a_loop_is_recorded_under_the_name_of_verls_registry():
    agent_loop.register("plain")(Plain)
    verl_loop.registered_name.cache_clear()
    assert verl_loop.registered_name(registered("plain")) == "plain"
    assert verl_loop.registered_name(ReactAgentLoop) == "react_agent"


def test_one_class_under_two_names_is_recorded_under_both():
    for name in ("first", "second"):
        register_agent_loop(name, Plain)
    assert [registered(name).agent for name in ("first", "second")] == ["first", "second"]


def test_verls_own_loops_stay():
    assert {"single_turn_agent", "tool_agent"} <= set(agent_loop._agent_loop_registry)


def test_a_record_becomes_a_class_that_verl_can_run():
    agent = Agent("terse", lambda settings, limits: ReactFormat("Be terse."))
    assert registry.register_agent_loop(agent) is agent
    cls = registered("terse")
    assert issubclass(cls, agent_loop.AgentLoopBase)
    assert (cls.agent, cls.__doc__) == ("terse", "The episodes of 'terse'.")


def test_call_registers():
    assert registry.register_agent_loop("mine", Mine) is Mine
    assert registered("mine") is Mine


def test_decorator_registers():
    @registry.register_agent_loop("decorated")
    class Decorated(Mine):
        pass

    assert Decorated.__name__ == "Decorated"
    assert registered("decorated") is Decorated


@pytest.mark.parametrize("name", ["with-dash", "with.dot", "with space", "größe", "1st", "class", "a_b"])
def test_any_name_can_be_found_by_hydra(name):
    registry.register_agent_loop(name, Mine)
    assert issubclass(registered(name), Mine)
    assert registered(name).agent == name


def test_names_that_differ_in_punctuation_do_not_collide():
    other = type("Other", (Mine,), {})
    registry.register_agent_loop("a-b", Mine)
    registry.register_agent_loop("a.b", other)
    assert issubclass(registered("a-b"), Mine)
    assert not issubclass(registered("a-b"), other)
    assert issubclass(registered("a.b"), other)


def test_later_registration_of_a_name_replaces_the_earlier():
    other = type("Other", (Mine,), {})
    registry.register_agent_loop("mine", Mine)
    registry.register_agent_loop("mine", other)
    assert registered("mine") is other


@pytest.mark.parametrize("thing", [42, "module.Class", Mine.run, type("NoRun", (), {}), lambda: None])
def test_something_else_than_a_loop_is_refused(thing):
    with pytest.raises(ConfigError, match="is not an agent loop"):
        registry.register_agent_loop("mine", thing)
    assert "mine" not in agent_loop._agent_loop_registry


def test_name_of_ours_is_refused():
    with pytest.raises(ConfigError, match="the name belongs to agent_rl"):
        registry.register_agent_loop("react_agent", Mine)


def test_class_that_is_too_large_to_send_is_refused(monkeypatch):
    module = ModuleType("users_module")
    module.__file__ = "/home/user/users_module.py"
    source = "def run(self):\n    return DATA\nLoop = type('Loop', (), {'run': run})"
    module.DATA = os.urandom(200_000)
    monkeypatch.setitem(sys.modules, "users_module", module)
    exec(source, vars(module))  # noqa: S102 - a module made here
    with pytest.raises(ConfigError, match=r"register_agent_loop\(large\).*agent_loop_config_path"):
        registry.register_agent_loop("large", module.Loop)


def test_job_environment_carries_what_is_registered(monkeypatch):
    monkeypatch.delitem(constants.PPO_RAY_RUNTIME_ENV["env_vars"], loops.VARIABLE, raising=False)
    assert loops.VARIABLE not in constants.PPO_RAY_RUNTIME_ENV["env_vars"]
    registry.register_agent_loop("mine", Mine)
    assert loops.VARIABLE in constants.get_ppo_ray_runtime_env()["env_vars"]


def test_worker_that_received_a_loop_can_send_it_on(monkeypatch):
    monkeypatch.setenv(loops.VARIABLE, _payload_of_an_absent_module())
    loops.install(agent_loop)
    assert registered("absent").agent == "absent"
    loops.export_to_workers(constants)
    assert loops.VARIABLE in constants.PPO_RAY_RUNTIME_ENV["env_vars"]


def _payload_of_an_absent_module():
    """A loop as another process sends it, from a module that exists only there."""
    script = (
        "import sys\nfrom types import ModuleType\n"
        "from agent_rl.agents import registry\nfrom agent_rl.verl_adapter import loops\n"
        "home = ModuleType('only_there'); home.__file__ = '/home/user/only_there.py'\n"
        "sys.modules['only_there'] = home\n"
        "exec('class Loop:\\n    agent = \"absent\"\\n    def run(self):\\n        return self.agent', vars(home))\n"
        "registry.register_agent_loop('absent', home.Loop)\n"
        "print(loops._payload())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.split()[-1]


BESIDE = '''
"""A module beside the script."""

from agent_rl import ReactAgentLoop

SECRET = "from beside"


class Beside(ReactAgentLoop):
    agent = "beside"

    def secret(self):
        return SECRET
'''

SCRIPT = """
import os
import sys

import beside
import ray
from agent_rl import Agent, ReactAgentLoop, register_agent_loop
from agent_rl.agents.react import ReactFormat

GREETING = "from main"


@register_agent_loop("in-main")
class InMain(ReactAgentLoop):
    agent = "in-main"

    def secret(self):
        return greeting()


def greeting():
    return GREETING


register_agent_loop("beside", beside.Beside)


def speak(settings, limits):
    return ReactFormat(greeting())


register_agent_loop(Agent("a record", speak))


@ray.remote
def worker(folder):
    import importlib.util
    import os
    import sys

    os.chdir("/")
    sys.path = [path for path in sys.path if path not in ("", folder)]
    import verl.experimental.agent_loop.agent_loop as module
    import verl.trainer.constants_ppo as constants
    from hydra._internal.utils import _locate

    found = {}
    for name in ("in-main", "beside", "react_agent", "a record"):
        cls = _locate(module._agent_loop_registry[name]["_target_"])
        bare = cls.__new__(cls)
        found[name] = (issubclass(cls, module.AgentLoopBase), cls.agent, getattr(bare, "secret", str)())
        if name == "a record":
            bare.settings = bare.limits = None
            assert bare.format().prompt([], [])[0]["content"] == "from main"
    return os.getpid(), importlib.util.find_spec("beside") is None, found


if __name__ == "__main__":
    import hydra
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", overrides=["actor_rollout_ref.rollout.name=sglang"])
    ray.init(num_cpus=1, include_dashboard=False, runtime_env=get_ppo_ray_runtime_env(config))
    try:
        pid, absent, found = ray.get(worker.remote(os.path.dirname(os.path.abspath(__file__))))
    finally:
        ray.shutdown()
    assert pid != os.getpid()
    assert absent, "the worker must not be able to import the module"
    assert found == {
        "in-main": (True, "in-main", "from main"),
        "beside": (True, "beside", "from beside"),
        "react_agent": (True, "react_agent", ""),
        "a record": (True, "a record", ""),
    }, found
    print("worker found them all")
"""


@pytest.mark.engine
def test_loops_of_a_script_exist_in_a_worker_that_cannot_import_it(tmp_path):
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "script.py").write_text(SCRIPT)
    ray_dir = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # Ray's socket paths must be short
    try:
        done = subprocess.run(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            env={**os.environ, "RAY_TMPDIR": ray_dir, "RAY_USAGE_STATS_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    finally:
        shutil.rmtree(ray_dir, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "worker found them all" in done.stdout
    assert not Path(ray_dir).exists()
