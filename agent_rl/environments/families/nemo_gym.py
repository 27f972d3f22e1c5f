"""Resources servers of NeMo Gym: `nemo_gym:blackjack`, `nemo_gym:example_session_state_mgmt`.

The server runs in this family's process, and each episode sends requests to it over loopback with a separate cookie.
Servers with `/seed_session` answer tool calls and judge in `/verify`; Gymnasium-style servers answer messages in
`/step`, and the reward is the sum of the steps' rewards. The rows are the package's examples. A server that needs a
model fails when the reward is tried before the run. Some servers run the policy's code themselves, without a sandbox.

    python -m agent_rl.environments.install nemo_gym
"""

from __future__ import annotations

import json
import random
import sys
import urllib.request
from functools import cache
from http.cookiejar import CookieJar
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from agent_rl.environments.serve import of_split, on_loopback

DEALS = 16
"""Number of rows made from each example of a Gymnasium-style server, which may draw random numbers."""


class _Seeded(random.Random):
    """A generator whose random numbers depend on the row, for servers that accept no seed."""

    seed_of_row = 0

    def __init__(self, x: Any = None) -> None:
        super().__init__(self.seed_of_row if x is None else x)


def start() -> None:
    """Import the modules that servers need."""
    import_module("nemo_gym.base_resources_server")
    random.Random = _Seeded  # type: ignore[misc]


def describe(identifier: str) -> dict[str, Any]:
    """Return the tools that occur in the examples."""
    tools: dict[str, Any] = {}
    for example in _examples(identifier):
        for tool in example["responses_create_params"].get("tools") or ():
            text = tool.get("description") or tool["name"].replace("_", " ")
            tools[tool["name"]] = {"name": tool["name"], "description": text, "parameters": tool["parameters"]}
    _, is_gymnasium = _server(identifier)
    return {"system": "", "tools": [*tools.values()], "methods": ["step"] if is_gymnasium else []}


def rows(identifier: str, split: str, seed: int) -> list[dict[str, Any]]:
    """Return rows whose prompts are the messages in the examples."""
    deals = DEALS if _server(identifier)[1] else 1
    examples = [example for _ in range(deals) for example in _examples(identifier)]
    return [
        {"prompt": [{"role": each["role"], "content": each["content"]} for each in _input(example)]}
        | {"example": example, "seed": seed * len(examples) + number}
        for number, example in of_split(enumerate(examples), split)
    ]


class Session:
    """One episode; its requests send their own cookie."""

    def __init__(self, identifier: str, row: dict[str, Any]) -> None:
        self._address, self._is_gymnasium = _server(identifier)
        self._example, self._output, self._total = row["example"], list[dict[str, Any]](), 0.0
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        _Seeded.seed_of_row = row["seed"]
        random.seed(row["seed"])
        first = json.loads(self._post("reset" if self._is_gymnasium else "seed_session", self._example))
        self.text = first.get("observation") if self._is_gymnasium else None

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool and return the result's text."""
        call = {"type": "function_call", "call_id": f"call_{len(self._output)}", "name": name}
        self._output.append({**call, "arguments": json.dumps(arguments)})
        if self._is_gymnasium:
            result = self._act(self._output[-1])
            texts = [each["output"] for each in (result["info"] or {}).get("tool_outputs", ())]
            return "\n".join([*texts, result["observation"] or ""]).strip(), result["terminated"] or result["truncated"]
        text = self._post(name, arguments, may_fail=True)
        self._output.append({"type": "function_call_output", "call_id": call["call_id"], "output": text})
        return text, False

    def step(self, message: str) -> str | None:
        """Return the answer of a Gymnasium-style server, or None at the end of the episode."""
        result = self._act(_message(message))
        return None if result["terminated"] or result["truncated"] else result["observation"] or ""

    def reward(self, answer: str | None) -> float:
        """Return the sum of the steps' rewards, or the result of `/verify` for the calls and the answer."""
        if self._is_gymnasium:
            return self._total
        output = [*self._output, *([] if answer is None else [_message(answer)])]
        return float(json.loads(self._post("verify", {**self._example, "response": _response(output)}))["reward"])

    def _act(self, item: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self._post("step", {**self._example, "response": _response([item])}))
        self._total += result["reward"]
        return result

    def _post(self, path: str, body: Any, may_fail: bool = False) -> str:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self._address}/{path}", json.dumps(body).encode(), headers)
        try:
            return str(self._opener.open(request).read().decode())
        except HTTPError as error:
            text = error.read().decode()
            if may_fail:
                return text
            raise RuntimeError(f"/{path} answered {error.code}: {text[:500]}") from error


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "message", "role": "assistant", "status": "completed", "content": content}


def _response(output: list[dict[str, Any]]) -> dict[str, Any]:
    about = {"id": "response", "object": "response", "created_at": 0, "model": "policy", "tools": []}
    return {**about, "output": output, "parallel_tool_calls": False, "tool_choice": "auto"}


def _input(example: dict[str, Any]) -> list[dict[str, Any]]:
    messages = example["responses_create_params"]["input"]
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


@cache
def _folder(identifier: str) -> Path:
    folder = Path(import_module("nemo_gym").__file__ or "").parents[1] / "resources_servers"
    known = sorted(path.parent.name for path in folder.glob("*/app.py"))
    if identifier not in known:
        raise ValueError(f"no resources server has this name; known: {', '.join(known)}")
    return folder / identifier


@cache
def _examples(identifier: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_folder(identifier) / "data" / "example.jsonl").read_text().splitlines()]


@cache
def _server(identifier: str) -> tuple[str, bool]:
    """Start a server; return its address, and whether it is a Gymnasium-style server."""
    from nemo_gym.server_utils import BaseServerConfig, ServerClient
    from omegaconf import DictConfig, OmegaConf
    from pydantic import ValidationError

    folder = _folder(identifier)
    sys.path.insert(0, str(folder))  # NeMo Gym itself also runs the server in this folder
    try:
        module = import_module(f"resources_servers.{identifier}.app")
    except ImportError as error:
        raise ValueError(f"it needs another package: {error}") from error
    files: Any = [OmegaConf.to_container(OmegaConf.load(path)) for path in sorted((folder / "configs").glob("*.yaml"))]
    sections = [each.get("resources_servers", {}) for file in files for each in file.values() if isinstance(each, dict)]
    settings: Any = next((each[identifier] for each in sections if identifier in each), {})
    place = {"host": "127.0.0.1", "port": 1}
    client = ServerClient(head_server_config=BaseServerConfig(**place), global_config_dict=DictConfig({}))
    own = [each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__]
    cls: Any = next(each for each in own if hasattr(each, "setup_webserver"))
    try:
        config = cls.model_fields["config"].annotation(**{"name": identifier, **settings, **place})
        server = cls(config=config, server_client=client)
    except ValidationError as error:
        raise ValueError(f"its configuration is incomplete: {error.errors()[0]['loc']}") from error
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    return on_loopback(app), hasattr(server, "step")
