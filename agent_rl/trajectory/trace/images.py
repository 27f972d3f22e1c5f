"""Stores the images of trajectories in the `trace.images` folder next to a trace, as PNG files named by content hash.

In a trajectory's JSON, an image is represented by its file name. An image shared by many trajectories (the prompt of a
group, the rows of every epoch) is stored once. Files are written atomically, by renaming, so a killed run leaves no
incomplete file, and neither writers nor readers need a lock.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from agent_rl.trajectory import Message, ToolResult, Trajectory

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 4 << 20
"""Number of pixels above which an image is scaled down."""
LEVEL = 1
"""zlib compression level."""
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
"""Image modes that PNG supports and browsers show; images of other modes are converted to RGB."""
_WRITES = 64
"""Number of images that a process writes between measurements of the folder's size."""

_sizes: dict[Path, tuple[int, int]] = {}
"""For each folder, its size (last measurement plus later writes) and the number of images written since then."""


def image_folder(trace: str | os.PathLike[str]) -> Path:
    """Return the folder of a trace's images, which may not exist yet: `trace.images` for `trace.jsonl`."""
    path = Path(trace)
    return path.with_name(f"{path.stem}.images")


def find_image(folder: Path, name: str) -> Path | None:
    """Return the file of an image, or None if it is missing or its name points outside the folder."""
    try:
        file, folder = (folder / name).resolve(), folder.resolve()
        return file if file.is_relative_to(folder) and file.is_file() else None
    except (OSError, ValueError, RuntimeError):  # the name is invalid, or symbolic links form a loop
        return None


def image_names(trajectory: Trajectory) -> list[str]:
    """Return the names of a trajectory's images, in the order in which the policy saw them."""
    return [image for holder in _holders(trajectory) for image in holder.images if isinstance(image, str)]


def has_images(trajectory: Trajectory) -> bool:
    """Whether a trajectory has images that have not been stored in files yet."""
    return any(not isinstance(image, str) for holder in _holders(trajectory) for image in holder.images)


def drop_images(trajectory: Trajectory) -> None:
    """Remove all images that are not stored in files from a trajectory."""
    for holder in _holders(trajectory):
        holder.images = [image for image in holder.images if isinstance(image, str)]


def store_images(trace: str | os.PathLike[str], trajectory: Trajectory, *, most_bytes: int | None = None) -> Trajectory:
    """Write the images of a trajectory next to the trace.

    Args:
        trace: the trace.
        trajectory: the trajectory, which is not changed.
        most_bytes: approximate size limit of the folder; images beyond this limit get a name but no file. None means no
            limit.

    Returns:
        The trajectory with file names instead of images; unreadable images are dropped.

    Raises:
        OSError: a file cannot be written.
    """
    if not has_images(trajectory):
        return trajectory
    folder = image_folder(trace)

    def with_names(holder: Any) -> Any:
        names = [image if isinstance(image, str) else _stored(folder, image, most_bytes) for image in holder.images]
        return replace(holder, images=[name for name in names if name is not None]) if holder.images else holder

    prompt = [with_names(message) for message in trajectory.prompt]
    turns = [replace(turn, results=[with_names(result) for result in turn.results]) for turn in trajectory.turns]
    return replace(trajectory, prompt=prompt, turns=turns)


def _holders(trajectory: Trajectory) -> Iterator[Message | ToolResult]:
    yield from trajectory.prompt
    for turn in trajectory.turns:
        yield from turn.results


def _stored(folder: Path, image: Image, most_bytes: int | None) -> str | None:
    """Store an image and return its name, or None if it cannot be read."""
    try:
        pixels = image.tobytes()  # Pillow reads the pixels of an opened file only now
    except (OSError, ValueError, SyntaxError):  # Pillow raises these errors for a broken file
        return None
    about = f"{image.mode} {image.size} {image.getpalette()} {image.info.get('transparency')}".encode()
    file = folder / f"{hashlib.blake2b(about + pixels, digest_size=16).hexdigest()}.png"
    if not file.exists() and _has_room(folder, most_bytes):
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{uuid4().hex}"
        try:
            _small(image).save(draft, "PNG", compress_level=LEVEL)
            os.replace(draft, file)
        finally:
            draft.unlink(missing_ok=True)
        size, count = _sizes[folder]
        _sizes[folder] = size + file.stat().st_size, count + 1
    return file.name


def _small(image: Image) -> Image:
    small = image if image.mode in _MODES else image.convert("RGB")
    if (pixels := small.width * small.height) > MOST_PIXELS:
        share = (MOST_PIXELS / pixels) ** 0.5
        small = small.resize((max(1, int(small.width * share)), max(1, int(small.height * share))))
    return small


def _has_room(folder: Path, most_bytes: int | None) -> bool:
    """Whether the folder is below its size limit; it is measured regularly, as other processes write there too."""
    size, count = _sizes.get(folder, (0, _WRITES))
    if count >= _WRITES:
        size = sum(file.stat().st_size for file in folder.glob("*.png"))  # without drafts, which may be renamed
        _sizes[folder] = size, 0
    return most_bytes is None or size < most_bytes
