"""The class of TRL's documentation: a counter. Its tools are inherited and static too."""

from datasets import Dataset

train_dataset = Dataset.from_dict(
    {
        "prompt": [[{"role": "user", "content": "Count to 3. "}], [{"role": "user", "content": "Count to 5. "}]],
        "goal": [3, 5],
    }
)


class Base:
    def read(self) -> int:
        """Read the counter.

        Returns:
            The value.
        """
        return self.value


class Counter(Base):
    def reset(self, goal: int, **kwargs) -> str:
        self.value, self.goal = 0, goal
        return f"It is at {self.value}."

    def increment(self, step: int = 1) -> int:
        """Increment the counter.

        Args:
            step: how much to add.

        Returns:
            The new value.
        """
        self.value += step
        return self.value

    @staticmethod
    def double(number: int) -> int:
        """Double a number.

        Args:
            number: the number.
        """
        return 2 * number

    @classmethod
    def name(cls) -> str:
        """It is no tool, because it is not a function on the type."""
        return cls.__name__

    def get_reward(self) -> float:
        return float(self.value == self.goal)


SCRIPT = [
    [
        'I add.\n<tool_call>\n{"name": "increment", "arguments": {"step": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "double", "arguments": {"number": 1}}\n</tool_call>',
        '<tool_call>\n{"name": "increment", "arguments": {"step": 2}}\n</tool_call>',
        '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>',
        "It is at 3.",
    ],
    ['<tool_call>\n{"name": "increment", "arguments": {}}\n</tool_call>', "It is at 5."],
]
