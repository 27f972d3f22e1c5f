"""Spans of a trace: what a collector receives over HTTP, parsed by the protocol's own classes."""

import json

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agent_rl.errors import ConfigError
from agent_rl.trajectory import StopReason, trace
from agent_rl.trajectory.exports.spans import spans_of
from tests.support.http_faults import FaultyServer, answer
from tests.trajectory.exports.command import export
from tests.trajectory.exports.made import HOSTILE, trajectory


@pytest.fixture
def collector(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20me")
    with FaultyServer(default=answer(200, b"")) as server:
        yield server


def received(collector):
    """The spans that were sent, each with its resource."""
    requests = [ExportTraceServiceRequest.FromString(each.body) for each in collector.requests]
    resources = [resource for request in requests for resource in request.resource_spans]
    return [(resource.resource, span) for resource in resources for each in resource.scope_spans for span in each.spans]


def values(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def test_a_collector_receives_an_agent_its_turns_calls_and_reward(collector, tmp_path):
    folder = tmp_path / "my_run"
    for sample in range(2):
        trace.append(folder / "trace.jsonl", trajectory(0, sample))
    run = {"configuration": {"actor_rollout_ref": {"model": {"path": "my/model"}}}}
    (folder / "run.json").write_text(json.dumps(run))
    assert export(folder, "otel", "--endpoint", collector.url) == {"out": collector.url, "trajectories": 2}
    assert (collector.requests[0].headers["authorization"], collector.requests[0].path) == ("Bearer me", "/v1/traces")
    sent = received(collector)
    assert len(sent) == 2 * 6
    resource, agent = sent[0]
    assert values(resource.attributes)["service.name"] == "my_run"
    spans = [span for _, span in sent if span.trace_id == agent.trace_id]
    assert [span.name for span in spans] == [
        "invoke_agent react_agent", "chat my/model", "execute_tool search", "execute_tool calc", "execute_tool calc",
        "chat my/model",
    ]  # fmt: skip
    assert {span.parent_span_id for span in spans[1:]} == {agent.span_id}
    assert len({span.span_id for span in spans}) == 6
    assert [span.kind for span in spans] == [1, 3, 1, 1, 1, 3]  # internal, client
    assert agent.end_time_unix_nano == 1_790_000_000_250_000_000
    assert agent.end_time_unix_nano - agent.start_time_unix_nano == 3_000_000_000
    assert all(span.start_time_unix_nano >= agent.start_time_unix_nano for span in spans)
    assert spans[2].start_time_unix_nano - spans[1].end_time_unix_nano == 250_000_000  # it waited for its turn

    found = values(agent.attributes)
    assert found["gen_ai.operation.name"] == "invoke_agent"
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (30, 16)
    assert json.loads(found["gen_ai.input.messages"])[1]["parts"][0]["content"] == f"What is 0? {HOSTILE}"
    rewards = [values(event.attributes) for event in agent.events]
    assert {event.name for event in agent.events} == {"gen_ai.evaluation.result"}
    assert {each["gen_ai.evaluation.name"]: each["gen_ai.evaluation.score.value"] for each in rewards} == {
        "reward": 1.0, "correctness": 1.0, "format": -0.5,
    }  # fmt: skip

    chat, search, _, failed, last = map(values, (span.attributes for span in spans[1:]))
    parts = json.loads(chat["gen_ai.output.messages"])[0]["parts"]
    assert [part["type"] for part in parts] == ["text", "tool_call", "tool_call", "tool_call"]
    assert json.loads(last["gen_ai.input.messages"])[0]["parts"][1] == {
        "type": "tool_call_response", "id": "b", "response": "42",
    }  # fmt: skip
    assert json.loads(search["gen_ai.tool.call.arguments"]) == {"q": HOSTILE}
    assert search["gen_ai.tool.call.result"] == HOSTILE
    assert (failed["error.type"], spans[4].status.code) == ("error", 2)

    before = [(span.trace_id, span.span_id) for _, span in sent]
    export(folder, "otel", "--endpoint", collector.url)
    assert [(span.trace_id, span.span_id) for _, span in received(collector)[12:]] == before  # the same spans again


def test_a_trajectory_that_failed_has_its_error_as_status():
    (agent, *_) = spans_of(trajectory(1, error="gone", reward=None, stop_reason=StopReason.ERROR), "run")
    assert (agent.status.description, agent.events) == ("gone", ())


def test_a_text_that_protobuf_refuses_is_sent_without_what_it_refuses():
    (agent, *_) = spans_of(trajectory(answer="a\ud800b", agent="\udfff"), "run")
    assert agent.attributes["gen_ai.agent.name"] == "?"


def test_a_collector_that_refuses_or_is_not_there(collector, tmp_path):
    trace.append(tmp_path / "trace.jsonl", trajectory())
    collector.default = answer(400)
    with pytest.raises(ConfigError, match="the collector did not accept 6 spans"):
        export(tmp_path, "otel", "--endpoint", f"{collector.url}/v1/traces")
