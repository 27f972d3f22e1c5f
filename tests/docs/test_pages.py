"""What holds for every page: its links lead somewhere, its commands and keys exist, its configuration can be read."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

from agent_rl.cli.main import app
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.reward import ComponentSettings, ServedModelSettings
from tests.docs.pages import PAGES, ROOT, anchors, blocks, commands, exists, read


@pytest.mark.parametrize("page", [*PAGES, "llms.txt"])
def test_links_lead_to_files_and_headings(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        path, _, heading = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.is_file(), link
        if heading:
            assert heading in anchors(str(target.resolve().relative_to(ROOT))), link


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_flags_exist(page: str) -> None:
    for words, _ in commands(page):
        if words[0] == "agent-rl":
            _check_agent_rl(list(words[1:]))
        for word in words:
            if re.match(r"(?:recipes|data_preprocess|tests|tool_configs)/", word):
                assert (ROOT / word.partition(":")[0]).exists(), words
    targets = [words[1] for words, _ in commands(page) if words[0] == "make" and len(words) > 1]
    for target in targets + re.findall(r"`make ([\w-]+)", read(page)):
        assert re.search(rf"^{target}:", read("Makefile"), re.MULTILINE), target


def _check_agent_rl(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "list_commands") and (words or not command.invoke_without_command):
        command = command.get_command(None, words.pop(0))
    if command.context_settings.get("allow_extra_args"):  # its options are those of a script
        return
    known = {flag for parameter in command.params for flag in parameter.opts}
    assert {word for word in words if re.match(r"--?[a-z]", word)} <= known, words


@pytest.mark.trainer
@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_names_below_agent_rl_are_settings_or_objects(page: str) -> None:
    for name in re.findall(r"(?<![/\w.])agent_rl(?:\.(?:\w+|<\w+>))+", read(page)):
        assert _is_setting(name.split(".")[1:]) or exists(name), name


def _is_setting(parts: list[str]) -> bool:
    below = {"components": ComponentSettings, "models": ServedModelSettings}
    kind: Any = AgentRLSettings
    while parts:
        if parts[0] == "<name>" or (len(parts) > 1 and parts[0] in below):  # any component; a user's name
            kind, parts = below.get(parts[0], ComponentSettings), parts[1 + (parts[0] != "<name>") :]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and parts[0] in kind.model_fields:
            kind, parts = kind.model_fields[parts[0]].annotation, parts[1:]
        else:
            return "dict" in str(kind) or "Any" in str(kind)  # free keys
    return True


@pytest.mark.parametrize("page", PAGES)
def test_configuration_can_be_read(page: str) -> None:
    for text in blocks(page, "yaml"):
        data = yaml.safe_load(text)
        if "agent_rl" in data:
            AgentRLSettings.from_config(data)


def test_every_page_is_listed() -> None:
    contents = read("docs/conf.py")
    assert {page for page in PAGES if page.startswith("docs/guides/") and Path(page).stem not in contents} == set()
    listed = set(re.findall(r"\]\(([^)#]+)\)", read("docs/README.md")))
    for page in PAGES:
        if page.startswith("docs/") and page != "docs/README.md":
            assert page.removeprefix("docs/") in listed, page


def test_the_text_of_the_quickstart_is_what_it_prints() -> None:
    source = read("recipes/quickstart/quickstart.py")
    for label in re.findall(r"^([a-z ]+?)  +[-\d.]+ -> ", read("README.md"), re.MULTILINE):
        assert f'"{label}"' in source, label


def test_the_hooks_of_a_commit_run_what_make_check_runs() -> None:
    check = read("Makefile").partition("\ncheck:")[2].partition("\n\n")[0]
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    commands = re.findall(r"-m ruff (?:format|check)|-m [\w.]+|agent-rl .*|docs/\w+\.py .*", check)
    assert len(commands) == len(hooks) == 7
    assert all(any(command in hook["entry"] for hook in hooks) for command in commands)


def test_an_entry_of_the_changelog_is_one_line() -> None:
    newest = read("CHANGELOG.md").partition("\n## 0.1.0")[0]
    for paragraph in newest.split("\n\n"):
        assert paragraph.startswith("#") or all(line.startswith("- ") for line in paragraph.strip().splitlines())
    assert not re.search(r"^- .*\n\n- ", newest, re.MULTILINE)
