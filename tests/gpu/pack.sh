#!/usr/bin/env bash
# Packs what a GPU machine without an index of packages lacks: bash tests/gpu/pack.sh HAVE.txt, its `pip freeze`.
# Here an index is needed, 12 GB of disk and 20 minutes. ENV=FOLDER has a complete environment, else .venv-gpu is made with
# PYTHON, which must be of the machine's version (3.12 unless it is set). run.sh uses the pieces that lie beside it.
set -euo pipefail
have="$(realpath "$1")"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
env="${ENV:-.venv-gpu}" most=90000000
if [[ ! -x $env/bin/python ]]; then
  "${PYTHON:-python3.12}" -m venv "$env"
  "$env/bin/python" -m pip install --quiet uv
  "$env/bin/uv" pip install --python "$env/bin/python" -e ".[sglang]"
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
PYTHONPATH= "$env/bin/python" tests/gpu/pack.py "$have" "$work/site"
"$env/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$work" .
"$env/bin/python" -m zipfile -e "$work"/agent_rl-*.whl "$work/site"
rm -f tests/gpu/site.tar.xz.*
tar -C "$work/site" --sort=name --owner=0 --group=0 -c . | nice xz -T2 --x86 --lzma2=preset=9e | split -b 30M -d - tests/gpu/site.tar.xz.
total="$(cat tests/gpu/site.tar.xz.* | wc -c)"
ls -l tests/gpu/site.tar.xz.*
if ((total > most)); then
  echo "the site has $total bytes, more than $most: leave more out in tests/gpu/pack.py" >&2
  exit 1
fi
