"""A user's own agents are evaluated and audited as the package's are, by a real script."""

import hashlib
import json
from pathlib import Path

import pytest

from agent_rl.trajectory import trace
from tests.support.forks import agent_rl

pytestmark = [pytest.mark.trainer]
SCRIPT = '''
"""A training script: a record, a class of its own, and one that only verl can run."""

from agent_rl import Agent, Hooks, ReactAgentLoop, register_agent_loop
from agent_rl.agents.react import ReactFormat


class Shouting(ReactFormat):
    """The answer is what follows the word SHOUT."""

    def parse(self, text, tools):
        return super().parse(text.replace("SHOUT", "Final Answer:"), tools)


register_agent_loop(Agent("shouting", lambda settings, limits: Shouting("Shout.")))


class Once(Hooks):
    async def after_turn(self, trajectory, turn):
        return True


@register_agent_loop("of_class")
class OfClass(ReactAgentLoop):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.instructions = "Once."

    def format(self):
        return ReactFormat(self.instructions)

    def hooks(self):
        return Once()


@register_agent_loop("runs_itself")
class RunsItself(ReactAgentLoop):
    async def run(self, sampling_params, **row):
        return await super().run(sampling_params, **row)


if __name__ == "__main__":
    from verl.trainer.main_ppo import main

    main()
'''


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "my_train.py"
    path.write_text(SCRIPT)
    return str(path)


def evaluated(data, tools, script, model_dir, out, loop):
    return agent_rl(
        *("eval", "--data", data, "--tools", tools, "--script", script, "--loop", loop),
        *("--model", model_dir, "--out", out, "policy=local", "limit=2", "sampling.max_response_tokens=48"),
        "agent_rl.trace.tokens=true",
    )


@pytest.mark.parametrize(("loop", "told"), [("shouting", "Shout."), ("of_class", "Once.")])
def test_an_agent_of_a_script_is_evaluated_and_its_tokens_are_audited(
    data, tools, script, model_dir, tmp_path, loop, told
):
    done = evaluated(data, tools, script, model_dir, tmp_path / "out", loop)
    assert done.returncode == 0, done.stderr[-2000:]
    weights = hashlib.sha256(Path(model_dir, "model.safetensors").read_bytes()).hexdigest()
    assert json.loads((tmp_path / "out/summary.json").read_text())["of"]["weights"] == f"sha256:{weights}"
    found = list(trace.read(tmp_path / "out/trajectories.jsonl"))
    assert [(each.agent, each.error) for each in found] == [(loop, None)] * 2
    assert all(each.prompt[0].content == told and each.score is not None for each in found)
    if loop == "of_class":
        assert all(len(each.turns) == 1 for each in found)
    audit = agent_rl("audit", "tokens", tmp_path / "out", "--tokenizer", model_dir, "--out", tmp_path / "audit.jsonl")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    audits = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert len(audits) == sum(len(each.turns) for each in found)


def test_what_only_verl_can_run_is_refused(data, tools, script, model_dir, tmp_path):
    done = evaluated(data, tools, script, model_dir, tmp_path / "out", "runs_itself")
    assert done.returncode == 2
    assert "RunsItself overrides run(), which only verl's worker calls. Override format()" in done.stderr
