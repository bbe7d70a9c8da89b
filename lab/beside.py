"""A Kilonova in Nova's place: its Keystone is another Kilonova, Cinder and Neutron are the lab's (services/).

`keystone` serves only the Identity API. `serve` accepts tokens of that Keystone and uses volumes of that Cinder and
ports of that Neutron. The stock client finds all of them in the catalog.
"""

import json
import os
import secrets
import shutil

from cloud import GATEWAY, Asked, Cloud
from cli import Clients
from services.cinder import Cinder
from services.metadata import MetadataAgent
from services.neutron import Neutron
from services.service import Keystone
from services.switch import Agent
from services.target import Target
from stack import Serve, free_port

REGION = "RegionOne"


class Beside(Cloud):
    """The cloud of a scenario; `other` is the lab's usual one, which is stopped meanwhile."""

    def __init__(self, lab, alias):  # pylint: disable=super-init-not-called
        other, options = lab.cloud, lab.options
        self.folder, self.guest = os.path.join(other.folder, "beside"), other.guest
        self.run_folder, self.alias = other.folder, alias
        shutil.rmtree(self.folder, ignore_errors=True)
        states = {name: os.path.join(self.folder, name, "state") for name in ("keystone", "nova")}
        for state in states.values():
            os.makedirs(state)
        program = os.path.abspath(options.kilonova)
        self.identity = Serve(program, states["keystone"], config=os.path.join(self.folder, "keystone.conf"))
        self.serve = Serve(program, states["nova"], config=os.path.join(self.folder, "nova.conf"))
        # Commands and checks are counted with those of the lab.
        self.clients = Clients(options.openstack, os.path.join(states["keystone"], "clouds.yaml"), options.brief)
        self.live, self.held = True, []
        self.api, self.name, self.made, self.lanes = None, None, set(), {}
        self.password, self.secret, self.metadata_port = secrets.token_hex(12), secrets.token_hex(12), free_port()
        self.target = Target(lab.nodes[0].built.target, os.path.join(self.folder, "volumes"), GATEWAY)
        self.cinder = self.neutron = self.metadata = None

    def _asked(self):
        api = Asked(self.serve.url, timeout=60)
        api.token = self._login().token
        api.renew = lambda: self._token(self.identity.url)
        return api

    def _login(self):
        """A client of the Keystone with its administrator's token."""
        keystone = Asked(self.identity.url, timeout=60)
        keystone.login(self.openrc())
        return keystone

    def start(self):
        """Starts the Keystone, Cinder and Neutron, and Kilonova in Nova's place."""
        with open(self.identity.config, "w", encoding="utf-8") as file:
            file.write("[api]\nservices = identity\n")
        said = self._launch(self.identity, "keystone.pid")
        self.target.start(os.path.join(self.run_folder, "tgtd.pid"))
        keystone = self._login()
        self._service_user(keystone)
        login = Keystone(f"{self.identity.url}/identity", "nova", self.password, "service")
        self.cinder = Cinder(login, self.folder, self.target)
        self.neutron = Neutron(login, self.folder)
        self.metadata = MetadataAgent(self.neutron, self.metadata_port, self.secret)
        self._configure()
        said += "\n" + self._launch(self.serve, "nova.pid")
        url = self.serve.url
        self.cinder.glance, self.cinder.nova = f"{url}/image", f"{url}/compute/v2.1"
        self.neutron.nova = self.cinder.nova
        self._catalog(keystone, {
            "compute": self.cinder.nova, "placement": f"{url}/placement", "accelerator": f"{url}/accelerator/v2",
            "image": self.cinder.glance, "network": self.neutron.url,
            "volumev3": f"{self.cinder.url}/v3/%(project_id)s", "block-storage": f"{self.cinder.url}/v3/%(project_id)s"})
        self.api = self._asked()
        return said

    def _launch(self, serve, pid):
        said = serve.start(timeout=120)
        with open(os.path.join(self.run_folder, pid), "w", encoding="utf-8") as file:
            file.write(str(serve.process.pid))
        return said

    def _service_user(self, keystone):
        """The user `nova` with the roles admin and service in the project `service`."""
        def found(what, name):
            for one in keystone.expect(200, "GET", f"/identity/v3/{what}?name={name}")[what]:
                return one["id"]
            key = what[:-1]
            more = {"password": self.password} if key == "user" else {}
            return keystone.expect(201, "POST", f"/identity/v3/{what}", {key: {"name": name, **more}})[key]["id"]
        user, project = found("users", "nova"), found("projects", "service")
        for role in ("admin", "service"):
            keystone.expect(204, "PUT", f"/identity/v3/projects/{project}/users/{user}/roles/{found('roles', role)}")

    def _catalog(self, keystone, urls):
        for kind, url in urls.items():
            service = keystone.expect(201, "POST", "/identity/v3/services", {"service": {"type": kind, "name": kind}})["service"]["id"]
            for interface in ("public", "internal"):
                keystone.expect(201, "POST", "/identity/v3/endpoints", {"endpoint": {
                    "service_id": service, "interface": interface, "region_id": REGION, "url": url}})

    def _configure(self):
        login = (f"auth_type = password\nauth_url = {self.identity.url}/identity\nusername = nova\npassword = {self.password}\n"
                 "project_name = service\nuser_domain_name = Default\nproject_domain_name = Default\n")
        with open(self.serve.config, "w", encoding="utf-8") as file:
            os.chmod(self.serve.config, 0o600)
            file.write(
                "[DEFAULT]\nresume_guests_state_on_host_boot = true\nmetadata_listen = 127.0.0.1\n"
                f"metadata_listen_port = {self.metadata_port}\n"
                f"[keystone_authtoken]\n{login}[service_user]\nsend_service_user_token = true\n{login}"
                f"[cinder]\nos_region_name = {REGION}\n"
                f"[neutron]\n{login}region_name = {REGION}\nservice_metadata_proxy = true\n"
                f"metadata_proxy_shared_secret = {self.secret}\n"
                f"[node]\nlisten = 127.0.0.1:{free_port()}\nnames = {GATEWAY}\n"
                "[pci]\nalias = " + json.dumps(self.alias) + "\n")

    def agents(self, nodes):
        """Starts Neutron's agents, which follow the nodes' switches."""
        for node in nodes:
            agent = self.neutron.agents.get(node.name) or Agent(self.neutron, node)
            self.neutron.agents[node.name] = agent
            agent.start()

    def project(self):
        """The id of the project in which the stock client works."""
        return self.clients.call(["project", "show", "admin", "-f", "value", "-c", "id"])[1].strip()

    def stop(self):
        """Stops everything."""
        super().stop()
        if self.identity.running():
            self.identity.kill()
        if self.neutron:
            for agent in self.neutron.agents.values():
                agent.stop()
        for service in (self.cinder, self.neutron, self.metadata):
            if service:
                service.stop()
        self.target.stop()

    def openrc(self):
        return self.identity.openrc()
