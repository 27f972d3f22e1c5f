"""Blocks with images, from `reset` and from a tool."""

from PIL import Image

VISION = True


class CameraEnv:
    def reset(self, **kwargs):
        self.looks = 0
        return [{"type": "image", "image": Image.new("RGB", (56, 56), "red")}, {"type": "text", "text": "Look left."}]

    def look(self, direction: str) -> list:
        """Look in a direction.

        Args:
            direction: left or right.

        Returns:
            An image and what it shows.
        """
        self.looks += 1
        image = Image.new("RGB", (56, 56), "blue" if direction == "left" else "green")
        return [{"type": "image", "image": image}, {"type": "text", "text": f"You look {direction}."}]

    def compare(self) -> list:
        """Show both directions."""
        left, right = Image.new("RGB", (28, 28), "blue"), Image.new("RGB", (28, 28), "green")
        pictures = [{"type": "image", "image": left}, {"type": "image", "image": right}]
        return [{"type": "text", "text": "Left and right: "}, *pictures, {"type": "text", "text": "That is all."}]

    def describe(self) -> list:
        """Describe the scene."""
        return [{"type": "text", "text": "A room."}]

    def get_reward(self):
        return float(self.looks)


train_dataset = [{"prompt": [{"role": "user", "content": "What do you see? "}]}]

SCRIPT = [
    [
        '<tool_call>\n{"name": "look", "arguments": {"direction": "left"}}\n</tool_call>',
        '<tool_call>\n{"name": "describe", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "compare", "arguments": {}}\n</tool_call>',
        "A blue wall.",
    ]
]
