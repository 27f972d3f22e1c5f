"""The images of trajectories, in the folder `trace.images` beside a trace: PNG files that are named by what they show.

In the JSON of a trajectory an image is the name of its file. What many trajectories show (the prompt of a group, the
rows of every epoch) is one file. A file is renamed into its place when it is whole, so a killed run leaves none that is
torn, and neither it nor a reader needs a lock.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_rl.trajectory import Message, ToolResult, Trajectory

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["find_image", "has_images", "image_folder", "image_names", "store_images"]

MOST_PIXELS = 4 << 20
"""Larger images are kept smaller."""
LEVEL = 1
"""The level of zlib's compression."""
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
"""What PNG has and browsers show; other images become RGB."""
_WRITES = 64
"""Images that a process writes between two looks at the size of the folder."""

_sizes: dict[Path, tuple[int, int]] = {}
"""Bytes of a folder when it was last looked at and since, and the images written since."""


def image_folder(trace: str | os.PathLike[str]) -> Path:
    """Where the images of a trace are: `trace.images` of `trace.jsonl`; it need not exist."""
    path = Path(trace)
    return path.with_name(f"{path.stem}.images")


def find_image(folder: Path, name: str) -> Path | None:
    """The file of an image; None: it is not there, or its name leads out of the folder."""
    try:
        file, folder = (folder / name).resolve(), folder.resolve()
        return file if file.is_relative_to(folder) and file.is_file() else None
    except (OSError, ValueError, RuntimeError):  # no name of a file, or a circle of links
        return None


def image_names(trajectory: Trajectory) -> list[str]:
    """The names of a trajectory's images, in the order in which the policy was shown them."""
    return [image for holder in _holders(trajectory) for image in holder.images if isinstance(image, str)]


def has_images(trajectory: Trajectory) -> bool:
    """Whether a trajectory has images that are not stored."""
    return any(not isinstance(image, str) for holder in _holders(trajectory) for image in holder.images)


def drop_images(trajectory: Trajectory) -> None:
    """Remove the images that are not stored."""
    for holder in _holders(trajectory):
        holder.images = [image for image in holder.images if isinstance(image, str)]


def store_images(trace: str | os.PathLike[str], trajectory: Trajectory, *, most_bytes: int | None = None) -> Trajectory:
    """Write the images of a trajectory beside the trace.

    Args:
        trace: the trace.
        trajectory: is not changed.
        most_bytes: of the folder, about; an image that comes later keeps its name and gets no file. None: no limit.

    Returns:
        The trajectory with the names instead of the images; without those that cannot be read.

    Raises:
        OSError: when a file cannot be written.
    """
    if not has_images(trajectory):
        return trajectory
    folder = image_folder(trace)

    def named(holder: Any) -> Any:
        names = [image if isinstance(image, str) else _stored(folder, image, most_bytes) for image in holder.images]
        return replace(holder, images=[name for name in names if name is not None]) if holder.images else holder

    prompt = [named(message) for message in trajectory.prompt]
    turns = [replace(turn, results=[named(result) for result in turn.results]) for turn in trajectory.turns]
    return replace(trajectory, prompt=prompt, turns=turns)


def _holders(trajectory: Trajectory) -> Iterator[Message | ToolResult]:
    yield from trajectory.prompt
    for turn in trajectory.turns:
        yield from turn.results


def _stored(folder: Path, image: Image, most_bytes: int | None) -> str | None:
    """The name of an image, whose file is there now; None: it cannot be read."""
    try:
        pixels = image.tobytes()  # reads the file of one that was only opened
    except (OSError, ValueError, SyntaxError):  # pillow, of a broken file
        return None
    about = f"{image.mode} {image.size}".encode()
    file = folder / f"{hashlib.blake2b(about + pixels, digest_size=16).hexdigest()}.png"
    if not file.exists() and _has_room(folder, most_bytes):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as made:
            try:
                _small(image).save(made, "PNG", compress_level=LEVEL)
                os.replace(made.name, file)
            except BaseException:
                os.unlink(made.name)
                raise
        size, count = _sizes[folder]
        _sizes[folder] = size + file.stat().st_size, count + 1
    return file.name


def _small(image: Image) -> Image:
    found = image if image.mode in _MODES else image.convert("RGB")
    if (pixels := found.width * found.height) > MOST_PIXELS:
        share = (MOST_PIXELS / pixels) ** 0.5
        found = found.resize((max(1, int(found.width * share)), max(1, int(found.height * share))))
    return found


def _has_room(folder: Path, most_bytes: int | None) -> bool:
    """Whether the folder is below its limit; other processes write there too, so it is looked at now and then."""
    size, count = _sizes.get(folder, (0, _WRITES))
    if count >= _WRITES:
        size = sum(each.stat().st_size for each in os.scandir(folder)) if folder.is_dir() else 0
        _sizes[folder] = size, 0
    return most_bytes is None or size < most_bytes
