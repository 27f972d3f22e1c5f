"""Converts function-calling data to rows: BFCL, ToolRL's RLLA, and xLAM.

    {"id": ..., "question": [[message, ...], ...], "function": [schema, ...]}     BFCL; another file has its answers
    {"query": ..., "tools": "[...]", "answers": "[{name, arguments}, ...]"}       xLAM
    {"prompt": [...], "reward_model": {"ground_truth": "<tool_call>..."}}         RLLA, a row of verl

The prompt describes the functions, and a call is written as text: `<tool_call>{"name": ..., "arguments":
{...}}</tool_call>`. For agents other than `single_turn_agent`, `extra_info.functions` contains the functions instead,
with JSON schemas, and the agent presents these functions as its tools; RLLA rows contain their functions only in the
prompt. The ground truth is the list of calls. If a BFCL example has several turns, a scripted user sends the later
messages, and the ground truth contains the calls of all turns; such an example lists classes, for which the agent needs
tools.
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

IN_TEXT = "single_turn_agent"
"""The agent whose prompt describes the functions."""
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
"""The JSON type for each Python type that BFCL and xLAM use."""
JSON_TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@makes_row
def to_row(example: Mapping[str, Any], index: int, agent_name: str = IN_TEXT) -> dict[str, Any]:
    """Convert an example to a row; the module's docstring lists the supported forms of examples.

    Args:
        example: the columns of the example; a BFCL example also needs its answers as `ground_truth`.
        index: number of the row in its split.
        agent_name: agent loop of the row, replaced with `user_sim_agent` if the user speaks several times.

    Raises:
        ConfigError: a column is missing or cannot be used; the error names the column.
    """
    info: dict[str, Any] = {}
    functions: Any = None
    if "reward_model" in example:
        row, _ = as_row(example, number=index)
        source, prompt, calls = "rlla", row["prompt"], _parse_tool_calls(text_of(row["reward_model"], "ground_truth"))
    elif "query" in example:
        source, calls, functions = "xlam", json_of(example, "answers"), json_of(example, "tools")
        prompt = [{"role": "user", "content": text_of(example, "query")}]
    elif isinstance(example.get("question"), list):
        turns = value_of(example, "question")
        source, prompt, calls, functions = "bfcl", turns[0], _bfcl_calls(example), example.get("function")
        info = {"id": example["id"]} | {key: example[key] for key in ("involved_classes",) if key in example}
        if len(turns) > 1:
            agent_name = "user_sim_agent"
            info["user"] = {"replies": [message["content"] for turn in turns[1:] for message in turn]}
            info["initial_config"] = example.get("initial_config")
    else:
        remedy = "Use the columns of BFCL (question, function), xLAM (query, tools, answers) or RLLA"
        raise ConfigError("column question", f"no known form has these columns: {', '.join(map(str, example))}", remedy)
    if functions and agent_name == IN_TEXT:
        prompt = _prompt(prompt, functions)
    elif functions:
        info["functions"] = [_declaration(function) for function in functions]
    return {
        "prompt": prompt,
        "data_source": source,
        "ground_truth": calls,
        "agent_name": agent_name,
        "ability": "tool_calls",
        "extra_info": info,
    }


def read_with_answers(path: Path) -> Iterator[Raw]:
    """Yield BFCL's questions with the answers that have the same `id`; yield examples from other files unchanged.

    The answers are in the file next to `path` with `_answers` in its name, or in BFCL's `possible_answer` folder.

    Raises:
        ConfigError: a question has no answer in the file.
    """
    candidates = (path.with_name(f"{path.stem}_answers{path.suffix}"), path.parent / "possible_answer" / path.name)
    answers = next((file for file in candidates if file.exists()), None)
    truths = {raw.value.get("id"): raw.value for raw in read_raw(answers)} if answers else {}
    for raw in read_raw(path):
        value = raw.value
        if answers is not None and "ground_truth" not in value:
            if value.get("id") not in truths:
                raise ConfigError(
                    raw.place, f"there is no answer for id {value.get('id')!r} in {answers}", "Complete that file"
                )
            value = value | {"ground_truth": value_of(truths[value["id"]], "ground_truth")}
        yield Raw(raw.place, value)


def _declaration(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declaration of a function, with its parameters as a JSON schema."""
    parameters = value_of(function, "parameters")
    if "properties" not in parameters and not isinstance(parameters.get("type"), str):
        # xLAM: {argument: {type: "str, optional", description, default}}
        required = [key for key, value in parameters.items() if "optional" not in str(value.get("type"))]
        parameters = {"type": "dict", "properties": parameters, "required": required}
    schema = _schema(parameters)
    return {"name": value_of(function, "name"), "description": function.get("description", ""), "parameters": schema}


def _schema(value: Mapping[str, Any]) -> dict[str, Any]:
    schema = dict(value)
    if isinstance(name := schema.get("type"), str):
        word = re.split(r"[\[,( ]", name.strip(), maxsplit=1)[0].lower()
        schema["type"] = TYPES.get(word, word)
        if schema["type"] not in JSON_TYPES:  # "any" and unknown words allow any value
            del schema["type"]
    if isinstance(items := schema.get("items"), Mapping):
        schema["items"] = _schema(items)
    if isinstance(properties := schema.get("properties"), Mapping):
        schema["properties"] = {key: _schema(item) for key, item in properties.items()}
    return schema


def _prompt(messages: list[dict[str, Any]], functions: Any) -> list[dict[str, Any]]:
    text = INSTRUCTIONS.format(functions="\n".join(json.dumps(item, ensure_ascii=False) for item in functions))
    if messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _bfcl_calls(example: Mapping[str, Any]) -> list[Any]:
    """Return an example's calls; if no function fits the question (`irrelevance` in the id), there are none."""
    if "ground_truth" not in example:
        if "irrelevance" not in str(example.get("id")):
            remedy = "Put the answer file next to the questions: NAME_answers.json or possible_answer/NAME.json"
            raise ConfigError("column ground_truth", "the question has no answer", remedy)
        return []
    turns = value_of(example, "ground_truth")
    if all(isinstance(turn, list) for turn in turns):
        return [_parse_python(text) for turn in turns for text in turn]
    return list(turns)


def _parse_python(text: str) -> dict[str, Any]:
    """Parse a call in Python's notation; positional arguments are named `_0`, `_1`, ..."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call):
            raise ValueError("not a call")
        keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        positional = {f"_{number}": ast.literal_eval(value) for number, value in enumerate(call.args)}
        return {"name": ast.unparse(call.func), "arguments": positional | keywords}
    except (SyntaxError, ValueError) as error:
        raise ConfigError("column ground_truth", f"{text!r:.80} is not a call ({error})", "Write f(x=1)") from error


def _parse_tool_calls(text: str) -> list[Any]:
    """Parse the calls of a response in RLLA's form: one JSON object per line."""
    lines = [line for block in _CALL.findall(text) for line in block.strip().splitlines() if line.strip()]
    try:
        calls = [json.loads(line) for line in lines]
    except ValueError as error:
        problem = f"its calls are not JSON ({error})"
        raise ConfigError("column reward_model.ground_truth", problem, "Write one object per line") from error
    return [{"name": call["name"], "arguments": call.get("parameters", call.get("arguments", {}))} for call in calls]


TOOL_CALLS = RawSet("tool_calls", to_row, agent_name=IN_TEXT, read=read_with_answers)
