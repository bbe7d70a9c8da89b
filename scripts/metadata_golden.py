#!/usr/bin/env python3
"""Prints a stock Nova's answers to a guest, for crates/guest-metadata/tests/golden/nova.json.

Run it with the Python of an environment that has the package `nova` (34.0.0):

    python scripts/metadata_golden.py > crates/guest-metadata/tests/golden/nova.json

It needs no service and no database. The guest is the one of crates/guest-metadata/tests/golden.rs.
"""

import base64
import json
from unittest import mock

from nova import conf, objects
from nova.api.metadata import base
from nova.network import model

SERVER = "11111111-1111-4111-8111-111111111111"
IMAGE = "22222222-2222-4222-8222-222222222222"


def port(number, kind, mtu, subnets, **more):
    network = model.Network(
        id=f"bbbbbbbb-0000-4000-8000-00000000000{number}", label="n", subnets=subnets, mtu=mtu)
    return model.VIF(
        id=f"{'ade'[number - 1] * 8}-0000-4000-8000-00000000000{number}",
        address=f"fa:16:3e:00:00:0{number}", network=network, type=kind,
        devname=f"tap{'ade'[number - 1] * 8}-00", **more)


def subnet(cidr, address, gateway, dns=(), routes=(), **meta):
    made = model.Subnet(
        cidr=cidr, gateway=model.IP(gateway, type="gateway") if gateway else None,
        dns=[model.IP(one, type="dns") for one in dns],
        ips=[model.FixedIP(address=address)],
        routes=[model.Route(cidr=to, gateway=model.IP(by)) for to, by in routes])
    made["meta"].update(meta)
    return made


def network_info():
    return model.NetworkInfo([
        port(1, "bridge", 1500, [
            subnet("10.0.0.0/24", "10.0.0.5", "10.0.0.1", ["10.0.0.2"],
                   [("192.168.0.0/16", "10.0.0.9")]),
            subnet("fd00::/64", "fd00::5", "fd00::1"),
        ]),
        port(2, "hostdev_physical", 9000, [
            subnet("10.1.0.0/24", "10.1.0.5", None, ["10.0.0.2"]),
        ]),
        port(3, "bridge", 1450, [
            subnet("10.2.0.0/24", "10.2.0.5", "10.2.0.1", ["10.2.0.3"], dhcp_server="10.2.0.2"),
        ]),
    ])


def instance(plain):
    devices = objects.InstanceDeviceMetadata(devices=[] if plain else [
        objects.NetworkInterfaceMetadata(mac="fa:16:3e:00:00:01", tags=["front"]),
        objects.NetworkInterfaceMetadata(mac="fa:16:3e:00:00:02", tags=["back"], vlan=7),
    ])
    key = objects.KeyPair(
        name="mine", type="ssh", public_key="ssh-ed25519 AAAA me@here", user_id="u",
        fingerprint="f")
    flavor = objects.Flavor(name="m1.small", extra_specs={})
    made = objects.Instance(
        uuid=SERVER, hostname="db" if plain else "front-one",
        display_name="db" if plain else "Front One", project_id="cccccccccccc4000800000000000000c",
        availability_zone="nova", launch_index=0 if plain else 2, reservation_id="r-12345678",
        user_data=None if plain else "I2Nsb3VkLWNvbmZpZwo=",
        key_name=None if plain else "mine", key_data=None if plain else key.public_key,
        metadata={} if plain else {"role": "front"}, system_metadata={}, image_ref=IMAGE,
        flavor=flavor, numa_topology=None, device_metadata=devices,
        keypairs=objects.KeyPairList(objects=[] if plain else [key]),
        root_device_name="/dev/vda", default_ephemeral_device=None, default_swap_device=None,
        ec2_ids=objects.EC2Ids(
            instance_id="i-0000001a", ami_id="ami-00000007",
            kernel_id=None if plain else "aki-00000008",
            ramdisk_id=None if plain else "ari-00000009"),
        info_cache=objects.InstanceInfoCache(
            instance_uuid=SERVER, network_info=model.NetworkInfo([]) if plain else network_info()))
    made.obj_reset_changes(recursive=True)
    return made


def answers(plain):
    groups = [] if plain else [{"name": "default"}, {"name": "web"}]
    mapping = {"ami": "vda", "root": "/dev/vda"}
    if not plain:
        mapping.update({"ephemeral0": "/dev/vdb", "swap": "/dev/vdc"})
    with mock.patch.object(base.security_group_api, "get_instance_security_groups",
                           return_value=groups), \
            mock.patch.object(base, "_format_instance_mapping", return_value=mapping):
        guest = base.InstanceMetadata(instance(plain), "198.51.100.9")
    told = {}
    for path in paths():
        with mock.patch.object(base.os, "urandom", return_value=b"seed"):
            try:
                data = guest.lookup(path)
            except base.InvalidMetadataPath:
                told[path] = None
                continue
            except (TypeError, UnboundLocalError):
                told[path] = "failure"  # upstream answers 500
                continue
        if callable(data):
            told[path] = "password"
            continue
        text = base.ec2_md_print(data)
        text = text.decode() if isinstance(text, bytes) else text
        told[path] = [guest.get_mimetype(), text]
    return told


EC2 = """ ami-id ami-launch-index ami-manifest-path instance-id hostname local-ipv4 reservation-id
security-groups public-keys public-keys/0 public-keys/0/openssh-key public-keys/1 public-keys/0/_name
local-hostname public-hostname public-ipv4 instance-type block-device-mapping block-device-mapping/ami
block-device-mapping/root block-device-mapping/ephemeral0 block-device-mapping/swap kernel-id
ramdisk-id placement placement/availability-zone instance-action nothing ami-id/more
security-groups/default security-groups/0 placement/nothing""".split()
OPENSTACK = """ meta_data.json user_data network_data.json vendor_data.json vendor_data2.json
password nothing meta_data.json/more content""".split()


def paths():
    yield from ["", "/", "//", "/ec2", "/openstack", "/openstack/", "openstack", "/nothing", "/ec2/",
                "/openstack/content", "/openstack/content/0000", "/openstack/content/0000/1",
                "/openstack/../latest/meta-data/ami-id", "/latest//meta-data/./ami-id/",
                "//latest/user-data", "/../..", "/2026-01-01", "/openstack/2026-01-01",
                "/ec2/2026-01-01/meta-data", "/ec2/ec2/latest", "/openstack/latest//user_data/",
                "/latest/dynamic/instance-identity/document", "/latest/api/token"]
    for version in base.VERSIONS + ["latest"]:
        yield f"/{version}"
        for prefix in ["", "/ec2"]:
            yield f"{prefix}/{version}/"
            yield f"{prefix}/{version}/user-data"
            yield f"{prefix}/{version}/user-data/more"
            yield f"{prefix}/{version}/meta-data/"
        for key in EC2:
            yield f"/{version}/meta-data/{key}"
    for version in base.OPENSTACK_VERSIONS + ["latest"]:
        yield f"/openstack/{version}"
        for name in OPENSTACK:
            yield f"/openstack/{version}/{name}"


def main():
    objects.register_all()
    conf.CONF([], default_config_files=[])
    told = {"guest": answers(False), "plain": answers(True)}
    print(json.dumps(told, indent=1, sort_keys=True))


main()
