import random

from agent_rl import Environment


class Lockers(Environment):
    """Open the locker that you are asked for: look up its code, then open it."""

    def rows(self, split, seed):  # the agent's prompts, and the arguments of reset
        draw = random.Random(f"{split}/{seed}")
        for _ in range(2000 if split == "train" else 256):
            number = 2 * draw.randint(50, 499) + (split == "test")  # no test question occurs in training
            code = draw.randint(1000, 9999)
            yield {"prompt": f"Open locker {number}.", "number": number, "code": code}

    def reset(self, number, code, **row):  # starts a trajectory, whose state is stored on self
        self.number, self.code, self.is_open = number, code, False

    def look_up(self, number: int) -> str:  # a public method is a tool
        """The code of a locker."""
        return f"Its code is {self.code}." if number == self.number else "There is no such locker."

    def open(self, number: int, code: int) -> str:
        """Open a locker with its code."""
        self.is_open = (number, code) == (self.number, self.code)
        return "It is open." if self.is_open else "It stays shut."

    def get_reward(self):  # returns a number, or named parts that become components
        return float(self.is_open)

    def solve(self):  # an optional expert for the cold start: its calls become turns, and its result is the answer
        self.open(self.number, int(self.look_up(self.number).removesuffix(".").split()[-1]))
        return "done"
