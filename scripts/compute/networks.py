"""Servers on networks: by name, by port, automatically; addresses, ports and security groups come and go.

Needs no servers of other steps; leaves s1 without a network, for other steps.
"""

NIC = "server create --flavor m1 --image cirros"


def addresses(server, network="private"):
    """The IPv4 addresses of a server on a network."""
    return [one["addr"] for one in server["addresses"].get(network, ())]


def networks(s):
    """Every command for a server's networks, and every way to request one at creation."""
    while s.server("s1"):
        s.run(f"server delete --wait {s.server('s1')['id']}")
    s.run("network create private", fields={"name": "private", "status": "ACTIVE"})
    s.run("subnet create --network private --subnet-range 10.30.0.0/24 four", fields={"gateway_ip": "10.30.0.1"})
    create(s)
    change(s)
    groups(s)
    floating(s)
    s.run("server delete --wait n1")
    ports = sorted(port["Name"] for port in s.run("port list --long")
                   if port["Device Owner"] != "network:dhcp")
    s.same("the ports created for it are gone, the others remain", ports, ["mine", "more"])
    s.run("port delete mine more")
    s.run("subnet delete four")
    s.run("network delete private")
    s.run(f"{NIC} --nic none s1", reaches=("s1", "ACTIVE"))


def create(s):
    """Ways to request a network."""
    for options, count in (("--network private s1", 1), ("--nic auto s1", 1), ("s1", 1), ("--nic none s1", 0)):
        s.run(f"{NIC} {options}")
        s.same(f"{options}: addresses", len(addresses(s.reaches("s1", "ACTIVE"))), count)
        s.run("server delete --wait s1")
    s.run(f"{NIC} --nic none --min 2 --max 2 s1")
    for name in ("s1-1", "s1-2"):
        s.reaches(name, "ACTIVE")
        s.run(f"server delete --wait {name}")
    s.run("port create --network private --fixed-ip ip-address=10.30.0.77 mine")
    s.run("server create --flavor t1 --image tiny --nic port-id=mine --wait n1", fields={"status": "ACTIVE"})
    s.same("the port's address", addresses(s.server("n1")), ["10.30.0.77"])
    s.run(f"{NIC} --network none n2", fails="No Network found for none")
    s.run("server create --flavor t1 --image tiny --network nowhere n2", fails="No Network found for nowhere")
    s.run("server create --flavor t1 --image tiny --nic net-id=private,v4-fixed-ip=10.30.0.77 n2",
          fails="10.30.0.77")


def change(s):
    """Ports, networks and addresses of a running server."""
    s.run("server add network n1 private")
    s.same("a second", len(addresses(s.server("n1"))), 2)
    s.run("port create --network private --fixed-ip ip-address=10.30.0.88 more")
    s.run("server add port n1 more")
    s.same("a third", "10.30.0.88" in addresses(s.server("n1")), True)
    s.run("server add port n1 more", fails="in use")
    s.run("server remove port n1 more")
    s.until("the port is detached", lambda: "10.30.0.88" not in addresses(s.server("n1")))
    s.run("server add fixed ip --fixed-ip-address 10.30.0.99 n1 private")
    s.same("with the address", "10.30.0.99" in addresses(s.server("n1")), True)
    s.run("server remove fixed ip n1 10.30.0.99", fails=True)
    s.run("server remove network n1 private")
    s.until("none is left", lambda: not addresses(s.server("n1")))
    s.run("server remove network n1 nowhere", fails="No Network found for nowhere")
    s.run("server add network n1 private")
    s.run("server list --name n1", rows=[{"Name": "n1", "Networks": lambda found: len(found["private"]) == 1}])
    s.run(f"server list --ip {addresses(s.server('n1'))[0]}", rows=[{"Name": "n1"}], count=1)


def groups(s):
    """Security groups of a server."""
    s.run("security group create web")
    s.run("server add security group n1 web")
    s.until("it has both", lambda: {one["name"] for one in s.server("n1")["security_groups"]} == {"default", "web"})
    s.run("security group delete web", fails="in use")
    s.run("server remove security group n1 web")
    s.until("it has one", lambda: {one["name"] for one in s.server("n1")["security_groups"]} == {"default"})
    s.run("security group delete web")
    s.run("server add security group n1 web", fails="web")


def floating(s):
    """This run has no routers, so it has no floating IPs."""
    s.run("server add floating ip n1 192.0.2.9", fails=True)
    s.run("server remove floating ip n1 192.0.2.9", fails=True)
