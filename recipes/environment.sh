# Sourced by every run.sh: the repository's folder and its environment, or one sentence on what is wrong with it.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH="$PWD/.venv/bin:$PATH"
wrong() {
  echo "error: $1. Run \`make install\` in $PWD, which makes .venv there, or activate the environment that has agent_rl" >&2
  exit 2
}
python -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null ||
  wrong "$(python -V 2>/dev/null || echo "no python") is on PATH, and agent_rl needs Python 3.10, 3.11 or 3.12"
python -c 'import agent_rl.cli.main' 2>/dev/null || wrong "$(command -v python) cannot import agent_rl and what it needs"
