"""Finds and checks the images of a trajectory, which a page requests by number.

Only files in the image folder next to the trace are shown, and only if Pillow reads them as PNG, JPEG, GIF or WebP and
they are not huge. The media type depends on the content, not on the name. SVG and images at URLs are never shown.
"""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_rl.trajectory.trace import find_image

TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
MOST_BYTES = 20 << 20
MOST_PIXELS = 32 << 20
_MOST = 500
"""Maximum number of images to show per trajectory."""
_SIDE = 360
"""Maximum number of pixels on the longer side of an image in a report."""


def names_of(record: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield each message and each result of a record that has images, with the names of its images."""
    left = _MOST
    results = (result for turn in record.get("turns") or () for result in turn.get("results") or ())
    for holder in (*(record.get("prompt") or ()), *results):
        images = holder.get("images")
        names = [name for name in images if isinstance(name, str)][:left] if isinstance(images, list) else []
        left -= len(names)
        if names:
            yield holder, names


def image_type(place: Path, name: str) -> tuple[Path, str]:
    """Return the file of an image and its media type.

    Raises:
        ValueError: the image cannot be shown; the message contains the reason.
    """
    file = find_image(place, name)
    if file is None:
        raise ValueError(f"there is no such file in {place.name}/")
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"the file is larger than {MOST_BYTES >> 20} MiB")
    with _opened(file) as image:
        return file, TYPES[str(image.format)]


def thumbnail(place: Path, name: str) -> str | None:
    """Return an image as a small JPEG in a `data:` URL for a self-contained page, or None if it is not shown."""
    try:
        file, _ = image_type(place, name)
        with _opened(file) as opened:
            image = opened.convert("RGB")
    except (ValueError, OSError, SyntaxError):
        return None
    image.thumbnail((_SIDE, _SIDE))
    image.save(buffer := io.BytesIO(), "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Open an image and check its format and size, without decoding its pixels."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("pillow is not installed: install agent-rl[service]") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the size is checked below
            image = Image.open(file, formats=tuple(TYPES))
    except Image.DecompressionBombError as error:
        raise ValueError("the image has too many pixels") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError("the file is not a PNG, JPEG, GIF or WebP image") from error
    with image:
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"the image has too many pixels: {image.width} by {image.height}")
        yield image
