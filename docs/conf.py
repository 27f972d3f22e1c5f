"""Sphinx configuration of the site that `make docs` builds from the Markdown files of the repository.

The source folder is the repository, so a page can link to a recipe's README or to a YAML file. The site loads nothing
from other servers: the theme has no external fonts or scripts.
"""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

import agent_rl

project = "agent_rl"
author = "The agent_rl authors"
copyright = author
version = release = agent_rl.__version__

extensions = ["myst_parser"]
myst_heading_anchors = 3
root_doc = "README"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "agent_rl/README.md",
    "docs/**.md",
    "recipes/**.md",
    "tests/README.md",
    "tests/gpu/README.md",
]
exclude_patterns = [".*", "outputs", "recipes/*/results", "recipes/llm_judge/judge.md", "**/__pycache__"]

html_theme = "furo"
html_title = "agent_rl"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
pygments_style = "friendly"

CONTENTS = {
    "Start": ["docs/README", "docs/tutorial", "docs/start", "docs/concepts"],
    "Guides": [
        f"docs/guides/{page}"
        for page in (
            "recipes",
            "tools",
            "sandbox",
            "sandbox_promises",
            "agents",
            "trainer",
            "environments",
            "any_agent",
            "rewards",
            "judges",
            "reward_models",
            "reward_service",
            "reward_lab",
            "evaluation",
            "while_it_trains",
            "viewer",
            "traces",
            "doctor",
            "data",
            "algorithms",
            "migration",
            "other_frameworks",
            "coding_agents",
            "nodes",
        )
    ],
    "Recipes": [
        f"recipes/{name}/README"
        for name in (
            "quickstart",
            "lockers",
            "langgraph",
            "verifiers",
            "gsm8k_calculator",
            "svamp_calculator",
            "calculator_agent",
            "math_python",
            "code",
            "text_to_sql",
            "search_qa",
            "tool_calls",
            "service",
            "text_world",
            "llm_judge",
            "bt_reward_model",
            "multi_rm",
            "reward_api",
            "hh_rlhf",
            "code_fusion",
            "reasoning_rm_pointwise",
            "reasoning_rm_pairwise",
            "geo3k",
            "self_judged",
        )
    ],
    "Reference": [
        f"docs/reference/{page}"
        for page in (
            "settings",
            "commands",
            "metrics",
            "built_in",
            "environments",
            "gateways",
            "certificates",
            "turn_credit",
            "judgebench",
            "python",
            "gpu_node",
        )
    ],
    "More": [
        "docs/symptoms",
        "docs/comparison",
        "docs/results",
        "docs/glossary",
        "docs/templates",
        "docs/limits",
        "docs/support",
        "CONTRIBUTING",
        "agent_rl/README",
        "tests/README",
        "tests/gpu/README",
        "SECURITY",
        "CODE_OF_CONDUCT",
        "CHANGELOG",
    ],
}
"""Captions and pages of the side bar; for readers of the repository, docs/README.md lists the pages."""


def _add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the tables of contents to the first page; the plain file does not have them."""
    if page == root_doc:
        for caption, pages in CONTENTS.items():
            entries = "\n".join(f"/{name}" for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def _add_index(app: Sphinx, error: Exception | None) -> None:
    """Write an index.html that redirects to the first page."""
    if error is None:
        text = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        (Path(app.outdir) / "index.html").write_text(text)


def setup(app: Sphinx) -> None:
    """Register the handlers; Sphinx calls this function."""
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _add_index)
