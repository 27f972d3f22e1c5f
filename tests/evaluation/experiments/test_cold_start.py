"""A cold start through verl's SFT trainer, in two steps."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer
from agent_rl.data import write_parquet
from agent_rl.data.math_dataset import to_row
from agent_rl.errors import ConfigError
from agent_rl.evaluation.experiments import cold_start
from agent_rl.evaluation.experiments.cold_start import ColdStart
from agent_rl.launch.supervised import train_supervised
from agent_rl.verl_adapter.checkpoints import weights_digest
from agent_rl.verl_adapter.inspection import load_chat_tokenizer
from agent_rl.work import progress

pytestmark = pytest.mark.trainer

ROOT = Path(__file__).parents[3]
PUBLISHED = [
    {"problem": "What do 12 at 9 cents cost?", "level": "Level 1",
     "solution": "They cost\n```python\n12 * 9\n```\nIt is \\boxed{108}."},
    {"problem": "Which $x$ is 5?", "solution": r"By symmetry $x = \boxed{5}$.", "level": "Level 1"},
    {"messages": [
        {"content": "Use <code>.\n*user question:*\n2+3?\nRemember to place the final answer last."},
        {"content": "I add.\n<code>\n```python\nprint(2 + 3)\n```\n</code>\n<interpreter>6</interpreter>\n"
                    "<answer>\n\\boxed{5}\n</answer>"},
    ]},
]  # fmt: skip
"""Of MATH, twice, and of ReTool-SFT; the second has nothing to run."""


@pytest.fixture(scope="module")
def start(tiny_recipe):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_PLATFORM", "cpu")
        patch.setenv("SQL_DATABASES", str(tiny_recipe.parent))
        patch.chdir(ROOT)
        start = ColdStart(str(tiny_recipe))
        start.make()  # unless another module has
        yield start


@pytest.mark.recipes
def test_the_model_has_learned_from_the_episodes(start):
    first, last = (load_file(start.folder / name / "model.safetensors") for name in ("stage_0", "model"))
    changed = [name for name in last if name in first and not last[name].float().equal(first[name].float())]
    assert changed
    assert "train/loss" in (start.folder / "model.log").read_text()
    assert len(pq.read_table(start.folder / "stage_1.parquet")) == 48
    assert not start.make()


@pytest.mark.recipes
def test_the_solver_solves_and_guessing_does_not(start):
    chat = load_chat_tokenizer(str(start.model))
    for habit, right in (("oracle", 12), ("no_tool", 0)):
        found = start.run({habit: 1.0}, "test", chat, "a test")
        assert sum(each.score.components["correctness"] == 1 for each in found) == right


def test_a_program_needs_no_worked_episodes_of_its_own(tmp_path):
    sizes = [f"agent_rl.cold_start.{name}=2" for name in ("episode_rows", "train_rows", "held_out")]
    splits = ColdStart("recipes/langgraph", sizes).rows(tmp_path)
    agents = {split: {row["agent_name"] for row in rows} for split, rows in splits.items()}
    assert agents == {"episodes": {"tool_call_agent"}, "train": {"gateway_agent"}, "test": {"gateway_agent"}}


@pytest.fixture
def retool(tmp_path):
    """The words of a cold start of size=retool on published rows, with a tiny model and two devices."""
    make_model(tmp_path / "base", make_tokenizer(CORPUS, tmp_path / "base"))
    rows = [to_row(each, "train", number, agent_name="code_act_agent") for number, each in enumerate(PUBLISHED)]
    write_parquet(rows, tmp_path / "rows.parquet")
    return [
        "size=retool", f"data.train_files={tmp_path}/rows.parquet", f"data.val_files={tmp_path}/rows.parquet",
        f"actor_rollout_ref.model.path={tmp_path}/made/model", f"agent_rl.cold_start.base={tmp_path}/base",
        "agent_rl.cold_start.batch=2", "agent_rl.cold_start.micro_batch=1",
        "agent_rl.cold_start.stages=[{mix:{oracle:1},steps:2}]", "trainer.n_gpus_per_node=2",
    ]  # fmt: skip


def test_published_rows_with_nothing_to_run_are_not_worked(retool, tmp_path):
    start = ColdStart("recipes/math_python", retool)
    rows = start.rows(tmp_path)
    assert [row["extra_info"]["index"] for row in rows["episodes"]] == [0, 2]
    write_parquet(rows["test"][1:2], tmp_path / "rows.parquet")
    with pytest.raises(ConfigError, match="the written_solutions world cannot solve any row"):
        start.rows(tmp_path)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["batch=3"], "cold_start.batch: 3 episodes cannot be divided among 2 devices .* Choose a multiple of 2"),
        (["batch=4", "micro_batch=3"], "micro_batch: .* 2 episodes .* divided by 3. Choose a divisor of 2"),
        (["batch=4"], "cold_start.batch: a batch has 4 episodes, but only 2 were run. Lower the .* raise .*_rows"),
    ],
)
def test_a_batch_that_cannot_be_made_is_named_before_the_trainer_starts(retool, words, problem):
    with pytest.raises(ConfigError, match=problem):
        ColdStart("recipes/math_python", [*retool, *(f"agent_rl.cold_start.{word}" for word in words)]).make()


@pytest.mark.recipes
def test_an_interrupted_cold_start_goes_on_after_its_last_whole_stage(retool, monkeypatch):
    """Interrupted in its second stage, it trains that one alone; the model is that of one go."""

    def train(model, episodes, out, *rest):
        trained.append(out.name)
        if interrupted and out.name == interrupted[0]:
            raise KeyboardInterrupt
        return train_supervised(model, episodes, out, *rest)

    stages = "agent_rl.cold_start.stages=[{mix:{oracle:1},steps:1},{mix:{oracle:1},steps:2}]"
    words, trained, interrupted = [*retool, "trainer.n_gpus_per_node=1", stages], [], ["model"]
    monkeypatch.setattr(cold_start, "train_supervised", train)
    with pytest.raises(KeyboardInterrupt, match=r"1 of 2 stages are kept in .*made"):
        ColdStart("recipes/math_python", words).make()
    interrupted.clear()
    start = ColdStart("recipes/math_python", words)
    assert start.make()
    assert trained == ["stage_1", "model", "model"]
    assert not start.make()
    once = weights_digest(start.model)
    shutil.rmtree(start.model)  # made by nobody any more: all anew
    assert start.make()
    assert trained[3:] == ["stage_1", "model"]
    assert weights_digest(start.model) == once


@pytest.mark.recipes
def test_published_solutions_are_run_by_the_agent_and_taught_on_two_devices(retool, monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE_S", 0)
    start = ColdStart("recipes/math_python", retool)
    assert start.make()
    (loss,) = json.loads((start.folder / "made.json").read_text())["losses"]
    assert 0 < loss < 20
    shown = capsys.readouterr().err
    assert "worked episodes: 1 of 2, 0:0" in shown
    assert "steps to model: 1 of 2, 0:" in shown
    before, after = (load_file(folder / "model.safetensors") for folder in (start.folder.parent / "base", start.model))
    assert any(not after[name].float().equal(before[name].float()) for name in after)
    bought, added = start.run({"oracle": 1}, "episodes", load_chat_tokenizer(str(start.model)), "a test")
    assert [each.score.total for each in (bought, added)] == [1, 1]
    assert [turn.observation for turn in bought.turns] == ["```output\n108\n```", None]
    assert "```output\n5\n```" in added.turns[0].observation
