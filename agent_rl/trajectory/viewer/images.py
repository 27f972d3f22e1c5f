"""The images of a trajectory on a page: each by its number, from the folder next to its file and from nowhere else.

Shown is what pillow reads as PNG, JPEG, GIF or WebP, under the type that its content has, whatever it is called: no
SVG, no address of another host, nothing huge.
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

__all__ = ["image_type", "names_of", "thumbnail"]

TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
MOST_BYTES = 20 << 20
MOST_PIXELS = 32 << 20
_MOST = 500
"""Images of a trajectory that are shown."""
_SIDE = 360
"""Pixels of the longer side of an image in a report."""


def names_of(record: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The messages and results of a record that have images, with their names."""
    left = _MOST
    results = (result for turn in record.get("turns") or () for result in turn.get("results") or ())
    for holder in (*(record.get("prompt") or ()), *results):
        given = holder.get("images")
        names = [name for name in given if isinstance(name, str)][:left] if isinstance(given, list) else []
        left -= len(names)
        if names:
            yield holder, names


def image_type(place: Path, name: str) -> tuple[Path, str]:
    """The file of an image and its media type.

    Raises:
        ValueError: in words, for what is not shown.
    """
    file = find_image(place, name)
    if file is None:
        raise ValueError(f"there is no such file in {place.name}/")
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    with _opened(file) as image:
        return file, TYPES[str(image.format)]


def thumbnail(place: Path, name: str) -> str | None:
    """An image as it is put into a page that needs no other file, small and written again; None: it is not shown."""
    try:
        file, _ = image_type(place, name)
        with _opened(file) as opened:
            image = opened.convert("RGB")
    except (ValueError, OSError, SyntaxError):
        return None
    image.thumbnail((_SIDE, _SIDE))
    image.save(made := io.BytesIO(), "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(made.getvalue()).decode()}"


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """An image whose head has been read."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("pillow is not installed: install agent-rl[service]") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # its size is looked at below
            image = Image.open(file, formats=tuple(TYPES))
    except Image.DecompressionBombError as error:
        raise ValueError("it has too many pixels") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError("it is no PNG, JPEG, GIF or WebP") from error
    with image:
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"it has {image.width} by {image.height} pixels")
        yield image
