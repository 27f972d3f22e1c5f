"""A dict of factories: the column `environment` selects one, and `reset` does not get it."""

train_dataset = [
    {"prompt": [{"role": "user", "content": "Switch it on."}], "environment": "lamp", "start": "off"},
    {"prompt": [{"role": "user", "content": "Open it."}], "environment": "door", "start": "shut"},
]


class Lamp:
    def reset(self, prompt, start):
        self.state = start
        return f" The lamp is {start}."

    def switch(self) -> str:
        """Switch the lamp."""
        self.state = "on" if self.state == "off" else "off"
        return self.state

    def get_reward(self):
        return float(self.state == "on")


class Door:
    def __init__(self, locked):
        self.locked = locked

    def reset(self, **row):
        self.columns = sorted(row)
        self.state = row["start"]
        return f" Columns: {', '.join(self.columns)}."

    def open(self, key: str | None = None) -> str:
        """Open the door.

        Args:
            key: the key, if you have one.
        """
        if self.locked and not key:
            raise PermissionError("It is locked.")
        self.state = "open"
        return self.state

    def get_reward(self):
        return 2.0 if self.state == "open" else -1.0


environment_factory = {"lamp": Lamp, "door": lambda: Door(locked=True)}

SCRIPT = [
    ['<tool_call>\n{"name": "switch", "arguments": {}}\n</tool_call>', "It is on."],
    [
        '<tool_call>\n{"name": "switch", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "open", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "open", "arguments": {"key": "k"}}\n</tool_call>',
        "It is open.",
    ],
]
