#!/usr/bin/env bash
# Runs a command and passes its output on. Says every 25 seconds that it still runs, where it says nothing itself.
#
#   tools/pulse.sh NAME COMMAND...     NAME: what the lines call it. The exit status is the command's
set -uo pipefail
readonly name=$1
shift

pass_on() {
  local line status
  while true; do
    IFS= read -r -t 25 line
    status=$?
    if [ "$status" -eq 0 ]; then
      printf '%s\n' "$line"
    elif [ "$status" -gt 128 ]; then  # time is up: `line` holds what has come of the next one
      [ -z "$line" ] || printf '%s\n' "$line"
      printf '%s: still running after %d min %02d s\n' "$name" $((SECONDS / 60)) $((SECONDS % 60))
    else
      [ -z "$line" ] || printf '%s\n' "$line"
      return 0
    fi
  done
}

"$@" 2>&1 | pass_on
exit "${PIPESTATUS[0]}"
