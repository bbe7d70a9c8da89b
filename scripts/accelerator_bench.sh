#!/usr/bin/env bash
# The accelerator tables of docs/performance.md: Kilonova on SQLite and on PostgreSQL 15 (a temporary
# cluster with fsync on), and in the same run a real Cyborg with MariaDB, RabbitMQ and Placement, which
# is left out, with the reason, if it cannot be started.
#
#   scripts/accelerator_bench.sh KILONOVA BENCH [ARGUMENTS of `kilonova-bench accelerators`...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/postgres.sh
PG_DURABLE=yes
peer=${PEERS_AT:-../shared/peers}/cyborg
at=${PEERS:-/var/tmp/kilonova-peers}/cyborg # where its scripts keep their files
log=$(mktemp)
against=()

finish() {
    pg_stop
    [ ${#against[@]} -eq 0 ] || bash "$peer/stop.sh" all
    rm -f "$log"
}
trap finish EXIT

without() {
    echo "accelerator_bench: without Cyborg: $1" >&2
    [ ! -s "$log" ] || tail -5 "$log" >&2
}

start_peer() {
    [ -x "$peer/start-services.sh" ] || { without "$peer does not exist"; return; }
    bash "$peer/stop.sh" all
    { timeout 900 bash "$peer/start-deps.sh" && timeout 120 bash "$peer/start-services.sh" noauth; } \
        >"$log" 2>&1 </dev/null || { without "its scripts failed"; bash "$peer/stop.sh" all; return; }
    # Its agent would send reports while statements are counted.
    kill "$(cat "$at/agent.pid")" 2>/dev/null && rm -f "$at/agent.pid"
    local provider ids=() beside=() part
    provider=$(curl -sf -H 'X-Auth-Token: x' -H 'X-User-Id: u' -H 'X-Roles: admin' \
        -H "X-Project-Id: $(printf 'a%.0s' {1..32})" http://127.0.0.1:16666/v2/deployables |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["deployables"][0]["rp_uuid"])' 2>>"$log") ||
        { without "it has no device"; bash "$peer/stop.sh" all; return; }
    for part in api conductor; do ids+=("$(cat "$at/$part.pid")"); done
    for part in mysql rabbit; do beside+=("$(cat "$at/$part.pid")"); done
    against=(
        --against http://127.0.0.1:16666/v2 --against-host cmp1
        --against-provider "$provider"
        --against-processes "$(IFS=,; echo "${ids[*]}")"
        --against-services "$(IFS=,; echo "${beside[*]}")"
        --against-statements "mariadb -uroot -h127.0.0.1 -P13316 -Ne \"show global status where
            Variable_name in ('Com_select', 'Com_insert', 'Com_update', 'Com_delete')\" |
            awk '{n += \$2} END {print n}'"
    )
}

export KILONOVA=$1
bench=$2
shift 2
printf 'machine: %s, %s cores, %s, load %s\n\n' \
    "$(sed -nE 's/^model name.*: (.*)/\1/p' /proc/cpuinfo | head -1)" "$(nproc)" \
    "$(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo)" \
    "$(cut -d' ' -f1 /proc/loadavg)"
start_peer
pg_start
"$bench" accelerators --database "$(pg_database bench)" \
    --database-process "$(head -1 "$PG_DIR/data/postmaster.pid")" "${against[@]}" "$@"
