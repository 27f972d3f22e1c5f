"""A user's recipe with every kind of code of their own, and a bug in one of its files."""

from dataclasses import dataclass
from pathlib import Path

from agent_rl.data import write_parquet
from tests.support.rows import sum_row

CONFIG = """\
hydra:
  searchpath: [pkg://verl.trainer.config, pkg://agent_rl.config]
defaults:
  - agent
  - _self_
data:
  train_files: FOLDER/rows.parquet
  val_files: FOLDER/rows.parquet
  train_batch_size: 4
actor_rollout_ref:
  model:
    path: outputs/tiny_model
  actor: {ppo_mini_batch_size: 4, ppo_micro_batch_size_per_gpu: 8}
  ref: {log_prob_micro_batch_size_per_gpu: 8}
  rollout:
    n: 2
    log_prob_micro_batch_size_per_gpu: 8
    multi_turn:
      tool_config_path: FOLDER/tools.yaml
trainer:
  experiment_name: mine
  total_training_steps: 1
agent_rl:
  hooks: FOLDER/hooks.py:Patience
  reward:
    correctness: {scorer: "FOLDER/reward.py:compute"}
    components:
      polite: {kind: "FOLDER/reward.py:Polite", weight: 0.1}
"""
TOOLS = """\
tools:
  - class_name: tool.py:Find
    config:
      top_k: 3
"""
TOOL = """\
from agent_rl.tools.base import Tool, ToolConfig

class FindConfig(ToolConfig):
    top_k: int = 3

class Find(Tool):
    name = "find"
    description = "Finds."
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
    Config = FindConfig

    def __init__(self, config, create_kwargs):
        super().__init__(config, create_kwargs)
        self.found = {}

    async def start(self):
        self.found["x"] = 1

    async def call(self, arguments):
        return str(self.found)
"""
HOOKS = """\
from agent_rl import Hooks

class Patience(Hooks):
    async def before_turn(self, trajectory):
        self.turns = len(trajectory.turns)
"""
REWARD = """\
from agent_rl import Component
from agent_rl.rewards import Value

def compute(solution_str, ground_truth, extra_info):
    return float(solution_str == ground_truth)

class Polite(Component):
    async def measure(self, trajectory):
        return Value(float("please" in (trajectory.answer or "")))
"""
FILES = {"config.yaml": CONFIG, "tools.yaml": TOOLS, "tool.py": TOOL, "hooks.py": HOOKS, "reward.py": REWARD}


@dataclass(frozen=True)
class Bug:
    """A bug that a user makes.

    Attributes:
        name: what is wrong.
        file: the file with the bug.
        old: what was there.
        new: what the user wrote.
        line: where; None: the file alone says it.
        says: a part of the message.
    """

    name: str
    file: str
    old: str
    new: str
    line: int | None
    says: str

    @property
    def place(self) -> str:
        """What a message must have: the file, and the line where there is one."""
        file = "rows.csv" if self.line is None else self.file
        return f"/{file}" + (f":{self.line}" if self.line is not None else "")


BUGS = (
    Bug("syntax error in a tool's module", "tool.py", "self.found = {}", "self.found = {", 14, "SyntaxError"),
    Bug(
        "import error",
        "tool.py",
        "class FindConfig",
        "import no_such_package\n\nclass FindConfig",
        3,
        "no_such_package",
    ),
    Bug("__init__ raises", "tool.py", "self.found = {}", 'self.found = config["index"]', 14, "KeyError: 'index'"),
    Bug("start raises", "tool.py", 'self.found["x"] = 1', 'open("/no/such/index")', 17, "FileNotFoundError"),
    Bug("call returns None", "tool.py", "return str(self.found)", "print(self.found)", 19, "returns nothing"),
    Bug("wrong signature", "tool.py", "call(self, arguments)", "call(self, query, top_k)", 19, "'top_k'"),
    Bug("misspelt hook", "hooks.py", "before_turn", "before_trun", 4, "Did you mean 'before_turn'"),
    Bug("scorer raises", "reward.py", "return float(solution_str == ", "return float('x' + ", 5, "ValueError"),
    Bug("component raises", "reward.py", "Value(float(", "Value(trajectory.no_such(", 9, "AttributeError"),
    Bug("CSV", "config.yaml", "train_files: FOLDER/rows.parquet", "train_files: FOLDER/rows.csv", None, "not .csv"),
    Bug("YAML syntax", "config.yaml", "  rollout:\n    n: 2", "  rollout: [\n    n: 2", 17, "invalid YAML"),
    Bug("wrong type in a tool's config", "tools.yaml", "top_k: 3", "top_k: three", 4, "'three'"),
)


def write(folder: Path, bug: Bug | None = None) -> Path:
    """Write the recipe with its files and rows, and the bug."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        if bug is not None and bug.file == name:
            assert bug.old in text
            text = text.replace(bug.old, bug.new)
        (folder / name).write_text(text.replace("FOLDER", str(folder)))
    write_parquet([sum_row(number, data_source="mine") for number in range(8)], folder / "rows.parquet")
    (folder / "rows.csv").write_text("question,answer\n1+1,2\n")
    return folder
