#!/usr/bin/env bash
# The placement tables of docs/performance.md: Kilonova with 1,000 hosts beside upstream Placement 16.0.0
# with the same 1,000 (uwsgi, 2 processes, MariaDB; skipped if the peers' folder does not exist), then
# Kilonova with 10,000 hosts.
#
#   scripts/placement_bench.sh KILONOVA BENCH [ARGUMENTS of `kilonova-bench placement`...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
peer=${PEERS_AT:-../shared/peers}/placement/upstream.sh
export KILONOVA=$1
bench=$2
shift 2
printf 'machine: %s, %s cores, %s, load %s\n\n' \
    "$(sed -nE 's/^model name.*: (.*)/\1/p' /proc/cpuinfo | head -1)" "$(nproc)" \
    "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)" \
    "$(cut -d' ' -f1 /proc/loadavg)"
against=()
if [ -x "$peer" ]; then
    "$peer" setup
    "$peer" stop all
    "$peer" wipe mysql
    trap '"$peer" stop all; "$peer" my-stop' EXIT
    theirs=$("$peer" start mysql default | tail -1)
    "$peer" bulkload 1000
    "$peer" stop default # it caches names of traits
    theirs=$("$peer" start mysql default | tail -1)
    against=(--against "$theirs" --against-stats "$peer stats default")
else
    echo "placement_bench: no upstream at $peer; measuring Kilonova only" >&2
fi
"$bench" placement --hosts 1000 "${against[@]}" "$@"
"$bench" placement --hosts 10000 --wide 0 "$@"
