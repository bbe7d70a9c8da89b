#!/usr/bin/env bash
# Checks the dependencies with cargo-deny (scripts/bootstrap.sh deny installs it).
#
#   scripts/deny.sh settled       licences, bans and sources: everything Cargo.lock determines
#   scripts/deny.sh reach         whether the advisory database is reachable, and its age; otherwise why not
#   scripts/deny.sh advisories    known vulnerabilities, unsound and unmaintained crates, from that database
#
# The database is RustSec's, published only with git. It comes from there, or, without access to GitHub, from the
# checkout that KILONOVA_ADVISORY_DB names: a folder with a git repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:$HOME/.cargo/bin"

URL=https://github.com/rustsec/advisory-db
FOLDER=$PWD/target/advisory-db

deny() {
    if cargo deny --version >/dev/null 2>&1; then cargo deny "$@"; else .venv-deny/bin/cargo-deny "$@"; fi
}

# reach: fetches a checkout into FOLDER and prints its age.
reach() {
    local from=${KILONOVA_ADVISORY_DB:-$URL} fetched age
    if fetched=$(mktemp -d) && GIT_TERMINAL_PROMPT=0 timeout 60 git clone -q --depth 1 \
        "$([ -d "$from" ] && echo "file://$from" || echo "$from")" "$fetched/db" 2>"$fetched/why"; then
        rm -rf "$FOLDER"
        mkdir -p "${FOLDER%/*}"
        mv "$fetched/db" "$FOLDER"
    elif [ ! -d "$FOLDER/.git" ]; then
        echo "no advisory database: $from: $(tail -n 1 "$fetched/why"); no earlier copy exists here. Name a" \
            "checkout in KILONOVA_ADVISORY_DB"
        rm -rf "$fetched"
        return 1
    fi
    rm -rf "$fetched"
    age=$((($(date +%s) - $(git -C "$FOLDER" log -1 --format=%ct)) / 86400))
    echo "the advisory database is from $(git -C "$FOLDER" log -1 --format=%cs), $age days old"
}

# cargo-deny fetches with git; this makes git use the checkout instead of the address.
advisories() {
    mkdir -p target
    config=$(mktemp "$PWD/target/deny.XXXX.toml")
    trap 'rm -f "$config"' EXIT
    cat deny.toml - >"$config" <<CONFIG

[advisories]
db-path = "$PWD/target/advisory-dbs"
db-urls = ["$URL"]
git-fetch-with-cli = true
CONFIG
    GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$FOLDER.insteadOf" GIT_CONFIG_VALUE_0="$URL" \
        deny --locked --config "$config" check advisories
}

case ${1:-} in
    settled) deny --locked check bans licenses sources ;;
    reach) reach ;;
    advisories) advisories ;;
    *)
        sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
