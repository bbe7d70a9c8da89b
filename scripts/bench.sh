#!/usr/bin/env bash
# The benchmark tables, on SQLite and then on PostgreSQL 15: a temporary cluster with fsync on, as on
# SQLite.
#
#   scripts/bench.sh KILONOVA BENCH [ARGUMENTS of `kilonova-bench`...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/postgres.sh
PG_DURABLE=yes
trap pg_stop EXIT

export KILONOVA=$1
bench=$2
shift 2
printf 'machine: %s, %s cores, %s\n\n' \
    "$(sed -nE 's/^model name.*: (.*)/\1/p' /proc/cpuinfo | head -1)" "$(nproc)" \
    "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)"
"$bench" "$@"
pg_start
"$bench" --database "$(pg_database bench)" --database-process "$(head -1 "$PG_DIR/data/postmaster.pid")" "$@"
