"""Functions of the argument `tools` next to the methods of an environment."""

train_dataset = [{"prompt": [{"role": "user", "content": "Multiply 6 by 7 and store it."}]}]


def multiply(a: int, b: int) -> int:
    """Multiply two integers.

    Args:
        a: the first.
        b: the second.

    Returns:
        The product.
    """
    return a * b


async def wait(kind: str = "short") -> str:
    """Wait a little.

    Args:
        kind: how long (choices: ["short", "long"])
    """
    return f"waited ({kind})"


class Store:
    def reset(self, **kwargs):
        self.value = None
        return ""

    def store(self, value: float) -> None:
        """Store a value.

        Args:
            value: the value.
        """
        self.value = value

    def get_reward(self):
        return float(self.value == 42)


tools = [multiply, wait]
environment_factory = Store

SCRIPT = [
    [
        '<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "multiply", "arguments": {"a": 6, "b": 7}}\n</tool_call>',
        '<tool_call>\n{"name": "store", "arguments": {"value": 42}}\n</tool_call>',
        "Stored.",
    ]
]
