#!/usr/bin/env python3
"""Calls every method of openstacksdk's `conn.compute` that is in scope; compute_clients.py runs it.

    compute_sdk.py CLOUD        with the Python that has openstacksdk

Needs the simulated hosts of scripts/compute/hosts.toml, and creates the rest. Prints a tick for each check
that passes, and exits with 1 at the first that fails. The list of methods comes from the installed
openstacksdk; those out of scope are listed below with their reason.
"""

import sys
import time
import urllib.parse
import uuid
import warnings

import openstack
from openstack import exceptions
from openstack.compute.v2._proxy import Proxy

warnings.simplefilter("ignore")
NOWHERE = "11111111-2222-3333-4444-555555555555"
ROUTERS = "this run has no routers, so it has no floating IPs"
VOLUMES = "volumes: there is no Cinder"
SHARES = "shares: there is no Manila"
IMAGES = "Nova's proxy of Glance ends at 2.35, and Kilonova has none"
OUT_OF_SCOPE = {
    **dict.fromkeys(("add_floating_ip_to_server", "remove_floating_ip_from_server"), ROUTERS),
    # Nova removed these at 2.44, and this client requests its newest version.
    **dict.fromkeys(("add_fixed_ip_to_server", "remove_fixed_ip_from_server"), "ended at 2.44"),
    **dict.fromkeys(("create_volume_attachment", "update_volume_attachment", "delete_volume_attachment",
                     "get_volume_attachment"), VOLUMES),
    **dict.fromkeys(("create_share_attachment", "delete_share_attachment", "get_share_attachment",
                     "share_attachments"), SHARES),
    **dict.fromkeys(("delete_image", "find_image", "get_image", "images", "fetch_image_metadata", "get_image_metadata",
                     "set_image_metadata", "delete_image_metadata"), IMAGES),
}


class Watched:
    """`conn.compute`; remembers which methods were called."""

    used = set()

    def __init__(self, proxy):
        self.proxy = proxy

    def __getattr__(self, name):
        if name in vars(Proxy):
            self.used.add(name)
        return getattr(self.proxy, name)


def tick(text, holds=True, why=""):
    """Prints a tick if a check passes; otherwise exits."""
    print(f"✓ {text}" if holds else f"✗ {text}: check failed: {why}", flush=True)
    if not holds:
        sys.exit(1)


def same(text, found, wanted):
    """Checks a value."""
    tick(text, found == wanted, f"{found!r}, not {wanted!r}")


def refused(kind, message, call):
    """Checks that a call is refused with the expected message."""
    try:
        call()
    except kind as error:
        tick(f"refused: {message}", message in str(error), str(error))
    else:
        tick(f"refused: {message}", False, "it was not refused")


def flavors(c, project):
    """Flavors with their extra specs and access."""
    made = c.create_flavor(name="sdk", vcpus=1, ram=64, disk=1, is_public=False)
    same("a flavor is found", c.find_flavor("sdk").id, made.id)
    same("and shown", c.get_flavor(made.id).ram, 64)
    same("changed", c.update_flavor(made, description="d").description, "d")
    same("listed", [one.name for one in c.flavors(is_public=False, get_extra_specs=True)], ["sdk"])
    c.flavor_add_tenant_access(made, project.id)
    same("a project may use it", [one["tenant_id"] for one in c.get_flavor_access(made)], [project.id])
    c.flavor_remove_tenant_access(made, project.id)
    same("and may not", c.get_flavor_access(made), [])
    c.create_flavor_extra_specs(made, {"hw:cpu_policy": "shared"})
    same("extra specs", c.fetch_flavor_extra_specs(made).extra_specs, {"hw:cpu_policy": "shared"})
    same("one", c.get_flavor_extra_specs_property(made, "hw:cpu_policy"), "shared")
    same("changed", c.update_flavor_extra_specs_property(made, "hw:cpu_policy", "shared"), "shared")
    c.delete_flavor_extra_specs_property(made, "hw:cpu_policy")
    c.delete_flavor(made, ignore_missing=False)
    refused(exceptions.NotFoundException, "could not be found", lambda: c.get_flavor(made.id))
    return [c.create_flavor(name=f"sdk-{name}", vcpus=1, ram=ram, disk=1) for name, ram in
            (("vgpu", 64), ("more", 128), ("plain", 64))]


def hosts(c, image):
    """Aggregates, zones, hypervisors, services."""
    made = c.create_aggregate(name="sdk", availability_zone="sdk")
    same("an aggregate", c.find_aggregate("sdk").id, made.id)
    same("with a host", c.add_host_to_aggregate(made, "slow2").hosts, ["slow2"])
    same("and metadata", c.set_aggregate_metadata(made, {"a": "b"}).metadata["a"], "b")
    same("renamed", c.update_aggregate(made, name="sdk2").name, "sdk2")
    same("shown", c.get_aggregate(made.id).metadata["a"], "b")
    same("listed", "sdk2" in [one.name for one in c.aggregates()], True)
    same("a zone", "sdk" in [one.name for one in c.availability_zones(details=True)], True)
    refused(exceptions.NotFoundException, "", lambda: c.aggregate_precache_images(made.id, [image.id]))
    c.remove_host_from_aggregate(made, "slow2")
    c.delete_aggregate(made, ignore_missing=False)
    found = c.find_hypervisor("h1")
    same("a hypervisor", c.get_hypervisor(found.id).name, "h1")
    same("in the list", "h1" in [one.name for one in c.hypervisors(details=True)], True)
    # From 2.88 on, uptime is part of the hypervisor.
    refused(exceptions.SDKException, "not supported anymore", lambda: c.get_hypervisor_uptime(found))
    service = next(iter(c.services(host="slow2", binary="nova-compute")))
    same("a service", c.find_service(service.id).host, "slow2")
    same("disabled", c.disable_service(service, disabled_reason="tea").disabled_reason, "tea")
    same("enabled", c.enable_service(service).status, "enabled")
    same("forced down", c.update_service_forced_down(service, forced=True).is_forced_down, True)
    same("and not", c.force_service_down(service, forced=False).is_forced_down, False)
    same("updated", c.update_service(service, status="enabled").status, "enabled")
    refused(exceptions.ConflictException, "", lambda: c.delete_service(service))


def lists(c, project):
    """Keys, groups, quotas, limits, usage, extensions."""
    c.create_keypair(name="sdk", public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICOOlwZDdlOAVgqZUQRKhJs88TcgcNr3xUDvGEasT0v3")
    same("a key", c.get_keypair("sdk").name, "sdk")
    same("found", c.find_keypair("sdk").type, "ssh")
    same("listed", "sdk" in [one.name for one in c.keypairs()], True)
    c.delete_keypair("sdk", ignore_missing=False)
    group = c.create_server_group(name="sdk", policy="anti-affinity")
    same("a group", c.get_server_group(group.id).policy, "anti-affinity")
    same("found", c.find_server_group("sdk").id, group.id)
    same("listed", group.id in [one.id for one in c.server_groups(all_projects=True)], True)
    c.delete_server_group(group, ignore_missing=False)
    same("limits", c.get_limits().absolute.keypairs, 100)
    same("a quota", c.update_quota_set(project, instances=7).instances, 7)
    same("shown", c.get_quota_set(project).instances, 7)
    same("with usage", c.get_quota_set(project, usage=True).usage["instances"], 0)
    default = c.get_quota_set_defaults(project).instances
    c.revert_quota_set(project)
    same("reverted", c.get_quota_set(project).instances, default)
    same("a class", c.update_quota_class_set("default", instances=default).instances, default)
    same("shown", c.get_quota_class_set("default").instances, default)
    same("an extension", c.find_extension("os-server-groups").name, "ServerGroups")
    same("listed", "os-keypairs" in [one.alias for one in c.extensions()], True)


class Guest:
    """A server, with ways to wait for it."""

    def __init__(self, c, server):
        self.c, self.id = c, server.id

    def now(self):
        return self.c.get_server(self.id)

    def becomes(self, status):
        """Waits until it has a status and nothing is in progress."""
        deadline = time.monotonic() + 60
        while (server := self.now()).status != status or server.task_state:
            if time.monotonic() > deadline or (server.status == "ERROR" != status):
                tick(f"the server is {status}", False, f"{server.status}: {server.fault}")
            time.sleep(0.02)
        tick(f"the server is {status}")
        return server


def server(c, conn, image, flavor):
    """A server with a vGPU: operations that keep its host."""
    c.create_flavor_extra_specs(flavor, {"resources:VGPU": "1"})
    made = c.create_server(name="sdk", flavor_id=flavor.id, image_id=image.id, networks="none")
    c.wait_for_server(made, interval=0.1)
    guest = Guest(c, made)
    same("it holds a vGPU", vgpus(conn, guest.id), 1)
    same("found", c.find_server("sdk").id, guest.id)
    same("listed", [one.name for one in c.servers(name="^sdk$")], ["sdk"])
    same("renamed", c.update_server(guest.id, name="sdk1").name, "sdk1")
    same("metadata", c.set_server_metadata(guest.id, a="b", c="d").metadata, {"a": "b", "c": "d"})
    c.delete_server_metadata(guest.id, ["a"])
    same("fetched", c.fetch_server_metadata(guest.id).metadata, {"c": "d"})
    same("read", c.get_server_metadata(guest.id).metadata, {"c": "d"})
    c.add_tag_to_server(guest.id, "t")
    c.add_tag_to_server(guest.id, "u")
    c.remove_tag_from_server(guest.id, "t")
    same("tags", guest.now().tags, ["u"])
    c.remove_tags_from_server(guest.id)
    same("no tags", guest.now().tags, [])
    c.lock_server(guest.id, locked_reason="tea")
    same("locked", guest.now().locked_reason, "tea")
    c.unlock_server(guest.id)
    for call, status in (("stop", "SHUTOFF"), ("start", "ACTIVE"), ("pause", "PAUSED"), ("unpause", "ACTIVE"),
                         ("suspend", "SUSPENDED"), ("resume", "ACTIVE"), ("rescue", "RESCUE"), ("unrescue", "ACTIVE"),
                         ("shelve", "SHELVED_OFFLOADED"), ("unshelve", "ACTIVE")):
        getattr(c, f"{call}_server")(guest.id)
        guest.becomes(status)
    c.wait_for_status(c.get_server(guest.id), "ACTIVE", interval=0.1, wait=10)
    refused(exceptions.ConflictException, "while it is in vm_state active", lambda: c.shelve_offload_server(guest.id))
    for kind in ("SOFT", "HARD"):
        c.reboot_server(guest.id, kind)
        guest.becomes("ACTIVE")
    same("rebuilt", c.rebuild_server(guest.id, image.id, name="sdk2").name, "sdk2")
    guest.becomes("ACTIVE")
    c.trigger_server_crash_dump(guest.id)
    c.reset_server_state(guest.id, "error")
    guest.becomes("ERROR")
    c.reset_server_state(guest.id, "active")
    guest.becomes("ACTIVE")
    refused(exceptions.ConflictException, "guest agent", lambda: c.change_server_password(guest.id, "tea"))
    same("no password", c.get_server_password(guest.id), "")
    c.clear_server_password(guest.id)
    refused(exceptions.ConflictException, "while it is in vm_state active", lambda: c.restore_server(guest.id))
    snapshot = c.create_server_image(guest.id, "sdk-image", wait=True)
    same("an image", conn.image.get_image(snapshot.id).status, "active")
    backup = c.backup_server(guest.id, "sdk-backup", "daily", 1)
    tick("a backup", backup is not None)
    guest.becomes("ACTIVE")
    c.fetch_server_security_groups(guest.id)
    same("no interfaces", list(c.server_interfaces(guest.id)), [])
    same("no addresses", list(c.server_ips(guest.id)), [])
    same("no volumes", list(c.volume_attachments(guest.id)), [])
    same("diagnostics", c.get_server_diagnostics(guest.id).state, "running")
    tick("console output", "output" in c.get_server_console_output(guest.id, length=5))
    # `os-getVNCConsole` ends at 2.5, and this client requests its newest version.
    refused(exceptions.NotFoundException, "", lambda: c.get_server_console_url(guest.id, "novnc"))
    made = c.create_console(guest.id, "novnc")
    same("a console", (made["protocol"], made["type"]), ("vnc", "novnc"))
    made = c.create_server_remote_console(guest.id, protocol="vnc", type="novnc")
    token = urllib.parse.unquote(made.url).rpartition("token=")[2]
    same("its token", c.validate_console_auth_token(token).instance_uuid, guest.id)
    refused(exceptions.NotFoundException, "Token not found", lambda: c.validate_console_auth_token(NOWHERE))
    actions = list(c.server_actions(guest.id))
    same("actions", "rescue" in [one.action for one in actions], True)
    shown = c.get_server_action(actions[-1].request_id, guest.id)
    same("with events", (shown.action, [one.result for one in shown.events]), ("create", ["Success"]))
    events = [{"name": "network-changed", "server_uuid": guest.id, "tag": NOWHERE}]
    tick("external events are accepted", list(c.create_server_external_events(events)) is not None)
    same("it holds its vGPU", vgpus(conn, guest.id), 1)
    return guest


def networks(c, conn, image, flavor):
    """A server on a network."""
    net = conn.network.create_network(name="sdk-net")
    conn.network.create_subnet(network_id=net.id, ip_version=4, cidr="10.40.0.0/24")
    made = c.create_server(name="sdk-nic", flavor_id=flavor.id, image_id=image.id, networks=[{"uuid": net.id}])
    guest = Guest(c, c.wait_for_server(made, interval=0.1))
    first = list(c.server_interfaces(guest.id))
    same("one interface", [one.net_id for one in first], [net.id])
    same("read", c.get_server_interface(first[0].port_id, guest.id).mac_addr, first[0].mac_addr)
    same("its address", [one.address for one in c.server_ips(guest.id)], [first[0].fixed_ips[0]["ip_address"]])
    more = c.create_server_interface(guest.id, net_id=net.id)
    same("two", len(list(c.server_interfaces(guest.id))), 2)
    c.delete_server_interface(more.port_id, server=guest.id)
    deadline = time.monotonic() + 30
    while len(list(c.server_interfaces(guest.id))) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    same("one again", [one.port_id for one in c.server_interfaces(guest.id)], [first[0].port_id])
    group = conn.network.create_security_group(name="sdk-group")
    c.add_security_group_to_server(guest.id, group)
    same("its groups", {one["name"] for one in c.fetch_server_security_groups(guest.id).security_groups},
         {"default", "sdk-group"})
    c.remove_security_group_from_server(guest.id, group)
    last = guest.now()
    c.delete_server(last)
    c.wait_for_delete(last, interval=0.1)
    for delete in (lambda: conn.network.delete_security_group(group, ignore_missing=False),
                   lambda: conn.network.delete_network(net, ignore_missing=False)):
        delete()
    tick("the network is gone", conn.network.find_network("sdk-net") is None)


def vgpus(conn, server):
    """The number of vGPUs that a server holds."""
    answer = conn.placement.get(f"/allocations/{server}").json()
    return sum(one["resources"].get("VGPU", 0) for one in answer["allocations"].values())


def wait_until(call, refusal="Excluded"):
    """Retries while a host still has to remove the guest of a migration: it is then excluded from further ones, and cannot be
    forced up after an evacuation."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return call()
        except exceptions.BadRequestException as error:
            if refusal not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def moves(c, conn, guest, more):
    """Migrations of a server with a vGPU."""
    c.resize_server(guest.id, more.id)
    guest.becomes("VERIFY_RESIZE")
    c.revert_server_resize(guest.id)
    guest.becomes("ACTIVE")
    same("it holds its vGPU", vgpus(conn, guest.id), 1)
    first = guest.now().hypervisor_hostname
    c.migrate_server(guest.id)
    guest.becomes("VERIFY_RESIZE")
    c.confirm_server_resize(guest.id)
    second = guest.becomes("ACTIVE").hypervisor_hostname
    tick("the server is on another host", first != second, second)
    wait_until(lambda: c.live_migrate_server(guest.id, host=first, block_migration="auto"))
    same("and back, alive", guest.becomes("ACTIVE").hypervisor_hostname, first)
    same("its migrations", [one.status for one in c.migrations(instance_uuid=guest.id)],
         ["completed", "confirmed", "reverted"])
    service = next(iter(c.services(host=first, binary="nova-compute")))
    refused(exceptions.BadRequestException, "is still in use", lambda: c.evacuate_server(guest.id))
    c.update_service_forced_down(service, forced=True)
    c.evacuate_server(guest.id)
    same("evacuated", guest.becomes("SHUTOFF").hypervisor_hostname, second)
    same("it holds its vGPU", vgpus(conn, guest.id), 1)
    wait_until(lambda: c.update_service_forced_down(service, forced=False), "evacuation migration records remain")


def under_way(c, image, plain):
    """Slow migrations: one is aborted, one forced to complete."""
    made = c.create_server(name="sdk-slow", flavor_id=plain.id, image_id=image.id, networks="none", host="slow1")
    c.wait_for_server(made, interval=0.1)
    guest = Guest(c, made)
    for end in ("abort", "force"):
        c.live_migrate_server(guest.id, host="slow2", block_migration="auto")
        deadline = time.monotonic() + 30
        while not (found := [one for one in c.server_migrations(guest.id) if one.status == "running"]):
            if time.monotonic() > deadline:
                tick("a migration is under way", False, guest.now().status)
            time.sleep(0.05)
        same("a migration", c.get_server_migration(found[0], guest.id).dest_compute, "slow2")
        if end == "abort":
            c.abort_server_migration(found[0], guest.id, ignore_missing=False)
            same("aborted", guest.becomes("ACTIVE").hypervisor_hostname, "slow1")
        else:
            c.force_complete_server_migration(found[0], guest.id)
            same("pressed on", guest.becomes("ACTIVE").hypervisor_hostname, "slow2")
    c.delete_server(guest.id, ignore_missing=False, force=True)
    c.wait_for_delete(made, interval=0.1, wait=20)
    tick("the forced delete with --wait ended")


def main():
    conn = openstack.connect(cloud=sys.argv[1])
    c = Watched(conn.compute)
    project = conn.identity.find_project("demo")
    image = conn.image.create_image(name=f"sdk-{uuid.uuid4()}", disk_format="raw", container_format="bare",
                                    data=b"tiny", visibility="public")
    same("the image is active", conn.image.get_image(image.id).status, "active")
    vgpu, more, plain = flavors(c, project)
    c.create_flavor_extra_specs(more, {"resources:VGPU": "1"})
    hosts(c, image)
    lists(c, project)
    guest = server(c, conn, image, vgpu)
    moves(c, conn, guest, more)
    under_way(c, image, plain)
    networks(c, conn, image, plain)
    own = conn.current_project_id
    tick("usage", c.get_usage(own).server_usages is not None)
    same("of all", own in [one.project_id for one in c.usages()], True)
    last = guest.now()
    c.delete_server(last, ignore_missing=False)
    c.wait_for_delete(last, interval=0.1, wait=20)
    for one in (vgpu, more, plain):
        c.delete_flavor(one, ignore_missing=False)
    methods = {name for name, what in vars(Proxy).items() if callable(what) and not name.startswith("_")}
    missing = sorted(methods - Watched.used - set(OUT_OF_SCOPE))
    tick(f"all {len(methods - set(OUT_OF_SCOPE))} methods in scope of conn.compute were called", not missing,
         ", ".join(missing))


if __name__ == "__main__":
    main()
