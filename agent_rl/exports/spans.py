"""Trajectories as OpenTelemetry spans, by the semantic conventions for generative AI (as of September 2026).

One trace for each trajectory: `invoke_agent` around a `chat` for every turn and an `execute_tool` for every call, and
the reward and each component as an event `gen_ai.evaluation.result`. The trace has when an episode ended and how long
each part took, so spans are laid end to end. Ids follow from the run and the trajectory: what is exported twice is the
same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import agent_rl
from agent_rl.errors import ConfigError
from agent_rl.trajectory import ToolCall, ToolResult, ToolStatus, Trajectory, Turn

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["Sender", "as_otlp_json", "spans_of"]

PROVIDER = "agent_rl"
_IDS = ("traceId", "spanId", "parentSpanId")


def spans_of(trajectory: Trajectory, run: str, model: str | None = None) -> list[ReadableSpan]:
    """The spans of one trajectory, that of the agent first.

    Args:
        trajectory: one of a trace.
        run: its name: of the service, and part of the ids.
        model: name of the policy.
    """
    return list(_Maker(trajectory, run, model).spans())


class Sender:
    """Sends spans to a collector by OTLP over HTTP, in batches.

    Args:
        endpoint: `http://host:4318`, to which `/v1/traces` is added where there is no path; None: from the environment
            (`OTEL_EXPORTER_OTLP_ENDPOINT`). Headers are those of `OTEL_EXPORTER_OTLP_HEADERS`.
        batch: spans in one request.

    Raises:
        ConfigError: the packages are not installed.
    """

    def __init__(self, endpoint: str | None = None, batch: int = 512) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError as error:
            raise ConfigError("--format otel", f"{error.name} is not installed", "Install agent-rl[otel]") from error
        if endpoint and "/" not in endpoint.partition("://")[2].rstrip("/"):
            endpoint = f"{endpoint.rstrip('/')}/v1/traces"
        self._exporter, self._batch = OTLPSpanExporter(endpoint=endpoint, timeout=10), batch
        self._waiting: list[ReadableSpan] = []
        self.sent = 0
        """Spans that the collector has taken."""

    def add(self, spans: Sequence[ReadableSpan]) -> None:
        """Send when there are enough.

        Raises:
            ConfigError: the collector does not answer, or refuses them.
        """
        self._waiting += spans
        if len(self._waiting) >= self._batch:
            self.flush()

    def flush(self) -> None:
        """Send what waits.

        Raises:
            ConfigError: the collector does not answer, or refuses them.
        """
        from opentelemetry.sdk.trace.export import SpanExportResult

        if self._waiting and self._exporter.export(self._waiting) is not SpanExportResult.SUCCESS:
            problem = f"the collector did not take {len(self._waiting)} spans ({self.sent} were taken)"
            remedy = "Look at the address, and at OTEL_EXPORTER_OTLP_HEADERS; what is sent again is the same span"
            raise ConfigError("--endpoint", problem, remedy)
        self.sent += len(self._waiting)
        self._waiting = []


def as_otlp_json(spans: Sequence[ReadableSpan]) -> Any:
    """The spans as OTLP's JSON, of which a collector's file receiver reads one in a line.

    Raises:
        ConfigError: the packages are not installed.
    """
    try:
        from google.protobuf.json_format import MessageToDict
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    except ImportError as error:
        raise ConfigError("--format otel", f"{error.name} is not installed", "Install agent-rl[otel]") from error
    return _hexadecimal(MessageToDict(encode_spans(spans), use_integers_for_enums=True))


class _Maker:
    """Makes the spans of one trajectory."""

    def __init__(self, trajectory: Trajectory, run: str, model: str | None) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._trajectory, self._run, self._model = trajectory, run, model
        # with OTEL_RESOURCE_ATTRIBUTES, by which some back-ends choose the project
        self._resource = Resource.create({"service.name": run})
        self._scope = InstrumentationScope("agent_rl", agent_rl.__version__)
        self._trace_id = self._number("", 16)

    def spans(self) -> Iterator[ReadableSpan]:
        trajectory = self._trajectory
        end = trajectory.ended or time.time()
        start = end - max(trajectory.seconds, trajectory.generation_seconds + trajectory.tool_seconds)
        score = trajectory.score
        evaluations = {} if score is None else {"reward": score.total, **score.components}
        info, answer = trajectory.info, trajectory.answer
        if answer is None:
            answer = trajectory.turns[-1].text if trajectory.turns else ""
        yield self._span(
            f"invoke_agent {trajectory.agent}".strip(),
            "",
            (start, end),
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.input.messages": json.dumps([_message(each.role, each.content) for each in trajectory.prompt]),
                "gen_ai.output.messages": _output([{"type": "text", "content": answer}], "stop"),
                "gen_ai.usage.input_tokens": trajectory.prompt_tokens,
                "gen_ai.usage.output_tokens": sum(turn.tokens for turn in trajectory.turns),
                "agent_rl.id": trajectory.id,
                "agent_rl.group": trajectory.id.rpartition("_")[0],
                "agent_rl.data_source": trajectory.data_source,
                "agent_rl.stop_reason": trajectory.stop_reason.value,
                "agent_rl.step": info.get("step"),
                "agent_rl.split": info.get("split"),
                "error.type": trajectory.stop_reason.value if trajectory.error else None,
            },
            error=trajectory.error,
            evaluations=evaluations,
            at=end,
        )
        for number, turn in enumerate(trajectory.turns):
            yield self._chat(turn, number, start)
            start += turn.generation_seconds
            for position, result in enumerate(turn.results):
                call = next((call for call in turn.calls if call.id == result.call_id), None)
                yield self._tool(result, call, f"{number}.{position}", start)
            start += turn.tool_seconds

    def _chat(self, turn: Turn, number: int, start: float) -> ReadableSpan:
        parts: list[dict[str, Any]] = [{"type": "text", "content": turn.text}]
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.calls
        ]
        before = self._trajectory.turns[number - 1] if number else None
        if before is None:
            asked = [_message(each.role, each.content) for each in self._trajectory.prompt]
        elif before.results:
            answers = [
                {"type": "tool_call_response", "id": result.call_id, "response": result.text}
                for result in before.results
            ]
            asked = [{"role": "tool", "parts": answers}]
        else:
            asked = [_message("user", before.observation or "")]
        return self._span(
            f"chat {self._model or ''}".strip(),
            str(number),
            (start, start + turn.generation_seconds),
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": json.dumps(asked),
                "gen_ai.output.messages": _output(parts, "tool_call" if turn.calls else "stop"),
                "gen_ai.usage.output_tokens": turn.tokens,
                "agent_rl.malformed": turn.malformed,
            },
            kind="CLIENT",
        )

    def _tool(self, result: ToolResult, call: ToolCall | None, name: str, start: float) -> ReadableSpan:
        start += result.queue_seconds
        good = result.status is ToolStatus.OK
        return self._span(
            f"execute_tool {result.name}",
            name,
            (start, start + result.seconds),
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": result.name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": result.call_id,
                "gen_ai.tool.call.arguments": json.dumps(call.arguments if call else {}),
                "gen_ai.tool.call.result": result.text,
                "error.type": None if good else result.status.value,
            },
            error=None if good else result.status.value,
        )

    def _span(
        self,
        name: str,
        part: str,
        times: tuple[float, float],
        attributes: dict[str, Any],
        *,
        kind: str = "INTERNAL",
        error: str | None = None,
        evaluations: Mapping[str, float] | None = None,
        at: float = 0.0,
    ) -> ReadableSpan:
        """A span; one with a part is a child of the agent's."""
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.status import Status, StatusCode

        common: dict[str, Any] = {
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.agent.name": self._trajectory.agent,
            "gen_ai.conversation.id": self._trajectory.id,
            "gen_ai.request.model": self._model,
        }
        events = [
            Event(
                "gen_ai.evaluation.result",
                {"gen_ai.evaluation.name": each, "gen_ai.evaluation.score.value": float(value)},
                _nanoseconds(at),
            )
            for each, value in (evaluations or {}).items()
        ]
        return ReadableSpan(
            name,
            context=self._context(part),
            parent=self._context("") if part else None,
            resource=self._resource,
            attributes={key: _encodable(value) for key, value in (common | attributes).items() if value is not None},
            events=events,
            kind=SpanKind[kind],
            status=Status(StatusCode.ERROR, _encodable(error)) if error else Status(StatusCode.UNSET),
            start_time=_nanoseconds(times[0]),
            end_time=_nanoseconds(times[1]),
            instrumentation_scope=self._scope,
        )

    def _context(self, part: str) -> Any:
        from opentelemetry.trace import SpanContext, TraceFlags

        return SpanContext(self._trace_id, self._number(f"span {part}", 8), False, TraceFlags(TraceFlags.SAMPLED))

    def _number(self, part: str, size: int) -> int:
        key = f"{self._run}\0{self._trajectory.id}\0{part}".encode(errors="replace")
        return int.from_bytes(hashlib.blake2b(key, digest_size=size).digest(), "big") or 1


def _nanoseconds(seconds: float) -> int:
    """Unix time, of which a float holds microseconds."""
    return round(seconds * 1e6) * 1000


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _output(parts: list[dict[str, Any]], finish: str) -> str:
    return json.dumps([{"role": "assistant", "parts": parts, "finish_reason": finish}])


def _encodable(value: Any) -> Any:
    """Text that protobuf takes: without lone surrogates."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _hexadecimal(value: Any) -> Any:
    """OTLP's JSON has ids in hexadecimal digits, where protobuf's has base64."""
    if isinstance(value, list):
        return [_hexadecimal(item) for item in value]
    if isinstance(value, dict):
        return {key: base64.b64decode(item).hex() if key in _IDS else _hexadecimal(item) for key, item in value.items()}
    return value
