"""An OpenAI-compatible endpoint that answers at once and always the same: a policy that calls a calculator.

What it says depends on the conversation and the seed alone. It asks for the sum in the question some times, by ReAct
text, or by tool calls where the request declares tools, and then answers rightly or wrongly. Run as a program it prints
its port, and it is fast: what is measured against it is the client.
"""

import asyncio
import json
import re
import sys
import zlib
from typing import Any

MODEL = "scripted"


def words(messages: list[dict[str, Any]]) -> int:
    return sum(len(str(message.get("content") or "").split()) for message in messages)


def message(body: dict[str, Any], calls: int | None) -> dict[str, Any]:
    talk = body["messages"]
    question = next(each["content"] for each in talk if each["role"] == "user")
    found = re.search(r"\d+(?: ?\+ ?\d+)+", question)
    expression = found[0] if found else "1+1"
    draw = zlib.crc32(f"{question} {body.get('seed')}".encode())
    turn = sum(each["role"] == "assistant" for each in talk)
    wanted = draw % 4 if calls is None else calls
    if turn < wanted:
        arguments = json.dumps({"expression": f"{expression}+{turn}"})
        if body.get("tools"):
            function = {"name": "calculator", "arguments": arguments}
            call = {"id": f"call_{turn}", "type": "function", "function": function}
            return {"role": "assistant", "content": "I compute.", "tool_calls": [call]}
        text = f"Thought: I compute.\nAction: calculator\nAction Input: {arguments}\nObservation: none"
        return {"role": "assistant", "content": text}
    right = sum(map(int, expression.split("+")))
    answer = right if draw % 3 else right + 1
    if body.get("tools"):
        return {"role": "assistant", "content": f"The answer is {answer}"}
    return {"role": "assistant", "content": f"Thought: I know.\nFinal Answer: {answer}"}


def completion(body: dict[str, Any], calls: int | None = None) -> dict[str, Any]:
    said = message(body, calls)
    prompt, sampled = words(body["messages"]), words([said])
    finish = "stop"
    if sampled > body.get("max_tokens", sampled):
        sampled, finish = body["max_tokens"], "length"
        said = {"role": "assistant", "content": " ".join(said["content"].split()[:sampled])}
    return {
        "id": "completion",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": said, "finish_reason": "tool_calls" if "tool_calls" in said else finish}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled},
    }


def streamed(whole: dict[str, Any]) -> bytes:
    """The completion as server-sent events: the message in one piece, then why it ended and what it used."""
    choice = whole["choices"][0]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": n} | call for n, call in enumerate(delta["tool_calls"])]
    start = {"index": 0, "delta": delta, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    common = {**whole, "object": "chat.completion.chunk"}
    chunks = [{**common, "choices": choices, "usage": None} for choices in ([start], [end])]
    chunks.append({**common, "choices": []})
    return b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


class Server:
    """Use it as an async context manager; `requests` are the bodies of all completions so far.

    Args:
        calls: tool calls in every conversation; None: 0 to 3.
        delay_s: before each answer.
        keep: keep the requests.
    """

    def __init__(self, calls: int | None = None, delay_s: float = 0.0, *, keep: bool = True) -> None:
        self.calls, self.delay_s, self.keep, self.requests = calls, delay_s, keep, list[dict[str, Any]]()

    async def __aenter__(self) -> "Server":
        self.writers: set[asyncio.StreamWriter] = set()
        self.server = await asyncio.start_server(self.connection, "127.0.0.1", 0, backlog=512)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for writer in self.writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self.writers), return_exceptions=True)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = re.search(rb"content-length: *(\d+)", head)
                content = await reader.readexactly(int(length[1])) if length else b""
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                whole, kind = self.answer(content), b"application/json"
                if re.search(rb'"stream": ?true', content):
                    answer, kind = streamed(whole), b"text/event-stream"
                else:
                    answer = json.dumps(whole).encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
                writer.write(head % (kind, len(answer)) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.writers.discard(writer)
            writer.close()

    def answer(self, content: bytes) -> dict[str, Any]:
        if not content:
            return {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        body = json.loads(content)
        if self.keep:
            self.requests.append(body)
        return completion(body, self.calls)


async def main() -> None:
    calls, delay_s = sys.argv[1:3]
    async with Server(None if calls == "random" else int(calls), float(delay_s), keep=False) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
