"""A trajectory that uses every field, with texts that must stay texts."""

from typing import Any

from agent_rl.trajectory import Message, Score, StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn

HOSTILE = '=HYPERLINK("http://x","y")<script>alert(1)</script>\u202e\x1b[31m\x00{{7*7}}\n'


def trajectory(number: int = 0, sample: int = 0, reward: float | None = 1.0, **more: Any) -> Trajectory:
    """The sample of a prompt, with two turns and three calls."""
    turns = [
        Turn(
            text="<think>\nIt is hard.\n</think>\nI look.",
            tokens=12,
            calls=[
                ToolCall("search", {"q": HOSTILE}, "a"),
                ToolCall("calc", {"e": "6*7"}, "b"),
                ToolCall("calc", {"e": "1/0"}, "c"),
            ],
            results=[
                ToolResult("a", "search", HOSTILE, seconds=0.5, metrics={"images": 1}, queue_seconds=0.25),
                ToolResult("b", "calc", "42", seconds=0.1, reward=0.5, answer="42"),
                ToolResult("c", "calc", "Error: division by zero", ToolStatus.ERROR),
            ],
            observation=f"{HOSTILE}\n42\nError: division by zero",
            notes={"plan": ["Look."]},
            generation_seconds=1.5,
            tool_seconds=0.75,
        ),
        Turn(text="It is 42.", tokens=4, malformed="no tag", generation_seconds=0.5),
    ]
    made = {
        "prompt": [Message("system", "Be careful."), Message("user", f"What is {number}? {HOSTILE}")],
        "stop_reason": StopReason.ANSWERED,
        "turns": turns,
        "id": f"p{number}_{sample}",
        "agent": "react_agent",
        "data_source": "sums",
        "ground_truth": ["42", 42],
        "answer": "42",
        "score": None if reward is None else Score(reward, {"correctness": reward, "format": -0.5}),
        "prompt_tokens": 30,
        "response_tokens": 40,
        "seconds": 3.0,
        "ended": 1_790_000_000.25,
        "row": {"extra_info": {"split": "train"}, "level": 3},
        "info": {"step": 5, "split": "train", "index": number},
    }
    return Trajectory(**{**made, **more})
