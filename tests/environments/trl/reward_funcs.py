"""No `get_reward`: functions read the environment, the columns, the prompt and the completion."""

train_dataset = [
    {"prompt": [{"role": "user", "content": "Put 2 apples into the basket."}], "wanted": 2},
    {"prompt": [{"role": "user", "content": "Put 1 apple into the basket."}], "wanted": 1},
]


class BasketEnv:
    def reset(self, wanted, prompt, **kwargs):
        assert prompt[0]["role"] == "user"
        self.apples = 0
        return f" There are {self.apples}."

    def put(self, count: int) -> str:
        """Put apples into the basket.

        Args:
            count: how many.
        """
        self.apples += count
        return f"There are {self.apples}."


def right(environments, wanted, **kwargs):
    return [float(environment.apples == count) for environment, count in zip(environments, wanted, strict=True)]


async def calls(completions, prompts, trainer_state, log_metric, **kwargs):
    log_metric("step", float(trainer_state.global_step))
    counts = [sum(len(message.get("tool_calls") or ()) for message in completion) for completion in completions]
    results = [sum(message["role"] == "tool" for message in completion) for completion in completions]
    longer = [len(prompt[-1]["content"]) for prompt in prompts]
    return [count + 10 * result + 0.001 * more for count, result, more in zip(counts, results, longer, strict=True)]


def only_two(wanted, **kwargs):
    return [1.0 if count == 2 else None for count in wanted]


environment_factory = BasketEnv
reward_funcs = [right, calls, only_two]

SCRIPT = [
    ['<tool_call>\n{"name": "put", "arguments": {"count": 2}}\n</tool_call>', "There are 2."],
    ['<tool_call>\n{"name": "put", "arguments": {"count": 2}}\n</tool_call>', "There is 1."],
]
