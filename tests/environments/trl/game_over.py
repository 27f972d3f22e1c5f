"""A game that ends by an exception: the policy reads it, and may go on. So it reads all other mistakes."""

train_dataset = [{"prompt": [{"role": "user", "content": "Guess the number."}], "number": 7}]


class GuessEnv:
    def reset(self, number, **kwargs):
        self.number, self.guesses, self.reward, self.done = number, 0, 0.0, False
        return "\nYou have 2 guesses."

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: the guess.

        Returns:
            Whether it is higher or lower.
        """
        if self.done:
            raise ValueError("Game over.")
        self.guesses += 1
        self.done = number == self.number or self.guesses == 2
        if number == self.number:
            self.reward = 1.0
            return "Correct!"
        return "higher" if number < self.number else "lower"

    def get_reward(self):
        return self.reward


environment_factory = GuessEnv

SCRIPT = [
    [
        '<tool_call>\n{"name": "guess", "arguments": {"number": 3}}\n</tool_call>',
        '<tool_call>\n{"name": "guess", "arguments": {"n": 7}}\n</tool_call>',
        '<tool_call>\n{"name": "guess", "arguments": {"number": "seven"}}\n</tool_call>',
        '<tool_call>\n{"name": "guesss", "arguments": {"number": 7}}\n</tool_call>',
        '<tool_call>\n{"name": "guess", "arguments": {"number": 7}}\n</tool_call>\n'
        '<tool_call>\n{"name": "guess", "arguments": {"number": 8}}\n</tool_call>',
        "I give up.",
    ]
]
