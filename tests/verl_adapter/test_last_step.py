"""verl's loop saves the last step of a run that stops, and would not by itself; real runs are in tests/e2e."""

import json

from tests.forks import python

STOPS = """
import json, tempfile, verl
from pathlib import Path
from verl.trainer.constants_ppo import PPO_RAY_RUNTIME_ENV as env
from agent_rl.errors import UnscoredError
from tests.verl_adapter.trainers import make, train

folder = Path(tempfile.mkdtemp())

def run(update):
    config = {"agent_rl.run.folder": str(folder), "trainer.default_local_dir": str(folder), "trainer.save_freq": 3,
              "trainer.test_freq": 2, "trainer.total_epochs": 1}
    trainer = make(config=config)
    return train(trainer, lambda: update(trainer.global_steps))

def fail(step):
    if step == 3: raise UnscoredError("no score")

def ask(step):
    if step == 2: (folder / "stop").touch()

failed, asked = run(fail), run(ask)
ended = failed.pop().replace(str(folder), "FOLDER")
print(json.dumps([failed, ended, asked, (folder / "stop").read_text(), "AGENT_RL_COMMAND" in env["env_vars"]]))
"""


def test_a_run_that_fails_or_is_asked_to_stop_saves_its_last_complete_step() -> None:
    failed, ended, asked, answer, has_command = json.loads(python(STOPS))
    assert failed == ["step 1", "step 2", "validation 2", "checkpoint 2"]
    assert ended.startswith("UnscoredError: no score. Step 2 is saved in FOLDER/global_step_2: go on from there")
    assert asked == ["step 1", "step 2", "checkpoint 2"]  # the last one, without a validation
    assert json.loads(answer)["step"] == 2
    assert has_command


def test_verl_would_save_nothing_and_not_stop() -> None:
    failed, ended, asked, answer, has_command = json.loads(python(STOPS, plugins="none"))
    assert failed == ["step 1", "step 2", "validation 2"]
    assert ended == "UnscoredError: no score"
    assert [asked[-1], asked.count("checkpoint 2"), answer, has_command] == ["validation 4", 0, "", False]
