#!/usr/bin/env bash
# What one GPU says about this package, in about half an hour: bash tests/gpu/run.sh OUT [--only NAME ...] [--again NAME ...]
# Offline and resumable: a piece that has ended is not run again. OUT/report.md and OUT/report.json are written after each.
# Beside it may lie the pieces that pack.sh has made: they are unpacked once, and come before the machine's packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for place in .venv-gpu .venv; do
  if [[ -x $place/bin/python ]]; then
    PATH="$PWD/$place/bin:$PATH"
    break
  fi
done
site=tests/gpu/site
if compgen -G "$site.tar.xz.*" >/dev/null && [[ ! -d $site ]]; then
  mkdir -p "$site.part"
  cat "$site".tar.xz.* | tar -xJ -C "$site.part"
  mv "$site.part" "$site"
fi
if [[ -d $site ]]; then
  here="$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
  if [[ "$(<"$site/python-version")" != "$here" ]]; then
    echo "$site is for Python $(<"$site/python-version"), and python3 is $here: pack it again with PYTHON=python$here" >&2
    exit 1
  fi
  PYTHONPATH="$PWD/$site${PYTHONPATH:+:$PYTHONPATH}"
  if [[ ${VERL_PLATFORM:-} != cpu ]]; then # the kernels of SGLang's usual attention on this GPU, 1 GB, are not packed
    for rollout in reward.reward_model.rollout actor_rollout_ref.rollout; do
      backend="++$rollout.engine_kwargs.sglang.attention_backend=triton"
      AGENT_RL_GPU_OVERRIDES="$backend${AGENT_RL_GPU_OVERRIDES:+ $AGENT_RL_GPU_OVERRIDES}"
    done
    export AGENT_RL_GPU_OVERRIDES
  fi
fi
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_DATASETS_OFFLINE=1 PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec python3 -m tests.gpu.plan "$@"
