"""Anthropic's SDK in a loop: every second turn is streamed."""

import anthropic

TOOL = {
    "name": "add",
    "description": "Add.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}
client = anthropic.Anthropic()
messages = [{"role": "user", "content": "1 + 2?"}]
request = {"model": "policy", "max_tokens": 200, "system": "Use the tool.", "tools": [TOOL]}
count = client.messages.count_tokens(model="policy", system="Use the tool.", tools=[TOOL], messages=messages)
answer = client.messages.create(messages=messages, **request)
assert answer.usage.input_tokens == count.input_tokens
while answer.stop_reason == "tool_use":
    calls = [block for block in answer.content if block.type == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": str(sum(call.input.values()))} for call in calls
    ]
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    with client.messages.stream(messages=messages, **request) as stream:
        answer = stream.get_final_message()
assert answer.stop_reason == "end_turn", answer
print(answer.content[0].text)
