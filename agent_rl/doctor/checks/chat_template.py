"""Checks of the chat template with the model's own tokenizer, over a conversation of several turns.

In training no turn is rendered twice: turns stay as they were sampled, and what follows them is appended. So a template
that rewrites earlier turns does not break training, but the model is then trained on other prompts than it gets from a
server, which renders the whole conversation again for every turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.registry import agent_names, make_loop
from agent_rl.agents.tool_call import AUTO, FORMAT_KEY, ToolCallFormat
from agent_rl.doctor.case import Case
from agent_rl.policies.chat_template import NO_SYNTAX, ChatTemplate, same_beginning
from agent_rl.policies.rendering_difference import IN_WHITE_SPACE, difference
from agent_rl.policies.shown_tools import call_text
from agent_rl.policies.turn_writer import TurnWriter
from agent_rl.preflight.check import Finding, Needs, check, ok, problem, reason, skipped, warning
from agent_rl.trajectory import ToolCall
from agent_rl.verl_adapter import inspection

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
"""Characters of a difference that are shown."""


@dataclass(frozen=True)
class TokenizerTemplate:
    """A tokenizer with its template, as a run would use it.

    Attributes:
        tokenizer: with its chat template set.
        model_type: of the model's config.json, by which verl chooses its builder.
        ends: the token ids at which the engine stops.
        options: `data.apply_chat_template_kwargs`.
        native: whether tools are an argument of the template and calls are in `tool_calls`, as for verl's tool_agent.
        syntax: in which the run reads calls (`multi_turn.format`).
        observation_role: the role of a message with a tool's result.
        processor: of a multimodal model.
        taught: whether a cold start teaches the model its tools, so that no prompt has to show them.
    """

    tokenizer: Any
    model_type: str | None = None
    ends: frozenset[int] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)
    native: bool = False
    syntax: str = "hermes"
    observation_role: str = "user"
    processor: Any = None
    taught: bool = False

    @cached_property
    def chat(self) -> ChatTemplate:
        """What renders the conversation."""
        return ChatTemplate(self.tokenizer, self.options)

    @cached_property
    def tools(self) -> list[dict[str, Any]] | None:
        """The tools that the template is given."""
        return [TOOL] if self.native else None

    @cached_property
    def writer(self) -> TurnWriter:
        """What writes the policy's turns."""
        return TurnWriter(self.chat, self.tools)

    def text(self, messages: Sequence[Message]) -> str:
        """The conversation as a server renders it."""
        return self.chat.rendered(messages, self.tools, prompt=True)


@check("chat template", needs=Needs.VERL)
def chat_template(case: Case) -> Iterator[Finding]:
    """The chat template of the recipe's model passes all of `examine`."""
    if case.model.folder is None:
        yield skipped("the model is not on this machine")
        return
    template = load_template(case)
    if template.tokenizer.chat_template:
        yield from examine(template)
    else:
        text = f"the tokenizer in {case.shown(case.model.folder)} has none"
        yield problem(text, f"Take the -Instruct model, or set {TEMPLATE_KEY}")


def load_template(case: Case) -> TokenizerTemplate:
    """The tokenizer as verl loads it, from this machine only."""
    folder, model = case.model.folder or Path(), "actor_rollout_ref.model"
    named = case.get(f"{model}.tokenizer_path")
    tokenizer, processor = inspection.load_tokenizer(
        str(case.path(named) if named else folder), trust_remote_code=bool(case.get(f"{model}.trust_remote_code"))
    )
    if own := case.get(TEMPLATE_KEY):
        tokenizer.chat_template = own
    named_loops = {str(row["agent_name"]) for file in case.train for row in file.rows if row.get("agent_name")}
    loops = named_loops or {case.default_agent}
    native = "tool_agent" in loops or any(
        isinstance(make_loop(name, EpisodeSetup(case.settings)).format(), ToolCallFormat)
        for name in loops.intersection(agent_names())
    )
    return TokenizerTemplate(
        tokenizer,
        case.model.config.get("model_type"),
        _ends(tokenizer, folder),
        dict(case.get("data.apply_chat_template_kwargs", {})),
        native,
        str(case.get(FORMAT_KEY, "hermes")),
        "tool" if native else case.settings.react.observation_role,
        processor,
        case.settings.cold_start is not None,
    )


def examine(template: TokenizerTemplate) -> Iterator[Finding]:
    """Check that the template renders, shows tools, writes calls that are read, ends turns, and keeps earlier ones."""
    try:
        plain = conversation(template)
        template.text(plain)
    except Exception as error:  # noqa: BLE001 - a template may raise anything: it goes into the table
        roles = "system, tool, user" if template.native else f"system, {template.observation_role}"
        text = f"it does not render a conversation of assistant, {roles}: {reason(error)}"
        remedy = f"Set {TEMPLATE_KEY}, or take react_agent" if template.native else f"Set {TEMPLATE_KEY}"
        if template.observation_role == "tool" and not template.native:
            remedy += ", or agent_rl.react.observation_role=user"
        yield problem(text, remedy, "chat template")
        return
    yield _tools(template)
    if template.native:
        yield _calls(template)
    yield _end(template)
    yield _stability(template, first_change(template, plain))
    yield _builder(template, plain[:2])


def conversation(template: TokenizerTemplate, thought: str = "") -> list[Message]:
    """The messages of an episode, turns as they are sampled: a question, two calls with their results, an answer."""
    writer = template.writer
    messages: list[Message] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "What is 6*7+1?"},
    ]
    name = str(TOOL["function"]["name"])  # type: ignore[index]
    for number, (expression, result) in enumerate((("6*7", "42"), ("42+1", "43"))):
        call = ToolCall(name, {"expression": expression}, f"call{number:05d}")
        if template.native:
            written = thought + _call_text(writer, call)
            answer = {"role": "tool", "content": result, "tool_call_id": call.id, "name": name}
        else:
            written = writer.answer(f'{thought}Action: {name}\nAction Input: {{"expression": "{expression}"}}')
            answer = {"role": template.observation_role, "content": f"Observation: {result}"}
        messages += [{"role": "assistant", "content": writer.after_thought(written)}, answer]
    last = writer.after_thought(writer.answer(f"{thought}Final Answer: 43"))
    return [*messages, {"role": "assistant", "content": last}]


def _call_text(writer: TurnWriter, call: ToolCall) -> str:
    with contextlib.suppress(ValueError):
        return writer.calls([call])
    return call_text([call])


def first_change(template: TokenizerTemplate, messages: Sequence[Message]) -> str:
    """The first turn that a later prompt does not repeat as it was generated, in words; empty: there is none."""
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    prompts = [template.text(messages[:index]) for index in turns]
    for number, prompt in enumerate(prompts):
        written, ids = prompt + messages[turns[number]]["content"], template.chat.encode(prompt)
        for later in prompts[number + 1 :]:
            if not later.startswith(written):
                how, contrast = difference(template.chat, written, later), _contrast(written, later)
                return f"turn {number + 1} is rewritten in later prompts{how and f', {how}'}: {contrast}"
            if template.chat.encode(later)[: len(ids)] != ids:
                return f"the tokens of turn {number + 1}'s prompt change in later prompts, though its text does not"
    return ""


def _tools(template: TokenizerTemplate) -> Finding:
    subject = "tools shown"
    if not template.native:
        return ok("not used: the agent's instructions describe the tools", subject)
    remedy = f"Use react_agent, which describes them itself, or set {TEMPLATE_KEY}"
    if not template.chat.names_tools:
        text = "it has no place for tools: they stand in the first message here, and nowhere on a server"
        return warning(text, f"{remedy} for the server as well", subject)
    if TOOL["function"]["name"] in template.text(conversation(template)[:2]):  # type: ignore[index]
        return ok("it shows the tools that it is given", subject)
    if template.taught:
        return ok("none: the model knows them from its cold start", subject)
    return problem("it ignores the tools that it is given: the policy never sees them", remedy, subject)


def _calls(template: TokenizerTemplate) -> Finding:
    """The template writes calls in the syntax in which the run reads them."""
    subject, written = "calls", template.chat.syntax
    if written is None:
        text = f"{NO_SYNTAX}; they are read as {template.syntax}"
        remedy = f"Set {FORMAT_KEY} to what the model was trained to write, or use react_agent"
        return warning(text, remedy, subject)
    if template.syntax in (written, AUTO):
        return ok(f"it writes calls as {written}, and so they are read", subject)
    text = f"it writes calls as {written}, but they are read as {template.syntax}"
    return problem(text, f"Set {FORMAT_KEY}={written}, or {AUTO}", subject)


def _end(template: TokenizerTemplate) -> Finding:
    """The token after a turn is one at which the engine stops."""
    subject, chat = "end of a turn", template.chat
    ends = [chat.end_id] if chat.end_id is not None else sorted(chat.start_ids)
    names = " or ".join(repr(chat.decode([end])) for end in ends)
    if not ends:
        remedy = f"Set {TEMPLATE_KEY} to one that writes the eos token after each assistant turn"
        return problem("nothing marks the end of the policy's turn", remedy, subject)
    if template.ends.issuperset(ends) or template.ends & chat.end_ids:
        return ok(f"{names}, at which the engine stops", subject)
    known = ", ".join(repr(chat.decode([end])) for end in sorted(template.ends)) or "none"
    return warning(
        f"it ends turns with {names}, but the engine stops at {known}",
        f"Add {', '.join(map(str, ends))} to eos_token_id in the model's generation_config.json, or take the -Instruct "
        "model",
        subject,
    )


def _stability(template: TokenizerTemplate, rewritten: str) -> Finding:
    subject = "earlier turns"
    if IN_WHITE_SPACE in rewritten:
        return ok(rewritten, subject)
    if rewritten:
        remedy = f"Set {TEMPLATE_KEY} (and the server's) to one that writes earlier turns as they were generated"
        return warning(f"{rewritten}. A server shows the policy other prompts than training", remedy, subject)
    rewritten = first_change(template, conversation(template, THOUGHT))
    if not rewritten or IN_WHITE_SPACE in rewritten:
        return ok("they stay as they were generated, thinking included", subject)
    copy = (
        f"copy the template, take out what drops <think> from earlier turns, set {TEMPLATE_KEY} to its text, and serve "
        "the model with it; a policy that does not think is not concerned"
    )
    if not template.native and template.observation_role != "tool":
        copy = f"set agent_rl.react.observation_role=tool, with which templates such as Qwen3's keep it; else {copy}"
    return warning(f"{rewritten}. A server hides thinking that training keeps", copy[0].upper() + copy[1:], subject)


def _builder(template: TokenizerTemplate, messages: Sequence[Message]) -> Finding:
    """What makes the tokens of the turns takes this tokenizer."""
    subject = "token builder"
    try:
        builder = inspection.token_builder(
            template.tokenizer, template.model_type, template.options, template.processor
        )
        builder.build_initial_tokens(list(messages), tools=template.tools)
    except Exception as error:  # noqa: BLE001 - builder and template may raise anything: it goes into the table
        remedy = f"Set {TEMPLATE_KEY}, or use a model and tokenizer that belong together"
        return problem(f"for model type {template.model_type!r}: {reason(error)}", remedy, subject)
    return ok("it appends to the sampled tokens, and rewrites nothing", subject)


def _ends(tokenizer: Any, folder: Path) -> frozenset[int]:
    """The tokenizer's eos and those of the model's generation config, which the engine adds."""
    from transformers import GenerationConfig

    try:
        more = GenerationConfig.from_pretrained(folder).eos_token_id
    except OSError:
        more = None
    ends = [tokenizer.eos_token_id, *(more if isinstance(more, list) else [more])]
    return frozenset(end for end in ends if end is not None)


def _contrast(expected: str, found: str) -> str:
    at = same_beginning(expected, found)
    return f"{expected[at : at + AROUND]!r} has become {found[at : at + AROUND]!r}"
