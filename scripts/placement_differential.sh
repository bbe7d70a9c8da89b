#!/usr/bin/env bash
# Compares upstream Placement 16.0.0 and Kilonova on random provider trees and queries; the answers must be
# equal sets. Upstream comes from the peers' folder beside this repository (or from PEERS_AT), which installs
# it and a private MariaDB on first use.
#
#   scripts/placement_differential.sh KILONOVA [ARGUMENTS of placement_differential.py...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
peer=${PEERS_AT:-../shared/peers}/placement/upstream.sh
if [ ! -x "$peer" ]; then
    echo "placement_differential: no upstream at $peer; set PEERS_AT to the folder of the peers" >&2
    exit 2
fi
kilonova=$1
shift
work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    "$peer" stop default || true
    "$peer" my-stop || true
    rm -rf "$work"
}
trap finish EXIT

"$peer" setup
"$peer" wipe mysql
theirs=$("$peer" start mysql default | tail -1)
printf '[api]\nservices = placement\nauth_strategy = noauth2\n' >"$work/kilonova.conf"
"$kilonova" serve --config "$work/kilonova.conf" --state-dir "$work/state" \
    --listen 127.0.0.1:0 >"$work/out" 2>"$work/log" &
server=$!
ours=
for _ in $(seq 1 100); do
    ours=$(sed -nE 's|^kilonova: ready on (http://[^ ]+).*|\1|p' "$work/out")
    [ -z "$ours" ] || break
    sleep 0.1
done
if [ -z "$ours" ]; then
    cat "$work/log" >&2
    exit 2
fi
python3 scripts/placement_differential.py --theirs "$theirs" --ours "$ours" "$@"
