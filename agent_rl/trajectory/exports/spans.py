"""Converts trajectories to OpenTelemetry spans, by the semantic conventions for generative AI (as of September 2026).

A trajectory is one trace: `invoke_agent` around a `chat` for every turn and an `execute_tool` for every call, with
the reward and each component as an event `gen_ai.evaluation.result`. A trajectory has only the episode's end and
how long each part took, so spans are laid end to end. Ids are computed from the run and the trajectory, so exporting
twice gives the same spans.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import agent_rl
from agent_rl.errors import ConfigError
from agent_rl.trajectory import ToolCall, ToolResult, ToolStatus, Trajectory, Turn

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["Sender", "spans_of"]

BATCH = 512
"""Number of spans per request."""


def spans_of(trajectory: Trajectory, run: str, model: str | None = None) -> list[ReadableSpan]:
    """Return the spans of one trajectory, the agent's first.

    Args:
        trajectory: a trajectory of a trace.
        run: the run's name, which becomes the service's and part of the ids.
        model: name of the policy.
    """
    return list(_Maker(trajectory, run, model).spans())


class Sender:
    """Sends spans to a collector by OTLP over HTTP, in batches.

    Args:
        endpoint: `http://host:4318`, with `/v1/traces` added if it has no path; None: from the environment
            (`OTEL_EXPORTER_OTLP_ENDPOINT`). `OTEL_EXPORTER_OTLP_HEADERS` sets the headers.

    Raises:
        ConfigError: the packages are not installed.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError as error:
            raise ConfigError("--format otel", f"{error.name} is not installed", "Install agent-rl[otel]") from error
        if endpoint and "/" not in endpoint.partition("://")[2].rstrip("/"):
            endpoint = f"{endpoint.rstrip('/')}/v1/traces"
        self._exporter = OTLPSpanExporter(endpoint=endpoint, timeout=10)
        self._waiting: list[ReadableSpan] = []
        self._sent = 0

    def send(self, spans: Sequence[ReadableSpan] = (), at_least: int = BATCH) -> None:
        """Add spans, and send all waiting spans once there are enough.

        Raises:
            ConfigError: the collector does not answer, or rejects the spans.
        """
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._waiting += spans
        if not self._waiting or len(self._waiting) < at_least:
            return
        if self._exporter.export(self._waiting) is not SpanExportResult.SUCCESS:
            problem = f"the collector did not accept {len(self._waiting)} spans ({self._sent} were accepted)"
            remedy = "Check the address and OTEL_EXPORTER_OTLP_HEADERS; sending again creates no duplicates"
            raise ConfigError("--endpoint", problem, remedy)
        self._sent += len(self._waiting)
        self._waiting = []


class _Maker:
    """Makes the spans of one trajectory."""

    def __init__(self, trajectory: Trajectory, run: str, model: str | None) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._trajectory, self._run, self._model = trajectory, run, model
        # with OTEL_RESOURCE_ATTRIBUTES, by which some back-ends choose the project
        self._resource = Resource.create({"service.name": run})
        self._scope = InstrumentationScope("agent_rl", agent_rl.__version__)

    def spans(self) -> Iterator[ReadableSpan]:
        trajectory = self._trajectory
        end = trajectory.ended or time.time()
        start = end - max(trajectory.seconds, trajectory.generation_seconds + trajectory.tool_seconds)
        yield self._agent(start, end)
        for number, turn in enumerate(trajectory.turns):
            yield self._chat(turn, number, start)
            start += turn.generation_seconds
            calls = {call.id: call for call in reversed(turn.calls)}
            for position, result in enumerate(turn.results):
                yield self._tool(result, calls.get(result.call_id), f"{number}.{position}", start)
            start += turn.tool_seconds

    def _agent(self, start: float, end: float) -> ReadableSpan:
        trajectory, score, answer = self._trajectory, self._trajectory.score, self._trajectory.answer
        if answer is None:
            answer = trajectory.turns[-1].text if trajectory.turns else ""
        attributes = {
            "gen_ai.input.messages": self._prompt(),
            "gen_ai.output.messages": _output([_text(answer)], "stop"),
            "gen_ai.usage.input_tokens": trajectory.prompt_tokens,
            "gen_ai.usage.output_tokens": sum(turn.tokens for turn in trajectory.turns),
            "agent_rl.id": trajectory.id,
            "agent_rl.group": trajectory.id.rpartition("_")[0],
            "agent_rl.data_source": trajectory.data_source,
            "agent_rl.stop_reason": trajectory.stop_reason.value,
            "agent_rl.step": trajectory.info.get("step"),
            "agent_rl.split": trajectory.info.get("split"),
            "error.type": trajectory.stop_reason.value if trajectory.error else None,
        }
        values = {} if score is None else {"reward": score.total, **score.components}
        return self._span(
            "invoke_agent", trajectory.agent, "", (start, end), attributes, error=trajectory.error, values=values
        )

    def _chat(self, turn: Turn, number: int, start: float) -> ReadableSpan:
        calls = [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.calls
        ]
        before = self._trajectory.turns[number - 1] if number else None
        if before is None:
            messages = self._prompt()
        elif before.results:
            answers = [
                {"type": "tool_call_response", "id": result.call_id, "response": result.text}
                for result in before.results
            ]
            messages = json.dumps([{"role": "tool", "parts": answers}])
        else:
            messages = json.dumps([{"role": "user", "parts": [_text(before.observation or "")]}])
        attributes = {
            "gen_ai.input.messages": messages,
            "gen_ai.output.messages": _output([_text(turn.text), *calls], "tool_call" if turn.calls else "stop"),
            "gen_ai.usage.output_tokens": turn.tokens,
            "agent_rl.malformed": turn.malformed,
        }
        return self._span("chat", self._model or "", str(number), (start, start + turn.generation_seconds), attributes)

    def _tool(self, result: ToolResult, call: ToolCall | None, part: str, start: float) -> ReadableSpan:
        start += result.queue_seconds
        error = None if result.status is ToolStatus.OK else result.status.value
        attributes = {
            "gen_ai.tool.name": result.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": result.call_id,
            "gen_ai.tool.call.arguments": json.dumps(call.arguments if call else {}),
            "gen_ai.tool.call.result": result.text,
            "error.type": error,
        }
        return self._span("execute_tool", result.name, part, (start, start + result.seconds), attributes, error=error)

    def _span(
        self,
        operation: str,
        subject: str,
        part: str,
        times: tuple[float, float],
        attributes: dict[str, Any],
        *,
        error: str | None = None,
        values: dict[str, float] | None = None,
    ) -> ReadableSpan:
        """Make a span; a span with a part is a child of the agent's. Values become evaluations at its end."""
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.status import Status, StatusCode

        start, end = (round(seconds * 1e6) * 1000 for seconds in times)  # a float holds microseconds
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "agent_rl",
            "gen_ai.agent.name": self._trajectory.agent,
            "gen_ai.conversation.id": self._trajectory.id,
            "gen_ai.request.model": self._model,
            **attributes,
        }
        names = ("gen_ai.evaluation.name", "gen_ai.evaluation.score.value")
        evaluations: list[dict[str, Any]] = [
            dict(zip(names, (name, float(value)), strict=True)) for name, value in (values or {}).items()
        ]
        return ReadableSpan(
            f"{operation} {subject}".strip(),
            context=self._context(part),
            parent=self._context("") if part else None,
            resource=self._resource,
            attributes={key: _encodable(value) for key, value in attributes.items() if value is not None},
            events=[Event("gen_ai.evaluation.result", each, end) for each in evaluations],
            kind=SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, _encodable(error)) if error else Status(StatusCode.UNSET),
            start_time=start,
            end_time=end,
            instrumentation_scope=self._scope,
        )

    def _context(self, part: str) -> Any:
        from opentelemetry.trace import SpanContext, TraceFlags

        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(self._number("", 16), self._number(f"span {part}", 8), False, flags)

    def _number(self, part: str, size: int) -> int:
        key = f"{self._run}\0{self._trajectory.id}\0{part}".encode(errors="replace")
        return int.from_bytes(hashlib.blake2b(key, digest_size=size).digest(), "big") or 1

    def _prompt(self) -> str:
        return json.dumps([{"role": each.role, "parts": [_text(each.content)]} for each in self._trajectory.prompt])


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _output(parts: list[dict[str, Any]], finish: str) -> str:
    return json.dumps([{"role": "assistant", "parts": parts, "finish_reason": finish}])


def _encodable(value: Any) -> Any:
    """Return text that protobuf accepts: without lone surrogates."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
