"""Converts trajectories to and from the Agent Trajectory Interchange Format, ATIF-v1.7 (Harbor's RFC 0001).

Each turn becomes a step of the agent: the sampled text as `message` (its thought as `reasoning_content`), the calls,
and the results. `extra` contains the whole trajectory, so export and import are lossless. Image files are not copied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import agent_rl
from agent_rl.trajectory import Trajectory

VERSION = "ATIF-v1.7"
_KEY = "agent_rl"
"""Key in `extra` under which the whole trajectory is stored."""
_SOURCES = {"system": "system", "user": "user", "assistant": "agent", "tool": "user"}
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_OPEN, _CLOSE = "<think>", "</think>"


def to_atif(trajectory: Trajectory, model: str | None = None) -> dict[str, Any]:
    """Convert a trajectory to an ATIF document.

    Args:
        trajectory: a trajectory from a trace; its tokens are left out.
        model: name of the policy.
    """
    data = trajectory.to_dict()
    data["info"].pop("tokens", None)
    steps = [{"source": _SOURCES[message["role"]], "message": message["content"]} for message in data["prompt"]]
    steps += [_step(turn, number) for number, turn in enumerate(data["turns"])]
    steps = [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]
    if trajectory.ended and steps:
        steps[-1]["timestamp"] = datetime.fromtimestamp(trajectory.ended, timezone.utc).isoformat()
    agent = {"name": trajectory.agent or "agent_rl", "version": agent_rl.__version__}
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
        "agent": agent | ({"model_name": model} if model else {}),
        "steps": steps,
        "final_metrics": metrics,
        "extra": {_KEY: data},
    }


def from_atif(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an ATIF document of any version to a `Trajectory` as JSON data, with all keys if agent_rl wrote it."""
    extra = document.get("extra") or {}
    if "turns" in (extra.get(_KEY) or {}):
        own: dict[str, Any] = extra[_KEY]
        return own
    prompt: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for step in document["steps"]:
        message = step.get("message")
        if step.get("source") == "agent":
            turns.append(_turn(step))
        elif turns:
            turns[-1]["observation"] = "\n".join(filter(None, [turns[-1].get("observation"), _text(message)]))
        else:
            prompt.append({"role": _ROLES.get(str(step.get("source")), "user"), "content": _text(message)})
    metrics = document.get("final_metrics") or {}
    reward = extra.get("reward", (metrics.get("extra") or {}).get("reward", metrics.get("reward")))
    return {
        "id": str(document.get("trajectory_id") or document.get("session_id") or ""),
        "agent": str((document.get("agent") or {}).get("name", "")),
        "prompt": prompt,
        "turns": turns,
        "stop_reason": str(extra.get("stop_reason", "")),
        "score": None if reward is None else {"total": float(reward), "components": {}},
        "info": {"step": extra.get("step")},
    }


def _step(turn: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Convert a turn to a step; call ids are replaced if they are not unique within the turn."""
    text, step = turn["text"], dict[str, Any]()
    if text.startswith(_OPEN) and _CLOSE in text:
        step["reasoning_content"], _, text = text.removeprefix(_OPEN).partition(_CLOSE)
    ids = [call["id"] for call in turn["calls"]]
    unique = ids if all(ids) and len(set(ids)) == len(ids) else [f"call_{number}_{at}" for at in range(len(ids))]
    if turn["calls"]:
        step["tool_calls"] = [
            {"tool_call_id": id, "function_name": call["name"], "arguments": call["arguments"]}
            for id, call in zip(unique, turn["calls"], strict=True)
        ]
    results = []
    for at, result in enumerate(turn["results"]):
        id = unique[ids.index(result["call_id"])] if ids.count(result["call_id"]) == 1 else None
        if id is None and len(turn["results"]) == len(ids):
            id = unique[at]
        results.append({"source_call_id": id, "content": result["text"]})
    if not results and turn["observation"] is not None:
        results = [{"content": turn["observation"]}]
    if results:
        step["observation"] = {"results": results}
    metrics = {"completion_tokens": turn["tokens"]}
    return {"source": "agent", "message": text, **step, "metrics": metrics, "llm_call_count": 1}


def _turn(step: Mapping[str, Any]) -> dict[str, Any]:
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
        }
        for result in (step.get("observation") or {}).get("results") or ()
    ]
    thought, text = step.get("reasoning_content"), _text(step.get("message"))
    return {
        "text": text if thought is None else f"{_OPEN}{thought}{_CLOSE}{text}",
        "calls": calls,
        "results": results,
        "tokens": (step.get("metrics") or {}).get("completion_tokens") or 0,
    }


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", f"<{part.get('type')}>")) for part in content)
    return "" if content is None else str(content) if not isinstance(content, dict) else json.dumps(content)
