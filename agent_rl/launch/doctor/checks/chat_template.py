"""Checks the chat template on a short conversation, with the model's own tokenizer.

In training, no turn is rendered twice, because turns stay as sampled and later messages are appended. A template that
rewrites earlier turns therefore does not break training, but the model is trained on different prompts than a server
shows it, because a server renders the whole conversation again for every turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.policies.chat_template import NO_SYNTAX, ChatTemplate, same_beginning
from agent_rl.agents.policies.rendering_difference import IN_WHITE_SPACE, difference
from agent_rl.agents.policies.shown_tools import call_text
from agent_rl.agents.policies.turn_writer import TurnWriter
from agent_rl.agents.registry import agent_names, make_loop
from agent_rl.agents.tool_call import AUTO, FORMAT_KEY, ToolCallFormat
from agent_rl.launch.doctor.case import Case
from agent_rl.preflight.check import Finding, Needs, check, problem, reason, skipped, warning
from agent_rl.trajectory import ToolCall
from agent_rl.verl_adapter import inspection

Message = dict[str, Any]

TEMPLATE_KEY = "actor_rollout_ref.model.custom_chat_template"
NAME = "doctors_calculator"
PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
TOOL = {"type": "function", "function": {"name": NAME, "description": "Compute.", "parameters": PARAMETERS}}
THOUGHT = "<think>\nI should compute that.\n</think>\n\n"
AROUND = 40
"""Number of characters of each text to show where two texts differ."""


@dataclass(frozen=True)
class UsedTemplate:
    """A chat template as a run would use it.

    Attributes:
        chat: the chat template, which renders the conversation.
        ends: the ids of the tokens at which the engine stops.
        native: whether tools are an argument of the template and calls are in `tool_calls`, as in verl's tool_agent.
        syntax: the syntax in which the run reads calls (`multi_turn.format`).
        observation_role: the role of a message with a tool's result.
        taught: whether a cold start teaches the model its tools, so that prompts need not show them.
    """

    chat: ChatTemplate
    ends: frozenset[int] = frozenset()
    native: bool = False
    syntax: str = "hermes"
    observation_role: str = "user"
    taught: bool = False

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """The tools that are passed to the template."""
        return [TOOL] if self.native else None

    def text(self, messages: Sequence[Message]) -> str:
        """Return the conversation as a server renders it, with the start of the next turn."""
        return self.chat.rendered(messages, self.tools, prompt=True)

    def conversation(self, thought: str = "") -> list[Message]:
        """Return a question, the policy's tool call as it would be sampled, and the result."""
        writer, call = TurnWriter(self.chat, self.tools), ToolCall(NAME, {"expression": "6*7"}, "call00000")
        if self.native:
            try:
                turn = thought + writer.calls([call])
            except ValueError:
                turn = thought + call_text([call])
            result = {"role": "tool", "content": "42", "tool_call_id": call.id, "name": NAME}
        else:
            turn = writer.answer(f'{thought}Action: {NAME}\nAction Input: {{"expression": "6*7"}}')
            result = {"role": self.observation_role, "content": "Observation: 42"}
        return [
            {"role": "system", "content": "You are careful."},
            {"role": "user", "content": "What is 6*7?"},
            {"role": "assistant", "content": writer.after_thought(turn)},
            result,
        ]


@check("chat template", needs=Needs.VERL)
def chat_template(case: Case) -> Iterator[Finding]:
    """The chat template of the recipe's model passes all checks of `examine`."""
    if case.model.folder is None:
        yield skipped("the model is not on this machine")
        return
    template = load_template(case)
    if template.chat.tokenizer.chat_template:
        yield from examine(template)
    else:
        text = f"the tokenizer in {case.shown(case.model.folder)} has no chat template"
        yield problem(text, f"Use the -Instruct model, or set {TEMPLATE_KEY}")


def load_template(case: Case) -> UsedTemplate:
    """Load the tokenizer as verl does, from this machine only."""
    folder, model = case.model.folder or Path(), "actor_rollout_ref.model"
    path = case.get(f"{model}.tokenizer_path")
    tokenizer = inspection.load_tokenizer(
        str(case.path(path) if path else folder), trust_remote_code=bool(case.get(f"{model}.trust_remote_code"))
    )
    if own := case.get(TEMPLATE_KEY):
        tokenizer.chat_template = own
    named_loops = {str(row["agent_name"]) for file in case.train for row in file.rows if row.get("agent_name")}
    loops = named_loops or {case.default_agent}
    native = "tool_agent" in loops or any(
        isinstance(make_loop(name, EpisodeSetup(case.settings)).format(), ToolCallFormat)
        for name in loops.intersection(agent_names())
    )
    return UsedTemplate(
        ChatTemplate(tokenizer, case.get("data.apply_chat_template_kwargs", {})),
        _ends(tokenizer, folder),
        native,
        str(case.get(FORMAT_KEY, "hermes")),
        "tool" if native else case.settings.react.observation_role,
        case.settings.cold_start is not None,
    )


def examine(template: UsedTemplate) -> Iterator[Finding]:
    """Check that the template renders, shows tools, writes parseable calls, ends turns, and keeps earlier turns."""
    try:
        rewritten = _rewritten(template, template.conversation())
    except Exception as error:  # noqa: BLE001 - a template may raise any error, which is reported
        text = f"the template cannot render system, user, assistant, {template.observation_role}: {reason(error)}"
        remedy = f"Set {TEMPLATE_KEY}, or use react_agent" if template.native else f"Set {TEMPLATE_KEY}"
        if template.observation_role == "tool" and not template.native:
            remedy += ", or agent_rl.react.observation_role=user"
        yield problem(text, remedy, "chat template")
        return
    findings = [_tools(template), _calls(template)] if template.native else []
    yield from filter(None, [*findings, _end(template), _stability(template, rewritten)])


def _rewritten(template: UsedTemplate, messages: Sequence[Message]) -> str:
    """Describe how the next prompt differs from the policy's generated turn, or return "" if it does not."""
    before, later = template.text(messages[:2]), template.text(messages)
    written, ids = before + messages[2]["content"], template.chat.encode(before)
    if not later.startswith(written):
        how, at = difference(template.chat, written, later), same_beginning(written, later)
        contrast = f"{written[at : at + AROUND]!r} has become {later[at : at + AROUND]!r}"
        return f"a turn is rewritten in later prompts{how and f', {how}'}: {contrast}"
    if template.chat.encode(later)[: len(ids)] != ids:
        return "the tokens of a turn's prompt change in later prompts, although the text does not"
    return ""


def _tools(template: UsedTemplate) -> Finding | None:
    """The template shows the tools that are passed to it."""
    subject, remedy = "tools shown", f"Use react_agent, which describes them itself, or set {TEMPLATE_KEY}"
    if not template.chat.names_tools:
        text = "the template has no place for tools: training shows them in the first message, but a server omits them"
        return warning(text, f"{remedy} in training and on the server", subject)
    if template.taught or NAME in template.text(template.conversation()[:2]):
        return None
    return problem("the template ignores the tools, so the policy never sees them", remedy, subject)


def _calls(template: UsedTemplate) -> Finding | None:
    """The template writes calls in the syntax in which the run reads them."""
    subject, syntax = "calls", template.chat.syntax
    if syntax is None:
        text = f"{NO_SYNTAX}, so they are read as {template.syntax}"
        remedy = f"Set {FORMAT_KEY} to the syntax that the model was trained to write, or use react_agent"
        return warning(text, remedy, subject)
    if template.syntax in (syntax, AUTO):
        return None
    text = f"the template writes calls as {syntax}, but they are read as {template.syntax}"
    return problem(text, f"Set {FORMAT_KEY}={syntax}, or {AUTO}", subject)


def _end(template: UsedTemplate) -> Finding | None:
    """The engine stops at the token that ends a turn."""
    subject, chat = "end of a turn", template.chat
    ends = [chat.end_id] if chat.end_id is not None else sorted(chat.start_ids)
    names = " or ".join(repr(chat.decode([end])) for end in ends)
    if not ends:
        remedy = f"Set {TEMPLATE_KEY} to a template that writes the eos token after each assistant turn"
        return problem("the template does not mark the end of the policy's turn", remedy, subject)
    if template.ends.issuperset(ends) or template.ends & chat.end_ids:
        return None
    stops = ", ".join(repr(chat.decode([end])) for end in sorted(template.ends)) or "none"
    remedy = f"Add {', '.join(map(str, ends))} to eos_token_id in the model's generation_config.json, or use the "
    return warning(f"turns end with {names}, but the engine stops at {stops}", f"{remedy}-Instruct model", subject)


def _stability(template: UsedTemplate, rewritten: str) -> Finding | None:
    """Earlier turns stay as they were generated."""
    subject = "earlier turns"
    if rewritten and IN_WHITE_SPACE not in rewritten:
        remedy = f"Set {TEMPLATE_KEY}, also on the server, to a template that writes earlier turns as generated"
        return warning(f"{rewritten}. A server shows the policy different prompts than training does", remedy, subject)
    if not rewritten:
        rewritten = _rewritten(template, template.conversation(THOUGHT))
    if not rewritten or IN_WHITE_SPACE in rewritten:
        return None
    remedy = f"Change the template so that it keeps <think> in earlier turns, set {TEMPLATE_KEY} to its text, and "
    remedy += "serve the model with it. A policy that does not think is not affected"
    if not template.native and template.observation_role != "tool":
        remedy = f"Set agent_rl.react.observation_role=tool, so that templates such as Qwen3's keep it. {remedy}"
    return warning(f"{rewritten}. A server removes thoughts that training keeps", remedy, subject)


def _ends(tokenizer: Any, folder: Path) -> frozenset[int]:
    """Return the ids of the tokenizer's eos token and of the generation config's eos tokens, which the engine adds."""
    from transformers import GenerationConfig

    try:
        more = GenerationConfig.from_pretrained(folder).eos_token_id
    except OSError:
        more = None
    ends = [tokenizer.eos_token_id, *(more if isinstance(more, list) else [more])]
    return frozenset(end for end in ends if end is not None)
