"""The programs and files that the pages show do what the pages say."""

import asyncio
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from agent_rl.agents.registry import find_agent, load_script, registered
from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.agents.users.user import load_user
from agent_rl.data import check_file
from agent_rl.data.order import RowFacts, RowOrder
from agent_rl.rewards import Reward, compute_score
from agent_rl.settings import AgentRLSettings, RewardSettings
from agent_rl.tools import ToolSpec, load_tools
from agent_rl.tools.inspection import call, signature
from agent_rl.trajectory import StopReason, ToolCall, ToolResult, Trajectory, trace
from agent_rl.trajectory.trace.batches import append_batch
from tests.agents.episodes import run
from tests.docs.pages import PAGES, ROOT, block, blocks
from tests.support.scoring import score
from tests.tools import use

TESTED = {
    "README.md": ["lockers.py"],
    "docs/guides/environments.md": ["lockers.py"],
    "docs/guides/any_agent.md": ["my_graph.py", "my_agent.py", "my_gateway.py"],  # agents/sessions, conformance
    "docs/guides/agents.md": ["my_hooks.py", "my_users.py", "my_agents.py", "my_train.py"],
    "docs/guides/trainer.md": ["my_trainer.py"],  # e2e/test_modes.py
    "docs/guides/data.md": ["make_row"],
    "docs/guides/judges.md": ["Harm"],
    "docs/guides/other_frameworks.md": ["questions.py", "glossary_task.py"],
    "docs/guides/rewards.md": ["my_rewards.py", "my_scorers.py"],
    "docs/guides/sandbox.md": ["PythonSandbox"],
    "docs/guides/tools.md": ["my_tools.py", "my_functions.py"],
    "docs/guides/traces.md": ["TokenReader"],
    "docs/tutorial.md": ["mine.jsonl", "def score"],  # e2e/test_tutorial.py
    "recipes/multi_rm/README.md": ["rm_preprocess"],
}


def test_every_program_is_tested() -> None:
    pages = [page for page in PAGES if page != "docs/reference/python.md"]  # whose signatures are no programs
    shown = {page: len(found) for page in pages if (found := blocks(page, "python"))}
    assert shown == {page: len(parts) for page, parts in TESTED.items()}


def test_a_tool_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(block("docs/guides/tools.md", "python", "my_tools.py"))
    (tmp_path / "my_tools.yaml").write_text(block("docs/guides/tools.md", "yaml", "my_tools.yaml"))
    turns = [("counter", {"by": 2}), ("calculator", {"expression": "6*7"})], [("counter", {"by": 3})]
    assert [result.text for result in use.run(load_tools(tmp_path / "my_tools.yaml"), *turns)] == ["2", "42", "5"]


def test_a_prompt_template_of_your_own() -> None:
    shown: dict[str, Any] = {"__name__": "my_templates"}
    exec(block("docs/guides/judges.md", "python", "Harm"), shown)  # noqa: S102 - ours
    assert "0 (harmless) to 3 (dangerous)" in shown["prompt"]
    assert (shown["verdict"].score, shown["verdict"].reason) == (0, "It refuses.")


def test_reading_a_trace(here: Path) -> None:
    path = Path("outputs/gsm8k_calculator/trace.jsonl")
    tokens = {"messages": [], "tools": [], "sequences": []}
    trace.append(path, Trajectory([], StopReason.ANSWERED, id="a_0", info={"tokens": tokens}))
    append_batch(path, trace.TrainedBatch(1, 0, ["a_0_0"], [0.5]))
    shown: dict[str, Any] = {}
    exec(block("docs/guides/traces.md", "python", "TokenReader"), shown)  # noqa: S102 - ours
    assert (shown["tokens"], len(shown["tables"].trajectories)) == (tokens, 1)
    assert shown["rows"] == {"a_0": [trace.TrainedRow(step=1, update=0, row=0, sequence=0, advantage=0.5)]}


def test_a_function_as_a_tool(tmp_path: Path) -> None:
    page = "docs/guides/tools.md"
    (tmp_path / "my_functions.py").write_text(block(page, "python", "my_functions.py"))
    (tmp_path / "my_functions.yaml").write_text(block(page, "yaml", "my_functions.yaml"))
    specs = load_tools(tmp_path / "my_functions.yaml")
    assert signature(specs[0]) == "convert(amount: number, unit?: string)"
    assert call(specs, "convert", {"amount": 10}, {}).text == "6.2 miles"


def test_a_task_of_your_own_is_the_same_on_each_page() -> None:
    task = (ROOT / "recipes/lockers/lockers.py").read_text()
    for page in ("README.md", "docs/guides/environments.md"):
        assert block(page, "python", "lockers.py") == f"# lockers.py\n{task}"


def test_a_scorer_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "my_scorers.py").write_text(block("docs/guides/rewards.md", "python", "my_scorers.py"))
    settings = {"correctness": {"scorer": f"{tmp_path}/my_scorers.py:score"}}
    right = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, answer="It is closed.", ground_truth="closed")
    assert score(right, settings).components["correctness"] == 1.0
    assert compute_score("my_company/tickets/7", "It is open.", "closed") == 0.0


def test_a_component_that_reads_the_row(tmp_path: Path) -> None:
    (tmp_path / "my_rewards.py").write_text(block("docs/guides/rewards.md", "python", "my_rewards.py"))
    settings = {
        "correctness": {"scorer": "none"},
        "components": {"harder": {"kind": f"{tmp_path}/my_rewards.py:Harder"}},
    }
    for level, value in ((3, 1.0), (1, 0.5)):
        row = {"reward_model": {"ground_truth": "7"}, "level": level}
        done = Trajectory(prompt=[], stop_reason=StopReason.ANSWERED, answer="7", row=row)
        assert score(done, settings).components["harder"] == value


def test_the_reward_of_the_guide_can_be_made() -> None:
    text = block("docs/guides/rewards.md", "yaml", "kind: judge")
    section = AgentRLSettings.from_config(yaml.safe_load(text)).reward
    assert set(section.components) == {"style", "taste", "steps"}
    Reward(section, max_response_tokens=100).require_scorers(["openai/gsm8k", "searchR1_nq"])


def test_a_simulated_user_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "my_users.py").write_text(block("docs/guides/agents.md", "python", "my_users.py"))
    user = load_user(f"{tmp_path}/my_users.py:Haggler", {})({}, {})
    trajectory = run(["Message: $9, please.", "Message: $5 then."], form=UserSimFormat(""), user=user)
    assert (len(trajectory.turns), trajectory.turns[0].observation, trajectory.verdict) == (2, "Too much.", 1.0)


def test_hooks_of_your_own(tmp_path: Path) -> None:
    from agent_rl.agents.episode.hooks import load_hooks
    from agent_rl.trajectory import ToolStatus

    (tmp_path / "my_hooks.py").write_text(block("docs/guides/agents.md", "python", "my_hooks.py"))
    hooks = load_hooks(f"{tmp_path}/my_hooks.py:Patience")()
    result = ToolResult("1", "search", "Too slow.", ToolStatus.TIMEOUT)
    asyncio.run(hooks.after_tool(Trajectory([], StopReason.ANSWERED), ToolCall("search"), result))
    assert result.text == "Too slow. Ask for less."


def test_rows_of_your_own(tmp_path: Path) -> None:
    program = block("docs/guides/data.md", "python", "make_row")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    check_file(tmp_path / "train.parquet")


def test_an_order_of_your_own() -> None:
    settings = AgentRLSettings.from_config(yaml.safe_load(block("docs/guides/data.md", "yaml", "until_reward"))).data
    rows = RowFacts(["openai/gsm8k", "math/a", "math/b"], [1.0, 2.0, 3.0])
    order = RowOrder(rows, settings)
    assert Counter(order.next() for _ in range(8)) == {0: 6, 1: 2}  # 3 to 1, and math/b is too difficult


def test_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(block("docs/guides/sandbox.md", "python", "PythonSandbox"))
    command = [sys.executable, str(tmp_path / "example.py")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert "stdout='45\\n'" in lines[0]
    assert lines[1:3] == ["42", ""]
    assert lines[3] == "1.0"
    assert "seccomp" in lines[4]


def test_functions_of_a_reward_model(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(block("recipes/multi_rm/README.md", "python", "rm_preprocess"))
    names = runpy.run_path(str(tmp_path / "functions.py"))
    assert names["rm_preprocess"](["Hi"], ["Hello."], None) == ["Customer: Hi\nHello.\nA number from 0 to 10:"]
    assert names["rm_postprocess"](["I say 7"]) == [0.7]


def of_another_framework(folder: Path, name: str, tools: str) -> tuple[list[ToolSpec], RewardSettings]:
    """The tools and the reward of an example."""
    page = "docs/guides/other_frameworks.md"
    (folder / f"{name}.py").write_text(block(page, "python", f"{name}.py"))
    (folder / f"{tools}.yaml").write_text(block(page, "yaml", f"# {tools}.yaml"))
    section = yaml.safe_load(block(page, "yaml", f'scorer: "{name}.py')) if name != "questions" else {}
    return load_tools(folder / f"{tools}.yaml"), AgentRLSettings.from_config(section).reward


def test_a_tool_as_in_verl_tool(tmp_path: Path) -> None:
    specs, _ = of_another_framework(tmp_path, "questions", "questions")
    turns = ([("ask", {"above": above})] for above in (30, 50, 200))
    yes, no, wrong = use.run(specs, *turns, tools_kwargs={"ask": {"create_kwargs": {"secret": 40}}})
    assert (yes.text, no.text) == ("yes", "no")
    assert "from 0 to 100" in wrong.text


def test_an_environment_as_in_verifiers(here: Path) -> None:
    specs, settings = of_another_framework(here, "glossary_task", "glossary_tools")
    result = "Kullback-Leibler divergence"
    assert call(specs, "lookup", {"term": "KL"}, {}).text == result
    right = Trajectory([], StopReason.ANSWERED, answer=f"It is {result}.", ground_truth=result, response_tokens=40)
    assert score(right, settings).total == 1


def test_an_agent_of_your_own(tmp_path: Path) -> None:
    """`agent-rl eval --script` runs it in test_commands.py."""
    (tmp_path / "my_agents.py").write_text(block("docs/guides/agents.md", "python", "my_agents.py"))
    load_script(str(tmp_path / "my_agents.py"))
    assert find_agent("terse_agent").format(None, None).instructions([]) == "Answer in one word."
    del registered["terse_agent"]
