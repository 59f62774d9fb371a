#!/usr/bin/env bash
# Puts on this machine what building and running sconce needs: Debian packages, and LibTorch (the PyPI wheels of torch and
# torchvision) in a virtual environment under build/. Does nothing, quickly, where all is there.
#
#   tools/setup.sh [PACKAGE...]     PACKAGE: further Debian packages, for tasks that need more: the tests name theirs in the Makefile
#
# SCONCE_LIBTORCH_DIR=DIR makes the build take a LibTorch of yours; the wheels are installed all the same, because the
# tests script their models with them.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly wheels=(torch==2.11.0 torchvision==0.26.0)
readonly packages=(
  g++ make cmake ninja-build ccache mold git pkg-config ca-certificates python3 python3-venv
  llvm-19-dev zlib1g-dev libzstd-dev libtbb-dev libdeflate-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev graphviz "$@")

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# What takes long and says nothing says every 25 seconds that it still runs; on a terminal there are bars.
run_long() { if [ -t 1 ]; then "$@"; else tools/pulse.sh setup "$@"; fi; }

missing_packages() {
  local installed
  installed=$(dpkg-query --show --showformat '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
    awk '$2 == "installed" { print $1 }' | sort -u) || true  # it fails when it doesn't know a package
  comm -13 <(printf '%s\n' "$installed") <(printf '%s\n' "${packages[@]}" | sort -u)
}

install_packages() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "run as root, or with sudo installed, to get: $*"
    as_root=(sudo)
  fi
  say "installing with apt-get: $*"
  "${as_root[@]}" apt-get update -qq
  # shellcheck disable=SC2016
  run_long "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    sh -c 'exec apt-get install --yes -qq --no-install-recommends "$@" >/dev/null' sh "$@"
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

# pip writes INSTALLER when a package is complete, so an interrupted installation is seen.
wheels_are_installed() {
  [ -x build/venv/bin/python ] || return 1
  local wheel
  for wheel in "${wheels[@]}"; do
    compgen -G "build/venv/lib/python3*/site-packages/${wheel/==/-}*.dist-info/INSTALLER" >/dev/null || return 1
  done
}

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  mapfile -t missing < <(missing_packages)
  [ "${#missing[@]}" -eq 0 ] || install_packages "${missing[@]}"
else
  say "no Debian system; taken as installed: ${packages[*]}"
fi

if ! wheels_are_installed; then
  say "installing into build/venv (about 5 GB): ${wheels[*]}"
  mkdir -p build
  if [ ! -x build/venv/bin/python ]; then
    python=$(find_python)
    "$python" -m venv --clear build/venv
  fi
  # On a terminal pip shows a bar for each download.
  quiet=--quiet
  [ ! -t 1 ] || quiet=
  run_long build/venv/bin/python -m pip install $quiet --disable-pip-version-check "${wheels[@]}"
  wheels_are_installed || die "pip left no complete ${wheels[*]} in build/venv"
fi
say "ready"
