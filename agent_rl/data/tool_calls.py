"""Function calling, as rows: BFCL, ToolRL's RLLA, and xLAM.

    {"id": ..., "question": [[message, ...], ...], "function": [schema, ...]}     BFCL; its answers are in `--answers`
    {"query": ..., "tools": "[...]", "answers": "[{name, arguments}, ...]"}       xLAM
    {"prompt": [...], "reward_model": {"ground_truth": "<tool_call>..."}}         RLLA, a row of verl

The functions are described in the prompt, and a call is written as text: `<tool_call>{"name": ..., "arguments":
{...}}</tool_call>`. For another agent than `single_turn_agent` they are in `extra_info.functions` instead, with JSON
schemas, and the agent shows them as its tools; RLLA has them in its prompt alone. The ground truth is the list of
calls. Where BFCL has several turns, the later ones are what a scripted user says, and the calls of all turns are the
ground truth; it names the classes whose functions are meant, not the functions, so that the agent needs tools for them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.conversion import RawSet, json_of, text_of, value_of
from agent_rl.data.rows import makes_row
from agent_rl.data.shapes import as_row
from agent_rl.data.sources import Raw, read_raw
from agent_rl.errors import ConfigError

__all__ = ["TOOL_CALLS", "read_with_answers", "to_row"]

IN_TEXT = "single_turn_agent"
"""The agent whose functions are described in the prompt."""
INSTRUCTIONS = """\
You can call these functions:
{functions}

Write each call as <tool_call>{{"name": ..., "arguments": {{...}}}}</tool_call>. If none of the functions can answer the
request, say so and call none."""
TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "any": None,
}
"""JSON's types by Python's, as BFCL and xLAM write them."""
JSON_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@makes_row
def to_row(example: Mapping[str, Any], index: int, agent_name: str = IN_TEXT) -> dict[str, Any]:
    """One row of one example in any of the forms above.

    Args:
        example: its columns; of BFCL, with its answers as `ground_truth`.
        index: of the row in its split.
        agent_name: of the row, see above; where users speak several times, `user_sim_agent`.

    Raises:
        ConfigError: naming the column that is missing or cannot be used.
    """
    info: dict[str, Any] = {}
    functions: Any = None
    if "reward_model" in example:
        row, _ = as_row(example, number=index)
        source, prompt, calls = "rlla", row["prompt"], _of_text(text_of(row["reward_model"], "ground_truth"))
    elif "query" in example:
        source, calls, functions = "xlam", json_of(example, "answers"), json_of(example, "tools")
        prompt = [{"role": "user", "content": text_of(example, "query")}]
    elif isinstance(example.get("question"), list):
        turns = value_of(example, "question")
        source, prompt, calls, functions = "bfcl", turns[0], _of_bfcl(example), example.get("function")
        info = {"id": example["id"]} | {key: example[key] for key in ("involved_classes",) if key in example}
        if len(turns) > 1:
            agent_name = "user_sim_agent"
            info["user"] = {"replies": [message["content"] for turn in turns[1:] for message in turn]}
            info["initial_config"] = example.get("initial_config")
    else:
        remedy = "It has to be in the form of BFCL (question, function), xLAM (query, tools, answers) or RLLA"
        raise ConfigError("column question", f"no known form: {', '.join(map(str, example))}", remedy)
    if functions and agent_name == IN_TEXT:
        prompt = _prompt(prompt, functions)
    elif functions:
        info["functions"] = [_declared(each) for each in functions]
    return {
        "prompt": prompt,
        "data_source": source,
        "ground_truth": calls,
        "agent_name": agent_name,
        "ability": "tool_calls",
        "extra_info": info,
    }


def read_with_answers(path: Path, answers: Path | None = None) -> Iterator[Raw]:
    """The questions of BFCL with their answers, by `id`; other files as they are.

    Args:
        path: file of questions.
        answers: file of answers; None: the file beside it with `_answers` in its name, or `possible_answer/` of BFCL's
            own folder, if there is one.

    Raises:
        ConfigError: a question has no answer in the file.
    """
    beside = (path.with_name(f"{path.stem}_answers{path.suffix}"), path.parent / "possible_answer" / path.name)
    answers = answers or next((each for each in beside if each.exists()), None)
    truths = {raw.value.get("id"): raw.value for raw in read_raw(answers)} if answers else {}
    for raw in read_raw(path):
        value = raw.value
        if answers is not None and "ground_truth" not in value:
            if value.get("id") not in truths:
                raise ConfigError(raw.place, f"no answer for id {value.get('id')!r} in {answers}", "Complete that file")
            value = value | {"ground_truth": value_of(truths[value["id"]], "ground_truth")}
        yield Raw(raw.place, value)


def _declared(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function with a JSON schema."""
    parameters = value_of(function, "parameters")
    if "properties" not in parameters:  # xLAM: {argument: {type: "str, optional", description, default}}
        needed = [key for key, each in parameters.items() if "optional" not in str(each.get("type"))]
        parameters = {"type": "dict", "properties": parameters, "required": needed}
    schema = _schema(parameters)
    return {"name": value_of(function, "name"), "description": function.get("description", ""), "parameters": schema}


def _schema(value: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(value)
    if isinstance(named := found.get("type"), str):
        word = re.split(r"[\[,( ]", named.strip(), maxsplit=1)[0].lower()
        found["type"] = TYPES.get(word, word)
        if found["type"] not in JSON_TYPES:  # "any", or words of which nothing is known: any value
            del found["type"]
    if isinstance(items := found.get("items"), Mapping):
        found["items"] = _schema(items)
    if isinstance(properties := found.get("properties"), Mapping):
        found["properties"] = {key: _schema(each) for key, each in properties.items()}
    return found


def _prompt(messages: list[dict[str, Any]], functions: Any) -> list[dict[str, Any]]:
    text = INSTRUCTIONS.format(functions="\n".join(json.dumps(each, ensure_ascii=False) for each in functions))
    if messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _of_bfcl(example: Mapping[str, Any]) -> list[Any]:
    """The calls: as they are; of several turns, from their text; of a question that no function answers, none."""
    if "ground_truth" not in example:
        if "irrelevance" not in str(example.get("id")):
            remedy = "Put the file of answers beside the questions: NAME_answers.json or possible_answer/NAME.json"
            raise ConfigError("column ground_truth", "the question has no answer", remedy)
        return []
    found = value_of(example, "ground_truth")
    if all(isinstance(turn, list) for turn in found):
        return [_of_source(text) for turn in found for text in turn]
    return list(found)


def _of_source(text: str) -> dict[str, Any]:
    """A call from Python's notation; arguments without a name are named by their position: `_0`, `_1`."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call):
            raise ValueError("no call")
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        placed = {f"_{number}": ast.literal_eval(value) for number, value in enumerate(call.args)}
        return {"name": ast.unparse(call.func), "arguments": placed | named}
    except (SyntaxError, ValueError) as error:
        raise ConfigError("column ground_truth", f"{text!r:.80} is no call ({error})", "Write f(x=1)") from error


def _of_text(text: str) -> list[Any]:
    """The calls of a response in RLLA's form: one JSON object a line."""
    lines = [line for block in _CALL.findall(text) for line in block.strip().splitlines() if line.strip()]
    try:
        calls = [json.loads(line) for line in lines]
    except ValueError as error:
        problem = f"its calls are no JSON ({error})"
        raise ConfigError("column reward_model.ground_truth", problem, "Write one object a line") from error
    return [{"name": call["name"], "arguments": call.get("parameters", call.get("arguments", {}))} for call in calls]


TOOL_CALLS = RawSet("tool_calls", to_row, agent_name=IN_TEXT, read=read_with_answers)
