"""Checks of the chat template with the model's own tokenizer: what the policy is shown over several turns.

In training nothing is rendered twice: verl's continuous-token builder appends to what was sampled. So a template that
writes earlier turns otherwise than they were generated does not break training, but the model is then trained on other
prompts than a server shows it, which renders the whole conversation anew for every turn.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_rl.agents.agents import AGENTS, make_format
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding, ok, problem, reason, skipped, warning
from agent_rl.settings import AgentRLSettings

__all__ = ["Template", "chat_template", "examine", "load_template"]

Message = dict[str, Any]

TEMPLATE_KEY = "actor_rollout_ref.model.custom_chat_template"
TOOL = {
    "type": "function",
    "function": {
        "name": "doctors_calculator",
        "description": "Compute.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}
THOUGHT = "<think>\nI should compute that.\n</think>\n\n"
AROUND = 40
"""Characters that are shown of a difference."""


@dataclass(frozen=True)
class Template:
    """A tokenizer with its template, as a run would use it.

    Attributes:
        tokenizer: with its chat template set.
        model_type: of the model's config.json, by which verl chooses its builder.
        ends: the token ids at which the engine stops.
        options: `data.apply_chat_template_kwargs`.
        native: whether tools go into the template and calls into `tool_calls`, as verl's tool_agent has it.
        observation_role: the role that shows a tool's result.
        processor: of a multimodal model.
    """

    tokenizer: Any
    model_type: str | None = None
    ends: frozenset[int] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)
    native: bool = False
    observation_role: str = "user"
    processor: Any = None

    def text(self, messages: Sequence[Message], *, prompt: bool, tools: bool | None = None) -> str:
        """The conversation as text, with or without what opens the next turn of the policy."""
        given = [TOOL] if (self.native if tools is None else tools) else None
        return str(
            self.tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=prompt, tools=given, **self.options
            )
        )

    def ids(self, text: str) -> list[int]:
        """A rendered text as tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def chat_template(case: Case) -> Iterator[Finding]:
    """All of `examine`, for the recipe's model."""
    if case.model.folder is None:
        yield skipped("chat template", "the model is not on this machine")
        return
    template = load_template(case)
    if not template.tokenizer.chat_template:
        text = f"the tokenizer in {case.shown(case.model.folder)} has none"
        yield problem("chat template", text, f"Take the -Instruct model, or set {TEMPLATE_KEY}")
        return
    yield from examine(template)


def load_template(case: Case) -> Template:
    """The tokenizer as verl loads it, from this machine only."""
    from verl.utils.tokenizer import hf_processor, hf_tokenizer

    folder = case.model.folder
    trust = bool(case.get("actor_rollout_ref.model.trust_remote_code"))
    named = case.get("actor_rollout_ref.model.tokenizer_path")
    place = str(case.path(named) if named else folder)
    tokenizer = hf_tokenizer(place, trust_remote_code=trust, local_files_only=True)
    processor = None
    if os.path.isfile(os.path.join(place, "preprocessor_config.json")):
        processor = hf_processor(place, trust_remote_code=trust, local_files_only=True)
    if own := case.get(TEMPLATE_KEY):
        tokenizer.chat_template = own
    named_loops = {str(row["agent_name"]) for table in case.train for row in table.rows if row.get("agent_name")}
    loops = named_loops or {str(case.get("actor_rollout_ref.rollout.agent.default_agent_loop"))}
    settings = AgentRLSettings.from_config(case.config)
    native = "tool_agent" in loops or any(
        isinstance(make_format(name, settings), ToolCallFormat) for name in loops.intersection(AGENTS)
    )
    return Template(
        tokenizer,
        case.model.config.get("model_type"),
        _ends(tokenizer, folder),
        dict(case.get("data.apply_chat_template_kwargs", {})),
        native,
        "tool" if native else settings.react.observation_role,
        processor,
    )


def examine(template: Template) -> Iterator[Finding]:
    """Whether the template renders, shows tools, ends turns, keeps what was written, and suits verl's builder."""
    plain = conversation(template)
    try:
        template.text(plain, prompt=True)
    except Exception as error:  # noqa: BLE001 - a template raises what it likes: it goes into the table
        roles = sorted({message["role"] for message in plain})
        text = f"it does not render a conversation of {', '.join(roles)}: {reason(error)}"
        remedy = f"Set {TEMPLATE_KEY}" + ("" if template.native else ", or agent_rl.react.observation_role=user")
        yield problem("chat template", text, remedy)
        return
    yield _tools(template, plain)
    yield _end(template, plain)
    rewritten = _first_change(template, plain)
    yield _stability(template, rewritten)
    yield _builder(template, plain, stable=not rewritten)


def conversation(template: Template, thought: str = "") -> list[Message]:
    """An episode as the loop would write it: a question, two calls of a tool with their results, an answer."""
    messages: list[Message] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "What is 6*7+1?"},
    ]
    for number, (expression, result) in enumerate((("6*7", "42"), ("42+1", "43"))):
        if template.native:
            function = {"name": TOOL["function"]["name"], "arguments": {"expression": expression}}  # type: ignore[index]
            call = {"id": f"call{number:05d}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": f"{thought}Let me see.", "tool_calls": [call]})
            answer = {"role": "tool", "content": result, "tool_call_id": call["id"], "name": function["name"]}
            messages.append(answer)
        else:
            content = f'{thought}Action: calculator\nAction Input: {{"expression": "{expression}"}}'
            messages.append({"role": "assistant", "content": content})
            messages.append({"role": template.observation_role, "content": f"Observation: {result}"})
    messages.append({"role": "assistant", "content": f"{thought}Final Answer: 43"})
    return messages


def _tools(template: Template, messages: Sequence[Message]) -> Finding:
    subject = "tools shown"
    if not template.native:
        return ok(subject, "not asked for them: the agent's instructions describe the tools")
    with_tools = template.text(messages[:2], prompt=True, tools=True)
    if TOOL["function"]["name"] in with_tools:  # type: ignore[index]
        return ok(subject, "it shows the tools that it is given")
    text = "it ignores the tools that it is given: the policy never learns of them"
    return problem(subject, text, f"Use react_agent, which describes them itself, or set {TEMPLATE_KEY}")


def _end(template: Template, messages: Sequence[Message]) -> Finding:
    """The token after a turn is one at which the engine stops."""
    subject, answer = "end of a turn", messages[-1]["content"]
    after = template.text(messages, prompt=False).rpartition(answer)[2]
    first = template.ids(after)[:1]
    if not first:
        text = "nothing marks the end of the policy's turn"
        return problem(subject, text, f"Set {TEMPLATE_KEY} to one that writes the eos token after each assistant turn")
    token = template.tokenizer.decode(first)
    if first[0] in template.ends:
        return ok(subject, f"{token!r}, at which the engine stops")
    known = ", ".join(repr(template.tokenizer.decode([end])) for end in sorted(template.ends)) or "none"
    text = f"it ends turns with {token!r}, but the engine stops at {known}"
    return warning(
        subject,
        text,
        f"Add {first[0]} to eos_token_id in the model's generation_config.json, or take the -Instruct model",
    )


def _stability(template: Template, rewritten: str) -> Finding:
    subject = "earlier turns"
    if rewritten:
        remedy = f"Set {TEMPLATE_KEY} (and the server's) to one that writes earlier turns as they were generated"
        return warning(subject, f"{rewritten}. A server shows the policy other prompts than training", remedy)
    if rewritten := _first_change(template, conversation(template, THOUGHT)):
        remedy = "Set agent_rl.react.observation_role=tool: then this template keeps it"
        if template.native or not _keeps_thinking(replace(template, observation_role="tool")):
            remedy = (
                f"Copy the template, take out what drops <think> from earlier turns, set {TEMPLATE_KEY} to its text, "
                "and serve the model with it; a policy that does not think is not concerned"
            )
        return warning(subject, f"{rewritten}. A server hides thinking that training keeps", remedy)
    return ok(subject, "they stay as they were generated, thinking included")


def _keeps_thinking(template: Template) -> bool:
    try:
        return not _first_change(template, conversation(template, THOUGHT))
    except Exception:  # noqa: BLE001 - a template that does not know the role
        return False


def _first_change(template: Template, messages: Sequence[Message]) -> str:
    """Where a later prompt does not begin with an earlier one and what was generated for it; empty: nowhere."""
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    prompts = [template.text(messages[:index], prompt=True) for index in turns]
    for number, prompt in enumerate(prompts):
        written, ids = prompt + messages[turns[number]]["content"], template.ids(prompt)
        for later in prompts[number + 1 :]:
            if not later.startswith(written):
                return f"turn {number + 1} is rewritten in later prompts: {_contrast(written, later)}"
            if template.ids(later)[: len(ids)] != ids:
                return f"the tokens of turn {number + 1}'s prompt change in later prompts, though its text does not"
    return ""


def _builder(template: Template, messages: Sequence[Message], *, stable: bool) -> Finding:
    """The continuous-token builder of verl takes the conversation, and gives the tokens that the template gives."""
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    subject, tools = "token builder", [TOOL] if template.native else None
    logging.getLogger("verl.utils.tokenizer.continuous_token_wiring").setLevel(logging.ERROR)
    try:
        builder = create_continuous_token_builder(
            template.tokenizer,
            hf_model_type=template.model_type,
            chat_template_kwargs=template.options,
            processor=template.processor,
        )
        built = _appended(template, builder, messages, tools)
    except Exception as error:  # noqa: BLE001 - builder and template raise what they like: it goes into the table
        remedy = f"Set {TEMPLATE_KEY}, or use a model and tokenizer that belong together"
        return problem(subject, f"for model type {template.model_type!r}: {reason(error)}", remedy)
    name = type(builder).__name__
    if not stable:
        return ok(subject, f"verl's {name} appends to what was sampled, and rewrites nothing")
    rendered = template.text(messages[:-1], prompt=True)
    if built == template.ids(rendered):
        return ok(subject, f"verl's {name}: turn by turn it gives the template's own tokens")
    contrast = _contrast(rendered, template.tokenizer.decode(built))
    remedy = f"Harmless if this is white space; else set {TEMPLATE_KEY}"
    return warning(subject, f"verl's {name} does not give the template's tokens: {contrast}", remedy)


def _appended(template: Template, builder: Any, messages: Sequence[Message], tools: Any) -> list[int]:
    """The tokens of the last turn's prompt, each turn appended to those before it as in a rollout."""
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    ids: list[int] = list(builder.build_initial_tokens(list(messages[: turns[0]]), tools=tools))
    for index, following in itertools.pairwise(turns):
        written = template.text(messages[: index + 1], prompt=False)
        start = written.rindex(messages[index]["content"])  # without a thought that the template puts before it
        turn = template.ids(written[start:])
        stops = [place for place, token in enumerate(turn) if token in template.ends]
        turn = turn[: stops[-1] + 1] if stops else turn
        ids = builder.merge_assistant_tokens(ids, turn).token_ids
        before, after = list(messages[: index + 1]), list(messages[:following])
        ids = builder.merge_context_tokens(before, after, ids, tools=tools).token_ids
    return ids


def _ends(tokenizer: Any, folder: Path | None) -> frozenset[int]:
    """The tokenizer's eos and those of the model's generation config, which the engine adds."""
    ends = {tokenizer.eos_token_id} - {None}
    try:
        config = json.loads(((folder or Path()) / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset(ends)
    more = config.get("eos_token_id") if isinstance(config, dict) else None
    return frozenset(ends | {each for each in (more if isinstance(more, list) else [more]) if isinstance(each, int)})


def _contrast(expected: str, found: str) -> str:
    at = next(
        (at for at, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(len(expected), len(found))
    )
    return f"{expected[at : at + AROUND]!r} has become {found[at : at + AROUND]!r}"
