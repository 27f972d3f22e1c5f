"""What works with which chat template: one row a template, one column an agent, as `docs/templates.md` shows it.

Each cell is a number of whole episodes of the agent over the template's realistic tokenizer: a server plays turns in
the template's own words, tools answer, and the audit of tokens compares every prompt with a fresh rendering.

    python -m tests.agents.policies.template_matrix     # writes docs/templates.md
"""

import asyncio
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import transformers

import agent_rl
from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.policies.chat_template import NO_SYNTAX, ChatTemplate
from agent_rl.agents.policies.rendering_difference import IN_ORDER, IN_THOUGHTS, IN_WHITE_SPACE, difference
from agent_rl.agents.policies.token_policy import TokenPolicy
from agent_rl.agents.policies.tokens import Sampled
from agent_rl.agents.policies.turn_writer import TurnWriter
from agent_rl.agents.registry import make_loop
from agent_rl.evaluation.audit import audit_trajectory
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import Tool, ToolSpec
from agent_rl.trajectory import ToolCall
from agent_rl.verl_adapter.token_builder import TemplateBuilder
from tests.support.real_templates import FOLDER, NAMES, real_tokenizer

PAGE = Path(__file__).parents[3] / "docs/templates.md"
AGENTS = (
    "react_agent",
    "tool_call_agent",
    "code_act_agent",
    "search_agent",
    "plan_act_agent",
    "user_sim_agent",
    "folding_agent",
)
NOTES = {IN_WHITE_SPACE: "w", IN_THOUGHTS: "t", IN_ORDER: "o"}
REWRITTEN = "r"
HISTORIES = ("keep", "template")
RESULTS = ("The result is 42.", "", "größer 日本 🧮\n\nline", '{"a": [1, "<b>"]}', "x " * 200)


class Cell(NamedTuple):
    """What the episodes of one agent with one template showed."""

    works: bool
    notes: frozenset[str]
    """How prompts differ from a fresh rendering: values of `NOTES`, or `REWRITTEN`."""
    reason: str = ""
    """Why it does not work."""
    episodes: int = 0
    sequences: int = 0

    def __str__(self) -> str:
        return ("yes " + "".join(sorted(self.notes)) if self.works else "no").strip()


def _tool(name: str, parameter: str) -> ToolSpec:
    properties = {parameter: {"type": "string"}}

    class Given(Tool):
        """Answers with the result that its argument numbers."""

        async def call(self, arguments: dict[str, Any]) -> str:
            return RESULTS[len(arguments[parameter]) % len(RESULTS)]

    Given.name, Given.description = name, "Compute."
    Given.parameters = {"type": "object", "properties": properties, "required": [parameter]}
    return ToolSpec.from_class(Given)


SPECS = [_tool("calculator", "expression"), _tool("python", "code"), _tool("search", "query")]


def stop_before(template: ChatTemplate, answer: dict[str, Any]) -> list[int]:
    """The token with which a turn stops that this message answers; none: there is no such token."""
    closing, rest = template.following([answer])
    ends = [token for token in closing if token in template.end_ids]
    return ends[-1:] or [token for token in rest[:1] if token in template.start_ids]


class Player:
    """A token server that plays turns; each ends with the token at which the engine would stop."""

    def __init__(self, template: ChatTemplate, turns: Sequence[tuple[str, bool]]) -> None:
        self.template, self.turns = template, list(turns)

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> Sampled:
        if not self.turns:
            raise ValueError("its turns are not read: marks of the template stay in their text")
        text, called = self.turns.pop(0)
        answer = {"role": "tool", "name": "calculator", "content": "x"} if called else {"role": "user", "content": "x"}
        ids = self.template.encode(text) + stop_before(self.template, answer)
        return Sampled(ids, [-1.0] * len(ids), "stop")


def scripts(template: ChatTemplate, agent: str) -> Iterator[list[tuple[str, bool]]]:
    """Turns of an agent's episodes, and whether each is a native call; an argument's length chooses the result.

    Raises:
        ValueError: the template writes no calls.
    """
    if agent == "tool_call_agent":
        yield from _native(template)
        return
    act = 'Thought: I compute.\nAction: calculator\nAction Input: {"expression": "%s"}'
    words = [act % ("6*7" + "1" * number) for number in range(len(RESULTS))]
    last = "Thought: I know.\nFinal Answer: 42"
    plan = f"Plan:\n1. Multiply.\n2. Answer.\nStep: 1\n{words[0]}"
    texts: dict[str, list[list[str]]] = {
        "react_agent": [[*words, last], ["I do not know.", words[0], last], [act % "größer 日本", last]],
        "code_act_agent": [["```python\nx = 6\n```", "```python\nx * 7\n```", "It is \\boxed{42}."]],
        "search_agent": [["<search>Faust</search>", "<search>größer</search>", "<answer>Goethe</answer>"]],
        "plan_act_agent": [[plan, last], ["No plan.", plan, last, last]],
        "user_sim_agent": [["Message: Which?", words[0], "Message: It is 42."]],
        "folding_agent": [[words[4], words[4], words[4], "It was 42.", last]],
    }
    writer = TurnWriter(template)
    for turns in texts[agent]:
        yield [(writer.after_thought(writer.answer(turn)), False) for turn in turns]


def _native(template: ChatTemplate) -> Iterator[list[tuple[str, bool]]]:
    writer, plain = TurnWriter(template, [spec.schema() for spec in SPECS]), TurnWriter(template)
    last = (plain.after_thought(plain.answer("It is 42.")), False)

    def turn(*lengths: int) -> tuple[str, bool]:
        calls = [ToolCall("calculator", {"expression": "6" * length}) for length in lengths]
        return writer.after_thought(writer.calls(calls)), True

    one = [turn(length) for length in (5, 6, 7)]
    yield [*one, last]
    yield [turn(8), turn(9), last]
    try:
        yield [turn(5, 7), one[0], last]
    except ValueError:  # it writes one call at a time
        yield [one[1], one[0], last]
    broken = one[0][0][: len(one[0][0]) // 2]
    yield [(broken, False), one[0], last]


def play(template: ChatTemplate, agent: str, history: str) -> Cell:
    """One cell."""
    settings = AgentRLSettings.model_validate(
        {"thinking": {"history": history}, "user_sim": {"user": "scripted"}, "folding": {"reserve_tokens": 200}}
    )
    length = 1600 if agent == "folding_agent" else 16_384
    limits = EpisodeLimits(response_length=length, prompt_length=8192, max_parallel_calls=4)
    notes, episodes, sequences = set(), 0, 0
    try:
        limits = limits._replace(format=template.syntax or "hermes")
        if agent == "tool_call_agent" and template.syntax is None:
            raise ValueError(NO_SYNTAX)
        for turns in scripts(template, agent):
            loop = make_loop(agent, EpisodeSetup(settings, limits, SPECS, template.tokenizer))
            format = loop.format()
            policy = TokenPolicy(
                Player(template, turns),
                TemplateBuilder(template),
                template.tokenizer,
                {"logprobs": True},
                prompt_length=limits.prompt_length,
                response_length=limits.response_length,
                engine_stops=False,
                format=format,
                drop_thoughts=history == "template",
            )
            prompt = [{"role": "system", "content": "You are careful."}, {"role": "user", "content": "What is 6*7?"}]
            row = {"raw_prompt": prompt, "extra_info": {"user": {"replies": ["The product."]}}}
            trajectory = asyncio.run(loop.run_row(row, policy, format))
            if trajectory.error is not None:
                raise ValueError(trajectory.error)
            if trajectory.answer is None:
                raise ValueError(f"the episode ended with {trajectory.stop_reason.value}")
            trajectory.info["tokens"] = policy.record()
            episodes, sequences = episodes + 1, sequences + len(policy.sequences())
            for audit in audit_trajectory(trajectory, template):
                if audit.mask or audit.logprobs:
                    raise ValueError(audit.mask or audit.logprobs)
                if audit.drift != "none":
                    how = audit.difference.partition(":")[0]
                    notes.add(NOTES.get(how, REWRITTEN if audit.drift == "text" else "w"))
    except Exception as error:
        return Cell(False, frozenset(), " ".join(str(error).split())[:160], episodes)
    return Cell(True, frozenset(notes), "", episodes, sequences)


def pictures(template: ChatTemplate) -> str:
    """Whether images in a question and in results are appended as a fresh rendering has them; `-`: it knows none."""
    if "image" not in str(template.tokenizer.chat_template):
        return "-"
    builder, writer, image = TemplateBuilder(template), TurnWriter(template), {"type": "image"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": writer.after_thought(writer.answer("I look closer."))},
        {"role": "user", "content": [{"type": "text", "text": "Enlarged: größer"}, image]},
    ]
    plain = [{**messages[0], "content": "What is it?"}]
    if template.text(messages[:1], prompt=True) == template.text(plain, prompt=True):
        return "no"
    ids = builder.build_initial_tokens(messages[:1])
    ids += template.encode(messages[1]["content"]) + stop_before(template, messages[2])
    ids = builder.merge_context_tokens(messages[:2], messages, ids).token_ids
    rendered = template.rendered(messages, prompt=True)
    if ids == template.encode(rendered):
        return "yes"
    how = difference(template, template.decode(ids), rendered)
    return f"yes {NOTES[how]}" if how else f"yes {REWRITTEN}"


@cache
def template(name: str) -> ChatTemplate:
    """A template over its realistic tokenizer."""
    return ChatTemplate(real_tokenizer(name), name=name)


def row(name: str) -> dict[tuple[str, str], Cell]:
    """The cells of a template by agent and history."""
    return {(agent, history): play(template(name), agent, history) for agent in AGENTS for history in HISTORIES}


def page(rows: dict[str, dict[tuple[str, str], Cell]]) -> str:
    """The page with all rows."""
    head = ["template", "calls", "end of a turn", *(agent.removesuffix("_agent") for agent in AGENTS), "images"]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    reasons: dict[str, list[str]] = {}
    for name, cells in rows.items():
        chat = template(name)
        ends = [chat.end_id] if chat.end_id is not None else sorted(chat.start_ids)
        shown = " ".join(f"`{chat.decode([end])}`".replace("|", "\\|") for end in ends) or "none"
        both = [(cells[agent, "keep"], cells[agent, "template"]) for agent in AGENTS]
        texts = [str(keep) if str(keep) == str(other) else f"{keep} / {other}" for keep, other in both]
        lines.append(f"| {name} | {chat.syntax or '-'} | {shown} | {' | '.join(texts)} | {pictures(chat)} |")
        for agent, (keep, other) in zip(AGENTS, both, strict=True):
            for cell in {keep, other}:
                if not cell.works:
                    reasons.setdefault(cell.reason, []).append(f"{name} ({agent.removesuffix('_agent')})")
    why = [f"- {reason.replace('<', '&lt;')}: {', '.join(dict.fromkeys(places))}" for reason, places in reasons.items()]
    episodes = sum(cell.episodes for cells in rows.values() for cell in cells.values())
    counted = Counter(cell.works for cells in rows.values() for cell in cells.values())
    return TEXT.format(
        templates=len(rows),
        episodes=f"{episodes:,}",
        works=counted[True],
        all=counted.total(),
        table="\n".join(lines),
        reasons="\n".join(why),
        version=agent_rl.__version__,
        transformers=transformers.__version__,
        hash=hashlib.sha256("".join(str(template(name).tokenizer.chat_template) for name in rows).encode()).hexdigest(),
    )


TEXT = """# Chat templates

This page shows which agents work with the chat templates of {templates} published models, tested in {episodes} scripted
episodes. The agent works in {works} of {all} cells. Training never renders a turn twice, but keeps turns as they were
sampled and appends what follows. A template that rewrites earlier turns therefore does not break training. However, a
server that renders the conversation again shows the policy prompts that it was not trained on. `agent-rl doctor` warns
about such a template.

- *calls*: the syntax of the template's native calls, which `multi_turn.format=auto` detects; `-` means that agent_rl
  parses no native calls. If a template shows no tools (SmolLM3, Gemma 2, Phi 3.5), the first message lists them and
  asks for calls in the Hermes form.
- *yes*: the agent works, and every prompt has the tokens of a fresh rendering. If a letter follows, a fresh
  rendering differs from what the policy saw: **w** means only in white space, **t** only in thoughts and their marks,
  and **o** only in the position of the system message or the tools. **r** means that the template omits something:
  Mistral Nemo omits the system message after a tool's result, and R1-Distill-Llama omits calls after a correction.
- *yes / yes t*: the first result applies to `agent_rl.thinking.history=keep`, the second to `template`. With
  `template`, the agent drops earlier thoughts as the template does, and starts a new training sequence.
- *images*: the results with images in questions and tool results, if the template has a place for images.
- *no*: the agent does not work. The reasons are below the table.

{table}

## Why some agents do not work

{reasons}

Written by `python -m tests.agents.policies.template_matrix` with agent_rl {version} and transformers {transformers}
from templates in a folder next to the repository (SHA-256 of their texts: `{hash}`), each with the special tokens
that it writes and the first 20,000 tokens of a real vocabulary.
"""


def main() -> None:
    """Write the page."""
    if not NAMES:
        sys.exit(f"there are no templates in {os.path.relpath(FOLDER)}")
    rows = {}
    for name in NAMES:
        rows[name] = row(name)
        print(name, *(f"{cell}" for cell in rows[name].values()), sep=" | ")
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
