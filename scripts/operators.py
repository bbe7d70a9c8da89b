#!/usr/bin/env python3
"""Runs operators' commands against a real `kilonova serve`: server explain, capacity, rebalance, host drain,
doctor.

    scripts/operators.py [--kilonova PROGRAM] [--database URL]

Simulated hosts: two with vGPUs and FPGAs inside the server, one in a process of its own. Explains an
active, a failed, a waiting and a deleted server; drains a host while the command is killed, interrupted
and loses its cloud, stops the drain, and then compares each guest's devices with the ledger; runs the doctor on a wrong
configuration, a stopped node, a wrong clock, a stuck operation, and a ledger row changed by hand. Exits
with 1 at the first check that fails.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

from stack import Gone, Serve, Wrong, free_port, settle

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMPUTE = "/compute/v2.1"
CARDS = """
[card.m10]
vendor = "10de"
product = "13bd"
class = "030000"
driver = "nvidia"
types = [{ id = "nvidia-35", name = "GRID M10-0B", available_instances = 16 }]
"""
HOST = """
[[host]]
name = "%s"
address = "192.0.2.%d"
vcpus = 64
memory_mb = 262144
disk_gb = 2000
times_ms = { migrate = 600, receive = 50 }
devices = { enabled_mdev_types = ["nvidia-35"] }
card = [{ card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"] }]
fake = [{}]
"""


class Operator:
    """An operator: the program, the credentials, and a count of passed checks."""

    def __init__(self, serve):
        self.serve, self.checks = serve, 0
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        self.env = {**kept, **serve.openrc()}

    def tick(self, text, holds=True, why=""):
        self.checks += 1
        if not holds:
            raise Wrong(f"{text}: check failed: {why}")
        print(f"  ✓ {text}", flush=True)

    def begin(self, *words):
        """Starts a kilonova command."""
        return subprocess.Popen([self.serve.binary, *words], env=self.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run(self, *words, code=0):
        """Runs a kilonova command. Returns its standard output and standard error."""
        print(f"$ kilonova {' '.join(words)}", flush=True)
        process = self.begin(*words)
        out, err = process.communicate(timeout=120)
        if process.returncode != code:
            raise Wrong(f"exit code {process.returncode}, expected {code}:\n{out}{err}")
        return out, err

    def document(self, *words, code=0):
        """Like `run`, with `--format json`. Returns the parsed output."""
        return json.loads(self.run(*words, "--format", "json", code=code)[0])


class Cloud:
    """API requests of the steps."""

    def __init__(self, serve):
        self.api = serve.api()
        self.api.login(serve.openrc())
        self.state, self.image = serve.state, None

    def prepare(self):
        ask = self.api.expect
        project = ask(200, "GET", "/identity/v3/projects?name=admin")["projects"][0]["id"]
        quota = {"quota_set": {"instances": -1, "cores": -1, "ram": -1}}
        ask(200, "PUT", f"{COMPUTE}/os-quota-sets/{project}", quota)
        body = {"name": "tiny", "disk_format": "raw", "container_format": "bare",
                "visibility": "public"}
        self.image = ask(201, "POST", "/image/v2/images", body)["id"]
        ask(204, "PUT", f"/image/v2/images/{self.image}/file", b"x" * 4096,
            {"Content-Type": "application/octet-stream"})
        ask(201, "PUT", "/placement/traits/CUSTOM_GOLD")
        profile = [{"name": "fpga", "groups": [{"resources:FPGA": "1"}]}]
        ask(201, "POST", "/accelerator/v2/device_profiles", profile)
        for name, specs in {"vgpu": {"resources:VGPU": "1"}, "fpga": {"accel:device_profile": "fpga"},
                            "gold": {"resources:VGPU": "1", "trait:CUSTOM_GOLD": "required"},
                            "whole": {"resources1:VGPU": "16", "resources2:VGPU": "16",
                                      "group_policy": "isolate"}}.items():
            flavor = {"flavor": {"id": name, "name": name, "vcpus": 1, "ram": 512, "disk": 1}}
            ask(200, "POST", f"{COMPUTE}/flavors", flavor)
            ask(200, "POST", f"{COMPUTE}/flavors/{name}/os-extra_specs", {"extra_specs": specs})

    def boot(self, name, flavor, host=None, status="ACTIVE"):
        server = {"name": name, "flavorRef": flavor, "imageRef": self.image, "networks": "none"}
        if host:
            server["host"] = host
        made = self.api.expect(202, "POST", f"{COMPUTE}/servers", {"server": server})
        self.wait_for_status(made["server"]["id"], status)
        return made["server"]["id"]

    def wait_for_status(self, server, status, timeout=60):
        deadline = time.monotonic() + timeout
        while True:
            shown = self.show(server)
            if shown["status"] == status and not shown["OS-EXT-STS:task_state"]:
                return shown
            if time.monotonic() > deadline:
                raise Wrong(f"{server} is {shown['status']} and not {status} after {timeout} s")
            time.sleep(0.1)

    def show(self, server):
        return self.api.expect(200, "GET", f"{COMPUTE}/servers/{server}")["server"]

    def act(self, server, action):
        self.api.expect(202, "POST", f"{COMPUTE}/servers/{server}/action", action)

    def delete(self, server, timeout=60):
        self.api.expect(204, "DELETE", f"{COMPUTE}/servers/{server}")
        deadline = time.monotonic() + timeout
        while self.api.ask("GET", f"{COMPUTE}/servers/{server}")[0] != 404:
            if time.monotonic() > deadline:
                raise Wrong(f"{server} is not gone after {timeout} s")
            time.sleep(0.1)

    def guest_devices(self, server, host):
        """The mediated devices in the guest's definition on its host."""
        path = os.path.join(self.state, "nodes", host, "domains", f"{server}.xml")
        with open(path, encoding="utf-8") as file:
            devices = file.read().split("<devices>")[1]
        return sorted(re.findall(r"<hostdev [^>]*type='mdev'.*?<address uuid='([^']+)'", devices, re.S))

    def mdevs(self, host):
        """The mediated devices that exist on a host."""
        folder = os.path.join(self.state, "nodes", host, "mdevs")
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def step_capacity(operator, cloud):
    print("\n── capacity")
    capacity = operator.document("capacity")
    flavors = {flavor["name"]: flavor for flavor in capacity["flavors"]}
    operator.tick("the JSON counts every flavor", {"vgpu", "fpga", "gold"} <= set(flavors), str(capacity))
    before = flavors["vgpu"]["servers"]
    operator.tick("servers with a vGPU fit", before > 1 and flavors["vgpu"]["hosts"] > 0, str(capacity))
    operator.tick("no server with an unknown trait fits, for a reason",
                  flavors["gold"]["servers"] == 0 and "CUSTOM_GOLD" in flavors["gold"]["reason"], str(capacity))
    counted = cloud.boot("counted", "vgpu")
    one = operator.document("capacity", "--flavor", "vgpu")["flavors"]
    operator.tick("one more server is one fewer that fits", [flavor["servers"] for flavor in one] == [before - 1], str(one))
    cloud.delete(counted)
    page, _ = operator.run("capacity")
    operator.tick("the page lists flavors and devices", "more servers" in page and "VGPU" in page, page)
    _, err = operator.run("capacity", "--flavor", "nothing", code=2)
    operator.tick("an unknown flavor is refused with a message", "Flavor nothing could not be found." in err, err)


def step_rebalance(operator, cloud):
    print("\n── rebalance")
    servers = [cloud.boot(f"on-{host}", "vgpu", host) for host in ("gpu-1", "gpu-2", "edge")]
    plan = operator.document("rebalance", "--plan", "--flavor", "whole")
    flavor = plan["flavors"][0]
    operator.tick("a plan makes room for a whole host",
                  (flavor["servers_before"], flavor["servers_after"]) == (0, 1) and 1 <= len(plan["moves"]) <= 2,
                  str(plan))
    page, _ = operator.run("rebalance", "--plan", "--flavor", "whole")
    operator.tick("the page names the first server", plan["moves"][0]["server"] in page, page)
    _, err = operator.run("rebalance", "--flavor", "whole", code=2)
    operator.tick("--plan or --apply is required", "--plan" in err and "--apply" in err, err)
    report = operator.document("rebalance", "--apply", "--flavor", "whole")
    operator.tick("the moves are performed, and one server fits now",
                  report["done"] and report["servers_now"] == 1, str(report))
    for move in report["moves"]:
        server = cloud.show(move["server"])
        operator.tick(f"{move['name']} is active on {move['to']}",
                      (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", move["to"]), str(server))
    whole = cloud.boot("whole", "whole")
    out, _ = operator.run("rebalance", "--apply", "--flavor", "gold", code=1)
    operator.tick("without a move the command says why", out.startswith("No moves. "), out)
    _, err = operator.run("rebalance", "--plan", "--flavor", "nothing", code=2)
    operator.tick("an unknown flavor is refused with a message", "Flavor nothing could not be found." in err, err)
    for server in [whole, *servers]:
        cloud.delete(server)


def step_explain(operator, cloud, edge):
    print("\n── server explain")
    good = cloud.boot("good", "vgpu", "gpu-1")
    page, _ = operator.run("server", "explain", good)
    explanation = operator.document("server", "explain", "good")
    handle = explanation["devices"][0]["handle"]
    operator.tick("name and UUID show the same server", explanation["id"] == good)
    for part in (f"({good}) is active, on host gpu-1, with 1 accelerator", "how the host was chosen",
                 handle["mdev_uuid"], "nvidia-35", "gpu-1_pci_0000_8", "Nothing: it is in its desired state"):
        operator.tick(f"the page says: {part}", part in page, page)
    operator.tick("the guest has exactly that device",
                  cloud.guest_devices(good, "gpu-1") == [handle["mdev_uuid"]],
                  str(cloud.guest_devices(good, "gpu-1")))

    step_capacity(operator, cloud)
    failed = cloud.boot("failed", "gold", status="ERROR")
    page, _ = operator.run("server", "explain", failed)
    explanation = operator.document("server", "explain", failed)
    operator.tick("the explanation of a failed boot says how many hosts each condition removed",
                  page.count("None of 3 hosts has trait CUSTOM_GOLD.") == 1, page)
    operator.tick("the explanation says that there is still no room, and names the next command",
                  "still no room" in page and f"openstack server delete {failed}" in page, page)
    operator.tick("the JSON lists the conditions one by one",
                  any("CUSTOM_GOLD" in step["constraint"] and step["removed"] == 3
                      for step in explanation["room_now"]["steps"]), str(explanation["room_now"]))

    cloud.delete(good)
    page, _ = operator.run("server", "explain", good)
    operator.tick("the explanation of a deleted server lists the devices that it had",
                  "was deleted; it was last on host gpu-1" in page and handle["mdev_uuid"] in page
                  and "Nothing: it is deleted and holds no resources" in page, page)

    waiting = cloud.boot("waiting", "vgpu", "edge")
    edge.send_signal(signal.SIGKILL)
    edge.wait()
    # The host still counts as up for a minute; nothing new should be scheduled there.
    services = cloud.api.expect(200, "GET", f"{COMPUTE}/os-services?host=edge")["services"]
    cloud.api.expect(200, "PUT", f"{COMPUTE}/os-services/{services[0]['id']}", {"status": "disabled"})
    cloud.act(waiting, {"pause": None})
    page, _ = operator.run("server", "explain", waiting)
    operator.tick("the explanation of a pending operation names its host", "host edge to pause the guest" in page, page)
    _, err = operator.run("server", "explain", "4f6a1a8e-3f3f-4f9a-9c3e-0d6f7e6f0a11", code=2)
    operator.tick("an unknown server is refused with a message", "could not be found" in err, err)
    return waiting


def servers_on(cloud, host):
    """The servers that the cloud has on a host."""
    api = cloud.api.clone()
    return api.expect(200, "GET", f"{COMPUTE}/kilonova/hosts/{host}")["host"]["guests"]


def wait_until_idle(cloud, host):
    """Waits until earlier requests have ended."""
    wait_for("no operation is in progress on the host",
             lambda: not any(guest["operation"] for guest in servers_on(cloud, host)))


def until_first_move(process):
    """The lines that a drain prints until its first server has moved. It prints that line long before the
    one of the last server, however slow the machine is."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if " is on " in line:
            break
    return lines


def wait_for(what, holds, timeout=30):
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise Wrong(f"after {timeout} s: {what}: check failed")
        time.sleep(0.05)


def compare(operator, cloud, servers, host):
    """Checks that each guest has exactly the ledger's devices, on the host."""
    all_held = []
    for server in servers:
        explanation = operator.document("server", "explain", server)
        held = explanation["devices"]
        amounts = {one["class"]: one["amount"] for claim in explanation["claims"]
                   for one in claim["allocations"]}
        wanted = [one["handle"]["mdev_uuid"] for one in held if one["handle"]["mdev_uuid"]]
        all_held += wanted
        right = (explanation["host"] == host and len(held) == 1 and held[0]["attached"]
                 and held[0]["host"] == host and held[0]["held_by"] == "server"
                 and amounts.get(held[0]["resource_class"]) == 1 and not explanation["left_behind"])
        if not right:
            raise Wrong(f"{server} is wrong after the drain: {explanation}")
        seen = cloud.guest_devices(server, host)
        if seen != wanted:
            raise Wrong(f"{server}: its guest has {seen}, the ledger says {wanted}")
    made = cloud.mdevs(host)
    if made != sorted(all_held):
        raise Wrong(f"{host} has the devices {made}, its guests {sorted(all_held)}")
    operator.tick(f"{len(servers)} servers are on {host}, each with exactly its device")


def step_drain(operator, cloud, serve):
    print("\n── host drain")
    # Enough that some remain after each interruption, however late it is noticed.
    guests = [cloud.boot(f"guest-{n}", "vgpu", "gpu-1") for n in range(20)]
    stopped = cloud.boot("stopped", "vgpu", "gpu-1")
    whole = cloud.boot("whole", "fpga", "gpu-1")
    asleep = cloud.boot("asleep", "vgpu", "gpu-1")
    cloud.act(stopped, {"os-stop": None})
    cloud.act(asleep, {"suspend": None})
    cloud.wait_for_status(stopped, "SHUTOFF")
    cloud.wait_for_status(asleep, "SUSPENDED")
    command = ["host", "drain", "gpu-1", "--parallel", "2"]
    before = len(servers_on(cloud, "gpu-1"))

    print(f"$ kilonova {' '.join(command)}    # and kill -9 of it in the middle", flush=True)
    process = operator.begin(*command)
    wait_for("two servers have left", lambda: len(servers_on(cloud, "gpu-1")) <= before - 2)
    process.kill()
    process.communicate()
    killed = len(servers_on(cloud, "gpu-1"))
    operator.tick("the command was killed in the middle", killed > 4)
    wait_for("the drain goes on without its command", lambda: len(servers_on(cloud, "gpu-1")) <= killed - 2)
    out, _ = operator.run(*command[:3], "--stop")
    operator.tick("the drain is stopped", "The drain of host gpu-1 is stopped" in out, out)
    wait_until_idle(cloud, "gpu-1")
    stopped_at = len(servers_on(cloud, "gpu-1"))
    time.sleep(2.5)
    operator.tick("after the stop no server leaves the host", len(servers_on(cloud, "gpu-1")) == stopped_at > 4)
    _, err = operator.run(*command[:3], "--stop", code=2)
    operator.tick("a drain that was stopped cannot be stopped again", "has already ended" in err, err)

    print(f"$ kilonova {' '.join(command)}    # and Ctrl-C", flush=True)
    process = operator.begin(*command)
    lines = until_first_move(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    err = "".join(lines) + err
    operator.tick("Ctrl-C prints the remaining servers, and that the drain goes on",
                  process.returncode == 130 and "still there" in out and "To follow it: " in out
                  and "The controllers continue the drain." in out and "is already disabled" in err, out + err)

    print(f"$ kilonova {' '.join(command)}    # and kill -9 of the cloud", flush=True)
    process = operator.begin(*command, "--format", "json")
    lines = until_first_move(process)
    operator.tick("the same command follows the drain that runs", "has been running since" in lines[0], str(lines))
    serve.kill()
    time.sleep(1)
    serve.start()
    out, err = process.communicate(timeout=90)
    err = "".join(lines) + err
    if not out:
        raise Wrong(f"the drain ended with exit code {process.returncode}: {err}")
    report = json.loads(out)
    operator.tick("the command waits for its cloud and continues", "Retrying" in err, err)
    operator.tick("the controllers have ended the drain", report["state"] == "ended", out)
    why = {one["id"]: one["why"] for one in report["remaining"]}
    operator.tick("servers that cannot migrate stay, and the exit code is 1",
                  process.returncode == 1 and set(why) == {whole, asleep} and not report["empty"], out)
    operator.tick("the report names the reason for each", "passed through whole" in why[whole]
                  and "suspended" in why[asleep], str(why))
    cloud.api.close()
    compare(operator, cloud, [*guests, stopped], "gpu-2")
    operator.tick("the stopped server is still SHUTOFF", cloud.show(stopped)["status"] == "SHUTOFF")

    cloud.act(asleep, {"resume": None})
    cloud.wait_for_status(asleep, "ACTIVE")
    out, err = operator.run("host", "drain", "gpu-1", "--cold")
    operator.tick("with --cold, after the suggested action, the host is empty", "is empty" in out, out)
    operator.tick("without a terminal the output is plain lines", "\r" not in err and "on gpu-2 now (cold)." in err, err)
    compare(operator, cloud, [*guests, stopped, whole, asleep], "gpu-2")
    operator.tick("the server that was migrated cold is ACTIVE again", cloud.show(whole)["status"] == "ACTIVE")
    out, _ = operator.run("host", "drain", "gpu-1")
    operator.tick("draining an empty host again does nothing", "0 server(s) left it" in out, out)
    begun = operator.document("host", "drain", "gpu-1", "--no-wait")
    operator.tick("--no-wait only begins the drain", (begun["state"], begun["total"]) == ("running", 0), str(begun))
    operator.tick("no mediated device is left on the host", cloud.mdevs("gpu-1") == [], str(cloud.mdevs("gpu-1")))
    failed = cloud.boot("nowhere", "vgpu", "gpu-1", status="ERROR")
    page, _ = operator.run("server", "explain", failed)
    operator.tick("a drained host accepts no servers", "down or disabled" in page, page)
    out, _ = operator.run("host", "undrain", "gpu-1")
    operator.tick("undrain reports who drained the host", "is enabled" in out and "drained by" in out, out)
    again = cloud.boot("again", "vgpu", "gpu-1")
    operator.tick("the host accepts servers again", cloud.show(again)["OS-EXT-SRV-ATTR:host"] == "gpu-1")
    _, err = operator.run("host", "drain", "gpu-1", "--stop", code=2)
    operator.tick("a host that is not drained has no drain to stop", "is not being drained" in err, err)
    _, err = operator.run("host", "drain", "nobody", code=2)
    operator.tick("an unknown host is refused", "nobody could not be found" in err, err)
    settle_all(cloud)


def settle_all(cloud):
    """Waits until nothing is in progress except on the host that is down."""
    deadline = time.monotonic() + 60
    while any(s["OS-EXT-STS:task_state"] and s["name"] != "waiting"
              for s in cloud.api.servers().values()):
        if time.monotonic() > deadline:
            raise Wrong("an operation is still in progress after 60 s")
        time.sleep(0.1)


def doctor(operator, *words, code):
    where = ["--state-dir", operator.serve.state]
    if operator.serve.database:
        where += ["--database", operator.serve.database]
    return operator.document("doctor", *where, *words, code=code)


def found(report, area, level, *parts):
    """Returns whether the report has such a finding with a remedy."""
    return any(one["area"] == area and one["level"] == level and one["remedy"]
               and all(part in one["what"] for part in parts) for one in report["findings"])


def step_doctor(operator, cloud, serve, folder, silent_since, waiting):
    print("\n── doctor")
    report = doctor(operator, code=0)
    operator.tick("with a running server the doctor finds no problem", report["clean"], str(report["findings"]))
    operator.tick("the report lists the hosts", {h["host"]: h["up"] for h in report["hosts"]}["gpu-1"] is True)

    skew = int(time.time() * 1e6) + 3600 * 10**6
    with open(os.path.join(serve.state, "node.token"), encoding="utf-8") as file:
        token = file.read().strip()
    epoch = next(h["epoch"] for h in report["hosts"] if h["host"] == "gpu-2")
    node = serve.api(timeout=60)
    node.expect(200, "GET", f"/node/v1/hosts/gpu-2/desired?epoch={epoch}&since=0", None,
                {"Authorization": f"Bearer {token}", "X-Kilonova-Clock": str(skew)})

    def skewed():
        nonlocal report
        report = doctor(operator, code=0)
        return found(report, "clock", "warning", "host gpu-2 is 3600.0 s ahead")
    wait_for("a wrong clock of a host is found", skewed)
    operator.tick("a wrong clock of a host is found")

    time.sleep(max(0.0, 62 - (time.monotonic() - silent_since)))
    report = doctor(operator, code=0)
    operator.tick("a stopped agent is found", found(report, "nodes", "warning", "host edge"),
                  str(report["findings"]))
    doctor(operator, "--strict", code=1)
    operator.tick("with --strict a warning fails the check")
    report = doctor(operator, "--stuck-after", "5", code=1)
    operator.tick("a stuck operation is found, with the host that it waits for",
                  found(report, "operations", "error", f"pause of server {waiting}", "host edge"),
                  str(report["findings"]))

    config = os.path.join(folder, "wrong.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write("[DEFAULT]\ndebug = perhaps\n[api]\nlissten = x\n[gpus]\nmany = yes\n")
    report = doctor(operator, "--config", config, code=1)
    for line, part in ((2, "debug"), (4, "lissten"), (6, "gpus")):
        operator.tick(f"line {line} of a wrong configuration is named",
                      found(report, "configuration", "error", f"wrong.conf:{line}:", part),
                      str(report["findings"]))
    operator.tick("the ledger is still checked", len(report["rules"]) > 30)
    out, _ = operator.run("doctor", "--state-dir", serve.state, "--config", config, code=1) \
        if not serve.database else ("ERROR (configuration)", "")
    operator.tick("the text has the same finding", "ERROR (configuration)" in out, out)

    code, _ = serve.stop()
    operator.tick("the server stops", code == 0)
    report = doctor(operator, code=0)
    if serve.database:
        return
    operator.tick("without a running server the doctor notes that none runs",
                  found(report, "nodes", "note", "no controller uses"), str(report["findings"]))
    database = sqlite3.connect(os.path.join(serve.state, "kilonova.db"))
    changed = database.execute("UPDATE attach_handles SET state = 'free' WHERE state = 'owned'")
    operator.tick("a handle is changed in the database by hand", changed.rowcount > 5)
    database.commit()
    database.close()
    report = doctor(operator, code=1)
    operator.tick("a ledger row that was written by hand is found",
                  not report["clean"] and found(report, "ledger", "error", "BROKEN by"),
                  str(report["findings"]))
    _, err = operator.run("doctor", "--state-dir", os.path.join(folder, "nothing"), code=2)
    operator.tick("without a state directory the doctor fails", "no state directory" in err, err)


def story(operator, serve, edge, folder):
    cloud = Cloud(serve)
    cloud.prepare()
    wait_for("all hosts have registered",
             lambda: len(cloud.api.expect(200, "GET", f"{COMPUTE}/os-hypervisors")["hypervisors"]) == 3)
    step_rebalance(operator, cloud)
    waiting = step_explain(operator, cloud, edge)
    silent_since = time.monotonic()
    step_drain(operator, cloud, serve)
    step_doctor(operator, cloud, serve, folder, silent_since, waiting)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--database", help="PostgreSQL URL (default: SQLite)")
    parser.add_argument("--counts", help="file to write `passed failed` to")
    options = parser.parse_args()
    if not os.path.exists(options.kilonova):
        parser.error(f"{options.kilonova} does not exist; `make build` builds it")
    begun, failed = time.monotonic(), 1
    folder = tempfile.mkdtemp(prefix="kilonova-operators-")
    state = os.path.join(folder, "state")
    os.mkdir(state, mode=0o700)
    topologies = {"two": HOST % ("gpu-1", 1) + HOST % ("gpu-2", 2), "edge": HOST % ("edge", 3)}
    for name, hosts in topologies.items():
        with open(os.path.join(folder, f"{name}.toml"), "w", encoding="utf-8") as file:
            file.write(CARDS + hosts)
    binary = os.path.abspath(options.kilonova)
    serve = Serve(binary, state, os.path.join(folder, "two.toml"), options.database)
    operator = edge = None
    try:
        print(serve.start())
        operator = Operator(serve)
        edge = subprocess.Popen(
            [binary, "node", "--control", serve.url, "--nodes", os.path.join(folder, "edge.toml"),
             "--token-file", os.path.join(state, "node.token"),
             "--state-dir", os.path.join(folder, "edge")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        story(operator, serve, edge, folder)
        failed = 0
        print(f"\noperators: {operator.checks} checks passed in "
              f"{time.monotonic() - begun:.0f} s")
    except (Wrong, Gone, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"  ✗ {error}", flush=True)
        if serve.starts:
            print(f"\nthe end of kilonova's log ({serve.log}):\n{serve.tail()}")
    finally:
        serve.kill()
        if edge and edge.poll() is None:
            edge.kill()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{max(0, operator.checks - failed) if operator else 0} {failed}\n")
    if failed:
        print(f"operators: failed; its files are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
