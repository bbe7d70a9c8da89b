#!/usr/bin/env bash
# fuzz.sh BODIES [SEED]: that many random bodies to every service, on SQLite and on PostgreSQL, in
# one process, by a seed of the moment or the one that is given. The seed is printed; with it the same
# requests are made again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/postgres.sh

trap pg_stop EXIT
pg_start
export KILONOVA_TEST_POSTGRES=$PG_URL KILONOVA_FUZZ_BODIES=$1 KILONOVA_FUZZ_SEED=${2:-$(date +%s%N)}
cargo test --locked -p kilonova-wire-tests --test it fuzz:: -- --nocapture
