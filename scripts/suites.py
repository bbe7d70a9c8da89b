#!/usr/bin/env python3
"""Runs upstream's own test suites against a real `kilonova serve`.

    scripts/suites.py [SUITE...] [--kilonova PROGRAM] [--database URL] [--only REGEX] [--keep]

    tempest-identity tempest-image tempest-network tempest-compute
                        tempest's API tests, with dynamic credentials
    tempest-cloud       tempest's API tests of compute, volumes included, with Kilonova in Nova's place beside a real
                        Keystone, Glance, Neutron and Cinder; only if it is named and the environment names the
                        cloud (cloud_stage.py and cloud_ports.py say how)
    openstacksdk        its functional tests of compute, identity, image, network, placement and cloud
    novaclient          its functional tests
    openstackclient     its functional tests of compute, identity, image, network and common
    osc-placement       its functional tests; each test has its own Placement

Some tests expect what a DevStack has and Kilonova does not. scripts/no_volumes.py and scripts/suites/stand_in provide
it: a block storage service without volumes, a Placement for each test of osc-placement, the one domain where
openstackclient's tests create a new one, and a fast start of its commands.

The suites come from their packages on the Python package registry (scripts/suites.txt, in .venv-suites). A test that
fails must be excused by name, with its reason, in scripts/suites/excused/SUITE.txt; an excused test that passes is
reported, so that the lists stay true. The exit code is 1 if a test fails without an excuse.
"""

import argparse
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import cloud_stage
import cloud_volumes
import no_volumes
from stack import Serve, Wrong, free_port
from warm import Warm

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = os.path.join(ROOT, ".venv-suites")
BIN = os.path.join(ENVIRONMENT, "bin")
HERE = os.path.join(ROOT, "scripts/suites")
TEMPEST = {f"tempest-{part}": rf"^tempest\.api\.{part}\." for part in ("identity", "image", "network", "compute")}
# Changes a cloud, so it runs only if it is named.
BESIDE = "tempest-cloud"
TEMPEST[BESIDE] = TEMPEST["tempest-compute"]
# The package of the tests, and those of its folders that are in scope.
PACKAGES = {
    "openstacksdk": ("openstack/tests/functional", ("compute", "cloud", "identity", "image", "placement", "network")),
    "novaclient": ("novaclient/tests/functional", ("",)),
    "openstackclient": ("openstackclient/tests/functional", ("compute", "identity", "image", "network", "common")),
    "osc-placement": ("osc_placement/tests/functional", ("",)),
}
# Suites that stand_in changes in part.
STAND_INS = ("openstackclient", "osc-placement")
# Suites whose tests see each other's resources; upstream runs them one test at a time too.
SERIAL = ("openstacksdk", "novaclient")
# DevStack's flavors by id: name, memory in MiB, disk in GiB, processors.
FLAVORS = {
    "1": ("m1.tiny", 512, 1, 1), "2": ("m1.small", 2048, 20, 1), "3": ("m1.medium", 4096, 40, 2),
    "4": ("m1.large", 8192, 80, 4), "5": ("m1.xlarge", 16384, 160, 8), "c1": ("cirros256", 256, 1, 1),
}
# The flavors that tempest adds to them.
SMALL = {"42": ("m1.nano", 128, 1, 1), "84": ("m1.micro", 192, 1, 1)}
# DevStack's external flat network, and its console proxy: tempest requests the root of the proxy's port.
CONFIG = """[ml2_type_flat]
flat_networks = public, physnet1
[vnc]
novncproxy_host = 127.0.0.1
novncproxy_port = {vnc}
novncproxy_base_url = http://127.0.0.1:{vnc}/vnc_auto.html
"""
# A real cloud has Cinder; its catalog need not name Kilonova's Placement.
OF_A_CLOUD = {
    "service_available": {"cinder": True, "placement": False},
    "compute-feature-enabled": {"volume_multiattach": True, "volume_backed_live_migration": True},
    "volume": {"build_interval": 1, "build_timeout": 120, "volume_size": 1, "volume_type_multiattach": "multi"},
    "volume-feature-enabled": {"backup": False},
}
SUITES = [*TEMPEST, *PACKAGES]
# Strips the folder and the tags that a runner adds to a test's name.
NAME = re.compile(r"^(?:setUpClass|tearDownClass) \(([^)]+)\)|^([^\[]+)")


def site_packages():
    """The folder of the installed packages."""
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    return subprocess.run([os.path.join(BIN, "python"), "-c", code], check=True, capture_output=True,
                          text=True).stdout.strip()


class Cloud:
    """A `kilonova serve` with what the suites expect to find: flavors, two images, networks, three users."""

    def __init__(self, options, folder):
        self.folder = folder
        state = os.path.join(folder, "state")
        os.mkdir(state, 0o700)
        config = os.path.join(folder, "kilonova.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(vnc=free_port()))
        program, hosts = os.path.abspath(options.kilonova), os.path.join(HERE, "hosts.toml")
        self.serve = Serve(program, state, hosts, options.database, config)
        self.serve.start()
        self.admin = self.serve.openrc()
        self.clouds = os.path.join(folder, "clouds.yaml")
        self.volumes = no_volumes.serve()
        self.write_clouds()
        self.client = Warm(os.path.join(BIN, "openstack"), dict(os.environ))
        self.seed()

    def openstack(self, *arguments, cloud="devstack-admin"):
        """Runs a command of the client; returns its JSON."""
        output = [] if arguments[1] in ("add", "set", "delete") else ["-f", "json"]
        code, out, err = self.client.run(["--os-cloud", cloud, *arguments, *output],
                                         {**os.environ, "OS_CLIENT_CONFIG_FILE": self.clouds}, 120)
        if code:
            raise Wrong(f"{' '.join(arguments)}: {err.strip()}")
        return json.loads(out) if out.strip() else {}

    def write_clouds(self):
        """The clouds that the packages' tests name, as DevStack writes them."""
        def cloud(user, password, **scope):
            auth = {"auth_url": self.admin["OS_AUTH_URL"], "username": user, "password": password,
                    "user_domain_id": "default", **scope}
            # The SDK's tests leave networks behind, so their servers must name their network.
            networks = [{"name": "shared", "default_interface": True}]
            return {"auth": auth, "region_name": "RegionOne", "identity_api_version": "3", "networks": networks,
                    "floating_ip_source": "none"}

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
        # Only for openstacksdk: its tests of servers need a block storage service.
        for values in clouds.values():
            values["block_storage_endpoint_override"] = self.volumes
        with open(os.path.join(self.folder, "clouds-volume.yaml"), "w", encoding="utf-8") as file:
            json.dump({"clouds": clouds}, file, indent=1)

    def make_flavors(self, flavors):
        """Creates public flavors."""
        for identity, (name, memory, disk, processors) in flavors.items():
            self.openstack("flavor", "create", "--id", identity, "--ram", str(memory), "--disk", str(disk), "--vcpus",
                           str(processors), name)

    def seed(self):
        """Creates what the suites expect to find."""
        self.make_flavors({**FLAVORS, **SMALL})
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
            # Neutron's default for a project's quota asks for the role manager.
            self.openstack("role", "add", "--user", user, "--project", user, "manager")
        self.openstack("network", "create", "--project", "demo", "private")
        self.openstack("subnet", "create", "--project", "demo", "--network", "private", "--subnet-range",
                       "10.98.0.0/16", "private-subnet")
        self.openstack("role", "add", "--user", "admin", "--project", "demo", "admin")
        self.openstack("role", "add", "--user", "admin", "--system", "all", "admin")
        self.extensions = [e["Alias"] for e in self.openstack("extension", "list", "--network")]


class RealCloud:
    """A `kilonova serve` in Nova's place beside a real cloud, with what tempest expects to find there. `end` removes
    it."""

    def __init__(self, options, folder):
        if "OS_AUTH_URL" not in os.environ:
            raise Wrong("OS_AUTH_URL is not set")
        why = cloud_volumes.lacking()
        if why:
            raise Wrong(why)
        real = cloud_stage.Cloud()
        settings = cloud_volumes.settings(real)
        vnc = free_port()
        settings["options"]["vnc"] = {"novncproxy_host": "127.0.0.1", "novncproxy_port": vnc,
                                      "novncproxy_base_url": f"http://127.0.0.1:{vnc}/vnc_auto.html"}
        self.serve = cloud_stage.Kilonova(os.path.abspath(options.kilonova), real, folder, **settings)
        with open(os.path.join(folder, "nodes.toml"), "a", encoding="utf-8") as file:
            # Applies to the last host; see hosts.toml for the reason.
            file.write("times_ms = { snapshot = 1000 }\n")
        self.admin = {"OS_AUTH_URL": real.auth_url, "OS_PASSWORD": real.password}
        self.clouds = os.path.join(folder, "clouds.yaml")
        auth = {"auth_url": real.auth_url, "username": "admin", "password": real.password, "project_name": "admin",
                "user_domain_id": "default", "project_domain_id": "default"}
        with open(self.clouds, "w", encoding="utf-8") as file:
            json.dump({"clouds": {"devstack-admin": {"auth": auth, "region_name": real.region}}}, file)
        self.client = Warm(os.path.join(BIN, "openstack"), dict(os.environ))
        self.made = []
        self.serve.start()
        self.seed(folder)

    openstack = Cloud.openstack

    def make(self, kind, *arguments):
        """Creates an object; returns its id."""
        made = self.openstack(*kind.split(), "create", *arguments)["id"]
        self.made.append((kind, made))
        return made

    def seed(self, folder):
        for identity, (name, memory, disk, processors) in SMALL.items():
            self.make("flavor", "--id", identity, "--ram", str(memory), "--disk", str(disk or 1), "--vcpus",
                      str(processors), name)
        data = os.path.join(folder, "image")
        with open(data, "wb") as file:
            file.truncate(1 << 20)
        self.images = [self.make("image", "--public", "--disk-format", "raw", "--container-format", "bare", "--file",
                                 data, f"cirros-{n}-disk") for n in (1, 2)]
        self.public = self.make("network", "--external", "public")
        self.make("subnet", "--network", self.public, "--subnet-range", "172.24.4.0/24", "public-subnet")
        shared = self.make("network", "--share", "shared")
        self.make("subnet", "--network", shared, "--subnet-range", "10.99.0.0/16", "shared-subnet")
        self.extensions = [e["Alias"] for e in self.openstack("extension", "list", "--network")]

    def end(self):
        for kind, made in reversed(self.made):
            try:
                self.openstack(*kind.split(), "delete", made)
            except Wrong as error:
                print(f"  ! left in the cloud: {error}", flush=True)
        self.serve.kill()


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
    path = os.path.join(folder, "etc/tempest.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    if isinstance(cloud, RealCloud):
        config = configparser.RawConfigParser()
        config.read(path)
        for group, options in OF_A_CLOUD.items():
            if not config.has_section(group):
                config.add_section(group)
            for name, value in options.items():
                config.set(group, name, str(value))
        with open(path, "w", encoding="utf-8") as file:
            config.write(file)


def run(suite, cloud, folder, options):
    """Runs a suite. Returns the outcome of each test by name."""
    home = os.path.join(folder, suite)
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore",
                   "TOX_ENV_DIR": ENVIRONMENT, "KILONOVA": os.path.abspath(options.kilonova),
                   "OPENSTACKSDK_IMAGE": "cirros-1-disk", "OPENSTACKSDK_FUNC_TEST_TIMEOUT": "60",
                   "OS_TEST_TIMEOUT": "300"}
    if cloud:
        environment["OS_CLIENT_CONFIG_FILE"] = cloud.clouds
    stestr = os.path.join(BIN, "stestr")
    if suite in TEMPEST:
        # A private list of workspaces: tempest's default list is the user's, and refuses a name that it has.
        subprocess.run([os.path.join(BIN, "tempest"), "init", "--workspace-path", os.path.join(folder, "workspaces"),
                        home], check=True, capture_output=True)
        tempest_conf(cloud, home)
        command = [stestr, "--config", os.path.join(home, ".stestr.conf")]
        outcomes = told(command, home, environment, options.only or TEMPEST[suite], options.concurrency)
    else:
        packages = site_packages()
        tests, parts = PACKAGES[suite]
        if suite in STAND_INS:
            environment["PYTHONPATH"] = os.path.join(HERE, "stand_in", suite)
        if suite == "openstacksdk":
            # Its tests expect DevStack's own flavors, and a usage of the admin's project that is not empty.
            cloud.openstack("flavor", "delete", *SMALL)
            cloud.openstack("server", "create", "--flavor", "m1.tiny", "--image", "cirros-1-disk", "--network",
                            "shared", "of-the-admin")
        outcomes = {}
        for part in parts:
            here = os.path.join(home, part)
            os.makedirs(here)
            if cloud:
                # openstackclient's tests remove every OS_* variable; the client reads the file in its working folder.
                shutil.copy(cloud.clouds, here)
                sdk = suite == "openstacksdk"
                clouds = os.path.join(folder, "clouds-volume.yaml") if sdk else cloud.clouds
                environment["OS_CLIENT_CONFIG_FILE"] = clouds
            # openstacksdk uploads this file of its source as an image.
            with open(os.path.join(here, "CONTRIBUTING.rst"), "w", encoding="utf-8") as file:
                file.write("An image.\n")
            command = [stestr, "--test-path", os.path.join(packages, tests, part), "--top-dir", packages]
            concurrency = 1 if suite in SERIAL else options.concurrency
            found = told(command, here, environment, options.only or ".", concurrency)
            if not found and not options.only:
                raise Wrong(f"{suite} ran no test of {part}; {here}/output says why")
            outcomes.update(found)
        if suite == "openstacksdk":
            cloud.openstack("server", "delete", "of-the-admin")
            cloud.make_flavors(SMALL)
    if not outcomes:
        raise Wrong(f"{suite} ran no test; its output is in {home}")
    return outcomes


def told(stestr, home, environment, chosen, concurrency):
    """Runs the tests that `chosen` matches; returns the outcome of each by its name."""
    with open(os.path.join(home, "output"), "wb") as out:
        subprocess.run([*stestr, "run", "--concurrency", str(concurrency), chosen], cwd=home, env=environment,
                       stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
    code = os.path.join(HERE, "outcomes.py")
    last = subprocess.run([*stestr, "last", "--subunit"], cwd=home, env=environment, capture_output=True, check=False)
    lines = subprocess.run([os.path.join(BIN, "python"), code], input=last.stdout, capture_output=True, check=True)
    outcomes = {}
    for line in lines.stdout.decode().splitlines():
        outcome, name = line.split(" ", 1)
        found = NAME.match(name)
        name = (found.group(1) or found.group(2)).strip()
        # A class that fails in setup and cleanup counts once; a failure takes precedence over any other outcome.
        if outcomes.get(name) not in ("fail", "uxsuccess"):
            outcomes[name] = outcome
    return outcomes


def excused(suite):
    """The expressions of the tests that may fail, with their reasons. Beside a real cloud, those of compute apply too."""
    found = []
    for name in (["tempest-compute"] if suite == BESIDE else []) + [suite]:
        path, reason = os.path.join(HERE, "excused", f"{name}.txt"), None
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line = line.strip()
                if line.startswith("#"):
                    reason = line.lstrip("# ")
                elif line and not reason:
                    raise Wrong(f"{path}:{number}: it has no reason above it")
                elif line:
                    found.append((re.compile(line), reason))
    return found


def judged(suite, outcomes):
    """Prints a suite's result. Returns how many passed, failed without an excuse, were excused, were skipped."""
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
        print(f"  ! no failed test needs the excuse {pattern}")
    print(f"{suite}: {passed} passed, {failed} failed, {forgiven} excused, {skipped} skipped", flush=True)
    return passed, failed, forgiven, skipped


def main():
    """Runs the named suites, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"default: all of {' '.join(SUITES)}")
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--database", help="PostgreSQL URL of an empty database (default: SQLite)")
    parser.add_argument("--only", help="run only the tests that this regular expression matches")
    parser.add_argument("--concurrency", type=int, default=2,
                        help="concurrent tests, in suites whose tests do not disturb each other (default: 2)")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the suites' output")
    parser.add_argument("--counts", help="file to write `passed failed skipped` to")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"unknown suite {unknown[0]}; there are {', '.join(SUITES)}")
    chosen = options.suites or [name for name in SUITES if name != BESIDE]
    if BESIDE in chosen and len(chosen) > 1:
        parser.error(f"{BESIDE} runs alone: it uses the services of another cloud")
    if not os.path.exists(os.path.join(BIN, "stestr")):
        parser.error("the suites are not installed; scripts/bootstrap.sh suites installs them")
    folder = tempfile.mkdtemp(prefix="kilonova-suites-")
    cloud, total, begun = None, [0, 0, 0, 0], time.monotonic()
    try:
        if chosen == [BESIDE]:
            cloud = RealCloud(options, folder)
        elif any(suite != "osc-placement" for suite in chosen):
            cloud = Cloud(options, folder)
        for suite in chosen:
            total = [a + b for a, b in zip(total, judged(suite, run(suite, cloud, folder, options)))]
    except (Wrong, cloud_stage.Wrong) as error:
        print(f"  ✗ {error}", flush=True)
        total[1] += 1
    finally:
        if isinstance(cloud, RealCloud):
            cloud.end()
        elif cloud:
            cloud.serve.kill()
    print(f"\nsuites: {total[0]} passed, {total[1]} failed, {total[2]} excused, {total[3]} skipped, "
          f"{time.monotonic() - begun:.0f} s")
    if options.counts:
        with open(options.counts, "w", encoding="utf-8") as file:
            file.write(f"{total[0]} {total[1]} {total[2] + total[3]}\n")
    if options.keep or total[1]:
        print(f"the suites' output is in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
