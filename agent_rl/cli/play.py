"""The `agent-rl play` command."""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_rl.cli._arguments import Data, Json, RewardFunctions, print_result, with_additions
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from agent_rl.environments import EnvironmentSession, EnvironmentType
    from agent_rl.tools import ToolSpec

app = typer.Typer(rich_help_panel="check", add_completion=False)


@app.command()
def play(
    task: Annotated[str, typer.Argument(metavar="FILE.py", help="Environment: FILE.py, FILE.py:Class or family:id")],
    row: Annotated[int, typer.Option(help="Number of the row, counting from 0")] = 0,
    split: Annotated[str, typer.Option(help="Split from which the row comes: train or test")] = "train",
    expert: Annotated[
        bool, typer.Option("--expert", help="Let the environment's solve method act instead of you")
    ] = False,
    data: Data = None,
    reward: RewardFunctions = None,
    as_json: Json = False,
) -> None:
    r"""Play an environment yourself, at the terminal.

    \b
      agent-rl play lockers.py
      agent-rl play lockers.py --expert
      agent-rl play lockers.py --row 3 < moves.txt
      agent-rl play my_trl.py:GameEnv --reward my_trl.py:reward_won

    A line such as look_up(number=182) calls a tool; any other line is a message, like a model's turn without a call.
    The end of the input ends the episode. A TRL class needs no reward for this command.

    --json: `turns` (each with `text` and `answer`), and `reward`.
    """
    from agent_rl.environments.kind import environment_rows
    from agent_rl.launch.task import load_task

    kind = load_task(with_additions(task, data, reward))
    rows = environment_rows(kind, split, seed=0)
    if not 0 <= row < len(rows):
        raise ConfigError(
            "--row", f"there is no row {row}: the {split} split has {len(rows)} rows", f"Choose 0 to {len(rows) - 1}"
        )
    is_typed = not expert and sys.stdin.isatty()
    lines = _expert_lines(kind, rows[row]) if expert else _typed_lines("> " if is_typed and not as_json else "")
    turns, value = asyncio.run(_play(kind, rows[row], lines, echo=not is_typed, quiet=as_json))
    print_result({"turns": turns, "reward": value}, as_json, f"reward {'none' if value == {} else value}")


async def _play(
    kind: EnvironmentType, row: dict[str, Any], lines: Iterable[str], *, echo: bool, quiet: bool
) -> tuple[list[dict[str, Any]], Any]:
    """Play one episode of a row with the given lines; return each turn with its answer, and the reward."""
    from agent_rl.environments import open_session
    from agent_rl.environments.kind import row_values
    from agent_rl.tools.inspection import signature
    from agent_rl.trajectory import Message, StopReason, Trajectory

    show = (lambda *text, **_: None) if quiet else print
    trajectory = Trajectory([Message.from_chat(message) for message in row["prompt"]], StopReason.ERROR)
    session = open_session(kind, row_values(row), 60.0, trajectory)
    turns = []
    try:
        start = await session.reset()
        begun = [Message.from_chat({"role": "user", "content": start})] if start else []
        show(*(message.content for message in (*trajectory.prompt, *begun)), sep="\n\n")
        show("\nTools:", ", ".join(signature(spec) for spec in session.specs) or "none")
        for line in lines:
            if echo:
                show(f"> {line}")
            answer, goes_on = await _turn(session, line)
            turns.append({"text": line, "answer": answer})
            if answer is not None:
                show(answer)
            if not goes_on:
                break
        return turns, await session.reward()
    finally:
        await session.close()


async def _turn(session: EnvironmentSession, line: str) -> tuple[str | None, bool]:
    """Play one line; return the environment's answer, and whether the episode continues."""
    from agent_rl.errors import ObservationError
    from agent_rl.trajectory import ToolCall, ToolResult, Turn

    trajectory = session.trajectory  # rewards may read it
    try:
        call = _call(session.specs, line)
        if call is None:
            trajectory.turns.append(Turn(line))
            answer, _ = await session.step(line)
            trajectory.answer = line if answer is None else None
            return answer, answer is not None
        trajectory.turns.append(turn := Turn("", calls=[ToolCall(*call)]))
        output = await session.call(*call)
        turn.results.append(ToolResult("", call[0], output.text, images=output.images))
        return output.text, not session.done
    except ObservationError as error:
        return f"Error: {error}", True


def _call(specs: Sequence[ToolSpec], line: str) -> tuple[str, dict[str, Any]] | None:
    """Return the tool and the arguments of a line such as `open(number=1, code=2)`, or None for a message."""
    from agent_rl.errors import InvalidArgumentsError

    try:
        node = ast.parse(line.strip(), mode="eval").body
    except SyntaxError:
        return None
    parameters = {spec.name: list(spec.parameters["properties"]) for spec in specs}
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in parameters):
        return None
    try:
        by_place = zip(parameters[node.func.id], map(ast.literal_eval, node.args), strict=False)
        return node.func.id, dict(by_place) | {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
    except ValueError as error:
        raise InvalidArgumentsError(f"the arguments must be literals ({error})") from error


def _typed_lines(prompt: str) -> Iterator[str]:
    """Yield the lines that are typed at the terminal or piped to the command."""
    with suppress(EOFError):
        while True:
            if (line := input(prompt)).strip():
                yield line


def _expert_lines(kind: EnvironmentType, row: dict[str, Any]) -> list[str]:
    """Let the expert play its own episode to the end, and return its turns as lines to play."""
    from agent_rl.environments.kind import row_values
    from agent_rl.environments.worked import expert_turns

    return [
        f"{turn.tool}({', '.join(f'{name}={value!r}' for name, value in turn.arguments.items())})"
        if turn.tool
        else turn.message
        for turn in expert_turns(kind, row_values(row))
    ]
