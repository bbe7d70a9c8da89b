#!/usr/bin/env bash
# Installs what the project's commands need and this machine lacks.
#
#   scripts/bootstrap.sh build clients postgres nextest     (any of them; none means these four)
#   scripts/bootstrap.sh conformance deny
#
# Safe to run again: what is there is left alone, and then nothing is printed. It never asks. It
# says what it installs and why. Debian packages come by apt-get (through sudo when not root), the
# Python clients go into .venv, upstream's Placement cases into .venv-conformance, and cargo-nextest
# into cargo's own bin folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

RUST_NEEDED=1.95
PG_BIN=${KILONOVA_PG_BIN:-/usr/lib/postgresql/15/bin}

say() { printf 'bootstrap: %s\n' "$*"; }
die() { printf 'bootstrap: %s\n' "$*" >&2; exit 2; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -n "$@" || die "\`sudo $1\` was refused; run this once as root, or allow sudo without a password"
    else
        die "this needs root for \`$*\`, and there is no sudo; run this once as root"
    fi
}

apt_updated=no
# apt_install WHY PACKAGE...
apt_install() {
    local why=$1
    shift
    command -v apt-get >/dev/null || die "$* is missing ($why) and there is no apt-get here; install it by hand"
    say "installing the Debian package(s) $*: $why"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0)
    local log
    log=$(mktemp)
    if [ "$apt_updated" = no ]; then
        as_root "${apt[@]}" update >"$log" 2>&1 || { cat "$log" >&2; die "apt-get update failed"; }
        apt_updated=yes
    fi
    as_root "${apt[@]}" install --no-install-recommends "$@" >"$log" 2>&1 \
        || { cat "$log" >&2; die "apt-get install $* failed"; }
    rm -f "$log"
}

need_cargo() {
    command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null || die "cargo is missing; install Rust $RUST_NEEDED or newer by rustup (rustup.rs)"
    local have
    have=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$RUST_NEEDED" "$have" | sort -V | head -1)" = "$RUST_NEEDED" ] \
        || die "rustc $have is too old; Rust $RUST_NEEDED or newer is needed: rustup update stable"
}

build() {
    need_cargo
    local missing=()
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    command -v make >/dev/null || missing+=(make)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    [ ${#missing[@]} -eq 0 ] || apt_install "SQLite is compiled from C, and Rust links with cc" "${missing[@]}"
}

# A Python that can make virtual environments.
find_python() {
    local python
    for python in python3 /usr/bin/python3; do
        if command -v "$python" >/dev/null && "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
}

# python_env FOLDER NAME PROBE WHY: a virtual environment with what scripts/NAME.txt lists, held by
# scripts/NAME.lock. PROBE is Python that runs only when all of it is there.
python_env() {
    local folder=$1 name=$2 probe=$3 why=$4 wanted python log
    wanted=$(cat "scripts/$name.txt" "scripts/$name.lock" | sha256sum | cut -d' ' -f1)
    if [ "$(cat "$folder/$name.sha256" 2>/dev/null)" = "$wanted" ] \
        && "$folder/bin/python" -c "$probe" 2>/dev/null; then
        return
    fi
    python=$(find_python)
    if [ -z "$python" ]; then
        apt_install "what Python brings gets a virtual environment of its own" python3 python3-venv
        python=$(find_python)
    fi
    [ -n "$python" ] || die "python3 cannot make virtual environments (no ensurepip)"
    say "installing scripts/$name.txt into $folder: $why"
    rm -rf "$folder"
    "$python" -m venv "$folder"
    log=$(mktemp)
    "$folder/bin/pip" install -q --disable-pip-version-check \
        -r "scripts/$name.txt" -c "scripts/$name.lock" >"$log" 2>&1 \
        || { cat "$log" >&2; die "pip install failed"; }
    rm -f "$log"
    echo "$wanted" >"$folder/$name.sha256"
}

clients() { python_env .venv clients 'import openstackclient' 'the demo drives the OpenStack clients'; }

conformance() {
    python_env .venv-conformance conformance 'import gabbi, placement' \
        'the conformance runs take their cases from it'
}

postgres() {
    [ -x "$PG_BIN/initdb" ] && [ -x "$PG_BIN/postgres" ] && return
    [ -z "${KILONOVA_PG_BIN:-}" ] || die "KILONOVA_PG_BIN=$KILONOVA_PG_BIN holds no initdb"
    # Debian's package makes a cluster and starts it; the tests bring their own and need neither.
    local quiet=/etc/postgresql-common/createcluster.d/zz-kilonova-tests.conf
    as_root mkdir -p "${quiet%/*}"
    echo "create_main_cluster = false" | as_root tee "$quiet" >/dev/null
    apt_install "every test runs on PostgreSQL too, in a temporary cluster" postgresql-15
    as_root rm -f "$quiet"
}

nextest() {
    need_cargo
    cargo nextest --version >/dev/null 2>&1 && return
    say "installing cargo-nextest (a few minutes, once): it runs the tests"
    cargo install --locked --quiet cargo-nextest || die "cargo install cargo-nextest failed"
}

deny() {
    need_cargo
    cargo deny --version >/dev/null 2>&1 && return
    say "installing cargo-deny (some minutes, once): it checks the dependencies' licences"
    cargo install --locked --quiet cargo-deny || die "cargo install cargo-deny failed"
}

[ $# -gt 0 ] || set -- build clients postgres nextest
for part in "$@"; do
    case $part in
        build | clients | conformance | postgres | nextest | deny) "$part" ;;
        *) die "unknown part $part; there are build, clients, conformance, postgres, nextest and deny" ;;
    esac
done
