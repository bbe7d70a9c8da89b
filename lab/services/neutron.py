"""Neutron with ML2/OVS: ports and their bindings. Its agents, one for each node, are in `switch`."""

import ipaddress
import uuid

from services.service import Refusal, Service, fetch

EXTENSIONS = ("binding", "binding-extended", "dns-integration", "fip-port-details", "ip-substring-filtering", "multi-provider",
              "port-resource-request-groups", "security-groups-shared-filtering", "segment")
NETWORK_FILTERS = ("id", "tenant_id", "project_id", "shared", "admin_state_up", "router:external", "name")
PORT_FILTERS = ("id", "device_id", "device_owner", "network_id", "tenant_id", "project_id", "fixed_ips", "binding:host_id", "name")
CHANGEABLE = ("admin_state_up", "device_id", "device_owner", "fixed_ips", "security_groups", "name", "description", "mac_address",
              "dns_name", "binding:host_id", "binding:profile", "binding:vnic_type")
BRIDGE = "br-int"


def not_found(kind, what, ident):
    """404 in Neutron's words."""
    return Refusal(404, kind, f"{what} {ident} could not be found.")


class Neutron(Service):
    """The service. `agents` has the agent of each host by the host's name."""

    def __init__(self, keystone, folder):
        self.networks, self.subnets, self.ports, self.groups = {}, {}, {}, {}
        self.agents, self.nova, self.macs = {}, None, 0
        super().__init__("neutron", keystone, folder)

    def openly(self, path):
        if path in ("/", ""):
            return 200, {"versions": [{"id": "v2.0", "status": "CURRENT",
                                       "links": [{"rel": "self", "href": f"{self.url}/v2.0/"}]}]}
        return None

    def refusal(self, refusal):
        return {"NeutronError": {"type": refusal.kind, "message": refusal.message, "detail": ""}}

    def answer(self, request):
        by = request.caller
        match (request.method, *request.parts[1:]):
            case ("GET", "extensions"):
                return 200, {"extensions": [{"alias": alias, "name": alias} for alias in EXTENSIONS]}
            case ("GET", "networks"):
                return 200, {"networks": self._list(self.networks.values(), NETWORK_FILTERS, request)}
            case ("GET", "networks", ident) if ident in self.networks:
                return 200, {"network": self.networks[ident]}
            case (_, "networks", ident):
                raise not_found("NetworkNotFound", "Network", ident)
            case ("GET", "subnets"):
                return 200, {"subnets": self._list(self.subnets.values(), ("id", "network_id", "tenant_id", "name"), request)}
            case ("GET", "security-groups"):
                self._default_group(by.project)
                groups = [one for one in self.groups.values() if by.admin or one["tenant_id"] == by.project]
                return 200, {"security_groups": self._list(groups, ("id", "name", "tenant_id", "project_id", "shared"), request)}
            case ("GET", "floatingips"):
                return 200, {"floatingips": []}
            case ("GET", "quotas", _):
                return 200, {"quota": {"network": -1, "port": -1}}
            case ("GET", "ports"):
                ports = [self.shown(one, by) for one in self.ports.values() if by.admin or one["tenant_id"] == by.project]
                return 200, {"ports": self._list(ports, PORT_FILTERS, request)}
            case ("POST", "ports"):
                return 201, {"port": self.create(request)}
            case (_, "ports", ident, *rest):
                port = self.ports.get(ident)
                if not port or not by.admin and port["tenant_id"] != by.project:
                    raise not_found("PortNotFound", "Port", ident)
                return self._port(port, request, tuple(rest))
        raise Refusal(404, "HTTPNotFound", "The resource could not be found.")

    @staticmethod
    def _list(objects, filters, request):
        """The objects that the query selects. Refuses attributes by which Neutron does not filter."""
        fields = request.query.get("fields")
        for key in request.query:
            if key not in (*filters, "fields", "limit", "marker"):
                raise Refusal(400, "HTTPBadRequest", f"['{key}'] is invalid attribute for filtering")

        def fits(one, key, wanted):
            if key == "fixed_ips":
                return any(f"ip_address={fixed['ip_address']}" in wanted for fixed in one["fixed_ips"])
            have = one.get(key)
            return str(have).lower() in [word.lower() for word in wanted] if isinstance(have, bool) else have in wanted
        found = [one for one in objects
                 if all(fits(one, key, wanted) for key, wanted in request.query.items() if key in filters)]
        return [{key: one[key] for key in fields if key in one} for one in found] if fields else found

    def add_network(self, project, name, vlan, cidr):
        """A VLAN network with a subnet, as its operator creates it."""
        ident, subnet = str(uuid.uuid4()), str(uuid.uuid4())
        self.networks[ident] = {
            "id": ident, "name": name, "tenant_id": project, "project_id": project, "admin_state_up": True, "status": "ACTIVE",
            "shared": False, "router:external": False, "port_security_enabled": True, "subnets": [subnet], "mtu": 1450,
            "dns_domain": "", "provider:network_type": "vlan", "provider:physical_network": "lan",
            "provider:segmentation_id": vlan}
        self.subnets[subnet] = {
            "id": subnet, "network_id": ident, "cidr": cidr, "ip_version": 4, "gateway_ip": None, "enable_dhcp": False,
            "dns_nameservers": [], "host_routes": [], "name": f"{name}-v4", "ipv6_address_mode": None, "ipv6_ra_mode": None,
            "tenant_id": project, "project_id": project}
        return ident

    def _default_group(self, project):
        for one in self.groups.values():
            if (one["name"], one["tenant_id"]) == ("default", project):
                return one["id"]
        ident = str(uuid.uuid4())
        self.groups[ident] = {"id": ident, "name": "default", "description": "", "tenant_id": project, "project_id": project,
                              "shared": False, "security_group_rules": []}
        return ident

    def create(self, request):
        """A new port."""
        asked, by = request.body["port"], request.caller
        unknown = sorted(set(asked) - {*CHANGEABLE, "network_id", "tenant_id", "project_id"})
        if unknown:
            raise Refusal(400, "HTTPBadRequest", f"Unrecognized attribute(s) '{unknown[0]}'")
        network = self.networks.get(asked.get("network_id"))
        if not network:
            raise not_found("NetworkNotFound", "Network", asked.get("network_id"))
        project = asked.get("tenant_id") or asked.get("project_id") or by.project
        self.macs += 1
        ident = str(uuid.uuid4())
        port = {"id": ident, "name": asked.get("name") or "", "description": "", "network_id": network["id"], "tenant_id": project,
                "project_id": project, "admin_state_up": True, "mac_address": "fa:16:3e:00:%02x:%02x" % divmod(self.macs, 256),
                "status": "DOWN", "device_id": asked.get("device_id") or "", "device_owner": asked.get("device_owner") or "",
                "fixed_ips": [self._address(network)], "port_security_enabled": True, "dns_name": asked.get("dns_name") or "",
                "security_groups": asked.get("security_groups") or [self._default_group(project)],
                "ip_allocation": "immediate", "allowed_address_pairs": [], "revision_number": 1,
                "binding:vnic_type": asked.get("binding:vnic_type") or "normal", "bindings": []}
        self.ports[ident] = port
        if asked.get("binding:host_id"):
            self._bind(port, asked["binding:host_id"], asked.get("binding:profile") or {})
        return self.shown(port, by)

    def _address(self, network):
        subnet = self.subnets[network["subnets"][0]]
        used = {fixed["ip_address"] for port in self.ports.values() for fixed in port["fixed_ips"]}
        # The first addresses are the nodes'.
        free = (str(one) for one in list(ipaddress.ip_network(subnet["cidr"]).hosts())[9:])
        return {"subnet_id": subnet["id"], "ip_address": next(one for one in free if one not in used)}

    @staticmethod
    def active(port):
        """The active binding of a port, or None."""
        return next((one for one in port["bindings"] if one["status"] == "ACTIVE"), None)

    @staticmethod
    def _details(binding):
        return {"port_filter": True, "connectivity": "l2", "bridge_name": BRIDGE, "datapath_type": "system",
                "ovs_hybrid_plug": False} if binding and binding["vif_type"] == "ovs" else {}

    def shown(self, port, by):
        """A port as a caller sees it: the binding is for administrators."""
        view = {key: value for key, value in port.items() if key != "bindings"}
        if by is None or by.admin:
            active = self.active(port) or {}
            view.update({"binding:host_id": active.get("host", ""), "binding:vif_type": active.get("vif_type", "unbound"),
                         "binding:vif_details": self._details(active), "binding:profile": active.get("profile", {}),
                         "resource_request": None})
        return view

    def _binding(self, binding):
        return {**binding, "vif_details": self._details(binding)}

    def _port(self, port, request, rest):
        """Answers a request for a port or its bindings."""
        by = request.caller
        match (request.method, *rest):
            case ("GET",):
                fields, view = request.query.get("fields"), self.shown(port, by)
                return 200, {"port": {key: view[key] for key in fields if key in view} if fields else view}
            case ("PUT",):
                self._update(port, request)
                return 200, {"port": self.shown(port, by)}
            case ("DELETE",):
                del self.ports[port["id"]]
                return 204, None
        if not by.admin:
            return 200, {"bindings": []}
        match (request.method, *rest):
            case ("GET", "bindings"):
                return 200, {"bindings": [self._binding(one) for one in port["bindings"]]}
            case ("POST", "bindings"):
                asked = request.body["binding"]
                host = asked["host"]
                if any(one["host"] == host for one in port["bindings"]):
                    raise Refusal(409, "PortBindingAlreadyExists", f"Binding for port {port['id']} on host {host} already exists.")
                if host not in self.agents:
                    raise Refusal(500, "PortBindingError",
                                  f"Binding for port {port['id']} on host {host} could not be created or updated.")
                binding = {"host": host, "status": "INACTIVE" if port["bindings"] else "ACTIVE", "vif_type": "ovs",
                           "vnic_type": asked.get("vnic_type") or "normal", "profile": asked.get("profile") or {}}
                port["bindings"].append(binding)
                return 201, {"binding": self._binding(binding)}
            case ("PUT", "bindings", host, "activate"):
                wanted = self._of_host(port, host)
                if wanted["status"] == "ACTIVE":
                    raise Refusal(409, "PortBindingAlreadyActive", f"Binding for port {port['id']} on host {host} is already active.")
                for one in port["bindings"]:
                    if one["status"] == "ACTIVE":
                        one["vif_type"] = "unbound"
                    one["status"] = "ACTIVE" if one is wanted else "INACTIVE"
                port["status"] = "DOWN"
                # Unlike other answers, this one is not wrapped in a key. The agent looks at the port only when it is updated.
                return 200, self._binding(wanted)
            case ("DELETE", "bindings", host):
                gone = self._of_host(port, host)
                port["bindings"].remove(gone)
                if gone["status"] == "ACTIVE":
                    # As observed on a real Neutron: the port is deleted with its only active binding.
                    del self.ports[port["id"]]
                return 204, None
        raise Refusal(404, "HTTPNotFound", "The resource could not be found.")

    @staticmethod
    def _of_host(port, host):
        for one in port["bindings"]:
            if one["host"] == host:
                return one
        raise Refusal(404, "PortBindingNotFound", f"Binding for port {port['id']} for host {host} could not be found.")

    def _update(self, port, request):
        change = dict(request.body["port"])
        for key in change:
            if key not in CHANGEABLE:
                raise Refusal(400, "HTTPBadRequest", f"Unrecognized attribute(s) '{key}'")
            if key in ("binding:host_id", "binding:profile") and not request.caller.admin:
                raise Refusal(403, "PolicyNotAuthorized", f"(rule:update_port and rule:update_port:{key}) is disallowed by policy")
        before = self.active(port)
        is_binding = "binding:host_id" in change or "binding:profile" in change
        host = change.pop("binding:host_id", before["host"] if before else "") or ""
        profile = change.pop("binding:profile", before["profile"] if before else {}) or {}
        port.update(change)
        if is_binding:
            self._bind(port, host, profile)
        for agent in self.agents.values():
            agent.look(port["id"])

    def _bind(self, port, host, profile):
        """Binds a port to a host, as an update does, which removes its other active binding."""
        before = self.active(port)
        port["bindings"] = [one for one in port["bindings"] if one["status"] != "ACTIVE"]
        if not before or before["host"] != host:
            port["status"] = "DOWN"
        if host:
            vif_type = "ovs" if host in self.agents else "binding_failed"
            port["bindings"].insert(0, {"host": host, "status": "ACTIVE", "vif_type": vif_type,
                                        "vnic_type": port["binding:vnic_type"], "profile": profile})

    # For the agents.

    def vlan(self, host, ident):
        """The VLAN to which an agent connects a port, or None. None also while another host has a binding: the Open
        vSwitch agent was observed to treat such a port as one that migrates away."""
        with self.lock:
            port = self.ports.get(ident)
            active = port and self.active(port)
            if not active or active["host"] != host or len(port["bindings"]) > 1:
                return None
            return self.networks[port["network_id"]]["provider:segmentation_id"]

    def plugged(self, host, ident, is_plugged):
        """An agent has connected a port on its host, or no longer sees its interface."""
        with self.lock:
            if self.vlan(host, ident) is None:
                return
            port, status = self.ports[ident], "ACTIVE" if is_plugged else "DOWN"
            changed, port["status"] = port["status"] != status, status
            server, owner = port["device_id"], port["device_owner"]
        if changed and owner.startswith("compute:"):
            self._event("network-vif-plugged" if is_plugged else "network-vif-unplugged", server, ident)

    def _event(self, name, server, port):
        body = {"events": [{"name": name, "server_uuid": server, "tag": port, "status": "completed"}]}
        try:
            status, _, text = fetch("POST", f"{self.nova}/os-server-external-events", self.keystone.token(), body)
            self.log(f"event {name} of {port}: {status} {text.decode()}")
        except OSError as error:
            self.log(f"event {name} of {port}: {error}")
