"""The client of `upgrade.py`: resources for its servers, requests about them, and the lists that an upgrade must
not change.
"""

import random

from chaos_compute import COMPUTE, IMAGES
from stack import Wrong
from upgrade_cases import path
from upgrade_hosts import named, only

VERSION = "2.91"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBERERERERERERERERERERERERERERERERERERERERER upgrade"
# Lists that an upgrade must not change. Operations may change the fields in CHANGES meanwhile.
LISTS = {
    "/identity/v3/users": "users", "/identity/v3/projects": "projects", "/identity/v3/roles": "roles",
    f"{COMPUTE}/flavors/detail": "flavors", f"{COMPUTE}/os-keypairs": "keypairs",
    f"{COMPUTE}/os-aggregates": "aggregates", f"{COMPUTE}/os-server-groups": "server_groups",
    f"{COMPUTE}/os-hypervisors": "hypervisors", "/network/v2.0/networks": "networks",
    "/network/v2.0/subnets": "subnets", "/network/v2.0/security-groups": "security_groups",
    "/network/v2.0/ports": "ports", "/accelerator/v2/device_profiles": "device_profiles",
    "/accelerator/v2/devices": "devices", "/accelerator/v2/deployables": "deployables",
    "/placement/resource_providers": "resource_providers", "/placement/traits": "traits",
    "/placement/resource_classes": "resource_classes",
}
CHANGES = {"updated_at", "generation", "revision_number", "binding:host_id", "binding:profile", "binding:vif_details",
           "binding:vif_type", "status", "state", "links", "revision"}


class Client:
    """The client of a run: the resources for the servers, and requests about them."""

    def __init__(self, api):
        self.api, self.flavors = api, {}
        self.network = self.image = self.other_image = None

    def equip(self, hosts):
        """Creates a network, images, and flavors with each kind of device."""
        api = self.api
        for project in api.expect(200, "GET", "/identity/v3/projects")["projects"]:
            api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{project['id']}",
                       {"quota_set": {"instances": -1, "cores": -1, "ram": -1}})
        made = api.expect(201, "POST", "/network/v2.0/networks", {"network": {"name": "upgrade"}})
        self.network = made["network"]["id"]
        api.expect(201, "POST", "/network/v2.0/subnets", {"subnet": {
            "network_id": self.network, "ip_version": 4, "cidr": "198.51.100.0/24"}})
        api.expect(201, "POST", f"{COMPUTE}/os-keypairs", {"keypair": {"name": "upgrade", "public_key": KEY}})
        api.expect(200, "POST", f"{COMPUTE}/os-aggregates",
                   {"aggregate": {"name": "upgrade", "availability_zone": "upgrade"}})
        api.expect(200, "POST", f"{COMPUTE}/os-server-groups",
                   {"server_group": {"name": "upgrade", "policy": "anti-affinity"}})
        self.image, self.other_image = self.upload("first"), self.upload("second")
        for name, group in (("profile", {"resources:VGPU": "1"}), ("test", {"resources:FPGA": "1"})):
            api.expect(201, "POST", "/accelerator/v2/device_profiles", [{"name": name, "groups": [group]}])
        kinds = {"plain": {}, "vgpu": {"resources:VGPU": "1"}, "function": {"resources:CUSTOM_X710": "1"},
                 "profile": {"accel:device_profile": "profile"}, "test": {"accel:device_profile": "test"}}
        kinds |= {f"only {host}": {"resources:VGPU": "1", f"trait:{only(host)}": "required"} for host in hosts}
        for name, extra in kinds.items():
            body = {"flavor": {"name": name, "disk": 1, "vcpus": 1, "ram": 64}}
            self.flavors[name] = api.expect(200, "POST", f"{COMPUTE}/flavors", body)["flavor"]["id"]
            if extra:
                api.expect(200, "POST", f"{COMPUTE}/flavors/{self.flavors[name]}/os-extra_specs",
                           {"extra_specs": extra})

    def upload(self, name):
        body = {"name": name, "disk_format": "raw", "container_format": "bare"}
        image = self.api.expect(201, "POST", IMAGES, body)["id"]
        self.api.expect(204, "PUT", f"{IMAGES}/{image}/file", random.randbytes(65536),
                        {"Content-Type": "application/octet-stream"})
        return image

    def server(self, case):
        return {"server": {"name": case.name, "networks": [{"uuid": self.network}], "imageRef": self.image,
                           "flavorRef": self.flavors[case.kind], "host": named(case.host),
                           "metadata": {"case": case.name}}}

    def create(self, case):
        case.server = self.send(case, "POST", f"{COMPUTE}/servers", self.server(case))["server"]["id"]

    def request(self, case, body):
        """Requests an operation on the case's server."""
        if body == "DELETE":
            self.send(case, "DELETE", path(case))
        elif body == "attach":
            self.send(case, "POST", f"{path(case)}/os-interface", {"interfaceAttachment": {"net_id": self.network}})
        elif body == "detach":
            port = self.api.expect(200, "GET", f"{path(case)}/os-interface")["interfaceAttachments"][0]["port_id"]
            self.send(case, "DELETE", f"{path(case)}/os-interface/{port}")
        else:
            answer = self.send(case, "POST", f"{path(case)}/action", body)
            if "createImage" in body or "createBackup" in body:
                case.image = answer["image_id"]

    def send(self, case, method, url, body=None):
        status, headers, answer = self.api.ask(method, url, body, {"OpenStack-API-Version": f"compute {VERSION}"})
        if not 200 <= status < 300:
            raise Wrong(f"{case.name}: {method} {url} {body}: {status} {answer}")
        case.request = headers["x-openstack-request-id"]
        return answer

    def begin(self, case):
        """Requests the operation that will be interrupted."""
        if case.server is None:
            self.create(case)
        else:
            self.request(case, case.body(self))

    def migration(self, case):
        """The number of the server's live migration that is in progress."""
        return self.api.expect(200, "GET", f"{path(case)}/migrations")["migrations"][0]["id"]

    def kept(self):
        """The rows that the upgrade must not change."""
        found = {}
        for url, name in LISTS.items():
            for row in self.api.expect(200, "GET", url)[name]:
                row = row.get("keypair", row) if isinstance(row, dict) else {"name": row}
                key = row.get("id") or row.get("uuid") or row["name"]
                found[url, str(key)] = {field: value for field, value in row.items() if field not in CHANGES}
        return found

    def history(self, case):
        """The request and action of each instance action."""
        rows = self.api.expect(200, "GET", f"{path(case)}/os-instance-actions")["instanceActions"]
        return {(row["request_id"], row["action"], row["start_time"]) for row in rows}
