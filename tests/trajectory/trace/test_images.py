"""Images beside a trace: one file for each content, whole or not there, found by name and nowhere else."""

import asyncio
import json
import os

import pytest
from PIL import Image

from agent_rl.trajectory import Message, StopReason, ToolResult, Trajectory, Turn, trace
from agent_rl.trajectory.trace import images as module
from agent_rl.trajectory.trace.images import find_image, image_folder, image_names, store_images


def seen(*images, shown=()):
    turn = Turn("x", results=[ToolResult("", "camera", "Done.", images=list(shown))])
    return Trajectory([Message("user", "<image>", images=list(images))], StopReason.ANSWERED, [turn])


def kept(path):
    with Image.open(path) as image:
        image.load()
        return image


def noise(width=64, height=48, mode="RGB"):
    return Image.frombytes("RGB", (width, height), os.urandom(3 * width * height)).convert(mode)


def test_names_stand_for_images_and_equal_ones_are_one_file(tmp_path):
    path, one, other = tmp_path / "trace.jsonl", noise(), noise()
    given = [seen(one, shown=[other, one.copy()]), seen(one), seen()]
    for each in given:
        trace.append(path, each)
    assert given[0].prompt[0].images == [one]  # as it was
    first, second, third = trace.read(path)
    (a, b, c), (again,) = image_names(first), image_names(second)
    assert a == c == again != b
    assert {a, b} == {file.name for file in image_folder(path).iterdir()}
    for name, image in ((a, one), (b, other)):
        assert kept(find_image(image_folder(path), name)).tobytes() == image.tobytes()
    assert image_names(third) == []
    assert "images" not in path.read_text().splitlines()[2]
    assert Trajectory.from_json(first.to_json()).prompt[0].images == [a]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "F", "I;16", "HSV"])
def test_every_kind_of_image_is_kept(tmp_path, mode):
    image = Image.new(mode, (3, 2)) if mode == "I;16" else noise(3, 2, "L").convert("RGB").convert(mode)
    (name,) = image_names(store_images(tmp_path / "trace.jsonl", seen(image)))
    found = kept(tmp_path / "trace.images" / name)
    assert (found.format, found.size) == ("PNG", (3, 2))
    if mode in module._MODES:
        assert found.convert("RGBA").tobytes() == image.convert("RGBA").tobytes()


def test_images_that_differ_only_in_their_palette_or_transparency_are_different_files(tmp_path):
    red, blue, clear = Image.new("P", (3, 2)), Image.new("P", (3, 2)), Image.new("P", (3, 2))
    for image, colour in ((red, [255, 0, 0]), (blue, [0, 0, 255]), (clear, [0, 0, 255])):
        image.putpalette(colour)
    clear.info["transparency"] = 0
    names = image_names(store_images(tmp_path / "trace.jsonl", seen(red, blue, clear)))
    shown = [kept(tmp_path / "trace.images" / name).convert("RGBA").getpixel((0, 0)) for name in names]
    assert shown == [(255, 0, 0, 255), (0, 0, 255, 255), (0, 0, 255, 0)]


def test_a_huge_image_is_kept_smaller_and_a_broken_one_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_PIXELS", 1000)
    noise().save(tmp_path / "whole.png")
    (tmp_path / "broken.png").write_bytes((tmp_path / "whole.png").read_bytes()[:999])
    with Image.open(tmp_path / "broken.png") as broken:
        (name,) = image_names(store_images(tmp_path / "trace.jsonl", seen(noise(80, 50), broken)))
    assert kept(tmp_path / "trace.images" / name).size == (40, 25)


def test_beyond_its_size_the_folder_grows_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_WRITES", 4)
    names = []
    for _ in range(20):
        names += image_names(store_images(tmp_path / "trace.jsonl", seen(noise()), most_bytes=50_000))
    sizes = [file.stat().st_size for file in (tmp_path / "trace.images").iterdir()]
    assert 50_000 <= sum(sizes) < 50_000 + max(sizes)
    assert len(set(names)) == 20
    assert find_image(tmp_path / "trace.images", names[-1]) is None


def test_a_draft_that_vanishes_while_the_folder_is_measured_is_not_counted(tmp_path):
    (tmp_path / "trace.images").mkdir()
    (tmp_path / "trace.images" / ".draft").symlink_to("renamed by its writer since the folder was listed")
    assert image_names(store_images(tmp_path / "trace.jsonl", seen(noise())))


def test_who_may_read_the_trace_may_read_its_images(tmp_path):
    trace.append(tmp_path / "trace.jsonl", seen(noise()))
    (file,) = (tmp_path / "trace.images").iterdir()
    assert file.stat().st_mode == (tmp_path / "trace.jsonl").stat().st_mode


def test_a_failed_write_leaves_nothing_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    writer = trace.TraceWriter(tmp_path / "trace.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        unstored = asyncio.run(writer.images(given := seen(noise())))
    assert unstored is given
    assert "images" not in json.loads(unstored.to_json())["prompt"][0]
    assert list((tmp_path / "trace.images").iterdir()) == []
    assert "cannot be written (full)" in capsys.readouterr().out
    assert len(image_names(asyncio.run(writer.images(given)))) == 1


@pytest.mark.parametrize(
    "name", ["../secret.png", "/etc/passwd", "link.png", "x\0.png", "", ".", "a" * 5000, "loop.png"]
)
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    folder = tmp_path / "trace.images"
    folder.mkdir()
    (tmp_path / "secret.png").touch()
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    assert find_image(folder, name) is None
