"""Shared parts of the runs beside the services of a real cloud: its Keystone and catalog, a controller with
simulated hosts in the place of its Nova, and the command line.

The environment names the cloud as for the `openstack` client: OS_AUTH_URL, OS_REGION_NAME, and OS_USERNAME, OS_PASSWORD
and OS_PROJECT_NAME of an admin. The project `service` has a user `nova` with the roles admin and service, and the
project `demo` a user `demo` with the role member; OS_PASSWORD is the password of both. Without OS_AUTH_URL a run is
skipped. Hosts are simulated; every call to a service of the cloud is real.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATIENCE = 120
BYTES = os.urandom(1 << 20) * 9


class Wrong(Exception):
    """An unexpected observation."""


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
    """Waits until `check` returns a true value. `what` describes it, or is a function that does so after a timeout."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.2)
    raise Wrong(f"{what() if callable(what) else what}: not within {patience} s")


def check(name, found, wanted):
    if found != wanted:
        raise Wrong(f"{name} is {found!r} instead of {wanted!r}")


class Cloud:
    """The Keystone, its catalog and the Glance."""

    def __init__(self):
        self.auth_url = os.environ["OS_AUTH_URL"].rstrip("/")
        self.region = os.environ.get("OS_REGION_NAME", "RegionOne")
        self.password = os.environ["OS_PASSWORD"]
        self.admin, self.catalog, _ = self.login(os.environ["OS_USERNAME"], os.environ["OS_PROJECT_NAME"])
        self.demo, _, self.demo_project = self.login("demo", "demo")
        self.glance = self.endpoint("image")

    def login(self, user, project):
        """A token, the catalog and the project's id."""
        domain = {"name": "Default"}
        body = {"auth": {
            "identity": {"methods": ["password"], "password": {"user": {"name": user, "password": self.password, "domain": domain}}},
            "scope": {"project": {"name": project, "domain": domain}},
        }}
        answer = expect(call("POST", f"{self.auth_url}/auth/tokens", body=body), 201)
        token = answer.json()["token"]
        return answer.headers["X-Subject-Token"], token["catalog"], token["project"]["id"]

    def endpoint(self, *types):
        """The public endpoint of a service; None if the catalog has none."""
        for service in self.catalog:
            if service["type"] in types:
                for one in service["endpoints"]:
                    if one["interface"] == "public" and one["region_id"] == self.region:
                        return one["url"].rstrip("/")
        return None

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


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Kilonova:
    """The controller, with simulated hosts. `options` are additional lines of its configuration by group."""

    def __init__(self, program, cloud, folder, hosts=("one", "two"), port=None, options=None):
        self.program, self.folder, self.process = program, folder, None
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}/v2.1"
        self.config = os.path.join(folder, "kilonova.conf")
        groups = {
            "DEFAULT": {"state_path": f"{folder}/state"},
            "api": {"listen": f"127.0.0.1:{self.port}"},
            "keystone_authtoken": self.login(cloud),
            "glance": {"region_name": cloud.region, "valid_interfaces": "public"},
            "simulated": {"nodes": f"{folder}/nodes.toml"},
        }
        for group, more in (options or {}).items():
            groups[group] = {**groups.get(group, {}), **more}
        with open(self.config, "w", encoding="utf-8") as file:
            for group, values in groups.items():
                file.write(f"[{group}]\n")
                file.writelines(f"{key} = {value}\n" for key, value in values.items())
        os.chmod(self.config, 0o600)
        with open(os.path.join(folder, "nodes.toml"), "w", encoding="utf-8") as file:
            for name in hosts:
                file.write(f'[[host]]\nname = "{name}"\naddress = "127.0.0.1"\nvcpus = 8\nmemory_mb = 8192\ndisk_gb = 100\n')

    @staticmethod
    def login(cloud):
        """The options of the service's login."""
        return {"auth_type": "password", "auth_url": cloud.auth_url, "username": "nova", "password": cloud.password,
                "project_name": "service"}

    def start(self):
        log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen([self.program, "serve", "--config", self.config], stdin=subprocess.DEVNULL,
                                        stdout=log, stderr=log)
        log.close()

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
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def call(self, token, method, path, body=None, version="2.90"):
        return call(method, self.url + path, token, body, {"OpenStack-API-Version": f"compute {version}"})

    def flavor(self, cloud, disk=1):
        body = {"flavor": {"name": f"f{time.time_ns()}", "ram": 64, "vcpus": 1, "disk": disk}}
        return expect(self.call(cloud.admin, "POST", "/flavors", body), 200).json()["flavor"]["id"]

    def server(self, token, server):
        answer = expect(self.call(token, "GET", f"/servers/{server}"), 200, 404)
        return answer.json()["server"] if answer.status == 200 else None

    def wait(self, token, server, status):
        def settled():
            shown = self.server(token, server)
            if shown["status"] == "ERROR" and status != "ERROR":
                raise Wrong(f"the server is in ERROR: {shown.get('fault')}")
            return shown["status"] == status and shown["OS-EXT-STS:task_state"] is None and shown
        return until(f"the server is {status}", settled)

    def act(self, token, server, action, *statuses):
        return expect(self.call(token, "POST", f"/servers/{server}/action", action), *(statuses or (202,)))


class Journey:
    """Takes a server through every operation. After each, `look(verb, shown)` inspects the server as an admin sees it,
    and returns a description of its findings."""

    def __init__(self, cloud, kilonova, look):
        self.cloud, self.kilonova, self.look = cloud, kilonova, look
        self.flavors = [kilonova.flavor(cloud) for _ in range(2)]
        self.rows = []

    def boot(self, status="ACTIVE", token=None, version="2.90", **body):
        body = {"name": "one", "flavorRef": self.flavors[0], **body}
        answer = self.kilonova.call(token or self.cloud.demo, "POST", "/servers", {"server": body}, version)
        server = expect(answer, 202).json()["server"]["id"]
        self.kilonova.wait(self.cloud.admin, server, status)
        return server

    def seen(self, server, verb):
        shown = self.kilonova.server(self.cloud.admin, server)
        found = self.look(verb, shown)
        print(f"    {verb}: {found}", flush=True)
        self.rows.append((verb, found))

    def do(self, server, verb, action, status, token=None, statuses=(202,)):
        """Sends an action, waits for the status, and checks the server."""
        kilonova = self.kilonova
        before = kilonova.server(self.cloud.admin, server)
        expect(kilonova.call(token or self.cloud.demo, "POST", f"/servers/{server}/action", action), *statuses)
        shown = kilonova.wait(self.cloud.admin, server, status)
        self.seen(server, verb)
        return before["OS-EXT-SRV-ATTR:host"], shown["OS-EXT-SRV-ATTR:host"]

    def moved(self, verb, hosts):
        if hosts[0] == hosts[1]:
            raise Wrong(f"{verb} leaves the server on {hosts[0]}")

    def all(self, server, image, root_image=None):
        """`image` is for a rescue and a rebuild; None omits them."""
        admin = self.cloud.admin
        other = self.flavors[1]
        self.do(server, "stop", {"os-stop": None}, "SHUTOFF")
        self.do(server, "start", {"os-start": None}, "ACTIVE")
        self.do(server, "soft reboot", {"reboot": {"type": "SOFT"}}, "ACTIVE")
        self.do(server, "hard reboot", {"reboot": {"type": "HARD"}}, "ACTIVE")
        self.do(server, "pause", {"pause": None}, "PAUSED")
        self.do(server, "unpause", {"unpause": None}, "ACTIVE")
        self.do(server, "suspend", {"suspend": None}, "SUSPENDED")
        self.do(server, "resume", {"resume": None}, "ACTIVE")
        self.moved("resize", self.do(server, "resize", {"resize": {"flavorRef": other}}, "VERIFY_RESIZE"))
        self.moved("revert", self.do(server, "revert of the resize", {"revertResize": None}, "ACTIVE"))
        self.do(server, "resize again", {"resize": {"flavorRef": other}}, "VERIFY_RESIZE")
        self.do(server, "confirmation of the resize", {"confirmResize": None}, "ACTIVE", statuses=(202, 204))
        self.moved("migrate", self.do(server, "cold migration", {"migrate": None}, "VERIFY_RESIZE", admin))
        self.do(server, "confirmation of the migration", {"confirmResize": None}, "ACTIVE", statuses=(202, 204))
        live = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
        self.moved("live migration", self.do(server, "live migration", live, "ACTIVE", admin))
        self.evacuate(server)
        self.do(server, "shelve", {"shelve": None}, "SHELVED_OFFLOADED")
        self.do(server, "unshelve", {"unshelve": None}, "ACTIVE")
        if image:
            self.do(server, "rescue", {"rescue": {"rescue_image_ref": image}}, "RESCUE", statuses=(200,))
            self.do(server, "unrescue", {"unrescue": None}, "ACTIVE")
            self.do(server, "rebuild", {"rebuild": {"imageRef": image}}, "ACTIVE")

    def evacuate(self, server):
        kilonova, admin = self.kilonova, self.cloud.admin
        host = kilonova.server(admin, server)["OS-EXT-SRV-ATTR:host"]
        services = expect(kilonova.call(admin, "GET", f"/os-services?binary=nova-compute&host={host}"), 200).json()
        path = f"/os-services/{services['services'][0]['id']}"
        expect(kilonova.call(admin, "PUT", path, {"forced_down": True}), 200)
        hosts = self.do(server, "evacuation", {"evacuate": {}}, "ACTIVE", admin, (200,))
        self.moved("evacuation", hosts)
        # 400 until the host has removed the guest.
        until("the host is forced up", lambda: kilonova.call(admin, "PUT", path, {"forced_down": False}).status == 200)

    def delete(self, server):
        kilonova = self.kilonova
        expect(kilonova.call(self.cloud.demo, "DELETE", f"/servers/{server}"), 204)
        until("the server is gone", lambda: kilonova.server(self.cloud.demo, server) is None)

    def end(self):
        for flavor in self.flavors:
            expect(self.kilonova.call(self.cloud.admin, "DELETE", f"/flavors/{flavor}"), 202)


def play(name, program, scene, cloud=None, **settings):
    """Runs `scene(cloud, kilonova)` with a controller in a separate folder."""
    cloud = cloud or Cloud()
    with tempfile.TemporaryDirectory() as folder:
        kilonova = Kilonova(program, cloud, folder, **settings)
        try:
            kilonova.start()
            scene(cloud, kilonova)
            if any(secret in kilonova.log() for secret in (cloud.demo, cloud.admin)):
                raise Wrong("the log contains a token")
        except BaseException:
            print(kilonova.log()[-4000:], file=sys.stderr)
            keep = os.environ.get("KILONOVA_CLOUD_LOG")
            if keep:
                with open(keep, "w", encoding="utf-8") as file:
                    file.write(kilonova.log())
            raise
        finally:
            kilonova.kill()
    print(f"{name}: passed")


def main(description, name, run, lacking=lambda: None):
    """The command line of a run. `lacking()` names what the run needs and the cloud lacks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target", "debug", "kilonova"))
    parser.add_argument("--counts", help="file to write `passed failed skipped` to")
    options = parser.parse_args()
    passed, failed, skipped = 0, 0, 0
    why = "OS_AUTH_URL is not set" if "OS_AUTH_URL" not in os.environ else lacking()
    if why:
        print(f"skipped: {why}")
        skipped = 1
    else:
        try:
            run(options.kilonova)
            passed = 1
        except Wrong as wrong:
            failed = 1
            print(f"{name}: {wrong}", file=sys.stderr)
    if options.counts:
        with open(options.counts, "w", encoding="utf-8") as file:
            file.write(f"{passed} {failed} {skipped}\n")
    return 1 if failed else 0
