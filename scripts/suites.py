#!/usr/bin/env python3
"""Upstream's own test suites against a real `kilonova serve`.

    scripts/suites.py [SUITE...] [--kilonova PROGRAM] [--database URL] [--only REGEX] [--keep]

    tempest-identity tempest-image tempest-network tempest-compute
                        tempest's API tests, with dynamic credentials
    openstacksdk        its functional tests of compute, identity, image, network, placement and cloud
    novaclient          its functional tests
    openstackclient     its functional tests of compute, identity, image, network and common
    osc-placement       its functional tests; each test has a Placement of its own

The suites come from their packages on the Python package registry (scripts/suites.txt, in .venv-suites). A test that
fails must be excused by name, with its reason, in scripts/suites/excused/SUITE.txt; an excused test that passes is
reported, so that the lists stay true. The exit code is 1 when a test fails that nothing excuses.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from stack import Serve, Wrong

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = os.path.join(ROOT, ".venv-suites")
BIN = os.path.join(ENVIRONMENT, "bin")
HERE = os.path.join(ROOT, "scripts/suites")
TEMPEST = {f"tempest-{part}": rf"^tempest\.api\.{part}\." for part in ("identity", "image", "network", "compute")}
# The folder of the package that holds the tests, and which of them are in scope.
PACKAGES = {
    "openstacksdk": ("openstack/tests/functional",
                     r"functional\.(compute|identity|image|network|placement|cloud)\."),
    "novaclient": ("novaclient/tests/functional", "."),
    "openstackclient": ("openstackclient/tests/functional",
                        r"functional\.(compute|identity|image|network|common)\."),
    "osc-placement": ("osc_placement/tests/functional", "."),
}
SUITES = [*TEMPEST, *PACKAGES]
# A test, with the folder and the tags that a runner puts around its name taken away.
NAME = re.compile(r"^(?:setUpClass|tearDownClass) \(([^)]+)\)|^([^\[]+)")


def site_packages():
    """The folder of the installed packages."""
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    return subprocess.run([os.path.join(BIN, "python"), "-c", code], check=True, capture_output=True,
                          text=True).stdout.strip()


class Cloud:
    """A `kilonova serve` with what the suites expect to find: two flavors, two images, networks, three users."""

    def __init__(self, options, folder):
        self.folder = folder
        state = os.path.join(folder, "state")
        os.mkdir(state, 0o700)
        self.serve = Serve(os.path.abspath(options.kilonova), state, os.path.join(HERE, "hosts.toml"), options.database)
        self.serve.start()
        self.admin = self.serve.openrc()
        self.clouds = os.path.join(folder, "clouds.yaml")
        self.write_clouds()
        self.seed()

    def openstack(self, *arguments, cloud="devstack-admin"):
        """One command of the client; its JSON."""
        command = [os.path.join(BIN, "openstack"), "--os-cloud", cloud, *arguments, "-f", "json"]
        if arguments[1] in ("add", "set") or arguments[0] == "role" and arguments[1] == "add":
            command = command[:-2]
        environment = {**os.environ, "OS_CLIENT_CONFIG_FILE": self.clouds}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise Wrong(f"{' '.join(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def write_clouds(self):
        """The clouds that the packages' tests name, as DevStack writes them."""
        def cloud(user, password, **scope):
            auth = {"auth_url": self.admin["OS_AUTH_URL"], "username": user, "password": password,
                    "user_domain_id": "default", **scope}
            return {"auth": auth, "region_name": "RegionOne", "identity_api_version": "3"}

        def project(name):
            return {"project_name": name, "project_domain_id": "default"}

        password = self.admin["OS_PASSWORD"]
        clouds = {
            "devstack": cloud("demo", "secret-of-demo", **project("demo")),
            "devstack-alt": cloud("alt_demo", "secret-of-alt", **project("alt_demo")),
            "devstack-admin": cloud("admin", password, **project("admin")),
            "devstack-admin-demo": cloud("admin", password, **project("demo")),
            "functional_admin": cloud("admin", password, **project("admin")),
            "devstack-system-admin": cloud("admin", password, system_scope="all"),
        }
        with open(self.clouds, "w", encoding="utf-8") as file:
            json.dump({"clouds": clouds}, file, indent=1)

    def seed(self):
        """Makes what the suites expect to find."""
        for identity, name, memory in (("42", "m1.nano", "128"), ("84", "m1.micro", "192")):
            self.openstack("flavor", "create", "--id", identity, "--ram", memory, "--disk", "1", "--vcpus", "1", name)
        data = os.path.join(self.folder, "image")
        with open(data, "wb") as file:
            file.truncate(1 << 20)
        self.images = [self.openstack("image", "create", "--public", "--disk-format", "raw", "--container-format",
                                      "bare", "--file", data, f"cirros-{n}-disk")["id"] for n in (1, 2)]
        self.public = self.openstack("network", "create", "--external", "public")["id"]
        self.openstack("subnet", "create", "--network", "public", "--subnet-range", "172.24.4.0/24", "public-subnet")
        self.openstack("network", "create", "--share", "shared")
        self.openstack("subnet", "create", "--network", "shared", "--subnet-range", "10.99.0.0/16", "shared-subnet")
        for user, password in (("demo", "secret-of-demo"), ("alt_demo", "secret-of-alt")):
            self.openstack("project", "create", user)
            self.openstack("user", "create", "--password", password, user)
            self.openstack("role", "add", "--user", user, "--project", user, "member")
        self.openstack("role", "add", "--user", "admin", "--project", "demo", "admin")
        self.openstack("role", "add", "--user", "admin", "--system", "all", "admin")
        self.extensions = [e["Alias"] for e in self.openstack("extension", "list", "--network")]


def tempest_conf(cloud, folder):
    """Writes tempest's configuration."""
    with open(os.path.join(HERE, "tempest.conf"), encoding="utf-8") as file:
        text = file.read()
    values = {
        "folder": folder, "password": cloud.admin["OS_PASSWORD"], "auth_url": cloud.admin["OS_AUTH_URL"],
        "image": cloud.images[0], "image_alt": cloud.images[1], "public": cloud.public,
        "extensions": ",".join(cloud.extensions),
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    with open(os.path.join(folder, "etc/tempest.conf"), "w", encoding="utf-8") as file:
        file.write(text)


def run(suite, cloud, folder, options):
    """Runs a suite; the outcome of each test by its name."""
    home = os.path.join(folder, suite)
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore",
                   "TOX_ENV_DIR": ENVIRONMENT, "KILONOVA": os.path.abspath(options.kilonova)}
    if cloud:
        environment["OS_CLIENT_CONFIG_FILE"] = cloud.clouds
    if suite in TEMPEST:
        # Its own list of workspaces: tempest's usual one is the user's, and refuses a name that it has seen.
        subprocess.run([os.path.join(BIN, "tempest"), "init", "--workspace-path", os.path.join(folder, "workspaces"),
                        home], check=True, capture_output=True)
        tempest_conf(cloud, home)
        stestr = [os.path.join(BIN, "stestr"), "--config", os.path.join(home, ".stestr.conf")]
        chosen = options.only or TEMPEST[suite]
    else:
        os.mkdir(home)
        packages = site_packages()
        tests, scope = PACKAGES[suite]
        stestr = [os.path.join(BIN, "stestr"), "--test-path", os.path.join(packages, tests), "--top-dir", packages]
        chosen = options.only or scope
        environment["PYTHONPATH"] = os.path.join(HERE, "stand_in") if suite == "osc-placement" else ""
    log = os.path.join(home, "output")
    with open(log, "wb") as out:
        subprocess.run([*stestr, "run", "--concurrency", str(options.concurrency), chosen], cwd=home, env=environment,
                       stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
    code = os.path.join(HERE, "outcomes.py")
    last = subprocess.run([*stestr, "last", "--subunit"], cwd=home, env=environment, capture_output=True, check=False)
    told = subprocess.run([os.path.join(BIN, "python"), code], input=last.stdout, capture_output=True, check=True)
    outcomes = {}
    for line in told.stdout.decode().splitlines():
        outcome, name = line.split(" ", 1)
        found = NAME.match(name)
        name = (found.group(1) or found.group(2)).strip()
        # A class that fails in its set-up and its clean-up fails once; a failure counts before anything else.
        if outcomes.get(name) not in ("fail", "uxsuccess"):
            outcomes[name] = outcome
    if not outcomes:
        with open(log, encoding="utf-8", errors="replace") as file:
            raise Wrong(f"{suite} ran no test:\n{file.read()[-2000:]}")
    return outcomes


def excused(suite):
    """The expressions of the tests that may fail, with their reasons."""
    path = os.path.join(HERE, "excused", f"{suite}.txt")
    found, reason = [], None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line = line.strip()
                if line.startswith("#"):
                    reason = line.lstrip("# ")
                elif line and not reason:
                    raise Wrong(f"{path}:{number}: no reason stands above it")
                elif line:
                    found.append((re.compile(line), reason))
    return found


def judged(suite, outcomes):
    """Prints what became of a suite; how many passed, failed without an excuse, were excused, were skipped."""
    excuses = excused(suite)
    passed = failed = forgiven = skipped = 0
    idle = {pattern.pattern for pattern, _ in excuses}
    for name, outcome in sorted(outcomes.items()):
        excuse = next((pattern.pattern for pattern, _ in excuses if pattern.search(name)), None)
        if outcome in ("success", "xfail"):
            passed += 1
        elif outcome == "skip":
            skipped += 1
            idle.discard(excuse)
        elif excuse:
            forgiven += 1
            idle.discard(excuse)
        else:
            failed += 1
            print(f"  ✗ {name}", flush=True)
    for pattern in sorted(idle):
        print(f"  ! nothing that failed needs the excuse {pattern}")
    print(f"{suite}: {passed} passed, {failed} failed, {forgiven} excused, {skipped} skipped", flush=True)
    return passed, failed, forgiven, skipped


def main():
    """Runs the suites that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"all when left out: {' '.join(SUITES)}")
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--database", help="an empty PostgreSQL database; SQLite when left out")
    parser.add_argument("--only", help="a regular expression; the tests of a suite that it finds")
    parser.add_argument("--concurrency", type=int, default=2, help="tests at once (default: 2)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the suites' output")
    parser.add_argument("--counts", help="file to write `passed failed skipped` to")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"unknown suite {unknown[0]}; there are {', '.join(SUITES)}")
    chosen = options.suites or SUITES
    if not os.path.exists(os.path.join(BIN, "stestr")):
        parser.error("the suites are not installed; scripts/bootstrap.sh suites installs them")
    folder = tempfile.mkdtemp(prefix="kilonova-suites-")
    cloud, total, begun = None, [0, 0, 0, 0], time.monotonic()
    try:
        if any(suite != "osc-placement" for suite in chosen):
            cloud = Cloud(options, folder)
        for suite in chosen:
            total = [a + b for a, b in zip(total, judged(suite, run(suite, cloud, folder, options)))]
    except Wrong as error:
        print(f"  ✗ {error}", flush=True)
        total[1] += 1
    finally:
        if cloud:
            cloud.serve.kill()
    print(f"\nsuites: {total[0]} passed, {total[1]} failed, {total[2]} excused, {total[3]} skipped, "
          f"{time.monotonic() - begun:.0f} s")
    if options.counts:
        with open(options.counts, "w", encoding="utf-8") as file:
            file.write(f"{total[0]} {total[1]} {total[2] + total[3]}\n")
    if options.keep or total[1]:
        print(f"what the suites printed is in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
