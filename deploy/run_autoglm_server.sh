#!/usr/bin/env bash
# Starts AutoGLM-Phone-9B on two GPUs.
#
#   MODEL_PATH=/models/AutoGLM-Phone-9B deploy/run_autoglm_server.sh [--check] [OPTIONS OF hotline up]
#
# --check: only the checks before a start (versions, devices, model files, memory); nothing is started.
# CUDA_VISIBLE_DEVICES chooses the GPUs; --port N the port. CONFIG replaces the configuration.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
config="${CONFIG:-autoglm-phone-9b}"

usage() { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
fail() { printf 'error: %s\n' "$1" >&2; exit 2; }

check_only=false
options=()
for argument in "$@"; do
  case "$argument" in
    --check) check_only=true ;;
    -h | --help) usage; exit 0 ;;
    *) options+=("$argument") ;;
  esac
done

[[ -n "${MODEL_PATH:-}" ]] || fail 'MODEL_PATH is not set: the folder with the model'\''s files'
[[ -d "$MODEL_PATH" ]] || fail "MODEL_PATH is $MODEL_PATH, which is no folder"
[[ -f "$MODEL_PATH/config.json" ]] || fail "$MODEL_PATH has no config.json"

hotline="$here/../.venv/bin/hotline"
[[ -x "$hotline" ]] || hotline="$(command -v hotline || true)"
[[ -n "$hotline" ]] || fail 'hotline is not installed: `make setup`, or pip install "hotline-serving[gpu,local]"'

check=("$hotline" check --config "$config" --model-path "$MODEL_PATH")
start=("$hotline" up --config "$config" --model-path "$MODEL_PATH" ${options[@]+"${options[@]}"})

printf 'checks:  %s\n' "${check[*]}"
"${check[@]}"
if "$check_only"; then
  exit 0
fi
printf 'starts:  %s\n' "${start[*]}"
exec "${start[@]}"
