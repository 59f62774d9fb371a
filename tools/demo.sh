#!/usr/bin/env bash
# The demo of `make run`: loads and runs a real model, compares it with LibTorch, and times LibTorch's executors beside it, on
# this and on other models.
#   tools/demo.sh SCONCE MODELS_DIR PYTHON
set -euo pipefail
sconce=$1
models=$2
python=$3

show() {
  printf '\n\033[1m$ sconce'; printf ' %s' "$@"; printf '\033[0m\n'
  "$sconce" "$@"
}

show run "$models/resnet18.pt" --inputs "$models/resnet18.cases.pt"
show check "$models/resnet18.pt" "$models/resnet18.cases.pt" --calls 2
show bench "$models/resnet18.pt" --inputs "$models/resnet18.cases.pt"
"$python" "$(dirname "$0")/demo_table.py" "$sconce" "$models"
