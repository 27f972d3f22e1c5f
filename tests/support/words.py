"""Words that a native reader stumbles over, in pages, docstrings, messages and comments.

`make check` runs it: each word has a plainer one, which is printed. What a policy or a judge reads is data, and is not
looked at.
"""

import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = re.compile(
    r"^(agent_rl/data/worlds/|agent_rl/agents/folding\.py|agent_rl/evaluation/experiments/|tests/|benchmarks/|CHANGELOG\.md)"
)
"""Texts that rows, prompts and receipts are made of, tests, and history."""
WORDS = {
    r"\bgo(es)? on\b(?! (to|a GPU|the))": "continue, resume",
    r"\bwent on\b": "continued",
    r"\banew\b": "again",
    r"\bfor ever\b": "forever",
    r"\bwins? over\b": "overrides",
    r"\bin place of\b": "instead of",
    r"\bbeside\b": "next to, besides",
    r"\btwins?\b": "CPU version",
    r"(?<![Tt]here )(?<![Tt]hat )\bis no(?! (longer|more|less|matter))\b (?=[a-z])": "is not a",
    r"\b(tokens|requests|calls|turns|seconds|lines) an? (second|minute|step|trajectory|turn|token|run)\b": "per",
    r"\bhis (key|file|code|own|tool|run)": "their",
    r"\bas well as\b(?= .*\bas well as\b)": "and",
    r"\bcomes? to\b(?= (the same|an error|nothing))": "is",
}
"""Patterns, with what to write."""


def main() -> None:
    """Print every place; exit with 1 when there is one."""
    tracked = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    places = [
        f"{name}:{number}: {match[0]!r}: write {better!r}"
        for name in tracked.stdout.split()
        if not DATA.match(name) and (ROOT / name).exists()
        for number, text in _texts(ROOT / name)
        for pattern, better in WORDS.items()
        for match in re.finditer(pattern, text)
    ]
    print(*places, sep="\n")
    sys.exit(bool(places))


def _texts(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page; of a program its strings and comments, with the lines in which they begin."""
    if file.suffix == ".md":
        yield from enumerate(re.sub(r"`[^`\n]*`", "``", file.read_text(encoding="utf-8")).splitlines(), 1)
        return
    with tokenize.open(file) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)):
                text = re.sub(r"`[^`\n]*`", "``", token.string)
                yield from enumerate(text.splitlines(), token.start[0])


if __name__ == "__main__":
    main()
