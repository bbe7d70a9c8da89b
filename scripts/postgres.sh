# A private PostgreSQL 15 cluster in a temporary folder (below PG_PARENT, or /tmp), on a unix socket only. Source this file:
#
#   pg_start            makes and starts it; sets PG_URL (the database `postgres`)
#   pg_database NAME    makes an empty database and prints its URL
#   pg_stop             stops it by its pid and removes the folder
#
# It holds nothing worth keeping, so fsync is off: the tests kill Kilonova, not this cluster.
# PG_DURABLE=yes, set before pg_start, leaves it on: for benchmarks.

PG_BIN=${KILONOVA_PG_BIN:-/usr/lib/postgresql/15/bin}
PG_DIR=
PG_URL=

# PostgreSQL refuses to run as root; the Debian package creates the user postgres.
_pg_as_owner() {
    if [ "$(id -u)" -ne 0 ]; then
        "$@"
    elif command -v runuser >/dev/null; then
        runuser -u postgres -- "$@"
    else
        su -s /bin/sh postgres -c "$(printf '%q ' "$@")"
    fi
}

_pg_url() { printf 'postgresql:///%s?user=postgres&host=%s' "$1" "$PG_DIR"; }

pg_start() {
    # A socket's path holds 107 bytes at most, so a long TMPDIR is not used.
    PG_DIR=$(mktemp -d "${PG_PARENT:-/tmp}/kilonova-pg.XXXXXX")
    chmod 0755 "$PG_DIR"
    [ "$(id -u)" -ne 0 ] || chown postgres "$PG_DIR"
    (
        cd /
        _pg_as_owner "$PG_BIN/initdb" -D "$PG_DIR/data" -U postgres -A trust \
            -E UTF8 --locale=C --no-sync >"$PG_DIR/initdb.log" 2>&1
    ) || { cat "$PG_DIR/initdb.log" >&2; echo "initdb failed" >&2; return 1; }
    _pg_as_owner tee -a "$PG_DIR/data/postgresql.conf" >/dev/null <<EOF
listen_addresses = ''
unix_socket_directories = '$PG_DIR'
max_connections = 400
shared_buffers = 256MB
EOF
    [ "${PG_DURABLE:-no}" = yes ] || _pg_as_owner tee -a "$PG_DIR/data/postgresql.conf" >/dev/null <<EOF
fsync = off
full_page_writes = off
synchronous_commit = off
EOF
    (
        cd /
        _pg_as_owner "$PG_BIN/pg_ctl" -D "$PG_DIR/data" -l "$PG_DIR/data/server.log" \
            -w -t 60 start >/dev/null
    ) || { cat "$PG_DIR/data/server.log" >&2; echo "PostgreSQL did not start" >&2; return 1; }
    PG_URL=$(_pg_url postgres)
}

pg_database() {
    "$PG_BIN/psql" -q -X -v ON_ERROR_STOP=1 -h "$PG_DIR" -U postgres -d postgres \
        -c "CREATE DATABASE $1" >&2
    _pg_url "$1"
}

pg_stop() {
    [ -n "$PG_DIR" ] || return 0
    local pid
    pid=$(head -1 "$PG_DIR/data/postmaster.pid" 2>/dev/null || true)
    if [ -n "$pid" ]; then
        kill -INT "$pid" 2>/dev/null || true
        for _ in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
    fi
    rm -rf "$PG_DIR"
    PG_DIR=
}
