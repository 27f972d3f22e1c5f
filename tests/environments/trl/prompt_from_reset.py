"""No rows: `reset` writes the prompt."""


class SumEnv:
    def reset(self, **kwargs) -> str:
        self.asked, self.correct = 17 + 4, 0.0
        return "What is 17 + 4?"

    def submit(self, result: int) -> str:
        """Submit the result.

        Args:
            result: the sum.
        """
        self.correct = float(result == self.asked)
        return "Noted."

    def get_reward(self) -> float:
        return self.correct


SCRIPT = [['<tool_call>\n{"name": "submit", "arguments": {"result": 21}}\n</tool_call>', "21"]]
