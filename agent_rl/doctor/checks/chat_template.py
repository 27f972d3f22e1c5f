"""Checks of the chat template with the model's own tokenizer, over a conversation of several turns.

In training no turn is rendered twice: verl's continuous-token builder appends to the sampled tokens. So a template that
rewrites earlier turns does not break training, but the model is then trained on other prompts than it gets from a
server, which renders the whole conversation again for every turn.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.registry import agent_names, make_loop
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.doctor.case import Case
from agent_rl.doctor.check import Finding, Needs, check, ok, problem, reason, skipped, warning
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
        observation_role: the role of a message with a tool's result.
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
        """The conversation as text, with or without the generation prompt."""
        given = [TOOL] if (self.native if tools is None else tools) else None
        return str(
            self.tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=prompt, tools=given, **self.options
            )
        )

    def ids(self, text: str) -> list[int]:
        """A rendered text as tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))


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
    folder, model = case.model.folder, "actor_rollout_ref.model"
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
        "tool" if native else case.settings.react.observation_role,
        processor,
    )


def examine(template: TokenizerTemplate) -> Iterator[Finding]:
    """Check that the template renders, shows tools, ends turns, keeps earlier turns, and suits verl's builder."""
    plain = conversation(template)
    try:
        template.text(plain, prompt=True)
    except Exception as error:  # noqa: BLE001 - a template may raise anything: it goes into the table
        roles = sorted({message["role"] for message in plain})
        text = f"it does not render a conversation of {', '.join(roles)}: {reason(error)}"
        remedy = f"Set {TEMPLATE_KEY}" + ("" if template.native else ", or agent_rl.react.observation_role=user")
        yield problem(text, remedy, "chat template")
        return
    yield _tools(template, plain)
    yield _end(template, plain)
    rewritten = _first_change(template, plain)
    yield _stability(template, rewritten)
    yield _builder(template, plain, stable=not rewritten)


def conversation(template: TokenizerTemplate, thought: str = "") -> list[Message]:
    """The messages of an episode: a question, two tool calls with their results, an answer."""
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


def _tools(template: TokenizerTemplate, messages: Sequence[Message]) -> Finding:
    subject = "tools shown"
    if not template.native:
        return ok("not used: the agent's instructions describe the tools", subject)
    if TOOL["function"]["name"] in template.text(messages[:2], prompt=True, tools=True):  # type: ignore[index]
        return ok("it shows the tools that it is given", subject)
    text = "it ignores the tools that it is given: the policy never sees them"
    return problem(text, f"Use react_agent, which describes them itself, or set {TEMPLATE_KEY}", subject)


def _end(template: TokenizerTemplate, messages: Sequence[Message]) -> Finding:
    """The token after a turn is one at which the engine stops."""
    subject, answer = "end of a turn", messages[-1]["content"]
    first = template.ids(template.text(messages, prompt=False).rpartition(answer)[2])[:1]
    if not first:
        remedy = f"Set {TEMPLATE_KEY} to one that writes the eos token after each assistant turn"
        return problem("nothing marks the end of the policy's turn", remedy, subject)
    token = template.tokenizer.decode(first)
    if first[0] in template.ends:
        return ok(f"{token!r}, at which the engine stops", subject)
    known = ", ".join(repr(template.tokenizer.decode([end])) for end in sorted(template.ends)) or "none"
    return warning(
        f"it ends turns with {token!r}, but the engine stops at {known}",
        f"Add {first[0]} to eos_token_id in the model's generation_config.json, or take the -Instruct model",
        subject,
    )


def _stability(template: TokenizerTemplate, rewritten: str) -> Finding:
    subject = "earlier turns"
    if rewritten:
        remedy = f"Set {TEMPLATE_KEY} (and the server's) to one that writes earlier turns as they were generated"
        return warning(f"{rewritten}. A server shows the policy other prompts than training", remedy, subject)
    if not (rewritten := _first_change(template, conversation(template, THOUGHT))):
        return ok("they stay as they were generated, thinking included", subject)
    remedy = "Set agent_rl.react.observation_role=tool: then this template keeps it"
    if template.native or not _keeps_thinking(replace(template, observation_role="tool")):
        remedy = (
            f"Copy the template, take out what drops <think> from earlier turns, set {TEMPLATE_KEY} to its text, "
            "and serve the model with it; a policy that does not think is not concerned"
        )
    return warning(f"{rewritten}. A server hides thinking that training keeps", remedy, subject)


def _keeps_thinking(template: TokenizerTemplate) -> bool:
    try:
        return not _first_change(template, conversation(template, THOUGHT))
    except Exception:  # noqa: BLE001 - the template does not know the role: the remedy is then another one
        return False


def _first_change(template: TokenizerTemplate, messages: Sequence[Message]) -> str:
    """The first turn that a later prompt does not repeat as it was generated, in words; empty: there is none."""
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


def _builder(template: TokenizerTemplate, messages: Sequence[Message], *, stable: bool) -> Finding:
    """Verl's continuous-token builder accepts the conversation and gives the same tokens as the template."""
    subject, tools = "token builder", [TOOL] if template.native else None
    try:
        builder = inspection.token_builder(
            template.tokenizer, template.model_type, template.options, template.processor
        )
        built = _appended(template, builder, messages, tools)
    except Exception as error:  # noqa: BLE001 - builder and template may raise anything: it goes into the table
        remedy = f"Set {TEMPLATE_KEY}, or use a model and tokenizer that belong together"
        return problem(f"for model type {template.model_type!r}: {reason(error)}", remedy, subject)
    name = f"verl's {type(builder).__name__}"
    if not stable:
        return ok(f"{name} appends to the sampled tokens, and rewrites nothing", subject)
    rendered = template.text(messages[:-1], prompt=True)
    if built == template.ids(rendered):
        return ok(f"{name}: turn by turn it gives the template's own tokens", subject)
    contrast = _contrast(rendered, template.tokenizer.decode(built))
    remedy = f"Harmless if this is white space; else set {TEMPLATE_KEY}"
    return warning(f"{name} does not give the template's tokens: {contrast}", remedy, subject)


def _appended(template: TokenizerTemplate, builder: Any, messages: Sequence[Message], tools: Any) -> list[int]:
    """The tokens of the last turn's prompt, built turn by turn as in a rollout."""
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
