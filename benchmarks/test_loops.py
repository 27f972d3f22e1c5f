"""CPU time of an agent loop in verl's worker, against verl's own `tool_agent`, and what many at once cost.

Both loops are made by hydra as verl's worker makes them, with the same tokenizer and the same tool, and talk with a
server that answers at once: three turns with a call, then the answer. Rounds alternate in one process; the median of
the rounds counts, of `time.process_time`. Every trajectory has a prompt of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

pytest.importorskip("verl")

import hydra
from verl.utils import hf_tokenizer
from verl.workers.rollout.replica import TokenOutput

from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

PEERS = Path(__file__).parents[1] / "tests/support/bench"

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

ROUNDS, EACH = 7, 100
VERLS, OURS = "tool_agent", "tool_call_agent"
CALL = 'Once more.\n<tool_call>\n{"name": "echo", "arguments": {"text": "number %d"}}\n</tool_call>'
TURNS = [CALL % 1, CALL % 2, CALL % 3, "That was three times."]
LATENCY_S = 0.05
AT_ONCE = 256
IDEAL_S = LATENCY_S * (len(TURNS) + 3)


class Server:
    """Plays the turns to each conversation, as late as it is told to."""

    def __init__(self, tokenizer: Any, seconds: float) -> None:
        self.turns = [[*tokenizer.encode(turn, add_special_tokens=False), tokenizer.eos_token_id] for turn in TURNS]
        self.seconds = seconds
        self.played: dict[str, int] = {}

    async def generate(self, request_id: str, **_: Any) -> TokenOutput:
        """The conversation's next turn."""
        number = self.played.get(request_id, 0)
        self.played[request_id] = number + 1
        if self.seconds:
            await asyncio.sleep(self.seconds)
        ids = self.turns[number]
        return TokenOutput(token_ids=list(ids), log_probs=[-1.0] * len(ids), stop_reason="stop")


class Cost(NamedTuple):
    """Milliseconds of CPU for a trajectory."""

    instantiation: float
    run: float


Make = Callable[[str], Any]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Make]:
    """Gives, for a latency in seconds and the tools, what makes a loop of a name."""
    import verl.experimental.agent_loop.agent_loop as module
    from verl.tools.tool_registry import load_all_tools
    from verl.utils.dataset.rl_dataset import get_dataset_class

    folder = tmp_path_factory.mktemp("model")
    make_model(folder, make_tokenizer(CORPUS, folder), hidden=8, layers=1, heads=2)
    tokenizer = hf_tokenizer(str(folder))

    def worker(seconds: float, tools: list[Any] | None = None) -> Make:
        entry = f"tools: [{{class_name: {PEERS}/slow_echo.py:SlowEcho, config: {{seconds: {seconds}}}}}]"
        (folder / "tools.yaml").write_text(entry)
        overrides = [
            "actor_rollout_ref.rollout.name=sglang",
            f"actor_rollout_ref.model.path={folder}",
            f"actor_rollout_ref.rollout.multi_turn.tool_config_path={folder}/tools.yaml",
            "data.max_prompt_length=1024",
            "data.max_response_length=1024",
        ]
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra.compose("ppo_trainer", overrides)
        if tools is None:
            tools = load_all_tools(f"{folder}/tools.yaml", None)
        server, dataset = Server(tokenizer, seconds), get_dataset_class(config.data)

        def make(name: str) -> Any:
            return hydra.utils.instantiate(
                config=module._agent_loop_registry[name],
                trainer_config=module.DictConfigWrap(config=config),
                server_manager=server,
                tokenizer=tokenizer,
                processor=None,
                hf_model_type="qwen2",
                dataset_cls=dataset,
                data_config=module.DictConfigWrap(config.data),
                tools=module.ToolListWrap(tools),
            )

        return make

    return worker


async def play(loop: Any, number: int) -> None:
    """One trajectory."""
    prompt = [{"role": "user", "content": f"Say three numbers, and then {number}."}]
    output = await loop.run({"temperature": 1.0, "logprobs": True}, raw_prompt=prompt, tools_kwargs={}, extra_info={})
    assert output.num_turns == 8
    assert sum(output.response_mask) == sum(len(turn) for turn in loop.server_manager.turns)


async def one_after_the_other(make: Make, name: str) -> Cost:
    """What a trajectory costs."""
    making = running = 0.0
    for number in range(EACH):
        start = time.process_time()
        loop = make(name)
        made = time.process_time()
        await play(loop, number)
        making, running = making + made - start, running + time.process_time() - made
    return Cost(1e3 * making / EACH, 1e3 * running / EACH)


async def at_once(make: Make, name: str, many: int) -> tuple[float, float]:
    """Seconds on the clock, and milliseconds of CPU for each of the trajectories."""
    loops = [make(name) for _ in range(many)]
    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(play(loop, number) for number, loop in enumerate(loops)))
    return time.perf_counter() - start, 1e3 * (time.process_time() - cpu) / many


def verls_echo() -> list[Any]:
    """verl's own kind of tool: a function."""
    from verl.tools.function_tool import FunctionTool
    from verl.tools.schemas import OpenAIFunctionToolSchema

    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    function = {"name": "echo", "description": "Say it again.", "parameters": parameters}
    schema = OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})

    async def echo(text: str) -> str:
        return text

    return [FunctionTool("echo", echo, schema, is_async=True)]


@pytest.mark.parametrize("kind", ["ours", "verl's"])
def test_a_trajectory_costs_a_third_of_verls_and_half_with_its_instantiation(
    workers: Callable[..., Make], kind: str
) -> None:
    async def rounds() -> dict[str, list[Cost]]:
        make = workers(0.0, None if kind == "ours" else verls_echo())
        costs: dict[str, list[Cost]] = {VERLS: [], OURS: []}
        for _ in range(ROUNDS + 1):  # the first warms up
            for name, of in costs.items():
                of.append(await one_after_the_other(make, name))
        return {name: of[1:] for name, of in costs.items()}

    costs = asyncio.run(rounds())
    run = {name: median(cost.run for cost in of) for name, of in costs.items()}
    whole = {name: median(cost.run + cost.instantiation for cost in of) for name, of in costs.items()}
    print(f"\nCPU of one trajectory with three calls of a tool of {kind}: {run[OURS]:.2f} ms,", end="")
    print(f" verl's loop {run[VERLS]:.2f} ms ({run[OURS] / run[VERLS]:.2f}); with instantiation", end="")
    print(f" {whole[OURS]:.2f} and {whole[VERLS]:.2f} ms ({whole[OURS] / whole[VERLS]:.2f})")
    assert run[OURS] <= run[VERLS] / 3
    assert whole[OURS] <= whole[VERLS] / 2


def test_waiting_is_all_that_many_at_once_take(workers: Callable[[float], Make]) -> None:
    async def rounds() -> dict[str, list[float]]:
        make = workers(LATENCY_S)
        return {name: [(await at_once(make, name, AT_ONCE))[0] for _ in range(4)][1:] for name in (VERLS, OURS)}

    seconds = {name: median(of) for name, of in asyncio.run(rounds()).items()}
    print(f"\n{AT_ONCE} at once, {1e3 * LATENCY_S:.0f} ms for a turn and for a call: {seconds[OURS]:.3f} s,", end="")
    print(f" verl's {seconds[VERLS]:.3f} s, ideal {IDEAL_S:.3f} s ({seconds[OURS] / IDEAL_S:.2f} of it)")
    assert seconds[OURS] <= 1.15 * IDEAL_S


def test_cost_does_not_grow_with_the_number(workers: Callable[[float], Make]) -> None:
    async def rounds() -> dict[int, float]:
        make = workers(0.0)
        await at_once(make, OURS, 64)
        costs = {many: [(await at_once(make, OURS, many))[1] for _ in range(3)] for many in (64, 512, 4096)}
        return {many: median(of) for many, of in costs.items()}

    costs = asyncio.run(rounds())
    print("\nCPU of a trajectory among " + ", ".join(f"{many}: {cost:.2f} ms" for many, cost in costs.items()))
    assert costs[4096] <= 1.5 * costs[64]  # garbage collections visit what is alive
