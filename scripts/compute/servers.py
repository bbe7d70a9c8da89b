"""Servers: created, listed, changed, started and stopped. s1 and vgpu have a vGPU, v1 and others no accelerator."""

import base64

ONE = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
S1 = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1, "VGPU": 1}
NOWHERE = "11111111-2222-3333-4444-555555555555"


def create(s, folder):
    """`server create` and its options."""
    s.run("server create --flavor m1 --image cirros --no-network s1", fields={"name": "s1"}, reaches=("s1", "ACTIVE"))
    s.run("server delete --wait s1")
    made = s.run("server create --flavor m1 --image cirros --nic none s1 --wait",
                 fields={"name": "s1", "status": "ACTIVE", "flavor": lambda f: f["original_name"] == "m1"})
    s.same("s1 holds a vGPU", s.held(made["id"]), S1)
    group = s.run("server group create --policy anti-affinity --rule max_server_per_host=3 sg")["id"]
    strict = s.run("server group show sg1")["id"]
    s.run(f"server create --nic none --flavor t1 --image tiny --key-name k1 --property a=b --user-data {folder}/ud.txt "
          f"--use-config-drive --hint group={strict} --availability-zone nova --wait v1",
          fields={"status": "ACTIVE", "key_name": "k1", "properties": {"a": "b"}, "config_drive": "True",
                  "OS-EXT-AZ:availability_zone": "nova"})
    v1 = s.server("v1")
    s.same("v1 has its user data", base64.b64decode(v1["OS-EXT-SRV-ATTR:user_data"]), b"#!/bin/sh\n")
    s.run(f"server show {v1['id']}", fields={"server_groups": [strict]})
    s.same("v1 holds no more than its flavor", s.held(v1["id"]), ONE)
    s.run("server create --nic none --flavor t1 --image tiny --min 2 --max 3 vm", fields={"name": "vm-1"})
    for name in ("vm-1", "vm-2", "vm-3"):
        s.reaches(name, "ACTIVE")
    s.run("server create --nic none --flavor t1 --image tiny --availability-zone nova --host compute2 --wait vh",
          fields={"OS-EXT-SRV-ATTR:host": "compute2"})
    s.run("server create --no-network --flavor t1 --image tiny --description d --tag t --hostname hn --wait vt",
          fields={"description": "d", "tags": ["t"], "OS-EXT-SRV-ATTR:hostname": "hn"})
    s.run("server delete --wait vt")
    s.same("vt is gone", s.server("vt"), None)
    tiny = s.api.expect(200, "GET", "/image/v2/images?name=cirros")["images"][0]["id"]
    s.run(f"server create --flavor 1 --image {tiny} --nic none s1", reaches=None)
    twice = [one for one in s.run("server list -n") if one["Name"] == "s1"]
    s.same("two servers are named s1", len(twice), 2)
    s.run("server show s1", fails="More than one Server exists with the name 's1'")
    other = next(one["ID"] for one in twice if one["ID"] != made["id"])
    s.run(f"server delete --wait {other}")
    s.run("server create --flavor t1 --image tiny --nic none --hypervisor-hostname compute3 --wait on3",
          fields={"OS-EXT-SRV-ATTR:hypervisor_hostname": "compute3"})
    s.run("server create --flavor t1 --image tiny --nic none --availability-zone nova:compute1 --wait on1",
          fields={"OS-EXT-SRV-ATTR:host": "compute1"})
    s.run(f"server create --flavor t1 --image tiny --nic none --password Secret7 --server-group {group} "
          "--no-config-drive --wait pw", fields={"adminPass": "Secret7", "config_drive": lambda found: not found},
          apart=True)
    ident = s.server("on3")["id"]
    # Upstream's default filters ignore these hints too; the hints are kept.
    s.run(f"server create --flavor t1 --image tiny --nic none --hint same_host={ident} --wait near",
          fields={"scheduler_hints": {"same_host": [ident]}})
    s.run(f"server create --flavor t1 --image tiny --nic none --hint different_host={ident} --wait far",
          fields={"scheduler_hints": {"different_host": [ident]}})
    s.run("server create --flavor m1 --image cirros --nic none --host h1 --availability-zone nova --key-name k1 "
          f"--hint group={group} s2", reaches=("s2", "ACTIVE"))
    s.same("s2 is on h1", s.host("s2"), "h1")
    s.run("server create --flavor t1 --image-property name=tiny --nic none --wait byprop", fields={"status": "ACTIVE"})
    s.run("server delete --wait byprop")
    s.run("server create --flavor t1 --image-property name=tea --nic none no", fails="No images match")
    refused(s)
    s.run(f"server create --nic none --flavor t1 --image tiny --key-name k1 --property a=b --user-data {folder}/ud.txt "
          f"--config-drive --hint group={strict} --availability-zone nova --wait v1",
          fails="argument --config-drive: expected one argument")


def refused(s):
    """`server create` requests that upstream, or the client, refuses too."""
    plain = "server create --flavor t1 --image tiny --nic none"
    s.run(f"{plain} --file /etc/hostname=/etc/hostname no", fails="Personality files are deprecated and are not supported")
    s.run(f"{plain} --trusted-image-cert 5b2b9e1f-5d39-4a4d-9b47-1e9c1c3f4a55 no", fails="trusted_image_certificates")
    s.run(f"{plain} --host nowhere no", fails="Compute host nowhere could not be found.")
    s.run(f"{plain} --availability-zone moon no", fails="The requested availability zone is not available")
    s.run(f"{plain} --key-name nokey no", fails="Invalid key_name provided")
    s.run(f"{plain} --hint group={NOWHERE} no", fails=True)
    s.run(f"{plain} --min 3 --max 2 no", fails="min instances should be <= max instances")
    s.run(f"{plain} --hostname Not_A_Host no", fails=True)
    s.run("server create --flavor t1 --image nothing --nic none no", fails="No Image found for nothing")
    s.run("server create --flavor nothing --image tiny --nic none no", fails="No Flavor found for nothing")
    s.run("server create --flavor t1 --nic none no", fails=True)
    s.same("none of them created a server", s.server("no"), None)


def look(s):
    """`server list` with its filters, and `server show`."""
    s1 = s.server("s1")
    names = lambda *wanted: lambda found: found in wanted  # noqa: E731
    s.run("server list", columns=["ID", "Name", "Status", "Networks", "Image", "Flavor"],
          rows=[{"Name": "s1", "Image": "cirros", "Flavor": "m1", "Status": "ACTIVE"}])
    s.run("server list --long", rows=[{"Name": "s1", "Task State": None, "Power State": 1,
                                       "Availability Zone": "nova", "Flavor": "m1", "Host Status": "UP"}])
    s.run("server list --all-projects --long", rows=[{"Name": "v1", "Image Name": "tiny"}])
    s.run("server list --no-name-lookup", rows=[{"Name": "s1", "Flavor": "m1"}])
    s.run("server list --all-projects --limit 3", count=3)
    s.run("server list --name v1 --status ACTIVE -n", count=1, rows=[{"Name": "v1"}])
    s.run("server list --name ^vm- --sort-column Name", count=3)
    every = s.run("server list -c Name", columns=["Name"])
    s.run("server list --limit -1", fails="argument --limit")
    page = s.run("server list --limit 2 --name-lookup-one-by-one", count=2)
    rest = s.run(f"server list --marker {page[-1]['ID']} -n", sent=("GET", "marker=ID"))
    s.same("a page and the rest are all servers", len(page) + len(rest), len(every))
    s.run("server list --max-items 3 -n", count=3)
    s.run(f"server list --marker {NOWHERE}", fails=f"No Server found for {NOWHERE}")
    s.run("server list --flavor m1", rows=[{"Name": "s1"}, {"Name": "s2"}], count=2)
    s.run("server list --image cirros", count=2)
    s.run("server list --host h1 --all-projects -c Name", rows=[{"Name": "s2"}])
    s.run("server list --host compute1 --all-projects", rows=[{"Name": "on1"}])
    s.run("server list --key-name k1", rows=[{"Name": "v1"}, {"Name": "s2"}], count=2)
    # The client compares the answer with its own True, and shows none.
    s.run("server list --config-drive", count=0, sent=("GET", "config_drive=True&deleted=False"))
    s.run("server list --no-config-drive", count=0, sent=("GET", "config_drive=False&deleted=False"))
    s.run("server list --availability-zone nova -c Name", count=len(every))
    s.run("server list --vm-state active --power-state running -c Name", count=len(every))
    s.run("server list --task-state migrating", count=0)
    s.run("server list --user admin --project admin --all-projects", count=len(every))
    s.run("server list --project demo", count=0)
    s.run("server list --locked", count=0)
    s.run("server list --unlocked", count=len(every))
    s.run("server list --tags t", count=0)
    s.run("server list --deleted --tags t", count=1)
    s.run("server list --not-tags t", count=len(every))
    s.run("server list --changes-since 2020-01-01T00:00:00Z", count=lambda found: found >= len(every))
    s.run("server list --changes-before 2020-01-01T00:00:00Z", count=0)
    s.run("server list --changes-since yesterday", fails="Invalid changes-since value: yesterday")
    s.run("server list --deleted --name vt", rows=[{"Name": "vt", "Status": "DELETED"}])
    s.run("server list --all-projects --deleted --limit 2", count=2)
    s.run(f"server list --instance-name {s1['OS-EXT-SRV-ATTR:instance_name']}", count=lambda found: found >= 1)
    s.run("server list --reservation-id r-absent00", count=0)
    s.run("server list --ip 10.0.0.1", count=0)
    s.run("server list --status NONSENSE", fails="argument --status: invalid choice")
    s.run("server show s1", fields={"name": "s1", "status": "ACTIVE", "OS-EXT-STS:power_state": names(1, "Running"),
                                    "accessIPv4": lambda found: not found, "locked": lambda found: not found})
    s.run(f"server show {s1['id']}", fields={"id": s1["id"]})
    s.run("server show v1", fields={"name": "v1", "properties": {"a": "b"}}, apart=True)
    s.run("server show absent", fails="No Server found for absent")
    s.run("server show --diagnostics s1", fields={"state": "running"})
    # The client names no version, but topologies start with 2.78.
    s.run("server show --topology s1", fails="API version 2.1 is not supported on this method")
    s.run("server volume list v1", count=0)
    s.run("console log show s1", says=None)
    s.run("console log show v1", says=None)
    s.run("console log show --lines 1 v1", says=None)
    s.run("console url show s1", fields={"protocol": "vnc", "type": "novnc"})
    s.run("console connection show 0123", fails="No ConsoleAuthToken found for 0123")


def change(s):
    """A server's name, metadata, tags and lock; quotas and usage follow."""
    s.run("server set --property k=v v1")
    s.same("v1 has the property", s.server("v1")["metadata"], {"a": "b", "k": "v"})
    s.run("server set --name v1b v1")
    s.run("server set --description ddd v1b")
    s.run("server set --tag tg v1b")
    s.same("v1b has description and tag", [s.server("v1b")[name] for name in ("description", "tags")], ["ddd", ["tg"]])
    s.run("server list --tags tg", count=1)
    s.run("server unset --property k v1b")
    s.run("server unset --tag tg v1b")
    s.run("server unset --description v1b")
    s.same("v1b has none of them", [s.server("v1b")[name] for name in ("metadata", "tags")], [{"a": "b"}, []])
    s.run("server set --name v1 v1b")
    s.run("server set --property a=b s1")
    s.run("server set --name n2 --description d s1")
    s.run("server set --name s1 n2")
    s.run("server set --hostname other s1")
    s.same("s1 has the host name", s.server("s1")["OS-EXT-SRV-ATTR:hostname"], "other")
    s.run("server set --tag t1 s1")
    s.run("server set --tag t2 s1")
    s.run("server list --tags t1,t2 --not-tags t3", count=1)
    s.run("server unset --tag t1 s1")
    s.run("server unset --all-tags s1")
    s.run("server unset --property a s1")
    s.run("server set --property b=c --property d=e s1")
    s.run("server unset --all-properties s1")
    s.same("s1 has neither", [s.server("s1")[name] for name in ("metadata", "tags")], [{}, []])
    s.run("server set --password Secret8 s1", fails=True)
    s.run("server set --state error s1", fails="Resetting the server state can make it much harder")
    s.run("server set --state error --auto-approve s1")
    s.same("s1 is in ERROR", s.server("s1")["status"], "ERROR")
    s.run("server set --state active --auto-approve s1", reaches=("s1", "ACTIVE"))
    s.run("server lock s1 --reason x")
    s.run("server show s1", fields={"locked": True, "locked_reason": "x"})
    s.run("server list --locked --long", count=1)
    s.run("server unlock s1")
    s.same("s1 is not locked", s.server("s1")["locked"], False)
    s.run("server lock --reason because v1")
    s.run("server unlock v1")
    s.run("server lock s1 s2")
    s.run("server unlock s1 s2")
    s.run("limits show --absolute", rows=[{"Name": "total_instances_used", "Value": lambda found: found > 8}])
    s.run("usage show", fields={"Servers": lambda found: len(found) > 8})
    s.run("usage show --project demo", says=None)
    s.run("usage list", count=lambda found: found >= 1, columns=[
        "Project", "Servers", "RAM MB-Hours", "CPU Hours", "Disk GB-Hours"])
    s.run("usage list --start 2020-01-01 --end 2020-02-01", count=0)
    s.run("hypervisor stats show", fields={"running_vms": lambda found: found > 8})


def actions(s):
    """Power, pause, suspend, rescue, rebuild, shelve: with a vGPU, which the server keeps."""
    ident = s.server("s1")["id"]
    keeps = lambda: s.same("s1 holds its vGPU", s.held(ident), S1)  # noqa: E731
    s.run("server stop s1", reaches=("s1", "SHUTOFF"))
    s.run("server stop s1", fails="while it is in vm_state stopped")
    s.run("server start s1", reaches=("s1", "ACTIVE"))
    s.run("server start s1", fails="while it is in vm_state active")
    s.run("server stop v1", reaches=("v1", "SHUTOFF"))
    s.run("server start v1", reaches=("v1", "ACTIVE"))
    s.run("server reboot s1 --wait", reaches=("s1", "ACTIVE"))
    s.run("server reboot --hard s1", reaches=("s1", "ACTIVE"))
    s.run("server reboot v1", reaches=("v1", "ACTIVE"))
    s.run("server reboot --hard --wait v1", reaches=("v1", "ACTIVE"))
    keeps()
    for name in ("s1", "v1"):
        s.run(f"server pause {name}", reaches=(name, "PAUSED"))
        s.run(f"server unpause {name}", reaches=(name, "ACTIVE"))
        s.run(f"server suspend {name}", reaches=(name, "SUSPENDED"))
        s.run(f"server resume {name}", reaches=(name, "ACTIVE"))
    keeps()
    s.run("server unpause s1", fails="while it is in vm_state active")
    s.run("server resume s1", fails="while it is in vm_state active")
    s.run("server unrescue s1", fails="while it is in vm_state active")
    s.run("server rescue s1", reaches=("s1", "RESCUE"))
    keeps()
    s.run("server rescue s1", fails="while it is in vm_state rescued")
    s.run("server unrescue s1", reaches=("s1", "ACTIVE"))
    s.run("server rescue --image tiny --password Secret9 v1", reaches=("v1", "RESCUE"))
    s.run("server unrescue v1", reaches=("v1", "ACTIVE"))
    s.run("server rescue v1", reaches=("v1", "RESCUE"))
    s.run("server unrescue v1", reaches=("v1", "ACTIVE"))
    s.run("server rebuild s1", reaches=("s1", "ACTIVE"))
    s.run("server rebuild --image cirros s1", reaches=("s1", "ACTIVE"))
    s.run("server rebuild --image tiny --wait v1", fields={"status": lambda found: found in ("REBUILD", "ACTIVE")},
          reaches=("v1", "ACTIVE"))
    s.run("server rebuild --image tiny --name s1 --description again --property r=s --password Secret6 --key-name k1 "
          "--hostname again --wait s1", reaches=("s1", "ACTIVE"))
    s.same("s1 has the properties of the rebuild", [s.server("s1")[name] for name in ("description", "metadata", "key_name")],
           ["again", {"r": "s"}, "k1"])
    s.run("server rebuild --no-key-name --image cirros --wait s1", reaches=("s1", "ACTIVE"))
    s.same("s1 has no key", s.server("s1")["key_name"], None)
    s.run("server rebuild --preserve-ephemeral s1", fails="does not support preserving ephemeral partitions")
    s.run("server rebuild --trusted-image-cert 5b2b9e1f-5d39-4a4d-9b47-1e9c1c3f4a55 s1", fails="trusted_image_certificates")
    keeps()
    s.run("server shelve s1", reaches=("s1", "SHELVED_OFFLOADED"))
    s.same("s1 holds nothing", s.held(ident), {})
    s.run("server unshelve s1", reaches=("s1", "ACTIVE"))
    keeps()
    # The client sends the request once it sees SHELVED. By then the server may be offloading or already offloaded, as
    # upstream.
    busy = "Cannot 'shelveOffload' instance"
    s.run("server shelve --offload s1", may=busy, reaches=("s1", "SHELVED_OFFLOADED"))
    s.run("server unshelve --host h2 --wait s1", reaches=("s1", "ACTIVE"))
    s.same("s1 is on h2", s.host("s1"), "h2")
    s.run("server shelve --wait s1", reaches=("s1", "SHELVED_OFFLOADED"))
    s.run("server unshelve --availability-zone nova --wait s1", reaches=("s1", "ACTIVE"))
    s.run("server shelve --offload --wait s1", may=busy, reaches=("s1", "SHELVED_OFFLOADED"))
    s.run("server unshelve --no-availability-zone --wait s1", reaches=("s1", "ACTIVE"))
    # The client checks first, and then sends nothing.
    s.run("server unshelve s2")
    keeps()
    s.run("server shelve v1", reaches=("v1", "SHELVED_OFFLOADED"))
    s.run("server unshelve v1", reaches=("v1", "ACTIVE"))
    s.run("server dump create v1", reaches=("v1", "ACTIVE"))
    s.run("server stop vm-1 vm-2", reaches=("vm-2", "SHUTOFF"))
    s.run("server dump create vm-2", fails="while it is in vm_state stopped")
    s.run("server start vm-1 vm-2", reaches=("vm-2", "ACTIVE"))
    s.run("server restore vm-2", fails=True)
    events(s)


def events(s):
    """Actions with their events."""
    s.run("server event list s1", rows=[{"Action": "create"}],
          columns=["Request ID", "Server ID", "Action", "Start Time"])
    listed = s.run("server event list --long v1", rows=[{"Action": "create", "Message": None}])
    s.run("server event list v1", rows=[{"Action": "create"}])
    first = listed[0]["Request ID"]
    s.run("server event list v1 -f value -c 'Request ID' --limit 1", says=first)
    s.run(f"server event list --limit 2 --marker {first} v1", count=2)
    s.run("server event list --changes-since 2020-01-01T00:00:00Z --changes-before 2020-01-02T00:00:00Z v1", count=0)
    stop = next(one["Request ID"] for one in reversed(s.run("server event list s1")) if one["Action"] == "stop")
    s.run(f"server event show s1 {stop}", fields={
        "action": "stop", "message": None,
        "events": lambda found: [(one["event"], one["result"]) for one in found] == [("compute_stop_instance", "Success")]})
    s.run(f"server event show v1 {first}", fields={"request_id": first})
    s.run("server event show s1 req-" + NOWHERE, fails=True)


def images(s):
    """Images and backups of servers."""
    made = s.run("server image create s1 --name img", fields={"name": "img"})
    s.until("img is active", lambda: s.api.expect(200, "GET", f"/image/v2/images/{made['id']}")["status"] == "active")
    s.reaches("s1", "ACTIVE")
    s.run("server image create s1 --name img --wait", fields={"name": "img", "status": lambda found: found in ("queued", "active")},
          reaches=("s1", "ACTIVE"))
    s.run("server image create --name snap1 v1", fields={"name": "snap1"}, reaches=("v1", "ACTIVE"))
    s.run("server image create --name props --property p=q --wait v1", fields={
        "properties": lambda found: found.get("p") == "q"}, reaches=("v1", "ACTIVE"))
    s.run("server backup create s1 --name b --type daily --rotate 1", fields={"name": "b"}, reaches=("s1", "ACTIVE"))
    s.run("server backup create --name bk1 --type daily --rotate 1 v1", fields={"name": "bk1"}, reaches=("v1", "ACTIVE"))
    s.run("server backup create --name bk2 --type daily --rotate 1 --wait v1", reaches=("v1", "ACTIVE"))
    s.until("one of v1's daily backups is left", lambda: [
        one["name"] for one in s.api.expect(200, "GET", "/image/v2/images")["images"]
        if one["name"] in ("bk1", "bk2")] == ["bk2"])
    s.run("server image create absent", fails="No Server found for absent")


def ends(s):
    """Deletes."""
    s.run("server delete vt", fails="No Server found for vt")
    s.run("server delete --wait vh vm-1 vm-2")
    s.same("vh is gone", s.server("vh"), None)
    s.run("server delete vm-3", reaches=("vm-3", "GONE"))
    s.run("server delete v1", reaches=("v1", "GONE"))
    held = s.server("s1")["id"]
    s.run("server delete s1", reaches=("s1", "GONE"))
    s.same("s1 holds nothing", s.held(held), {})
    s.run("server create --flavor m1 --image cirros --nic none s1 --wait")
    s.run("server delete s1 --wait")
    s.same("s1 is gone", s.server("s1"), None)
    s.run("server delete --force --wait s2")
    s.run("server delete --all-projects on1 on3")
    s.run("server group delete sg1")
    s.run("server group delete sg g2")
    s.run("flavor delete m1")
    s.run("flavor delete w1")
    s.run("keypair delete k1")
    left = [one["name"] for one in s.api.servers().values() if one["name"] not in ("pw", "near", "far", "on1", "on3")]
    s.same("no other server is left", left, [])
    s.run("server delete pw near far --wait")
