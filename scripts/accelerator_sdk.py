#!/usr/bin/env python3
"""Calls every method of openstacksdk's `conn.accelerator`; accelerator_clients.py runs it.

    accelerator_sdk.py CLOUD IMAGE        with the Python that has openstacksdk

Prints a tick for each check that passes, and exits with 1 at the first that fails. The list of methods
comes from the installed openstacksdk.
"""

import sys
import uuid
import warnings

import openstack
from keystoneauth1 import service_token
from keystoneauth1.identity import v3
from openstack import exceptions
from openstack.accelerator.v2._proxy import Proxy

warnings.simplefilter("ignore")
PROVIDER = uuid.uuid3(uuid.NAMESPACE_DNS, "fpga1_FakeDevice")


class Watched:
    """`conn.accelerator`; remembers which methods were called."""

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


def with_service(conn, cloud):
    """A service's connection: the user's token and the service's own."""
    password = uuid.uuid4().hex
    project = conn.identity.find_project("service")
    user = conn.identity.create_user(name="nova", password=password, default_project_id=project.id)
    role = conn.identity.find_role("service")
    conn.identity.assign_project_role_to_user(project, user, role)
    service = v3.Password(conn.config.get_auth_args()["auth_url"], username="nova",
                          password=password, project_name="service", user_domain_name="Default",
                          project_domain_name="Default")
    other = openstack.connect(cloud=cloud)
    other.session.auth = service_token.ServiceTokenAuthWrapper(
        user_auth=other.session.auth, service_auth=service)
    return other


def devices(accelerator):
    """Devices: listed, disabled and enabled."""
    all_of_them = list(accelerator.devices())
    same("five devices", len(all_of_them), 5)
    fpga, = accelerator.devices(hostname="fpga1", type="FPGA", vendor="abcd")
    same("one by host, type and vendor", accelerator.get_device(fpga.uuid).hostname, "fpga1")
    found = accelerator.get_device(fpga.uuid)
    accelerator.disable_device(found.uuid)
    same("disabled", accelerator.get_device(found.uuid).status, "maintaining")
    accelerator.enable_device(found.uuid)
    # The uuid of a device is in a field that this client's `fetch` ignores.
    again = accelerator.get_device(found.uuid)
    same("enabled, and waited for",
         accelerator.wait_for_status(again, "enabled", wait=5).status, "enabled")
    refused(exceptions.NotFoundException, "Device not found",
            lambda: accelerator.get_device(str(uuid.uuid4())))
    refused(exceptions.BadRequestException, "Unknown argument",
            lambda: list(accelerator.devices(limit=1)))


def deployables(accelerator, image):
    """Deployables; one refuses a bitstream."""
    part = next(one for one in accelerator.deployables() if one.name == "fpga1_FakeDevice")
    same("a deployable", accelerator.get_deployable(part.id).num_accelerators, 16)
    patch = [{"path": "/program", "op": "replace", "value": [{"image_uuid": image}]}]
    refused(exceptions.ConflictException, "FPGA programming failed",
            lambda: accelerator.patch_deployable(part.id, patch))
    try:
        accelerator.update_deployable(part.id, patch)
    except RecursionError:
        tick("update_deployable of this openstacksdk calls nothing but itself")
    except exceptions.ConflictException:
        tick("update_deployable is patch_deployable")


def attributes(accelerator):
    """Attributes."""
    one = next(row for row in accelerator.attributes() if row.value == "CUSTOM_FAKE_DEVICE")
    made = accelerator.create_attribute(deployable_id=one.deployable_id, key="rack", value="b7")
    same("an attribute", accelerator.get_attribute(made.uuid).value, "b7")
    accelerator.delete_attribute(made.uuid, ignore_missing=False)
    refused(exceptions.NotFoundException, "Attribute not found",
            lambda: accelerator.get_attribute(made.uuid))


def profiles(accelerator):
    """Device profiles; one is kept for the requests."""
    made = accelerator.create_device_profile(
        name="sdk", groups=[{"resources:FPGA": "1", "trait:CUSTOM_FAKE_DEVICE": "required"}])
    same("a profile is listed", [one.name for one in accelerator.device_profiles(name="sdk")],
         ["sdk"])
    same("and shown", accelerator.get_device_profile(made.uuid).groups[0]["resources:FPGA"], "1")
    refused(exceptions.ConflictException, "already exists",
            lambda: accelerator.create_device_profile(name="sdk",
                                                      groups=[{"resources:FPGA": "1"}]))
    return made


def requests(accelerator, service, profile):
    """Accelerator requests through their whole life."""
    server = str(uuid.uuid4())
    made = accelerator.create_accelerator_request(device_profile_name=profile.name)
    same("a request", accelerator.get_accelerator_request(made.uuid).state, "Initial")
    bind = [{"path": "/hostname", "op": "add", "value": "fpga1"},
            {"path": "/device_rp_uuid", "op": "add", "value": str(PROVIDER)},
            {"path": "/instance_uuid", "op": "add", "value": server}]
    refused(exceptions.ForbiddenException, "requires a service token",
            lambda: accelerator.update_accelerator_request(made.uuid, bind))
    service.patch_accelerator_request(made.uuid, bind)
    bound = accelerator.get_accelerator_request(made.uuid)
    same("a service binds it", (bound.state, bound.instance_uuid, bound.attach_handle_type),
         ("Bound", server, "TEST_PCI"))
    listed = {one.uuid: one.instance_uuid for one in accelerator.accelerator_requests()}
    same("and it is listed", listed.get(made.uuid), server)
    refused(exceptions.ForbiddenException, f"bound to instance {server}",
            lambda: accelerator.delete_accelerator_request(made.uuid))
    unbind = [{"path": step["path"], "op": "remove"} for step in bind]
    service.update_accelerator_request(made.uuid, unbind)
    same("a service unbinds it", accelerator.get_accelerator_request(made.uuid).state, "Unbound")
    refused(exceptions.ConflictException, "in use",
            lambda: accelerator.delete_device_profile(profile.uuid))
    accelerator.delete_accelerator_request(made.uuid, ignore_missing=False)
    accelerator.wait_for_delete(made, interval=0.1, wait=5)
    tick("the delete with --wait ended")
    accelerator.delete_device_profile(profile.uuid, ignore_missing=False)


def main():
    cloud, image = sys.argv[1:]
    conn = openstack.connect(cloud=cloud)
    accelerator = Watched(conn.accelerator)
    service = Watched(with_service(conn, cloud).accelerator)
    devices(accelerator)
    deployables(accelerator, image)
    attributes(accelerator)
    requests(accelerator, service, profiles(accelerator))
    methods = {name for name, what in vars(Proxy).items()
               if callable(what) and not name.startswith("_")}
    missing = sorted(methods - Watched.used)
    tick(f"all {len(methods)} methods of conn.accelerator were called", not missing,
         ", ".join(missing))


if __name__ == "__main__":
    main()
