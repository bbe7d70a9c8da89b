"""Accelerators of other kinds through the server commands, and a host that is removed permanently."""

import os
import re

SIZE = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}


def accelerators(s):
    """A whole GPU and an FPGA through all actions, including those that upstream refuses with accelerators."""
    s.run("flavor create --id af --vcpus 1 --ram 64 --disk 1 --property accel:device_profile=dp1 af")
    s.run("flavor delete af")
    s.run("flavor create --id af2 --vcpus 1 --ram 64 --disk 1 --property accel:device_profile=dp2 af2")
    s.run("server create --nic none --flavor af2 --image tiny --wait acc2", fields={"status": "ACTIVE"})
    s.same("acc2 holds an FPGA", s.held(s.server("acc2")["id"]), {**SIZE, "FPGA": 1})
    s.run("server show acc2 -f value -c id")
    s.run("server delete --wait acc2")
    s.run("flavor delete af2")
    for flavor, name, kind in (("pgpu", "whole", "PGPU"), ("f1", "card", "FPGA")):
        made = s.run(f"server create --flavor {flavor} --image tiny --nic none --wait {name}", fields={"status": "ACTIVE"})
        keeps = lambda: s.same(f"{name} holds its {kind}", s.held(made["id"]), {**SIZE, kind: 1})  # noqa: E731, B023
        keeps()
        for action, status in (("suspend", "SUSPENDED"), ("resume", "ACTIVE"), ("pause", "PAUSED"), ("unpause", "ACTIVE"),
                               ("rescue", "RESCUE"), ("unrescue", "ACTIVE"), ("rebuild", "ACTIVE"), ("shelve", "SHELVED_OFFLOADED"),
                               ("unshelve", "ACTIVE"), ("reboot --hard --wait", "ACTIVE")):
            s.run(f"server {action} {name}", reaches=(name, status))
        keeps()
        s.run(f"server resize --flavor t1 --wait {name}", reaches=(name, "VERIFY_RESIZE"))
        s.same(f"{name} holds no {kind}", s.held(made["id"]), SIZE)
        s.run(f"server resize revert {name}", reaches=(name, "ACTIVE"))
        keeps()
        s.run(f"server migrate --wait {name}", reaches=(name, "VERIFY_RESIZE"))
        s.run(f"server migration confirm {name}", reaches=(name, "ACTIVE"))
        keeps()
        # The state of a whole card cannot be migrated live.
        s.run(f"server migrate --live-migration {name}", fails=True)
        keeps()
        s.run(f"server delete --wait {name}")
        s.same(f"nothing of {name} is held", s.held(made["id"]), {})
    s.run("server create --flavor pgpu --image tiny --nic none --min 2 --max 2 both", says="both-1")
    s.same("two whole GPUs are on two hosts", {s.reaches(f"both-{n}", "ACTIVE")["OS-EXT-SRV-ATTR:host"] for n in (1, 2)},
           {"h1", "h2"})
    s.run("server create --flavor pgpu --image tiny --nic none --wait third", fails="Error creating server: third")
    fault = s.run("server show third", fields={"status": "ERROR"})["fault"]
    s.check("its fault has the reason", "No valid host was found." in fault["message"], str(fault))
    event = s.run("server event list third")[0]["Request ID"]
    s.run(f"server event show third {event}", says="No valid host was found.")
    s.run("server delete --wait both-1 both-2 third")


def gone(s, serve, folder):
    """A host whose node is stopped permanently: its service can be deleted, and the host disappears completely."""
    s.api.close()
    serve.stop()
    with open(serve.nodes, encoding="utf-8") as file:
        hosts = re.split(r"(?=\[\[host\]\]\n)", file.read())
    serve.nodes = os.path.join(folder, "fewer.toml")
    with open(serve.nodes, "w", encoding="utf-8") as file:
        file.write("".join(host for host in hosts if 'name = "compute9"' not in host))
    serve.start()
    listed = s.run("compute service list --service nova-compute")
    ident = next(one["ID"] for one in listed if one["Host"] == "compute9")
    s.run("compute service set --down compute9 nova-compute")
    s.run(f"compute service delete {ident}")
    s.run("compute service list --service nova-compute", count=7)
    s.run("hypervisor list", count=7)
    s.run("hypervisor show compute9", fails="No Hypervisor found for compute9")
