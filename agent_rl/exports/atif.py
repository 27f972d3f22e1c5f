"""The Agent Trajectory Interchange Format, ATIF-v1.7 (Harbor's RFC 0001), both ways.

A step of the agent is one turn: what was sampled as `message` (its thought as `reasoning_content`), the calls, and the
results. What the format has no field for is in `extra`, so that a trajectory which went out and came back is the same,
but for the fields that the trace does not have. Images are files beside the document, in `images/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import groupby
from typing import Any

import agent_rl
from agent_rl.trace import Tokens
from agent_rl.trajectory import SCHEMA_VERSION, Trajectory

__all__ = ["IMAGES", "VERSION", "from_atif", "to_atif"]

VERSION = "ATIF-v1.7"
IMAGES = "images"
"""Folder of the images, beside the documents."""
_KEY = "agent_rl"
"""Of what is ours within `extra`."""
_SOURCES = {"system": "system", "user": "user", "assistant": "agent", "tool": "user"}
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_OPEN, _CLOSE = "<think>", "</think>"
_IMAGE = "<image>"
_TURN = ("malformed", "observation", "notes", "generation_seconds", "tool_seconds")
_RESULT = ("status", "seconds", "reward", "metrics", "answer", "queue_seconds")
_WHOLE = (
    *("stop_reason", "agent", "data_source", "ground_truth", "answer", "error", "verdict", "score"),
    *("prompt_tokens", "response_tokens", "longest_tokens", "seconds", "ended", "row", "info"),
)


def to_atif(trajectory: Trajectory, model: str | None = None) -> dict[str, Any]:
    """One document.

    Args:
        trajectory: with the tokens of each turn where `info["tokens"]` has them.
        model: name of the policy.
    """
    data = trajectory.to_dict()
    tokens: Tokens | None = data["info"].pop("tokens", None)
    steps = [_said(message) for message in data["prompt"]]
    sampled = _sampled(tokens, trajectory) if tokens else {}
    steps += [_turn(turn, number, sampled.get(number)) for number, turn in enumerate(data["turns"])]
    for number, step in enumerate(steps, start=1):
        step["step_id"] = number
    if trajectory.ended and steps:
        steps[-1]["timestamp"] = datetime.fromtimestamp(trajectory.ended, timezone.utc).isoformat()
    agent: dict[str, Any] = {"name": trajectory.agent or "agent_rl", "version": agent_rl.__version__}
    if model:
        agent["model_name"] = model
    if tokens and tokens["tools"]:
        agent["tool_definitions"] = list(tokens["tools"])
    metrics: dict[str, Any] = {
        "total_prompt_tokens": trajectory.prompt_tokens,
        "total_completion_tokens": sum(turn.tokens for turn in trajectory.turns),
        "total_steps": len(steps),
    }
    if trajectory.score is not None:
        metrics["extra"] = {"reward": trajectory.score.total, "components": trajectory.score.components}
    return {
        "schema_version": VERSION,
        "session_id": trajectory.id.rpartition("_")[0] or trajectory.id,
        "trajectory_id": trajectory.id,
        "agent": agent,
        "steps": steps,
        "final_metrics": metrics,
        "extra": {_KEY: {"prompt": data["prompt"], **{name: data[name] for name in _WHOLE}}},
    }


def from_atif(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of any version as JSON data of a `Trajectory`; what it lacks is absent, unless we wrote it."""
    prompt: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for step in document["steps"]:
        if step.get("source") == "agent":
            turns.append(_turn_of(step))
        elif turns:
            said = [turns[-1].get("observation"), _text(step.get("message"))]
            turns[-1]["observation"] = "\n".join(filter(None, said))
        else:
            role = _ROLES.get(str(step.get("source")), "user")
            prompt.append({"role": role, "content": _text(step.get("message")), **_images(step.get("message"))})
    extra = document.get("extra") or {}
    found: dict[str, Any] = {
        "id": str(document.get("trajectory_id") or document.get("session_id") or ""),
        "agent": str((document.get("agent") or {}).get("name", "")),
        "prompt": prompt,
        "turns": turns,
    }
    if _KEY in extra:
        found |= extra[_KEY]
        if len(found["prompt"]) == len(prompt):
            images = [{name: said[name] for name in ("images",) if name in said} for said in prompt]
            found["prompt"] = [each | its for each, its in zip(found["prompt"], images, strict=True)]
        return found | {"version": SCHEMA_VERSION}
    metrics = document.get("final_metrics") or {}
    reward = extra.get("reward", (metrics.get("extra") or {}).get("reward", metrics.get("reward")))
    return found | {
        "stop_reason": str(extra.get("stop_reason", "")),
        "score": None if reward is None else {"total": float(reward), "components": {}},
        "info": {"step": extra.get("step")},
    }


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    said = _with_images(message["content"], message.get("images"))
    return {"step_id": 0, "source": _SOURCES[message["role"]], "message": said}


def _turn(turn: Mapping[str, Any], number: int, sampled: dict[str, Any] | None) -> dict[str, Any]:
    """The step of a turn; ids of calls are made unique within it where they are not."""
    thought, text = _divided(turn["text"])
    step: dict[str, Any] = {"step_id": 0, "source": "agent", "message": text}
    if thought is not None:
        step["reasoning_content"] = thought
    ids = [call["id"] for call in turn["calls"]]
    unique = ids if all(ids) and len(set(ids)) == len(ids) else [f"call_{number}_{at}" for at in range(len(ids))]
    if turn["calls"]:
        step["tool_calls"] = [
            {"tool_call_id": id, "function_name": call["name"], "arguments": call["arguments"]}
            for id, call in zip(unique, turn["calls"], strict=True)
        ]
    if turn["results"]:
        results = []
        for at, result in enumerate(turn["results"]):
            own = {name: result[name] for name in _RESULT} | {"call_id": result["call_id"], "name": result["name"]}
            id = unique[ids.index(result["call_id"])] if ids.count(result["call_id"]) == 1 else None
            if id is None and len(turn["results"]) == len(ids):
                id = unique[at]
            if images := result.get("images"):
                own["text"] = result["text"]
            content = _with_images(result["text"], images)
            results.append({"source_call_id": id, "content": content, "extra": {_KEY: own}})
        step["observation"] = {"results": results}
    elif turn["observation"] is not None:
        step["observation"] = {"results": [{"content": turn["observation"]}]}
    step["metrics"] = {"completion_tokens": turn["tokens"], **(sampled or {})}
    step["llm_call_count"] = 1
    own = {name: turn[name] for name in _TURN} | {"calls": turn["calls"]}
    step["extra"] = {_KEY: own if turn["results"] else own | {"results": []}}
    return step


def _turn_of(step: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {
            "name": call.get("function_name", ""),
            "arguments": call.get("arguments") or {},
            "id": call.get("tool_call_id", ""),
        }
        for call in step.get("tool_calls") or ()
    ]
    names = {call["id"]: call["name"] for call in calls}
    results = [
        {
            "call_id": result.get("source_call_id") or "",
            "name": names.get(result.get("source_call_id"), ""),
            "text": _text(result.get("content")),
            **_images(result.get("content")),
            **((result.get("extra") or {}).get(_KEY) or {}),
        }
        for result in (step.get("observation") or {}).get("results") or ()
    ]
    thought, text = step.get("reasoning_content"), _text(step.get("message"))
    turn = {
        "text": text if thought is None else f"{_OPEN}{thought}{_CLOSE}{text}",
        "calls": calls,
        "results": results,
        "tokens": (step.get("metrics") or {}).get("completion_tokens") or 0,
    }
    return turn | ((step.get("extra") or {}).get(_KEY) or {})


def _divided(text: str) -> tuple[str | None, str]:
    """The thought with which a turn begins, and what follows it."""
    if text.startswith(_OPEN) and _CLOSE in text:
        thought, _, rest = text.removeprefix(_OPEN).partition(_CLOSE)
        return thought, rest
    return None, text


def _sampled(tokens: Tokens, trajectory: Trajectory) -> dict[int, dict[str, Any]]:
    """The tokens of each turn, where there are as many stretches of sampled tokens as turns."""
    stretches = list(_stretches(tokens))
    turns = [number for number, turn in enumerate(trajectory.turns) if turn.tokens]
    if len(stretches) != len(turns):  # notes at a fold were sampled as well
        return {}
    return dict(zip(turns, stretches, strict=True))


def _stretches(tokens: Tokens) -> Iterator[dict[str, Any]]:
    for sequence in tokens["sequences"]:
        position = 0
        for sampled, group in groupby(sequence["mask"]):
            end = position + len(list(group))
            if sampled:
                found: dict[str, Any] = {
                    "prompt_tokens": len(sequence["prompt_ids"]) + position,
                    "completion_token_ids": sequence["response_ids"][position:end],
                }
                if sequence["logprobs"] is not None:
                    found["logprobs"] = sequence["logprobs"][position:end]
                yield found
            position = end


def _with_images(text: str, names: Sequence[str] | None) -> str | list[dict[str, Any]]:
    """The text with its images where it marks them, or before it."""
    if not names:
        return text
    texts = text.split(_IMAGE) if text.count(_IMAGE) == len(names) else [*("" for _ in names), text]
    sources = ({"media_type": "image/png", "path": f"{IMAGES}/{name}"} for name in names)
    parts: list[dict[str, Any]] = [{"type": "text", "text": texts[0]}]
    for source, after in zip(sources, texts[1:], strict=True):
        parts += [{"type": "image", "source": source}, {"type": "text", "text": after}]
    return [part for part in parts if part.get("text") != ""]


def _images(content: Any) -> dict[str, list[str]]:
    """The paths of the images of a message, as they are given, under `images`; nothing without one."""
    parts = content if isinstance(content, list) else []
    sources = [part.get("source") or {} for part in parts if part.get("type") == "image"]
    paths = [str(source["path"]) for source in sources if "path" in source]
    return {"images": paths} if paths else {}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", f"<{part.get('type')}>")) for part in content)
    return "" if content is None else str(content) if not isinstance(content, dict) else json.dumps(content)
