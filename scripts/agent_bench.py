#!/usr/bin/env python3
"""Measures what many guests cost the agent of a host: time to inspect them all, memory, CPU when idle.

    scripts/agent_bench.py [--servers 200] [--kilonova PROGRAM] [--agent PROGRAM]

Runs a private libvirtd on this machine, in folders of its own, with idle QEMU guests (no KVM, no
devices) that a private controller boots. Needs root, libvirtd, QEMU, and about 40 MB of memory per
guest.
"""

import argparse
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from stack import Api, Serve, Wrong, free_port

# Halts the processor: cli; hlt; jmp $.
BOOT = bytes.fromhex("faf4ebfe").ljust(510, b"\0") + b"\x55\xaa"
MOUNTS = "run:/run/libvirt lib:/var/lib/libvirt log:/var/log/libvirt etc:/etc/libvirt cache:/var/cache/libvirt"
LIBVIRTD = f"""set -e
mount --make-rprivate /
for pair in {MOUNTS}; do mkdir -p ${{pair#*:}}; mount --bind $1/${{pair%%:*}} ${{pair#*:}}; done
exec libvirtd -p $1/pid/libvirtd.pid"""
QEMU = """user = "root"
group = "root"
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
"""


def libvirtd(folder):
    """Starts a libvirtd that shares nothing with the machine's own."""
    for part in ("run", "lib", "log/qemu", "etc", "cache", "pid"):
        os.makedirs(os.path.join(folder, part))
    for name, content in (("qemu.conf", QEMU), ("libvirtd.conf", 'unix_sock_group = "root"\nauth_unix_rw = "none"\n')):
        with open(os.path.join(folder, "etc", name), "w", encoding="utf-8") as file:
            file.write(content)
    with open(os.path.join(folder, "libvirtd.log"), "wb") as log:
        process = subprocess.Popen(["unshare", "-m", "sh", "-c", LIBVIRTD, "sh", folder], stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 120
    while not os.path.exists(os.path.join(folder, "run/libvirt-sock")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Wrong("libvirtd did not start")
        time.sleep(0.1)
    return process


def guests_end(folder):
    """Ends the guests by the process ids that libvirtd recorded."""
    for path in glob.glob(os.path.join(folder, "run/qemu/instance-*.pid")):
        try:
            with open(path, encoding="utf-8") as file:
                subprocess.run(["kill", "-9", file.read().strip()], check=False, stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            continue


def status(pid, name):
    """A value from /proc/PID/status, in its unit."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(re.search(rf"^{name}:\s+(\d+)", file.read(), re.M).group(1))


def seconds(pid):
    """The CPU time of a process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def agent(options, serve, folder):
    """Starts an agent that inspects all guests every two seconds and logs each time."""
    path = os.path.join(folder, "agent.conf")
    socket = os.path.join(folder, "run/libvirt-sock")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"[DEFAULT]\nhost = bench\nmy_ip = 127.0.0.1\ninstances_path = {folder}/instances\n"
                   "sync_power_state_interval = 2\nreserved_host_memory_mb = 0\ncpu_allocation_ratio = 500\n"
                   "disk_allocation_ratio = 500\n[libvirt]\nvirt_type = qemu\n"
                   f"cpu_mode = none\nconnection_uri = qemu+unix:///system?socket={socket}\n")
    with open(os.path.join(folder, "agent.log"), "wb") as log:
        return subprocess.Popen(
            [options.agent, "run", "--config", path, "--state-dir", os.path.join(folder, "agent"),
             "--control", serve.url, "--token-file", os.path.join(serve.state, "node.token")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**os.environ, "RUST_LOG": "info,kilonova_node=debug"})


def looks(folder):
    """The duration of each inspection so far, in ms."""
    with open(os.path.join(folder, "agent.log"), encoding="utf-8", errors="replace") as file:
        return [int(us) / 1000 for us in re.findall(r'checked all guests.*?took_us"?[:=]"?(\d+)', file.read())]


def boots(api, count, say):
    """Boots servers, as many at a time as a host may build, until `count` are ACTIVE. Returns the seconds it took."""
    made = api.expect(201, "POST", "/image/v2/images", {"name": "halts", "disk_format": "raw", "container_format": "bare"})
    api.expect(204, "PUT", f"/image/v2/images/{made['id']}/file", BOOT.ljust(65536, b"\0"),
               {"Content-Type": "application/octet-stream"})
    flavor = api.expect(200, "POST", "/compute/v2.1/flavors",
                        {"flavor": {"name": "tiny", "vcpus": 1, "ram": 16, "disk": 1}})["flavor"]["id"]
    begun, done = time.monotonic(), 0
    while done < count:
        some = min(8, count - done)
        api.expect(202, "POST", "/compute/v2.1/servers", {"server": {
            "name": "many", "imageRef": made["id"], "flavorRef": flavor, "min_count": some,
            "max_count": some, "networks": "none"}})
        done += some
        deadline = time.monotonic() + 300
        while True:
            states = [server["status"] for server in api.servers().values()]
            if states.count("ACTIVE") == done:
                break
            if "ERROR" in states or time.monotonic() > deadline:
                faults = {server["fault"]["message"] for server in api.servers().values() if "fault" in server}
                raise Wrong(f"of {done} servers {states.count('ACTIVE')} are ACTIVE; {'; '.join(faults) or 'the others wait'}")
            time.sleep(0.5)
        if say:
            print(f"\r{done} of {count} servers", end="", file=sys.stderr, flush=True)
    if say:
        print(file=sys.stderr)
    return time.monotonic() - begun


def measure(options, folder):
    """Measures the table."""
    state = os.path.join(folder, "state")
    os.makedirs(state)
    serve, started = Serve(os.path.abspath(options.kilonova), state, port=free_port()), []
    try:
        started.append(libvirtd(folder))
        serve.start()
        started.append(agent(options, serve, folder))
        api = Api(serve.url, timeout=60)
        project = api.login(serve.openrc())["project"]["id"]
        api.expect(200, "PUT", f"/compute/v2.1/os-quota-sets/{project}",
                   {"quota_set": {"instances": -1, "cores": -1, "ram": -1}})
        deadline = time.monotonic() + 60
        while not api.expect(200, "GET", "/compute/v2.1/os-hypervisors")["hypervisors"]:
            if time.monotonic() > deadline:
                raise Wrong("the agent's host has not registered after 60 s")
            time.sleep(0.2)
        pid, rows = started[-1].pid, []
        for count in (0, options.servers):
            took = boots(api, count, sys.stderr.isatty()) if count else 0
            before, cpu = len(looks(folder)), seconds(pid)
            time.sleep(60)
            seen, cpu = looks(folder)[before:], seconds(pid) - cpu
            rows.append({"servers": count, "looks": len(seen), "look_ms_median": round(statistics.median(seen), 1),
                         "look_ms_longest": round(max(seen), 1), "resident_mb": round(status(pid, "VmRSS") / 1024, 1),
                         "resident_mb_highest": round(status(pid, "VmHWM") / 1024, 1),
                         "cpu_ms_per_s": round(cpu / 60 * 1000, 1), "boots_s": round(took, 1)})
        return rows
    finally:
        if serve.running():
            serve.kill()
        for process in reversed(started):
            process.terminate()
        guests_end(folder)
        for process in started:
            process.wait(20)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--kilonova", default="target/release/kilonova")
    parser.add_argument("--agent", default="target/release/kilonova-agent")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kilonova-agent-bench.") as folder:
        try:
            rows = measure(options, folder)
        except Wrong as error:
            log = os.path.join(folder, "agent.log")
            output = open(log, encoding="utf-8", errors="replace").read()[-2000:] if os.path.exists(log) else ""
            sys.exit(f"agent_bench: {error}\n{output}")
    if options.format == "json":
        print(json.dumps(rows, indent=1))
        return
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
