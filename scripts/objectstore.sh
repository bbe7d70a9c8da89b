# A private S3 server (moto's) on a free port of 127.0.0.1. Source this file:
#
#   s3_start   starts it; sets S3_URL
#   s3_stop    stops it by its pid
#
# It keeps objects in memory and accepts any key. KILONOVA_TEST_S3 names another server to use instead: one that
# accepts the key `key` of the id `id`.

S3_URL=
S3_PID=
S3_LOG=

s3_start() {
    if [ -n "${KILONOVA_TEST_S3:-}" ]; then
        S3_URL=$KILONOVA_TEST_S3
        return 0
    fi
    local python=.venv-objectstore/bin/python port
    [ -x "$python" ] || { echo "no S3 server; scripts/bootstrap.sh objectstore installs it" >&2; return 1; }
    port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    S3_LOG=$(mktemp)
    .venv-objectstore/bin/moto_server -H 127.0.0.1 -p "$port" >"$S3_LOG" 2>&1 &
    S3_PID=$!
    for _ in $(seq 300); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            S3_URL=http://127.0.0.1:$port
            return 0
        fi
        kill -0 "$S3_PID" 2>/dev/null || break
        sleep 0.1
    done
    cat "$S3_LOG" >&2
    echo "the S3 server did not start" >&2
    s3_stop
    return 1
}

s3_stop() {
    [ -z "$S3_PID" ] || { kill "$S3_PID" && wait "$S3_PID"; } 2>/dev/null || true
    [ -z "$S3_LOG" ] || rm -f "$S3_LOG"
    S3_PID= S3_LOG= S3_URL=
}
