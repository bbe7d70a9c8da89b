#!/usr/bin/env python3
"""Runs upstream's own Placement cases against `kilonova serve`, in the four server configurations.

    scripts/placement_conformance.py [--kilonova PROGRAM] [--database URL]... [--only GLOB]...

The cases come from the PyPI package openstack-placement, in .venv-conformance; their runner is
../shared/peers/placement/conformance.py. Each configuration gets its own server, on its own state directory
or on one of four empty PostgreSQL databases (`--database`, four times). Without the runner, the script says
so, counts the cases as skipped, and runs nothing.
"""

import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch

from stack import Serve, Wrong

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RUNNER = os.path.join(ROOT, "../shared/peers/placement/conformance.py")
PYTHON = os.path.join(ROOT, ".venv-conformance/bin/python")
CASES = 1316

ALONE = """[DEFAULT]
state_path = {state}

[api]
services = placement
auth_strategy = noauth2

[oslo_policy]
enforce_new_defaults = {new_defaults}
"""
CORS = """
[cors]
allowed_origin = http://valid.example.com
allow_headers = openstack-api-version
"""
# Upstream's names of its operations, and the rules below them except `admin_api`.
OPEN = [
    "service_api", "admin_or_service_api", "project_reader_api",
    "admin_or_project_reader_or_service_api",
    *("placement:resource_providers:" + verb
      for verb in ("list", "create", "show", "update", "delete", "usages")),
    *("placement:resource_providers:inventories:" + verb
      for verb in ("list", "create", "show", "update", "delete")),
    *("placement:resource_providers:aggregates:" + verb for verb in ("list", "update")),
    "placement:resource_providers:allocations:list",
    *("placement:resource_providers:traits:" + verb for verb in ("list", "update", "delete")),
    *("placement:traits:" + verb for verb in ("list", "show", "update", "delete")),
    *("placement:resource_classes:" + verb
      for verb in ("list", "create", "show", "update", "delete")),
    *("placement:allocations:" + verb for verb in ("manage", "list", "update", "delete")),
    "placement:usages", "placement:allocation_candidates:list", "placement:reshaper:reshape",
]
# The result of a file without a failure or a skip.
QUIET = re.compile(r"passed +0 failed +0 skipped")
PROFILES = ("default", "secure-rbac", "open-policy", "cors")


def prepare(folder, profile, binary, database):
    """The server of one configuration, not started."""
    home = os.path.join(folder, profile)
    state = os.path.join(home, "state")
    os.makedirs(state)
    text = ALONE.format(state=state, new_defaults=str(profile == "secure-rbac").lower())
    if profile == "cors":
        text += CORS
    if profile == "open-policy":
        text = text.rstrip() + "\npolicy_file = open.yaml\n"
        with open(os.path.join(home, "open.yaml"), "w", encoding="utf-8") as file:
            file.writelines(f'"{name}": "@"\n' for name in OPEN)
    config = os.path.join(home, "kilonova.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(text)
    return Serve(binary, state, database=database, config=config, port=0)


def check_names():
    """Checks that the program's names are those of upstream's packages."""
    ask = ("import json, os_traits, os_resource_classes as classes;"
           "print(json.dumps([sorted(os_traits.get_traits()), classes.STANDARDS]))")
    output = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=True).stdout
    for name, wanted in zip(("traits", "resource_classes"), json.loads(output)):
        with open(os.path.join(ROOT, f"crates/placement/data/{name}.txt"), encoding="utf-8") as file:
            if file.read().split() != wanted:
                raise Wrong(f"crates/placement/data/{name}.txt differs from upstream's package")


def files():
    """The names of the case files: of the default configuration, and of the others."""
    library = os.path.join(ROOT, ".venv-conformance/lib/python3*/site-packages/placement")
    found = glob.glob(os.path.join(library, "tests/functional/gabbits/*.yaml"))
    special = re.compile(r"-policy\.yaml$|-secure-rbac\.yaml$|^cors\.yaml$")
    by_kind = {True: [], False: []}
    for name in sorted(map(os.path.basename, found)):
        by_kind[bool(special.search(name))].append(name)
    return by_kind[False], by_kind[True]


def run(options, servers):
    """Runs the cases of the default configuration concurrently with the others, and adds up the results."""
    usual, special = files()
    # A file in the wrong group finds no server at the other's URL, and fails.
    nowhere = "http://127.0.0.1:9"
    with ThreadPoolExecutor(max_workers=2) as pool:
        halves = pool.map(lambda half: one_run(options, *half), [
            (usual, servers["default"].url, {p: nowhere for p in PROFILES[1:]}),
            (special, nowhere, {p: servers[p].url for p in PROFILES[1:]})])
    return tuple(sum(counts) for counts in zip(*halves))


def one_run(options, names, url, profiles):
    """Runs some files in one process. Returns passed, failed and skipped."""
    command = [PYTHON, options.runner, url]
    for profile, its_url in profiles.items():
        command += ["--profile-url", f"{profile}={its_url}"]
    for name in names:
        if not options.only or any(fnmatch(name, glob_) for glob_ in options.only):
            command += ["--only", name]
    if "--only" not in command:
        return 0, 0, 0
    if options.verbose:
        command.append("-v")
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cases:
        for line in cases.stdout:
            last = line
            summary = re.match(r"\d+ (files|passed), ", line)
            if not summary and (options.verbose or not QUIET.search(line)):
                print(line, end="", flush=True)
    sums = re.match(r"(\d+) passed, (\d+) failed, (\d+) skipped", last)
    if not sums:
        raise Wrong(f"the runner ended with exit code {cases.returncode} and without a summary")
    return tuple(int(n) for n in sums.groups())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--database", action="append", default=[], help="PostgreSQL URL, four times (default: SQLite)")
    parser.add_argument("--runner", default=RUNNER)
    parser.add_argument("--only", action="append", default=[], metavar="GLOB")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--counts", help="file to write `passed failed skipped` to")
    options = parser.parse_args()
    if options.database and len(options.database) != len(PROFILES):
        parser.error(f"--database is needed once for each of {', '.join(PROFILES)}, or not at all")
    passed, failed, skipped = 0, 0, CASES
    if not os.path.exists(options.runner):
        print(f"skipped: the cases' runner {os.path.relpath(options.runner, ROOT)} does not exist")
    else:
        passed, failed, skipped = attempt(options, parser)
    if options.counts:
        with open(options.counts, "w", encoding="utf-8") as file:
            file.write(f"{passed} {failed} {skipped}\n")
    return 1 if failed else 0


def attempt(options, parser):
    """Starts the servers, runs the cases, stops the servers."""
    for program in (options.kilonova, PYTHON):
        if not os.path.exists(program):
            parser.error(f"{program} does not exist; run `make placement-conformance`")
    begun = time.monotonic()
    folder = tempfile.mkdtemp(prefix="kilonova-placement-")
    databases = options.database or [None] * len(PROFILES)
    servers = {profile: prepare(folder, profile, os.path.abspath(options.kilonova), database)
               for profile, database in zip(PROFILES, databases)}
    counts = 0, 1, 0
    try:
        check_names()
        for server in servers.values():
            server.start()
        counts = run(options, servers)
        if not options.only and sum(counts) != CASES:
            raise Wrong(f"expected {CASES} cases, but {sum(counts)} were run")
        print("placement: {} passed, {} failed, {} skipped".format(*counts)
              + f", in {time.monotonic() - begun:.0f} s")
    except (Wrong, OSError, subprocess.SubprocessError) as error:
        print(f"  ✗ {error}", flush=True)
    finally:
        for server in servers.values():
            server.kill()
    if counts[1]:
        print(f"placement: the servers' logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return counts


if __name__ == "__main__":
    sys.exit(main())
