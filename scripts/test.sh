#!/usr/bin/env bash
# Runs every test, on SQLite and on PostgreSQL 15. Steps (default: all):
#
#   lint        formatting, the rules of docs/ARCHITECTURE.md that hold, and clippy with warnings denied
#   deny        the dependencies' licences, sources, bans and advisories; advisories are skipped, with the
#               reason, if their database is not reachable
#   unit        the workspace's tests; those that need a database run on both
#   docs        the examples in the documentation
#   placement   upstream's own Placement cases, on both databases, and every osc-placement command;
#               the cases are skipped without their runner (see the script)
#   accelerator every accelerator command of both client packages, all methods of openstacksdk
#   compute     every compute command of the stock client, its requests compared with recordings (skipped
#               without them), all methods of openstacksdk; on both databases
#   browser     the console of a simulated guest and the dashboard in a headless Chromium, the dashboard also in
#               Firefox; skipped, with the reason, where one cannot be installed
#   image       the image commands of openstackclient and glanceclient; images and snapshots between two
#               controllers with one object store
#   network     the network commands of the client, and servers on networks, on both databases
#   tls         the client's network commands over TLS and behind haproxy; with KILONOVA_WHOLE=1 also the
#               compute and accelerator commands and the demo, both ways
#   quickstart  the commands of README.md and docs/quickstart.md, exactly as written
#   demo        the main story with the stock clients, on both databases
#   operators   server explain, host drain and doctor, on both databases
#   anywhere    two controllers behind haproxy, with hosts as processes: every operation that waits for a host,
#               requested at one controller and carried out at another
#   chaos       random kill -9 of a real `kilonova serve` under the load of every server operation, on
#               both databases; also while an external Nova binds devices and hosts report devices that
#               come and go
#   controllers two controllers behind haproxy on a PostgreSQL of their own: rolling restart, one that is stopped for
#               longer than its lease, and strikes at controllers, hosts, database and connections; with
#               KILONOVA_PREVIOUS they are upgraded from that program, the version before, one after the other
#   failover    PostgreSQL hangs, and its standby is promoted under a load of boots: with synchronous
#               replication nothing acknowledged is lost; with asynchronous replication a loss is counted
#   copy        kilonova database copy: a cloud that is killed in the middle of every operation continues on a
#               copy of its database, from SQLite to PostgreSQL and back
#   restore     an older dump of a running cloud is restored, on both databases: no guest is touched, and doctor
#               reports those that no row names
#   upgrade     this build takes over from the program that KILONOVA_OLD names, of any earlier version, killed in the
#               middle of every operation, on both databases; not run unless KILONOVA_OLD is set
#   cloud       servers with tokens of a real Keystone, images of a real Glance, ports of a real Neutron and volumes of a
#               real Cinder; skipped unless KILONOVA_CLOUD is set, because the run changes the cloud that the OS_*
#               variables name (scripts/cloud_stage.py)
#   lab         the virtual hosts of docs/lab.md; skipped, with the reason, if the machine cannot run
#               them; all scenarios if the step is named, otherwise the four of docs/lab.md
#
# `make test-long` raises these repetitions:
#
#   KILONOVA_KILLS        kills of the whole system on each database (default 10); one and a half times as many
#                         hit the controller or hosts separately, half as many hit both while devices are bound
#   KILONOVA_STRIKES      strikes at two controllers (default 6)
#   KILONOVA_LONGEST      the longest stop of a controller by a strike, in seconds (default 5)
#   KILONOVA_CRASHES      all: every case of a long series on each database, in the unit step, such as the crashes of the crash
#                         matrix; by default the databases share them (crates/testkit/src/share.rs)
#   KILONOVA_NUMA_STEPS   random steps of pinned guests on each database, in the unit step (default 30)
#   KILONOVA_CLAIMS       concurrent claims on each database, in the unit step
#   KILONOVA_FUZZ, KILONOVA_FUZZ_BODIES
#                         random requests, in the unit step
#   KILONOVA_NEXTEST      profile of .config/nextest.toml for the unit step (default ci); `long` gives these tests more time
#
# KILONOVA_CLIPPY_BUILDS=yes compiles the tests with clippy, so that each dependency is compiled once; .ci/run sets it.
# KILONOVA_INSTALL names parts of scripts/bootstrap.sh that are installed while the first steps compile; `make test` sets it.
#
# The steps after `docs` hardly use a core, so KILONOVA_LANES of them (default 3) run at a time; the output of each is
# printed when it ends.
#
# A failed step does not stop the later ones. The last line is the summary; the exit code is 1 if anything failed.
# KILONOVA names a program to use instead of building one. The script builds without optimization, like
# the tests: most of it is then already built, and integer overflow is checked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/postgres.sh
. scripts/objectstore.sh

export PATH="$PATH:$HOME/.cargo/bin" CARGO_TERM_COLOR=never
KILLS=${KILONOVA_KILLS:-10}
LANES=${KILONOVA_LANES:-3}
PROFILE=${KILONOVA_NEXTEST:-ci}
# The program that the environment names, if any; otherwise one is built.
program_built=${KILONOVA:+yes}
KILONOVA=${KILONOVA:-target/debug/kilonova}
SCRATCH=$(mktemp -d)
TALLY=$SCRATCH/tally WRONG=$SCRATCH/wrong FLAKY=$SCRATCH/flaky
second= output= installing=
declare -A running=()
: >"$TALLY" >"$WRONG" >"$FLAKY"

finish() {
    local pid
    end_second
    [ -z "$installing" ] || wait "$installing" || true
    for pid in "${!running[@]}"; do { kill -INT -- "-$pid" && wait "$pid"; } 2>/dev/null || true; done
    pg_stop
    s3_stop
    rm -rf "$SCRATCH" "/dev/shm/kilonova-test.$$"
}
trap finish EXIT

# The process group: the step's own children end with it.
end_second() { [ -z "$second" ] || { kill -INT -- "-$second" && wait "$second"; } 2>/dev/null || true; }

title() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }
# add PASSED FAILED SKIPPED: appends to a file, because some steps run concurrently.
add() { echo "$1 $2 $3" >>"$TALLY"; }
# number TEXT WORD: the number before the word, or 0.
number() { grep -oE "[0-9]+ $2" <<<"$1" | head -1 | cut -d' ' -f1 || true; }

# free_memory: the kilobytes that fit into /dev/shm and into the memory.
free_memory() {
    local folder memory
    folder=$(df --output=avail -k /dev/shm 2>/dev/null | tail -1 || true)
    memory=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
    echo $((${folder:-0} < ${memory:-0} ? ${folder:-0} : ${memory:-0}))
}

# A folder for the tests' databases, which need not be on a disk: in memory, if there is enough of it and
# programs may run there, because some tests write programs.
memory() {
    local folder=/dev/shm/kilonova-test.$$
    if [ "$(free_memory)" -gt 2000000 ] && mkdir -m 0755 "$folder" \
        && printf '#!/bin/sh\n' >"$folder/runs" && chmod +x "$folder/runs" && "$folder/runs" 2>/dev/null; then
        echo "$folder"
    else
        echo "${TMPDIR:-/tmp}"
    fi
}

# gate NAME COMMAND...: a check that passes or fails.
gate() {
    local name=$1 log
    shift
    log=$(mktemp "$SCRATCH/gate.XXXX")
    if "$@" >"$log" 2>&1; then
        echo "ok: $name"
        add 1 0 0
    else
        cat "$log"
        add 0 1 0
        head -n 40 "$log" | wrong "$name"
    fi
}

lint() {
    title "lint: formatting and clippy"
    gate "formatting" cargo fmt --all --check
    gate "the rules of docs/ARCHITECTURE.md by cargo xtask check" \
        cargo xtask check dependencies layers headers prose microversions
    # Every target is a test, a program or an example, so nextest compiles all of them.
    if [ -n "$clippy_builds" ]; then
        gate "clippy, warnings denied, while it compiles the tests" \
            cargo nextest run --no-run --locked --workspace --all-targets
    else
        gate "clippy, warnings denied" cargo clippy --workspace --all-targets --locked -- -D warnings
    fi
}

deny() {
    local why
    title "deny: the dependencies"
    gate "licences, bans and sources" scripts/deny.sh settled
    if why=$(scripts/deny.sh reach 2>&1); then
        echo "$why"
        gate "advisories" scripts/deny.sh advisories
    else
        echo "skipped: advisories: $why"
        add 0 0 1
    fi
}

unit() {
    title "unit: the workspace's tests on SQLite and PostgreSQL"
    local log=$SCRATCH/unit.log ok=yes line
    object_store || true
    TMPDIR=$(memory) KILONOVA_TEST_POSTGRES=$PG_URL ${S3_URL:+env KILONOVA_TEST_S3="$S3_URL"} cargo nextest run --locked --workspace --profile "$PROFILE" \
        --no-tests fail 2>&1 | tee "$log" || ok=no
    line=$(grep -E '^ *Summary \[' "$log" | tail -1 || true)
    # Tests that passed without checking anything, because this machine lacks what they need.
    local idle=0
    python3 scripts/skips.py "target/nextest/$PROFILE/junit.xml" "$SCRATCH/idle" "$FLAKY" && idle=$(cat "$SCRATCH/idle")
    count "$line" "$ok" "$(($(number "$line" passed) - idle))" "$(number "$line" failed)" \
        "$(($(number "$line" skipped) + idle))"
    { grep -E -A 3 '^ +(TRY [0-9]+ )?(FAIL|TIMEOUT|SIG[A-Z]+) \[|panicked at' "$log" || true; } | wrong "unit"
    # nextest counts tests that timed out separately.
    add 0 "$(($(number "$line" 'timed out') + 0))" 0
}

docs() {
    title "docs: the examples in the documentation"
    local log=$SCRATCH/docs.log ok=yes p f s
    cargo test --locked --workspace --doc 2>&1 | tee "$log" | grep -vE '^$|^running 0|^test result: ok. 0' || true
    grep -qE '^error' "$log" && ok=no
    p=$(total "$log" passed) f=$(total "$log" failed) s=$(total "$log" ignored)
    count "seen" "$ok" "$p" "$f" "$s"
    { grep -E -A 3 '^test .* FAILED|panicked at|^error' "$log" || true; } | wrong "docs"
}

# total LOG WORD: the sum of the numbers before the word over all `test result` lines.
total() { { grep '^test result' "$1" || true; } | grep -oE "[0-9]+ $2" | awk '{n += $1} END {print n + 0}'; }

# count LINE OK PASSED FAILED SKIPPED: a step that failed without naming a failure counts as one failure.
count() {
    local p=${3:-0} f=${4:-0} s=${5:-0}
    if [ "$2" = no ] || [ -z "$1" ]; then
        [ "${f:-0}" -gt 0 ] || f=1
    fi
    add "${p:-0}" "${f:-0}" "${s:-0}"
}

# wrong STEP: keeps the first lines of a step's failures, to repeat them at the end of the output.
wrong() { grep -v "^ *$" | cut -c1-300 | head -n 12 | sed "s|^|$1: |" >>"$WRONG" || true; }

# script NAME ARGUMENTS...: a Python step that writes `passed failed [skipped]` to the file that
# --counts names.
script() {
    local name=$1 counts log ok=yes p=0 f=0 s=0
    shift
    counts=$(mktemp "$SCRATCH/counts.XXXX")
    log=$(mktemp "$SCRATCH/log.XXXX")
    set -- python3 "scripts/$name.py" --kilonova "$KILONOVA" --counts "$counts" "$@"
    # On a terminal, its output is shown at once.
    if [ -t 1 ]; then "$@" || ok=no; else "$@" 2>&1 | tee "$log" || ok=no; fi
    [ -s "$counts" ] && read -r p f s <"$counts"
    count "$p" "$ok" "$p" "$f" "${s:-0}"
    [ "$ok" = yes ] || { grep -A 5 '✗' "$log" || tail -n 20 "$log"; } | wrong "$name"
}

# beside NAME ARGUMENTS...: like `script`, in the background, since a step uses hardly more than one
# core; `told TITLE` waits for its end and prints its output.
beside() {
    output=$(mktemp "$SCRATCH/beside.XXXX")
    # With job control it is a process group and can be interrupted.
    set -m
    script "$@" >"$output" 2>&1 &
    second=$!
    set +m
}
told() {
    wait "$second" || add 0 1 0
    second=
    title "$1"
    cat "$output"
}

# lanes STEP...: runs the steps, $LANES at a time, and prints the output of each when it ends.
lanes() {
    local step
    for step in "$@"; do
        [ "${#running[@]}" -lt "$LANES" ] || lane_ends
        set -m
        (
            trap end_second EXIT
            trap 'exit 1' INT TERM
            # A lane must not end the steps of the other lanes.
            running=()
            "$step"
        ) >"$SCRATCH/lane.$step" 2>&1 &
        running[$!]=$step
        set +m
        [ ! -t 1 ] || title "started: $step"
    done
    while [ "${#running[@]}" -gt 0 ]; do lane_ends; done
}

# Waits until one of the running steps ends.
lane_ends() {
    local pid ok=yes
    wait -n -p pid "${!running[@]}" || ok=no
    cat "$SCRATCH/lane.${running[$pid]}"
    [ "$ok" = yes ] || { add 0 1 0; echo "the step ended early" | wrong "${running[$pid]}"; }
    unset "running[$pid]"
}

program() {
    [ "$program_built" = yes ] && return
    title "build: $KILONOVA"
    # Built with the workspace: alone they would have other features than in the unit step, and be built again.
    if ! cargo build --locked --workspace --bin kilonova --bin kilonova-agent; then
        add 0 1 0
        return 1
    fi
    program_built=yes
}

placement() {
    local profile databases=()
    program || return 0
    for profile in default secure_rbac open_policy cors; do
        databases+=(--database "$(pg_database "placement_$profile")")
    done
    beside placement_conformance "${databases[@]}"
    title "placement: upstream's cases on SQLite"
    script placement_conformance
    told "placement: upstream's cases on PostgreSQL"
    title "placement: every command of osc-placement"
    script placement_clients
}

accelerator() {
    program || return 0
    beside accelerator_clients --sdk --database "$(pg_database accelerator_clients)"
    title "accelerator: every command and method of the clients, on SQLite"
    script accelerator_clients
    told "accelerator: every method of openstacksdk on PostgreSQL"
}

compute() {
    program || return 0
    beside compute_clients --database "$(pg_database compute_clients)"
    title "compute: every command and method of the clients, on SQLite"
    script compute_clients
    told "compute: the same on PostgreSQL"
    title "compute: consoles, with one controller and with two"
    script consoles
    script consoles --database "$(pg_database consoles)"
}

# The console and the dashboard as a user sees them.
browser() {
    local why
    title "browser: the display of a simulated guest in Chromium"
    if ! why=$(scripts/bootstrap.sh browser 2>&1); then
        echo "skipped: Chromium or its driver cannot be installed: $(tail -n 1 <<<"$why")"
        add 0 0 1
        return 0
    fi
    [ -z "$why" ] || echo "$why"
    program || return 0
    script console_browser
    title "browser: the dashboard in Chromium"
    script dashboard_browser
    title "browser: the dashboard in Firefox"
    if ! why=$(scripts/bootstrap.sh firefox 2>&1); then
        echo "skipped: Firefox cannot be installed: $(tail -n 1 <<<"$why")"
        add 0 0 1
        return 0
    fi
    [ -z "$why" ] || echo "$why"
    script dashboard_firefox
}

network() {
    program || return 0
    beside network_clients --database "$(pg_database network_clients)"
    title "network: networks, ports and servers on them by the client, on SQLite"
    script network_clients
    told "network: the same on PostgreSQL"
}

tls() {
    local name scripts=(network_clients)
    program || return 0
    [ -z "${KILONOVA_WHOLE:-}" ] || scripts+=(compute_clients accelerator_clients demo)
    for name in "${scripts[@]}"; do
        beside "$name" --haproxy
        title "tls: $name over TLS"
        script "$name" --tls
        told "tls: $name behind haproxy"
    done
}

quickstart() {
    program || return 0
    title "quickstart: the commands of README.md and docs/quickstart.md"
    script quickstart
}

# object_store: starts the S3 server once. Without it, tests of it are skipped in part.
object_store() { [ -n "$S3_URL" ] || s3_start; }

image() {
    program || return 0
    title "image: images by openstackclient and glanceclient"
    script image_clients
    title "image: the memory of a controller while a large image passes through it"
    script image_memory --size 256
    if object_store; then
        script image_memory --size 256 --s3 "$S3_URL"
    else
        add 0 1 0
    fi
    title "image: two controllers with one object store, on PostgreSQL"
    if object_store; then
        script image_controllers --s3 "$S3_URL" --database "$(pg_database image_controllers)"
    else
        add 0 1 0
    fi
}

demo() {
    program || return 0
    beside demo --brief --database "$(pg_database demo)"
    title "demo on SQLite"
    script demo
    told "demo on PostgreSQL"
}

operators() {
    program || return 0
    beside operators --database "$(pg_database operators)"
    title "operators: explain, drain and doctor on SQLite"
    script operators
    told "operators: explain, drain and doctor on PostgreSQL"
}

anywhere() {
    program || return 0
    title "anywhere: requests and hosts at different controllers behind haproxy"
    script anywhere --database "$(pg_database anywhere)"
}

chaos() {
    program || return 0
    chaos_both chaos "$KILLS" "kills"
    chaos_both chaos_apart $((KILLS * 3 / 2)) "kills of controller or hosts" --split
    chaos_both chaos_devices $((KILLS / 2)) "kills while devices are bound over the API" --split --accelerators
}

# chaos_both DATABASE KILLS WHAT ARGUMENTS...: on both databases.
chaos_both() {
    local database=$1 kills=$2 what=$3
    shift 3
    beside chaos "$kills" "$@" --database "$(pg_database "$database")"
    title "chaos: $kills $what on SQLite"
    script chaos "$kills" "$@"
    told "chaos: $kills $what on PostgreSQL"
}

# Two controllers; with KILONOVA_PREVIOUS, both begin with that program. Versions further apart do not run side by side.
controllers() {
    program || return 0
    local strikes=${KILONOVA_STRIKES:-6}
    title "controllers: two behind haproxy: rolling restart, a stopped one, and $strikes strikes"
    script controllers --kills "$strikes" --longest "${KILONOVA_LONGEST:-5}" --minutes $((strikes + 5)) \
        ${KILONOVA_PREVIOUS:+--old "$KILONOVA_PREVIOUS"}
}

# A cloud that is killed in the middle of every operation continues on a copy of its database.
copy() {
    program || return 0
    local source
    source=$(pg_database copy_source)
    beside upgrade "$KILONOVA" --database "$source" --copy-to sqlite
    title "copy: from SQLite to PostgreSQL"
    script upgrade "$KILONOVA" --copy-to "$(pg_database copy_target)"
    told "copy: from PostgreSQL to SQLite"
}

# An older dump is restored while hosts are ahead of it.
restore() {
    program || return 0
    beside restore --database "$(pg_database restore)"
    title "restore: an older dump on SQLite"
    script restore
    told "restore: the same on PostgreSQL"
}

failover() {
    program || return 0
    title "failover: PostgreSQL hangs, and its synchronous standby is promoted"
    script failover
    title "failover: the loss with asynchronous replication"
    script failover --asynchronous
}

upgrade() {
    program || return 0
    beside upgrade "$KILONOVA_OLD" --database "$(pg_database upgrade)"
    title "upgrade: from $KILONOVA_OLD on SQLite"
    script upgrade "$KILONOVA_OLD"
    told "upgrade: the same on PostgreSQL"
}

# The services of a real cloud, which the environment names as for the client.
cloud() {
    title "cloud: beside a real Keystone, Glance, Neutron and Cinder"
    if [ -z "${KILONOVA_CLOUD:-}" ]; then
        echo "skipped: KILONOVA_CLOUD is not set, so no cloud may be changed"
        add 0 0 1
        return 0
    fi
    program || return 0
    script cloud
    script cloud_ports
    script cloud_qos
    script cloud_volumes
    script cloud_kills
}

# Always: the ground, joining, devices and migrations; all scenarios if the step is named.
lab() {
    local scenarios=() why
    [ "$asked" = yes ] || scenarios=(ground hosts create live)
    if ! why=$(python3 lab/lab.py able); then
        title "lab: skipped: $why"
        add 0 0 1
        return 0
    fi
    program || return 0
    title "lab: servers with real devices on two virtual hosts"
    if ! make --no-print-directory deb PROFILE=dev; then
        add 0 1 0
        return 0
    fi
    script ../lab/lab --brief run "${scenarios[@]}"
}

if [ -n "${KILONOVA_PREVIOUS:-}" ] && [ ! -x "$KILONOVA_PREVIOUS" ]; then
    echo "controllers: KILONOVA_PREVIOUS must name a program of the version before" >&2
    exit 2
fi
# Sets what cargo clippy sets, for a build instead of a check.
clippy_builds=
if [ "${KILONOVA_CLIPPY_BUILDS:-}" = yes ]; then
    clippy_builds=$(dirname "$(rustup which rustc 2>/dev/null || command -v rustc)")/clippy-driver
    [ -x "$clippy_builds" ] || { echo "KILONOVA_CLIPPY_BUILDS: there is no $clippy_builds" >&2; exit 2; }
    export RUSTC_WORKSPACE_WRAPPER=$clippy_builds
    export CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
fi
asked=yes
if [ $# -eq 0 ]; then
    asked=no
    set -- lint deny unit docs lab compute chaos network tls operators quickstart controllers placement accelerator image demo anywhere copy failover restore browser ${KILONOVA_OLD:+upgrade} cloud
fi
for step in "$@"; do
    case $step in
        lint | deny | unit | docs | placement | accelerator | compute | browser | network | image | tls | quickstart | demo | operators | chaos | controllers | anywhere | failover | copy | restore | cloud | lab) ;;
        upgrade) [ -x "${KILONOVA_OLD:-}" ] || { echo "upgrade: KILONOVA_OLD must name a program of an earlier build" >&2; exit 2; } ;;
        *)
            echo "unknown step $step; expected lint, deny, unit, docs, placement, accelerator, compute, browser, network, image, tls, quickstart, demo, operators, chaos, controllers, anywhere, failover, copy, restore, upgrade, cloud or lab" >&2
            exit 2
            ;;
    esac
done

if [ -n "${KILONOVA_INSTALL:-}" ]; then
    read -ra parts <<<"$KILONOVA_INSTALL"
    scripts/bootstrap.sh "${parts[@]}" >"$SCRATCH/install" 2>&1 &
    installing=$!
fi
# installed: waits for the installation, and starts the database.
installed() {
    if [ -n "$installing" ]; then
        wait "$installing" || { cat "$SCRATCH/install" >&2; exit 2; }
        installing=
        cat "$SCRATCH/install"
    fi
    if [ -z "$PG_URL" ]; then
        # Each of a thousand tests creates and drops a database of 800 files. The virtual hosts of the lab need memory too.
        if [ "$(free_memory)" -gt 12000000 ]; then PG_PARENT=/dev/shm; fi
        title "PostgreSQL 15 in ${PG_PARENT:-/tmp}"
        pg_start
    fi
}

first=() later=()
for step in "$@"; do
    case $step in
        lint | deny | unit | docs) first+=("$step") ;;
        *) later+=("$step") ;;
    esac
done
for step in ${first[@]+"${first[@]}"}; do
    case $step in unit) installed ;; esac
    "$step"
done
[ "${#later[@]}" -eq 0 ] || installed
if [ "${#later[@]}" -gt 1 ]; then
    # The lanes share both. A step that needs one reports its failure.
    program || true
    case " ${later[*]} " in *' image '*) object_store || true ;; esac
    lanes "${later[@]}"
else
    for step in ${later[@]+"${later[@]}"}; do "$step"; done
fi

read -r passed failed skipped < <(awk '{p += $1; f += $2; s += $3} END {print p + 0, f + 0, s + 0}' "$TALLY")
if [ -s "$WRONG" ]; then
    title "failures"
    cat "$WRONG"
fi
if [ -s "$FLAKY" ]; then
    title "flaky: failed, then passed (.config/nextest.toml); find the reason"
    cat "$FLAKY"
fi
printf '\n%s s\n' "$SECONDS"
printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
