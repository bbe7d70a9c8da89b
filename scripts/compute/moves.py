"""Servers that migrate: resize, cold and live migration, evacuation; with a vGPU, between h1 and h2."""

from compute.servers import S1

M2 = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 1, "VGPU": 1}
OTHER = {"h1": "h2", "h2": "h1"}


def confirmed(s, name, wanted):
    """Waits until the resize is confirmed and the migration has released its allocations."""
    s.reaches(name, "ACTIVE")
    ident = s.server(name)["id"]
    s.same(f"{name} holds", s.held(ident), wanted)


def moves(s):
    """Resize and cold migration, confirmed and reverted, with both spellings of the commands."""
    ident = s.server("s1")["id"]
    s.run("server resize --flavor m1 s1", fails="When resizing, instances must change flavor!")
    s.run("server resize --flavor m2 --wait s1", reaches=("s1", "VERIFY_RESIZE"))
    s.same("s1 holds the resources of m2", s.held(ident), M2)
    s.run("server resize --flavor m1 s1", fails="while it is in vm_state resized")
    s.run("server resize confirm s1")
    confirmed(s, "s1", M2)
    s.run("server resize --flavor m1 s1", reaches=("s1", "VERIFY_RESIZE"))
    s.run("server resize revert s1")
    confirmed(s, "s1", M2)
    s.run("server resize --flavor m1 --wait s1", reaches=("s1", "VERIFY_RESIZE"))
    s.run("server resize --confirm s1")
    confirmed(s, "s1", S1)
    s.run("server resize --flavor f1 --wait s1", reaches=("s1", "VERIFY_RESIZE"))
    s.same("a vGPU became an FPGA", s.held(ident), {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1, "FPGA": 1})
    s.run("server resize --revert s1")
    confirmed(s, "s1", S1)
    s.run("server resize --flavor w1 v1", reaches=("v1", "VERIFY_RESIZE"))
    s.run("server resize revert v1", reaches=("v1", "ACTIVE"))
    s.run("server resize --flavor w1 --wait v1", reaches=("v1", "VERIFY_RESIZE"))
    s.run("server resize confirm v1", reaches=("v1", "ACTIVE"))
    s.run("server resize confirm v1", fails="while it is in vm_state active")
    s.run("server resize revert v1", fails="while it is in vm_state active")
    before = s.host("s1")
    s.run("server migrate s1", reaches=("s1", "VERIFY_RESIZE"))
    s.same("s1 moved", s.host("s1"), OTHER[before])
    s.run("server migration revert s1", reaches=("s1", "ACTIVE"))
    s.same("s1 is back", s.host("s1"), before)
    if before == "h2":
        s.run("server migrate --host h1 --wait s1", reaches=("s1", "VERIFY_RESIZE"))
        s.run("server migration confirm s1")
        confirmed(s, "s1", S1)
    s.run("server migrate --host h2 s1", reaches=("s1", "VERIFY_RESIZE"))
    s.same("s1 is on h2", s.host("s1"), "h2")
    s.run("server migrate confirm s1")
    confirmed(s, "s1", S1)
    s.run("server migrate --wait s1", reaches=("s1", "VERIFY_RESIZE"))
    s.run("server migrate revert s1")
    confirmed(s, "s1", S1)
    s.run("server migrate --host nowhere s1", fails="Compute host nowhere could not be found.")
    s.run("server migrate v1", reaches=("v1", "VERIFY_RESIZE"))
    s.run("server migrate --live-migration v1", fails="while it is in vm_state resized")
    s.run("server migration confirm v1", reaches=("v1", "ACTIVE"))


def live(s):
    """Live migration, aborted and forced; the lists of migrations."""
    s.reaches("s1", "ACTIVE")
    before = s.host("s1")
    s.run("server migrate --live-migration s1", reaches=("s1", "ACTIVE"))
    s.same("s1 moved", s.host("s1"), OTHER[before])
    if s.host("s1") == "h2":
        s.run("server migrate --live-migration --host h1 --wait s1", reaches=("s1", "ACTIVE"))
    s.run("server migrate --live-migration --host h2 s1 --wait")
    s.reaches("s1", "ACTIVE")
    s.same("s1 is on h2", s.host("s1"), "h2")
    s.same("s1 holds its vGPU", s.held(s.server("s1")["id"]), S1)
    s.run("server migrate --live-migration --host h2 s1", fails=True)
    s.run("server migrate --live-migration --block-migration --wait v1")
    s.reaches("v1", "ACTIVE")
    # The server's disks are copied regardless of the option: hosts share none.
    s.run("server migrate --live-migration --shared-migration v1", reaches=("v1", "ACTIVE"))
    s.run("server show v1", fields={"name": "v1", "status": "ACTIVE"})
    s.run("server migration list", count=lambda found: found > 5)
    s.run("server migration list --server s1", count=lambda found: found > 5)
    s.run("server migration list --server v1", count=lambda found: found > 2)
    s.run("server migration list --type migration --status confirmed", fails="argument --type: invalid choice")
    s.run("server migration list --type resize", count=lambda found: found > 3)
    s.run("server migration list --type cold-migration --status confirmed --host h2", count=lambda found: found >= 1)
    s.run("server migration list --type live-migration --limit 1", count=1)
    s.run("server migration list --project admin --user admin", count=lambda found: found > 5)
    s.run("server migration list --changes-before 2020-01-01", count=0)
    # This client swaps the two arguments of the path.
    s.run("server migration show s1 1", fails="No ServerMigration found")
    slow(s)


def slow(s):
    """Migrations slow enough to act on. The server is named s1, as in the recording."""
    s.run("server set --name s1-before s1")
    s.run("server create --flavor t1 --image tiny --nic none --host slow1 --wait s1")
    ident = s.server("s1")["id"]

    def under_way():
        listed = s.api.expect(200, "GET", f"/compute/v2.1/servers/{ident}/migrations")["migrations"]
        return next((one["id"] for one in listed if one["status"] == "running"), None)

    s.run("server migrate --live-migration --host slow2 s1")
    number = s.until("it is under way", under_way)
    s.run("server pause s1", fails="while it is in task_state migrating")
    s.run(f"server migration abort s1 {number}", reaches=("s1", "ACTIVE"))
    s.same("s1 stayed", s.host("s1"), "slow1")
    s.run("server migration list --server s1", rows=[{"Status": "cancelled", "Type": "live-migration"}], count=1)
    s.run(f"server migration abort s1 {number}", fails=True)
    s.run("server migrate --live-migration --host slow2 s1")
    number = s.until("it is under way", under_way)
    s.run(f"server migration force complete s1 {number}", reaches=("s1", "ACTIVE"))
    s.same("s1 moved", s.host("s1"), "slow2")
    s.run(f"server migration force complete s1 {number}", fails=True)
    s.run("server delete --wait s1")
    s.run("server set --name s1 s1-before")


def evacuate(s):
    """Evacuation from a host that is forced down; the servers end stopped (2.95)."""
    s.run("server create --nic none --image tiny --flavor t1 --wait ev1")
    if s.host("ev1") == "compute3":
        s.run("server migrate --live-migration --host compute2 --wait ev1", reaches=("ev1", "ACTIVE"))
    s.run("server evacuate --host compute3 ev1", fails="is still in use.")
    s.run("server evacuate ev1", fails="is still in use.")
    s.run("server volume list ev1", count=0)
    s.run("server delete --wait ev1")
    s.run("server create --nic none --image tiny --flavor t1 --host compute9 --wait ev2",
          fields={"OS-EXT-SRV-ATTR:host": "compute9"})
    s.run("server stop ev2", reaches=("ev2", "SHUTOFF"))
    s.run("server evacuate ev2", fails="is still in use.")
    s.run("compute service set --down compute9 nova-compute")
    # With --wait this client waits for `ACTIVE` in capitals and never ends.
    s.run("server evacuate ev2", reaches=("ev2", "SHUTOFF"))
    s.same("ev2 left", s.host("ev2") != "compute9", True)
    s.run("server migration list --type evacuation", count=1, rows=[{"Source Compute": "compute9", "Server UUID": lambda _: True}])
    s.until("compute9 has removed the guest", lambda: clean(s, "compute9"))
    s.run("compute service set --up compute9 nova-compute")
    s.run("server delete --wait ev2")
    ident = s.server("s1")["id"]
    for line, target in (("server evacuate s1", None), ("server evacuate --host h2 s1", "h2")):
        before = s.host("s1")
        if target == before:
            s.run(f"server migrate --live-migration --host {OTHER[before]} --wait s1", reaches=("s1", "ACTIVE"))
            before = OTHER[before]
        s.run(f"compute service set --down {before} nova-compute")
        s.run(line, reaches=("s1", "SHUTOFF"))
        s.same("s1 left", s.host("s1"), OTHER[before])
        s.same("s1 holds its vGPU", s.held(ident), S1)
        s.until(f"{before} has removed the guest", lambda host=before: clean(s, host))
        s.run(f"compute service set --up {before} nova-compute")
        s.until(f"{before} is up", lambda host=before: up(s, host))
        s.run("server start s1", reaches=("s1", "ACTIVE"))


def clean(s, host):
    """Returns whether a host has removed the guests of all servers that were evacuated from it."""
    path = f"/compute/v2.1/os-migrations?migration_type=evacuation&source_compute={host}"
    return all(one["status"] != "done" for one in s.api.expect(200, "GET", path)["migrations"])


def up(s, host):
    """Returns whether a host is up."""
    services = s.api.expect(200, "GET", f"/compute/v2.1/os-services?host={host}")["services"]
    return services[0]["state"] == "up"
