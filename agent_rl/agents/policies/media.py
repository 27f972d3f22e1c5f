"""A conversation's images, videos and audio clips for a vision model, in the forms that verl uses.

verl reads the media of the prompt from the row's messages; tool results can add more images.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.data.contract import IMAGE
from agent_rl.errors import ConfigError

_IMAGES = ("image", "image_url")
"""Types of the message parts that contain images."""


@dataclass(slots=True)
class Media:
    """A prompt's media, and the processor's output for them."""

    images: list[Any] = field(default_factory=list)
    videos: list[Any] | None = None
    audios: list[Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """verl's `mm_processor_kwargs`."""
    video_payload: Callable[..., Any] = lambda *_: None
    """verl's `build_sglang_video_payload` function."""
    features: dict[str, Any] = field(default_factory=dict)
    """The processor's output for the prompt, except the token ids."""

    def images_of(self, messages: Sequence[ChatMessage]) -> list[Any]:
        """Return the images of a conversation that starts with the prompt's messages."""
        parts = _image_parts(messages)
        return [*self.images[: len(parts)], *(part["image"] for part in parts[len(self.images) :])]

    def shown(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return the prompt's messages with the images that the policy sees, instead of paths and bytes."""
        left = iter(self.images)

        def part_of(part: dict[str, Any]) -> dict[str, Any]:
            image = next(left, None) if part["type"] in _IMAGES else None
            return part if image is None else {"type": "image", "image": image}

        return [
            {**message, "content": [*map(part_of, message["content"])]}
            if isinstance(message["content"], list)
            else message
            for message in messages
        ]

    def render(self, builder: Any, messages: list[ChatMessage], tools: Any, images: list[Any]) -> list[int]:
        """Return the token ids of a whole conversation.

        Raises:
            ConfigError: the conversation has media, but the model accepts only text.
        """
        media = {name: value for name in ("videos", "audios") if (value := getattr(self, name)) is not None}
        if not images and not media:
            return list(builder.build_initial_tokens(messages, tools=tools))
        require_vision(builder)
        return list(
            builder.build_initial_tokens(
                messages, tools=tools, images=images or None, mm_inputs_out=self.features, **media
            )
        )

    def request(self, images: list[Any]) -> dict[str, Any]:
        """Return the arguments for verl's server, except the token ids."""
        if not images and self.videos is None and self.audios is None:
            return {}
        return {
            "image_data": images or None,
            "video_data": self.videos,
            "audio_data": self.audios,
            "mm_processor_output": self.payload(),
            "mm_processor_kwargs": self.options,
        }

    def payload(self) -> Any:
        """Return the prompt's videos in the form that SGLang expects, or None if there are no videos."""
        return self.video_payload(self.videos, self.features)

    def trained(self, images: list[Any]) -> dict[str, Any]:
        """Return the media of a training sequence with these images, in the form that verl's trainer expects."""
        media = {"images": images or None, "videos": self.videos, "audios": self.audios}
        return {name: value for name, value in media.items() if value is not None}


def new_images(builder: Any, messages: Sequence[ChatMessage]) -> list[Any]:
    """Return the images in tool results.

    Raises:
        ConfigError: the model does not accept images.
    """
    images = [part["image"] for part in _image_parts(messages)]
    if images:
        require_vision(builder)
    return images


def require_vision(builder: Any) -> None:
    """Check that the model accepts media.

    Raises:
        ConfigError: the model accepts only text.
    """
    if not builder.supports_multimodal():
        problem = "the conversation has images, videos or audio, which this model does not accept"
        raise ConfigError(
            "actor_rollout_ref.model.path", problem, "Choose a vision model, or rows and tools without media"
        )


def has_media(messages: Sequence[ChatMessage]) -> bool:
    """Whether any message contains something other than text."""
    return any(part["type"] != "text" for message in messages for part in _parts(message))


def with_images(messages: Sequence[ChatMessage], images: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """Return the messages with a row's images at their markers, as verl's data set returns them."""
    from PIL import Image

    stored = (io.BytesIO(image["bytes"]) if image.get("bytes") else image["path"] for image in images)
    parts = ({"type": "image", "image": Image.open(each).convert("RGB")} for each in stored)
    return [
        {**message, "content": [next(parts) if piece == IMAGE else {"type": "text", "text": piece}
                                for piece in re.split(f"({IMAGE})", message["content"]) if piece]}
        for message in messages
    ]  # fmt: skip


def without_images(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages as JSON data with placeholders for images, or no messages if they have videos or audio."""
    if any(part["type"] not in ("text", *_IMAGES) for message in messages for part in _parts(message)):
        return []
    return [{**message, "content": [part if part["type"] == "text" else {"type": "image"} for part in _parts(message)]}
            if _parts(message) else message for message in messages]  # fmt: skip


def _image_parts(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    parts = [part for message in messages for part in _parts(message)]
    return [part for part in parts if part["type"] in _IMAGES]


def _parts(message: ChatMessage) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else []
