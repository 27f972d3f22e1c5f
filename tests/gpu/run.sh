#!/usr/bin/env bash
# What one GPU says about this package in half an hour: bash tests/gpu/run.sh OUT [--only NAME ...] [--again NAME ...]
# Offline and resumable: a piece that has ended is not run again. OUT/report.md and OUT/report.json are written after each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for place in .venv-gpu .venv; do
  if [[ -x $place/bin/python ]]; then
    PATH="$PWD/$place/bin:$PATH"
    break
  fi
done
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_DATASETS_OFFLINE=1 PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec python3 -m tests.gpu.plan "$@"
