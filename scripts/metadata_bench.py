#!/usr/bin/env python3
"""Measures the cost of a guest's metadata request for `kilonova serve`, behind Neutron's proxies.

    scripts/metadata_bench.py [--kilonova PROGRAM] [--guests 1000] [--questions 40] [--database URL]

Boots the guests on simulated hosts of the process, then asks for each of them as cloud-init does, on 16 connections at
once. Prints the questions per second, and the process's processor time per question, separately for the first question
of each guest, which reads its rows, and for the others, which are answered from memory.
"""

import argparse
import hashlib
import hmac
import http.client
import os
import shutil
import sys
import tempfile
import threading
import time

from chaos_compute import COMPUTE
from stack import Serve, Wrong, free_port

SECRET = "shared"
PATHS = ["/openstack", "/openstack/latest/meta_data.json", "/openstack/latest/network_data.json",
         "/openstack/latest/vendor_data.json", "/openstack/latest/vendor_data2.json", "/latest/meta-data/",
         "/latest/meta-data/instance-id", "/latest/meta-data/public-keys/", "/latest/meta-data/placement/",
         "/latest/meta-data/local-ipv4"]
CONNECTIONS = 16
HOST = """[[host]]
name = "node{0}"
address = "192.0.2.{0}"
vcpus = 4096
memory_mb = 4194304
disk_gb = 65536
traits = ["COMPUTE_NODE"]
"""


def cpu(pid):
    """The processor time of a process, in seconds."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask_all(port, project, servers, paths):
    """Asks all paths for all servers on several connections."""
    wrong = []

    def lane(mine):
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for server in mine:
            signature = hmac.new(SECRET.encode(), server.encode(), hashlib.sha256).hexdigest()
            headers = {"X-Instance-ID": server, "X-Tenant-ID": project, "X-Instance-ID-Signature": signature,
                       "X-Forwarded-For": "10.0.0.9"}
            for path in paths:
                link.request("GET", path, headers=headers)
                answer = link.getresponse()
                answer.read()
                if answer.status != 200 and "public-keys" not in path:
                    wrong.append((path, answer.status))

    lanes = [threading.Thread(target=lane, args=(servers[at::CONNECTIONS],)) for at in range(CONNECTIONS)]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    if wrong:
        raise Wrong(f"{len(wrong)} questions were not answered: {wrong[:3]}")


def boot(serve, count):
    """Boots the guests; returns their project and ids."""
    api = serve.api()
    api.login(serve.openrc())
    quota = {"quota_set": {"instances": -1, "cores": -1, "ram": -1}}
    project = api.expect(200, "GET", "/identity/v3/auth/projects")["projects"][0]["id"]
    api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{project}", quota)
    api.expect(200, "POST", f"{COMPUTE}/flavors",
               {"flavor": {"id": "tiny", "name": "tiny", "ram": 64, "vcpus": 1, "disk": 1}})
    image = api.expect(201, "POST", "/image/v2/images",
                       {"name": "tiny", "disk_format": "raw", "container_format": "bare"})["id"]
    api.expect(204, "PUT", f"/image/v2/images/{image}/file", b"x", {"Content-Type": "application/octet-stream"})
    for at in range(0, count, 100):
        api.expect(202, "POST", f"{COMPUTE}/servers", {"server": {
            "name": f"guest{at}", "flavorRef": "tiny", "imageRef": image, "networks": "none",
            "min_count": min(100, count - at)}})
    deadline = time.monotonic() + 600
    while True:
        # The client of the scripts follows the pages.
        found = api.servers()
        states = [server["status"] for server in found.values()]
        if states.count("ACTIVE") == count:
            return project, list(found)
        if "ERROR" in states or time.monotonic() > deadline:
            raise Wrong(f"not all guests run: {states.count('ACTIVE')} of {count}, {states.count('ERROR')} in ERROR")
        time.sleep(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--kilonova", default=os.path.join(root, "target/release/kilonova"))
    parser.add_argument("--guests", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--database", help="PostgreSQL URL (default: SQLite)")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="kilonova-metadata-")
    state, port = os.path.join(folder, "state"), free_port()
    os.mkdir(state, mode=0o700)
    config, nodes = os.path.join(folder, "kilonova.conf"), os.path.join(folder, "hosts.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"[DEFAULT]\nmetadata_listen = 127.0.0.1\nmetadata_listen_port = {port}\n[api]\n"
                   f"metadata_cache_expiration = 600\n[neutron]\nservice_metadata_proxy = true\n"
                   f"metadata_proxy_shared_secret = {SECRET}\n")
    with open(nodes, "w", encoding="utf-8") as file:
        file.write("".join(HOST.format(number) for number in range(1, 11)))
    serve = Serve(os.path.abspath(options.kilonova), state, nodes, options.database, config)
    try:
        serve.start()
        project, servers = boot(serve, options.guests)
        time.sleep(5)
        pid = serve.process.pid
        begun, idle = time.monotonic(), cpu(pid)
        time.sleep(5)
        rest = (cpu(pid) - idle) / (time.monotonic() - begun)
        print(f"{options.guests} guests run; at rest, the process uses {100 * rest:.1f} % of a processor")
        paths = [PATHS[at % len(PATHS)] for at in range(options.questions - 1)]
        for what, asked in (("the first question", ["/openstack/latest/meta_data.json"]), ("the others", paths)):
            begun, before = time.monotonic(), cpu(pid)
            ask_all(port, project, servers, asked)
            took, used = time.monotonic() - begun, cpu(pid) - before
            used -= rest * took
            count = len(servers) * len(asked)
            print(f"{what}: {count} in {took:.1f} s, {count / took:.0f} a second, {1e6 * used / count:.0f} us of "
                  "processor time each")
    finally:
        serve.away()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
