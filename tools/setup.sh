#!/usr/bin/env bash
# Installs what building and testing sconce needs and this machine lacks: Debian packages, and LibTorch (the PyPI
# wheels of torch and torchvision) in a virtual environment under build/. Does nothing, quickly, when all is there.
#
# SCONCE_LIBTORCH_DIR=DIR takes a LibTorch of yours for the build; the wheels are still installed, because the tests
# script their models with them.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly torch_version=2.11.0 torchvision_version=0.26.0
readonly packages=(
  g++ make cmake ninja-build ccache mold git pkg-config ca-certificates python3 python3-venv
  llvm-19-dev libtbb-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev graphviz
  libgtest-dev libgmock-dev libbenchmark-dev)

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

missing_packages() {
  dpkg-query --show --showformat '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
    awk '$2 == "installed" { print $1 }' | sort -u >"$installed"
  printf '%s\n' "${packages[@]}" | sort -u | comm -23 - "$installed"
}

install_packages() {
  command -v apt-get >/dev/null || die "this script knows Debian's packages only; install by hand: $*"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "needs root (or sudo) to install: $*"
    as_root=(sudo)
  fi
  say "installing $*"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# The system's Python, else any other that can make virtual environments.
find_python() {
  local candidate
  for candidate in /usr/bin/python3 python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      printf '%s' "$candidate"
      return
    fi
  done
  die "no Python 3.10 or newer with venv found"
}

wheels_are_installed() {
  [ -x build/venv/bin/python ] || return 1
  local found
  found=$(ls -d build/venv/lib/python3*/site-packages/torch-"$torch_version"*.dist-info \
                build/venv/lib/python3*/site-packages/torchvision-"$torchvision_version"*.dist-info 2>/dev/null | wc -l)
  [ "$found" -eq 2 ]
}

installed=$(mktemp)
trap 'rm -f "$installed"' EXIT
mapfile -t missing < <(missing_packages)
[ "${#missing[@]}" -eq 0 ] || install_packages "${missing[@]}"

if ! wheels_are_installed; then
  say "making build/venv with torch $torch_version and torchvision $torchvision_version (about 5 GB)"
  mkdir -p build
  [ -x build/venv/bin/python ] || "$(find_python)" -m venv build/venv
  build/venv/bin/python -m pip install --quiet --disable-pip-version-check \
    "torch==$torch_version" "torchvision==$torchvision_version"
  wheels_are_installed || die "pip installed other versions than asked for"
fi
say "ready"
