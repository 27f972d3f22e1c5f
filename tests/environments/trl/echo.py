"""A factory that is a function, results that are no text, and a reward that is None without a call."""

train_dataset = [
    {"prompt": [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": "Echo something."}]},
    {"prompt": [{"role": "user", "content": "Say nothing."}]},
]


class EchoEnv:
    def __init__(self, factor):
        self.factor = factor

    def reset(self, **kwargs) -> None:
        self.reward = None

    def echo(self, message: str, tags: list[str] | None = None) -> dict:
        """Echo a message.

        Args:
            message: the message.
            tags: words that come back with it.

        Returns:
            The message and its length.
        """
        self.reward = self.factor * len(message)
        return {"message": message, "tags": tags, "length": len(message)}

    def forget(self):
        """Forget the reward."""
        self.reward = None

    def get_reward(self):
        return self.reward


def environment_factory():
    return EchoEnv(0.5)


SCRIPT = [
    [
        '<tool_call>\n{"name": "forget", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "echo", "arguments": {"message": "hello", "tags": ["a"]}}\n</tool_call>',
        "Done.",
    ],
    ["Nothing."],
]
