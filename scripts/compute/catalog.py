"""What there is besides servers: flavors, keys, aggregates, hosts, services, groups, quotas."""

import os


def images(s, folder):
    """What the servers are made of."""
    for name in ("cirros", "tiny"):
        s.run(f"image create --file {folder}/tiny.raw --disk-format raw --container-format bare --public {name}",
              fields={"name": name, "status": "active", "size": 4096, "visibility": "public"}, apart=name == "tiny")
    s.run(f"image create --file {folder}/tiny.raw --disk-format raw --container-format bare --property foo=bar wimg",
          fields={"properties": lambda found: found["foo"] == "bar"})
    s.run("image set --property a=b wimg")
    s.run("image show wimg", fields={"properties": lambda found: found["a"] == "b"})
    s.run("image list", rows=[{"Name": "wimg", "Status": "active"}])
    s.run("image list --long", rows=[{"Name": "wimg", "Disk Format": "raw"}])
    s.run("image delete wimg")


def flavors(s):
    """Flavors, their extra specs, and who may use them."""
    size = "--ram 512 --vcpus 1 --disk 1"
    seen = {"name": "m1", "ram": 512, "vcpus": 1, "disk": 1, "swap": 0, "os-flavor-access:is_public": True}
    s.run(f"flavor create m1 {size}", fields={**seen, "properties": {}, "description": None})
    s.run("flavor delete m1")
    s.run(f"flavor create m1 {size} --property accel:device_profile=dp1 --description d",
          fields={**seen, "properties": {"accel:device_profile": "dp1"}, "description": "d"})
    s.run("flavor set m1 --property accel:device_profile=dp1")
    # The client asks with 2.61; names of extra specs are looked at from 2.86 on.
    s.run("flavor set m1 --property a=b", sent=("POST", "/os-extra_specs", ["extra_specs"]))
    s.run("flavor set m1 --property quota:cpu_shares=7", fails="Extra spec quota:cpu_shares=7 cannot be set")
    s.run("flavor set m1 --project admin", fails="Cannot set access for a public flavor")
    s.run("flavor unset m1 --property a")
    s.run("flavor unset m1 --property quota:cpu_shares")
    s.run("flavor show m1", fields={**seen, "properties": {"accel:device_profile": "dp1"}, "access_project_ids": None})
    s.run(f"flavor create m1 {size}", fails="Flavor with name m1 already exists.")
    s.run("flavor create --vcpus 2 --ram 128 --disk 1 --property hw:cpu_policy=shared --property accel:foo=bar w1",
          fields={"properties": {"hw:cpu_policy": "shared", "accel:foo": "bar"}})
    s.run("flavor set --property resources:CUSTOM_X=0 w1")
    s.run("flavor set --description hello w1")
    s.run("flavor unset --property resources:CUSTOM_X w1")
    s.run("flavor unset --property accel:foo w1")
    s.run("flavor show w1", fields={"description": "hello", "properties": {"hw:cpu_policy": "shared"}, "rxtx_factor": 1.0,
                                    "OS-FLV-DISABLED:disabled": False})
    s.run("flavor create --id t1 --vcpus 1 --ram 64 --disk 1 t1", fields={"id": "t1"})
    s.run("flavor create --id 1 --vcpus 1 --ram 64 --disk 1 one", fields={"id": "1"})
    s.run("flavor list", columns=["ID", "Name", "RAM", "Disk", "Ephemeral", "VCPUs", "Is Public"],
          rows=[{"Name": "m1", "RAM": 512}, {"Name": "w1", "VCPUs": 2}])
    s.run("flavor list --all --long", rows=[{"Name": "w1", "Properties": {"hw:cpu_policy": "shared"}, "RXTX Factor": 1.0}])
    s.run("flavor list --long --all", rows=[{"Name": "m1"}])
    s.run("flavor list --min-ram 512 --sort-column Name", count=1, rows=[{"Name": "m1"}])
    s.run("flavor list --limit 1 --marker t1", count=lambda found: found <= 1)
    s.run("flavor list -f value", says=" m1 512 1 0 1 True")
    s.run("flavor create --id w2 --vcpus 1 --ram 64 --disk 1 --private w2", fields={"os-flavor-access:is_public": False})
    s.run("flavor set --project demo w2")
    s.run("flavor show w2", fields={"access_project_ids": lambda found: len(found) == 1})
    s.run("flavor list --private", count=1, rows=[{"Name": "w2"}])
    s.run("flavor unset --project demo w2")
    s.run("flavor show w2", fields={"access_project_ids": []})
    s.run("flavor delete w2")
    s.run("flavor show w2", fails="No Flavor found for w2")
    s.run("flavor create --id w9 --vcpus 1 --ram 1 w9", fields={"disk": 0})
    s.run("flavor delete w9")
    s.run("flavor create --id m2 --vcpus 2 --ram 1024 --disk 1 --property resources:VGPU=1 m2")
    s.run("flavor create --id f1 --vcpus 1 --ram 64 --disk 1 --property accel:device_profile=card f1")
    s.run("flavor create --id pgpu --vcpus 1 --ram 64 --disk 1 --property resources:PGPU=1 pgpu")


def keypairs(s, folder):
    """Key pairs: made by the client, imported, of another user."""
    key = os.path.join(folder, "key.pub")
    s.run("keypair create k1", says="BEGIN OPENSSH PRIVATE KEY")
    s.run("keypair delete k1")
    s.run(f"keypair create --public-key {folder}/k.pub k1", fields={"name": "k1", "type": "ssh"})
    s.run("keypair create --public-key " + os.path.join(folder, "no-key.pub") + " bad",
          fails="Keypair data is invalid")
    s.run(f"keypair create --public-key {key} k1", fails="Key pair 'k1' already exists.")
    s.run("keypair delete k1")
    s.run(f"keypair create --public-key {key} k1", fields={"name": "k1", "fingerprint": lambda f: f.count(":") == 15})
    s.run(f"keypair create --private-key {folder}/k2.pem k2", fields={"name": "k2"})
    with open(os.path.join(folder, "k2.pem"), encoding="utf-8") as file:
        s.check("k2.pem holds a private key", "PRIVATE KEY" in file.read())
    s.run("keypair list", rows=[{"Name": "k1", "Type": "ssh"}, {"Name": "k2"}])
    # Pages come with 2.35, and this client asks with 2.10: of a real Nova it gets the whole list, again and again.
    s.run("keypair list --limit 1", fails="Endless pagination loop detected")
    s.run("keypair show k1", fields={"name": "k1", "type": "ssh", "is_deleted": lambda found: not found})
    s.run("keypair show --public-key k1", says="ssh-rsa ")
    # This client does not send the type.
    s.run("keypair create --type x509 --public-key " + key + " x509", fields={"type": "ssh"})
    s.run("keypair delete x509")
    s.run(f"keypair create --user demo --public-key {key} theirs", fields={"user_id": lambda found: bool(found)})
    s.run("keypair list --user demo", count=1, rows=[{"Name": "theirs"}])
    s.run("keypair list --project demo", count=1)
    s.run("keypair delete --user demo theirs")
    s.run("keypair delete k2")
    s.run("keypair show k2", fails="No Keypair found for k2")
    s.run("keypair delete k2", fails="1 of 1 keys failed to delete.")


def aggregates(s):
    """Aggregates and the zones that they make."""
    s.run("aggregate create a1 --zone z1 --property x=y",
          fields={"name": "a1", "availability_zone": "z1", "properties": {"availability_zone": "z1", "x": "y"}})
    s.run("aggregate create a1", fails="Aggregate a1 already exists")
    s.run("aggregate list", rows=[{"Name": "a1", "Availability Zone": "z1"}])
    s.run("aggregate list --long", rows=[{"Name": "a1", "Properties": lambda found: found.get("x") == "y"}])
    s.run("aggregate show a1", fields={"name": "a1", "hosts": lambda found: not found})
    s.run("aggregate set a1 --zone z2 --property x=y", fields=None)
    s.run("aggregate show a1", fields={"availability_zone": "z2"})
    s.run("aggregate unset a1 --property x")
    s.run("aggregate show a1", fields={"properties": {}})
    s.run("aggregate add host a1 h1", fields={"hosts": lambda found: "h1" in found})
    s.run("aggregate add host a1 h1", fails="already has host h1")
    s.run("aggregate add host a1 nowhere", fails="could not be found")
    # The zone of the network service is named `nova` too.
    s.run("availability zone list", rows=[{"Zone Name": "z2"}, {"Zone Name": "internal"}])
    s.run("availability zone list --compute --long",
          rows=[{"Zone Name": "z2", "Host Name": "h1", "Zone Status": "available"}])
    s.run("aggregate delete a1", fails="Host aggregate is not empty")
    # A host fetches an image when a server needs it.
    s.run("aggregate cache image a1 cirros", fails="404")
    s.run("aggregate remove host a1 h1", fields={"hosts": lambda found: not found})
    s.run("aggregate set --no-property --name a2 a1")
    s.run("aggregate delete a2")
    s.run("aggregate create a1 --zone z1 --property x=y")
    s.run("aggregate delete a1")
    s.run("aggregate create --zone az1 --property p=q agg1", fields={"availability_zone": "az1"})
    s.run("aggregate add host agg1 compute1")
    s.run("aggregate set --property x=y agg1")
    s.run("aggregate list --long", rows=[{"Name": "agg1"}])
    s.run("aggregate show agg1", fields={"hosts": lambda found: "compute1" in found,
                                         "properties": lambda found: found == {"p": "q", "x": "y"}})
    s.run("aggregate remove host agg1 compute1")
    s.run("aggregate delete agg1")
    s.run("aggregate show agg1", fails="No Aggregate found for agg1")


def hosts(s):
    """Hypervisors and services."""
    s.run("hypervisor list", count=8, columns=["ID", "Hypervisor Hostname", "Hypervisor Type", "Host IP", "State"],
          rows=[{"Hypervisor Hostname": "h1", "State": "up", "Host IP": "192.0.2.1"}])
    s.run("hypervisor list --long", count=8)
    s.run("hypervisor list --matching compute", count=4)
    s.run("hypervisor list --matching nowhere", fails=True)
    # The limit is the size of a page; the client goes on to the next.
    s.run("hypervisor list --limit 2", count=8)
    shown = s.run("hypervisor show h1", fields={"hypervisor_hostname": "h1", "state": "up", "status": "enabled"})
    s.run(f"hypervisor show {shown['id']}", fields={"id": shown["id"], "host_ip": "192.0.2.1"})
    s.run("hypervisor show compute1", fields={"hypervisor_hostname": "compute1"})
    s.run("hypervisor show nowhere", fails="No Hypervisor found for nowhere")
    s.run("hypervisor stats show", fields={"count": 8, "vcpus": 388, "running_vms": 0})
    # These old commands ask an API that ended at 2.42; hypervisors and services say the same.
    s.run("host list", fails="404")
    s.run("host show h1", fails="404")
    s.run("host set --disable h1", fails="404")
    s.run("compute service list", rows=[{"Binary": "nova-compute", "Host": "h1", "State": "up", "Status": "enabled"}])
    s.run("compute service list --long", rows=[{"Host": "h1", "Disabled Reason": None, "Forced Down": False}])
    s.run("compute service list --service nova-compute --long", count=8)
    s.run("compute service list --host h2", count=1)
    s.run("compute service list --long -f value", says="nova-compute h1 nova enabled up")
    s.run("compute service set --disable --disable-reason x h1 nova-compute")
    s.run("compute service list --host h1 --long", rows=[{"Status": "disabled", "Disabled Reason": "x"}])
    s.run("hypervisor show h1", fields={"status": "disabled"})
    s.run("compute service set --enable h1 nova-compute")
    s.run("compute service list --host h1 --long", rows=[{"Status": "enabled", "Disabled Reason": None}])
    s.run("compute service set --disable --disable-reason test compute2 nova-compute")
    s.run("compute service set --enable compute2 nova-compute")
    s.run("compute service set --down h1 nova-compute")
    s.run("compute service list --host h1 --long", rows=[{"State": "down", "Forced Down": True}])
    s.run("compute service set --up h1 nova-compute")
    s.run("compute service set --down compute9 nova-compute")
    s.run("compute service set --up compute9 nova-compute")
    s.until("compute9 is up", lambda: all(
        one["state"] == "up" for one in s.api.expect(200, "GET", "/compute/v2.1/os-services")["services"]))
    s.run("compute service set --down nowhere nova-compute", fails=True)
    ident = s.run("compute service list --host h2")[0]["ID"]
    # Its node is at work: it would be back at once.
    s.run(f"compute service delete {ident}", fails="1 of 1 compute services failed to delete.")
    s.run("compute service delete 11111111-2222-3333-4444-555555555555", fails="failed to delete")


def groups(s):
    """Server groups."""
    s.run("server group create --policy affinity g1", fields={"name": "g1", "policy": "affinity", "members": lambda m: not m})
    s.run("server group create --policy anti-affinity --rule max_server_per_host=2 g2",
          fields={"rules": {"max_server_per_host": 2}})
    s.run("server group create --policy soft-anti-affinity g3", fields={"policy": "soft-anti-affinity"})
    s.run("server group create --policy soft-affinity g4", fields={"policy": "soft-affinity"})
    s.run("server group create --policy affinity --rule max_server_per_host=2 g5", fails=True)
    s.run("server group list", rows=[{"Name": "g1", "Policy": "affinity"}, {"Name": "g3"}])
    s.run("server group list --long", rows=[{"Name": "g2", "Members": []}])
    # This list goes on by offset. The client sends a marker, sees the same page again, and never an offset.
    s.run("server group list --all-projects --limit 2", fails="Endless pagination loop detected",
          sent=("GET", "limit=2"))
    s.run("server group list --all-projects --offset 3", count=4)
    s.run("server group show g1", fields={"name": "g1", "policy": "affinity"})
    s.run("server group create --policy anti-affinity sg1", fields={"policy": "anti-affinity"})
    s.run("server group show sg1 -f value -c id")
    s.run("server group delete g1")
    s.run("server group show g1", fails="No ServerGroup found for g1")
    s.run("server group delete g1", fails="1 of 1 server groups failed to delete.")
    s.run("server group delete g3 g4")


def quotas(s):
    """Quotas and limits of admin; they end without bounds."""
    s.run("quota show admin", rows=[{"Resource": "instances"}, {"Resource": "cores"}])
    s.run("quota show --compute admin", rows=[{"Resource": "key-pairs", "Limit": 100}])
    s.run("quota show --default", rows=[{"Resource": "instances", "Limit": 10}])
    s.run("quota show")
    s.run("quota show demo")
    s.run("quota set --instances 5 admin")
    s.run("quota show --compute admin", rows=[{"Resource": "instances", "Limit": 5}])
    s.run("quota show --usage --compute admin", rows=[{"Resource": "instances", "Limit": 5, "In Use": 0, "Reserved": 0}])
    s.run("quota show --usage admin")
    s.run("quota show --usage")
    s.run("quota list --compute", rows=[{"Instances": 5}])
    s.run("quota delete admin")
    s.run("quota show --compute admin", rows=[{"Resource": "instances", "Limit": 10}])
    s.run("quota set --class --instances 5 default")
    s.run("quota show --default --compute", rows=[{"Resource": "instances", "Limit": 5}])
    s.run("quota set --class --instances 10 default")
    s.run("quota set --instances -1 demo")
    s.run("quota set --instances -2 demo", fails=True)
    s.run("quota set --instances -1 --cores -1 --ram -1 admin")
    s.run("limits show --absolute", rows=[{"Name": "total_cores", "Value": -1}, {"Name": "max_total_keypairs", "Value": 100}])
    s.run("limits show --rate", count=0)
    s.run("limits show --absolute --project demo", rows=[{"Name": "total_instances_used", "Value": 0}])


def others(s):
    """Versions and extensions."""
    s.run("versions show", rows=[{"Service Type": "compute", "Version": "2.1", "Max Microversion": "2.104"}])
    s.run("versions show --service compute", rows=[{"Version": "2.1", "Status": "CURRENT", "Min Microversion": "2.1"}])
    s.run("extension list --compute", rows=[{"Alias": "os-server-groups"}])
    s.run("extension show os-server-groups", fails=True)
