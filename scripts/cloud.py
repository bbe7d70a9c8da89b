#!/usr/bin/env python3
"""Runs Kilonova in Nova's place beside a real Keystone and a real Glance, and checks what it leaves in Glance.

    scripts/cloud.py [--kilonova PROGRAM] [--counts FILE]

The environment names the cloud as for the `openstack` client: OS_AUTH_URL, OS_REGION_NAME, and OS_USERNAME, OS_PASSWORD
and OS_PROJECT_NAME of an admin. The project `service` has a user `nova` with the roles admin and service, and the
project `demo` a user `demo` with the role member; OS_PASSWORD is the password of both. Without OS_AUTH_URL the run is
skipped. Hosts are simulated; every call to Keystone and Glance is real.
"""

import argparse
import hashlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATIENCE = 120
BYTES = os.urandom(1 << 20) * 9


class Wrong(Exception):
    """An observation that should not be."""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body or b"null")


def call(method, url, token=None, body=None, headers=None):
    headers = dict(headers or {})
    if token:
        headers["X-Auth-Token"] = token
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    request = urllib.request.Request(url, data=body, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers, error.read())


def expect(answer, *statuses):
    if answer.status not in statuses:
        raise Wrong(f"{answer.status} instead of {statuses}: {answer.body[:500]!r}")
    return answer


def until(what, check, patience=PATIENCE):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.2)
    raise Wrong(f"{what}: not within {patience} s")


class Cloud:
    """The Keystone and the Glance."""

    def __init__(self):
        self.auth_url = os.environ["OS_AUTH_URL"].rstrip("/")
        self.region = os.environ.get("OS_REGION_NAME", "RegionOne")
        self.password = os.environ["OS_PASSWORD"]
        self.admin, catalog = self.login(os.environ["OS_USERNAME"], os.environ["OS_PROJECT_NAME"])
        self.demo, _ = self.login("demo", "demo")
        image = next(one for one in catalog if one["type"] == "image")
        self.glance = next(one["url"] for one in image["endpoints"] if one["interface"] == "public").rstrip("/")

    def login(self, user, project):
        domain = {"name": "Default"}
        body = {"auth": {
            "identity": {"methods": ["password"], "password": {"user": {"name": user, "password": self.password, "domain": domain}}},
            "scope": {"project": {"name": project, "domain": domain}},
        }}
        answer = expect(call("POST", f"{self.auth_url}/auth/tokens", body=body), 201)
        return answer.headers["X-Subject-Token"], answer.json()["token"]["catalog"]

    def image(self, image, token=None):
        answer = expect(call("GET", f"{self.glance}/v2/images/{image}", token or self.admin), 200, 404)
        return answer.json() if answer.status == 200 else None

    def images(self, **filters):
        query = "&".join(f"{key}={value}" for key, value in filters.items())
        return expect(call("GET", f"{self.glance}/v2/images?limit=200&{query}", self.admin), 200).json()["images"]

    def upload(self, name, **more):
        body = {"name": name, "disk_format": "raw", "container_format": "bare", **more}
        made = expect(call("POST", f"{self.glance}/v2/images", self.demo, body), 201).json()
        octets = {"Content-Type": "application/octet-stream"}
        expect(call("PUT", f"{self.glance}/v2/images/{made['id']}/file", self.demo, BYTES, octets), 204)
        return made["id"]


class Kilonova:
    """The controller, with simulated hosts."""

    def __init__(self, program, cloud, folder):
        self.program, self.folder, self.process = program, folder, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/compute/v2.1"
        self.config = os.path.join(folder, "kilonova.conf")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"""[DEFAULT]
state_path = {folder}/state
[api]
listen = 127.0.0.1:{self.port}
[keystone_authtoken]
auth_url = {cloud.auth_url}
username = nova
password = {cloud.password}
project_name = service
[glance]
region_name = {cloud.region}
valid_interfaces = public
[simulated]
nodes = {folder}/nodes.toml
""")
        os.chmod(self.config, 0o600)
        with open(os.path.join(folder, "nodes.toml"), "w", encoding="utf-8") as file:
            for name in ("one", "two"):
                file.write(f'[[host]]\nname = "{name}"\naddress = "127.0.0.1"\nvcpus = 8\nmemory_mb = 8192\ndisk_gb = 100\n')

    def start(self):
        log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen([self.program, "serve", "--config", self.config], stdin=subprocess.DEVNULL,
                                        stdout=log, stderr=log)

        def ready():
            if self.process.poll() is not None:
                raise Wrong(f"kilonova ended with {self.process.returncode}: {self.log()[-2000:]}")
            try:
                return call("GET", f"http://127.0.0.1:{self.port}/readyz").status == 200
            except OSError:
                return False

        until("the controller is ready", ready)

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def call(self, token, method, path, body=None):
        return call(method, self.url + path, token, body, {"OpenStack-API-Version": "compute 2.90"})

    def server(self, token, server):
        answer = expect(self.call(token, "GET", f"/servers/{server}"), 200, 404)
        return answer.json()["server"] if answer.status == 200 else None

    def wait(self, token, server, status):
        def check():
            shown = self.server(token, server)
            if shown["status"] == "ERROR" and status != "ERROR":
                raise Wrong(f"the server is in ERROR: {shown.get('fault')}")
            return shown["status"] == status and shown["OS-EXT-STS:task_state"] is None and shown
        return until(f"the server is {status}", check)

    def act(self, token, server, action, *statuses):
        return expect(self.call(token, "POST", f"/servers/{server}/action", action), *(statuses or (202,)))


def check(name, found, wanted):
    if found != wanted:
        raise Wrong(f"{name} is {found!r} instead of {wanted!r}")


def boot(cloud, kilonova, image):
    flavor = {"name": f"f{time.time_ns()}", "ram": 64, "vcpus": 1, "disk": 1}
    made = expect(kilonova.call(cloud.admin, "POST", "/flavors", {"flavor": flavor}), 200).json()["flavor"]["id"]
    body = {"server": {"name": "one", "flavorRef": made, "imageRef": image, "networks": "none"}}
    server = expect(kilonova.call(cloud.demo, "POST", "/servers", body), 202).json()["server"]["id"]
    kilonova.wait(cloud.demo, server, "ACTIVE")
    return server, made


def refusals(cloud, kilonova, image):
    """A boot from what the user's token does not show, or what does not fit."""
    private = expect(call("POST", f"{cloud.glance}/v2/images", cloud.admin, {"name": "x", "visibility": "private"}), 201)
    queued = expect(call("POST", f"{cloud.glance}/v2/images", cloud.demo, {"name": "q"}), 201).json()["id"]
    flavor = {"name": f"r{time.time_ns()}", "ram": 64, "vcpus": 1, "disk": 1}
    made = expect(kilonova.call(cloud.admin, "POST", "/flavors", {"flavor": flavor}), 200).json()["flavor"]["id"]
    for ref, words in ((private.json()["id"], "could not be found"), (queued, "is not active")):
        body = {"server": {"name": "no", "flavorRef": made, "imageRef": ref, "networks": "none"}}
        answer = expect(kilonova.call(cloud.demo, "POST", "/servers", body), 400)
        if words not in answer.json()["badRequest"]["message"]:
            raise Wrong(answer.body)
    for one in (private.json()["id"], queued):
        expect(call("DELETE", f"{cloud.glance}/v2/images/{one}", cloud.admin), 204)


def snapshots(cloud, kilonova, server, image):
    """Each image is as upstream leaves it."""
    answer = kilonova.act(cloud.demo, server, {"createImage": {"name": "picture", "metadata": {"for": "tests"}}})
    taken = answer.json()["image_id"]
    kilonova.wait(cloud.demo, server, "ACTIVE")
    shown = cloud.image(taken)
    data = expect(call("GET", f"{cloud.glance}/v2/images/{taken}/file", cloud.demo), 200).body
    check("the size", shown["size"], len(data))
    check("the hash", shown["os_hash_value"], hashlib.sha512(data).hexdigest())
    for key, value in {
        "name": "picture", "status": "active", "visibility": "private", "disk_format": "raw", "container_format": "bare",
        "min_disk": 1, "image_type": "snapshot", "instance_uuid": server, "base_image_ref": image, "for": "tests",
        "image_location": "snapshot", "image_state": "available", "hw_disk_bus": "virtio",
        "owner_id": shown["owner"],
    }.items():
        check(key, shown.get(key), value)
    for _ in range(3):
        backup = {"name": "daily", "backup_type": "daily", "rotation": 1}
        kilonova.act(cloud.demo, server, {"createBackup": backup})
        kilonova.wait(cloud.demo, server, "ACTIVE")
        time.sleep(1.1)     # Glance orders images by seconds
    until("one backup stays", lambda: len(cloud.images(image_type="backup", instance_uuid=server)) == 1)
    return taken


def shelving(cloud, kilonova, server):
    kilonova.act(cloud.demo, server, {"shelve": None})
    kilonova.wait(cloud.demo, server, "SHELVED_OFFLOADED")
    check("the number of shelved images", len(cloud.images(name="one-shelved", instance_uuid=server)), 1)
    kilonova.act(cloud.demo, server, {"unshelve": None})
    kilonova.wait(cloud.demo, server, "ACTIVE")
    until("the shelved image is gone", lambda: not cloud.images(name="one-shelved", instance_uuid=server))


def killed(cloud, kilonova, server):
    """kill -9 during snapshots: what is left is whole, or it is deleted."""
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        process = subprocess.Popen([sys.executable, "-c", (
            "import sys, urllib.request as u\n"
            "r = u.Request(sys.argv[1], data=b'{\"createImage\": {\"name\": \"killed\"}}', method='POST',"
            " headers={'X-Auth-Token': sys.argv[2], 'Content-Type': 'application/json'})\n"
            "try:\n    u.urlopen(r, timeout=60).read()\nexcept Exception:\n    pass\n"),
            f"{kilonova.url}/servers/{server}/action", cloud.demo], stdin=subprocess.DEVNULL)
        time.sleep(0.15 + delay)
        kilonova.kill()
        process.wait()
        kilonova.start()
        kilonova.wait(cloud.demo, server, "ACTIVE")
    # A request that died is due after 15 minutes; its row says so.
    database = os.path.join(kilonova.folder, "state", "kilonova.db")
    rows = dict(sqlite3.connect(f"file:{database}?mode=ro", uri=True).execute("SELECT id, state FROM glance_images"))

    def settled():
        left = [one for one in cloud.images(name="killed", instance_uuid=server) if one["status"] != "active"]
        return all(rows.get(one["id"]) == "creating" for one in left)

    until("images that are not whole are deleted, or a row says when", settled)


def run(program):
    cloud = Cloud()
    with tempfile.TemporaryDirectory() as folder:
        kilonova = Kilonova(program, cloud, folder)
        kilonova.start()
        try:
            image = cloud.upload("cirros", hw_disk_bus="virtio")
            refusals(cloud, kilonova, image)
            server, flavor = boot(cloud, kilonova, image)
            kept = snapshots(cloud, kilonova, server, image)
            shelving(cloud, kilonova, server)
            kilonova.act(cloud.demo, server, {"rescue": {"rescue_image_ref": kept}}, 200)
            kilonova.wait(cloud.demo, server, "RESCUE")
            kilonova.act(cloud.demo, server, {"unrescue": None})
            kilonova.wait(cloud.demo, server, "ACTIVE")
            kilonova.act(cloud.demo, server, {"rebuild": {"imageRef": image}})
            kilonova.wait(cloud.demo, server, "ACTIVE")
            killed(cloud, kilonova, server)
            expect(kilonova.call(cloud.demo, "DELETE", f"/servers/{server}"), 204)
            until("the server is gone", lambda: kilonova.server(cloud.demo, server) is None)
            expect(kilonova.call(cloud.admin, "DELETE", f"/flavors/{flavor}"), 202)
            if any(token in kilonova.log() for token in (cloud.demo, cloud.admin)):
                raise Wrong("the log contains a token")
            for one in cloud.images():
                if one.get("instance_uuid") == server or one["id"] == image:
                    expect(call("DELETE", f"{cloud.glance}/v2/images/{one['id']}", cloud.admin), 204)
        except BaseException:
            print(kilonova.log()[-4000:], file=sys.stderr)
            raise
        finally:
            kilonova.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target", "debug", "kilonova"))
    parser.add_argument("--counts", help="file to write `passed failed skipped` to")
    options = parser.parse_args()
    passed, failed, skipped = 0, 0, 1
    if "OS_AUTH_URL" not in os.environ:
        print("skipped: OS_AUTH_URL names no Keystone")
    else:
        skipped = 0
        try:
            run(options.kilonova)
            passed = 1
            print("cloud: passed")
        except Wrong as why:
            failed = 1
            print(f"cloud: {why}", file=sys.stderr)
    if options.counts:
        with open(options.counts, "w", encoding="utf-8") as file:
            file.write(f"{passed} {failed} {skipped}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
