"""The `agent-rl` command: each file in this folder, except those with a leading underscore, is a command.

A command is named after its file. The file defines `app`, a `typer.Typer`, whose `rich_help_panel` is the command's
group in `agent-rl --help`. The file imports heavy modules only inside functions, because `agent-rl --help` imports
every file. Exit codes: 0 success; 1 problem found, or failure; 2 unusable command line, configuration or path; 130
interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import os
import re
import resource
import shlex
import sys
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import agent_rl
from agent_rl.cli import _arguments
from agent_rl.errors import AgentRLError, ConfigError, did_you_mean

DEBUG = "--debug"
GROUPS = ("start", "check", "train", "look", "reward", "data")
"""Groups of commands, in the order in which users need them."""
INTERRUPTED = 130
OPEN_FILES = 65_536
"""Limit on open files, enough for thousands of requests; some programs slow down if it is in the millions."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers for a full disk or an exhausted disk quota."""
LIMITS = (*FULL, errno.EMFILE)
"""Error numbers that mean that a limit of the machine was exceeded, not that a path is wrong."""
WIDEST = 60
"""Maximum length, in characters, of a command's summary in the list; a longer summary is cut at its colon."""

KEPT = "\\b\n"
"""The marker at the start of a help paragraph whose line breaks are kept."""

HELP = """
Train LLM agents that use tools. Usage: agent-rl COMMAND ... [--help] [--json]

{commands}
  --version, --debug     Print the version; show the traceback of an error.
  --install-completion   Complete commands, recipes and agents in the shell.
Exit codes: 0 success; 1 problem or failure; 2 wrong usage; 130 interrupted.
"""


class _Folder(TyperGroup):
    """The commands in this folder, imported on demand."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = {path.stem for path in Path(__file__).parent.glob("*.py")} - {Path(__file__).stem}
        return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        app = _module(cmd_name).app
        app.rich_markup_mode = None
        is_group = app.info.no_args_is_help is True  # typer unwraps a group with a single command
        command = (typer.main.get_group if is_group else typer.main.get_command)(app)
        command.name = cmd_name
        _prepare(command)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write a help screen with one line per command, sorted by group."""
        groups: dict[str, list[str]] = {group: [] for group in GROUPS}
        for name in self.list_commands(ctx):
            groups.setdefault(_module(name).app.rich_help_panel or "more", []).append(name)
        lines = []
        for group, names in groups.items():
            for name in names:
                sentence = (self.get_command(ctx, name).help or "").split("\n\n")[0].split(". ")[0].rstrip(".")
                text = sentence if len(sentence) <= WIDEST else sentence.split(":")[0]
                lines.append(f"  {group if name == names[0] else '':7}{name:11}{text}")
        formatter.write(HELP.format(commands="\n".join(lines)).lstrip())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command; the error for an unknown command suggests the most similar name."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise ConfigError(args[0], "there is no such command", did_you_mean(args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            saved = str(interrupt) or "Nothing was saved"
            print(f"\ninterrupted: {saved}. Resume with: {shlex.join(['agent-rl', *sys.argv[1:]])}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


def _module(command: str) -> Any:
    return import_module(f"agent_rl.cli.{command.replace('-', '_')}")


def _prepare(command: Any) -> None:
    r"""Lay out the help, and with `--json` keep everything except the result off stdout.

    Each paragraph of the help becomes one line, which typer wraps; paragraphs marked with `\b` keep their line breaks.
    Arguments are shown in capitals, and their types are shown without bounds.
    """
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(
        f"\b\n{textwrap.dedent(part.removeprefix(KEPT))}" if part.startswith(KEPT) else " ".join(part.split("\n"))
        for part in paragraphs
    )
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.metavar is None:
            parameter.metavar = parameter.name.upper()
        if (display_type := getattr(parameter, "display_type", None)) is not None:
            parameter.display_type = functools.partial(_element_type, display_type)
    if command.callback is not None:
        command.callback = _only_json(command.callback)
    for subcommand in getattr(command, "commands", {}).values():
        _prepare(subcommand)


def _element_type(display_type: Callable[..., str], ctx: Any) -> str:
    """Write `<int>` instead of `<int range>`, and `<str>` instead of `<list[str]>`."""
    return re.sub(r"<(?:list\[)?(\w+)(?:]| range)>", r"<\1>", display_type(ctx))


def _only_json(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Redirect to stderr what tools, scorers and packages print, so that stdout contains only the result."""

    @functools.wraps(callback)
    def run(*args: Any, **options: Any) -> Any:
        if not options.get("as_json"):
            return callback(*args, **options)
        token = _arguments.stdout.set(sys.stdout)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return callback(*args, **options)
        finally:
            _arguments.stdout.reset(token)

    return run


def _print_version(requested: bool) -> None:
    if requested:
        print(agent_rl.__version__)
        raise typer.Exit


app = typer.Typer(cls=_Folder, no_args_is_help=True)


@app.callback()
def _agent_rl(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; accepted anywhere")] = False,
) -> None:
    """Train LLM agents that use tools."""


def main() -> None:
    """Run the command line; print an error and its remedy as one paragraph, after any traceback of the user's code."""
    debug = DEBUG in sys.argv
    if debug:
        sys.argv.remove(DEBUG)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # read by the trainer
    sys.path.insert(0, os.getcwd())  # `python -m`, with which the trainer starts, adds this folder too
    _allow_open_files()
    try:
        sys.exit(app(standalone_mode=False, prog_name="agent-rl"))
    except (AgentRLError, OSError) as error:
        if debug or (isinstance(error, OSError) and error.filename is None and error.errno not in LIMITS):
            raise
        trace = f"{error.trace}\n" if hasattr(error, "trace") else ""  # only a UserCodeError has a trace
        print(f"{trace}error: {_line(error)}", file=sys.stderr)
        unusable = isinstance(error, ConfigError) or (isinstance(error, OSError) and error.errno not in LIMITS)
        sys.exit(2 if unusable else 1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # recognizes typer's usage errors, whose class is not public
            raise
        text = error.format_message()
        if type(error).__name__ != "NoArgsIsHelpError":  # this error's message is the help text itself
            words = getattr(getattr(error, "ctx", None), "command_path", "agent-rl")
            text = f"error: {text}{'' if text.endswith(('.', '?')) else '.'} See {words} --help"
        print(text, file=sys.stderr)
        sys.exit(2)


def _allow_open_files() -> None:
    """Raise the limit on open files as far as permitted, as Ray and SGLang do, because each request opens a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def _line(error: AgentRLError | OSError) -> str:
    if isinstance(error, AgentRLError):
        return str(error)
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"more than {limit:,} files are open. Raise the limit (ulimit -n), or run fewer things at the same time"
    if error.errno in FULL:
        place = f"for {error.filename}" if error.filename else "on a disk that this command writes to"
        return f"no space is left {place} ({error.strerror}). Free some space, and run the command again"
    return f"{error.filename}: {error.strerror}. Pass a file or folder that this command can use"


if __name__ == "__main__":
    main()
