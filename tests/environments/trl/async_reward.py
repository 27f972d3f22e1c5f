"""An `async` reward and an `async` tool, whose results come after those of plain ones; None is left out."""

import asyncio

train_dataset = [
    {"prompt": [{"role": "user", "content": "Look up and note it."}], "scored": True},
    {"prompt": [{"role": "user", "content": "Only answer."}], "scored": False},
]


class LookUpEnv:
    def reset(self, scored, **kwargs):
        self.scored, self.notes = scored, []

    async def look_up(self, word: str) -> str:
        """Look up a word.

        Args:
            word: the word.
        """
        await asyncio.sleep(0)
        if word == "missing":
            raise KeyError(word)
        return f"{word}: a word"

    def note(self, text: str) -> str:
        """Note a text.

        Args:
            text: the text.
        """
        self.notes.append(text)
        return f"{len(self.notes)} notes"

    async def get_reward(self):
        await asyncio.sleep(0)
        return 0.25 * len(self.notes) if self.scored else None


def brevity(completions, **kwargs):
    return [-0.01 * len(completion[-1]["content"]) for completion in completions]


environment_factory = LookUpEnv
reward_funcs = brevity

SCRIPT = [
    [
        '<tool_call>\n{"name": "look_up", "arguments": {"word": "cat"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "note", "arguments": {"text": "a"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "look_up", "arguments": {"wrong": "cat"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "look_up", "arguments": {"word": "missing"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "note", "arguments": {"text": "b"}}\n</tool_call>',
        "Two notes.",
    ],
    ["Yes."],
]
