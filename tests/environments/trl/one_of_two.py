"""Two environments, of which only one has a reward of its own; the other one's rows have that of a function."""

train_dataset = [
    {"prompt": [{"role": "user", "content": "Flip the coin."}], "environment": "coin"},
    {"prompt": [{"role": "user", "content": "Roll the die."}], "environment": "die"},
]


class Coin:
    def reset(self, **row):
        self.flips = 0

    def flip(self) -> str:
        """Flip the coin."""
        self.flips += 1
        return "heads"

    def get_reward(self):
        return 1.0 / self.flips if self.flips else 0.0


class Die:
    def reset(self, **row):
        self.rolls = 0

    def roll(self) -> int:
        """Roll the die."""
        self.rolls += 1
        return 4


def rolled(environments, environment, **kwargs):
    return [0.5 * each.rolls if name == "die" else None for each, name in zip(environments, environment, strict=True)]


environment_factory = {"coin": Coin, "die": Die}
reward_funcs = [rolled]

SCRIPT = [
    [
        '<tool_call>\n{"name": "flip", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "flip", "arguments": {}}\n</tool_call>',
        "Heads.",
    ],
    ['<tool_call>\n{"name": "roll", "arguments": {}}\n</tool_call>', "A 4."],
]
