#!/usr/bin/env bash
# fuzz.sh BODIES [SEED]: sends that many random bodies to every service, on SQLite and PostgreSQL, in one
# process. Without SEED it picks one. It prints the seed; the same seed repeats the same requests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/postgres.sh

trap pg_stop EXIT
pg_start
export KILONOVA_TEST_POSTGRES=$PG_URL KILONOVA_FUZZ_BODIES=$1 KILONOVA_FUZZ_SEED=${2:-$(date +%s%N)}
cargo test --locked -p kilonova-wire-tests --test it fuzz:: -- --nocapture
