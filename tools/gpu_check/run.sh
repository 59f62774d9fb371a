#!/usr/bin/env bash
# Checks and measures sconce on a GPU with one command, building nothing:
#
#   tools/gpu_check/run.sh [--root FOLDER] [--out FOLDER] [--resume FILE] [--only TEXT] [--budget S] [options]
#
# FOLDER is what the preset gpu-carry makes (default: build/gpu-carry): bin/, lib/, tests/. First gpu_check runs its checks
# and the tests, then, in the time that is left, bench/gpu_models.py times models beside their peers. Results go to --out,
# else $OUT, else the current folder: gpu_check.json, gpu_models.json and gpu_models.md. --resume: an earlier
# gpu_check.json, beside which gpu_models.json lies; what they have is not run again. --only: parts whose name contains this,
# and the models if "models" does. LibTorch is the one in SCONCE_LIBTORCH_DIR, else that of python3. Without one, what needs
# none is run all the same.
# Exit: 0 good, 1 something failed or is unfinished, 2 usage.
set -euo pipefail

libtorch_version=2.11.0
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
root=$repository/build/gpu-carry
out=${OUT:-.}
budget=540
only=
resume=
options=()
while (($#)); do
  case $1 in
    --budget) budget=${2:?"--budget wants seconds"}; shift 2 ;;
    --only) only=${2:?"--only wants a part of a name"}; shift 2 ;;
    --resume) resume=${2:?"--resume wants a file"}; shift 2 ;;
    --root) root=${2:?"--root wants a folder"}; shift 2 ;;
    --out) out=${2:?"--out wants a folder"}; shift 2 ;;
    *) options+=("$1"); shift ;;
  esac
done
program=$root/bin/gpu_check
if [[ ! -x $program ]]; then
  echo "gpu_check: $program is missing; make the folder with: cmake --workflow --preset gpu-carry" >&2
  exit 2
fi
mkdir -p "$out"

# Where Python would import torch from, without importing it.
find_libtorch() {
  if [[ -n ${SCONCE_LIBTORCH_DIR:-} ]]; then
    echo "$SCONCE_LIBTORCH_DIR"
    return
  fi
  local script='
import importlib.util, os
spec = importlib.util.find_spec("torch")
print(os.path.dirname(spec.origin) if spec and spec.origin else "")'
  python3 -c "$script" 2>/dev/null || true
}

# Empty when this LibTorch will do, else why not.
why_not_libtorch() {
  local folder=$1
  if [[ -z $folder ]]; then
    echo "no LibTorch: python3 has no torch $libtorch_version, and SCONCE_LIBTORCH_DIR is not set"
  elif [[ ! -e $folder/lib/libtorch_cpu.so ]]; then
    echo "no LibTorch in $folder: lib/libtorch_cpu.so is missing"
  elif [[ ! -e $folder/lib/libtorch_cuda.so ]]; then
    echo "the LibTorch in $folder is built without CUDA: lib/libtorch_cuda.so is missing"
  elif ! grep -qsF "\"$libtorch_version\"" "$folder/include/torch/headeronly/version.h" &&
    ! grep -qsF "'$libtorch_version" "$folder/version.py"; then
    echo "the LibTorch in $folder is not of version $libtorch_version, for which sconce was built"
  fi
}

libtorch=$(find_libtorch)
why_not=$(why_not_libtorch "$libtorch")
libraries=$root/lib
if [[ -n $why_not ]]; then
  echo "gpu_check: $why_not; only what needs no LibTorch is run" >&2
  options+=(--no-libtorch "$why_not")
else
  libraries+=:$libtorch/lib
  echo "LibTorch: $libtorch"
fi
# CUDA's libraries lie in packages beside a torch from PyPI.
if [[ -n $libtorch ]]; then
  for folder in "$libtorch"/../nvidia/*/lib; do
    if [[ -d $folder ]]; then
      libraries+=:$folder
      options+=(--nvrtc-dir "$folder")
    fi
  done
fi

# Containers get the driver from the machine around them, into a folder that the linker may not know: beside nvidia-smi.
if monitor=$(command -v nvidia-smi); then
  prefix=$(dirname "$(dirname "$(readlink -f "$monitor")")")
  for folder in "$prefix/lib64" "$prefix/lib"; do
    if [[ -e $folder/libcuda.so.1 ]]; then
      libraries+=:$folder
    fi
  done
fi

export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
export SCONCE_BIN_DIR=$root/bin SCONCE_TESTS_DIR=$repository/tests
if [[ -z ${SCONCE_MODELS_DIR:-} ]]; then
  SCONCE_MODELS_DIR=$repository/build/models
  if [[ -d $root/models ]]; then
    SCONCE_MODELS_DIR=$root/models
  fi
fi
export SCONCE_MODELS_DIR
if [[ -n $only ]]; then
  options+=(--only "$only")
fi
if [[ -n $resume ]]; then
  options+=(--resume "$resume")
fi

# What the first run does, for whoever reads the log of a failure: which plans, kernels and recordings there are.
if [[ -z $why_not && -x $root/bin/sconce && -z $only ]]; then
  for model in dynamic_mlp layer_norm_mlp; do
    if [[ -e $SCONCE_MODELS_DIR/$model.pt ]]; then
      timeout 60 "$root/bin/sconce" explain "$SCONCE_MODELS_DIR/$model.pt" --inputs "$SCONCE_MODELS_DIR/$model.cases.pt" \
        --device cuda --calls 4 >"$out/first_run.txt" 2>&1 || echo "gpu_check: sconce explain failed, see first_run.txt" >&2
      break
    fi
  done
fi
# Finds accesses out of bounds and races of one plan with kernels, where the tool is there.
if [[ -z $why_not && -z $only ]] && sanitizer=$(command -v compute-sanitizer); then
  for tool in memcheck racecheck; do
    timeout 60 "$sanitizer" --tool "$tool" "$root/tests/gpu_test" --gtest_filter='GpuGridTest.Reduces*:GpuGridTest.Computes*' \
      >"$out/$tool.txt" 2>&1 || echo "gpu_check: compute-sanitizer found something or ran out of time, see $tool.txt" >&2
  done
fi
start=$SECONDS
status=0
# The tests of gpu_check itself need no GPU. Times get what the tests leave, at least two fifths.
"$program" --root "$root" --out "$out" --budget $((budget * 3 / 5)) --first GpuPlanTest --except GpuCheckTest "${options[@]}" ||
  status=$?
if [[ -n $why_not || $status -eq 2 || models != *"$only"* ]]; then
  exit "$status"
fi
if ! python3 -c "import torch, sys; sys.exit(not torch.cuda.is_available())" 2>/dev/null; then
  echo "gpu_check: python3 has no torch that finds a GPU, so no models are timed" >&2
  exit "$status"
fi
models=()
if [[ -n $resume && -e $(dirname "$resume")/gpu_models.json ]]; then
  models+=(--resume "$(dirname "$resume")/gpu_models.json")
fi
python3 "$repository/bench/gpu_models.py" "$root" --out "$out" --budget $((budget - (SECONDS - start))) "${models[@]}" ||
  status=$?
exit "$status"
