"""The packages: what they install, whether they run as their units define, and what removal leaves."""

import agent
from host import MTTY, clean, of

ASK = "exec 3<>/dev/tcp/127.0.0.1/8774 && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3"


def shown(node, unit, name):
    """A property of a unit, from systemd."""
    return node.run(f"systemctl show -p {name} --value {unit}")


def control_plane(lab, node):
    """The other package on a separate host: it starts as an unprivileged user, and is purged."""
    agent.install(node, "kilonova")
    node.run("systemctl start kilonova", timeout=180)
    node.until(f"bash -c \"{ASK}\"", lambda output: " 200 " in output or " 300 " in output, "the controller answers")
    pid = shown(node, "kilonova", "MainPID")
    lab.tick("kilonova: its unit runs and answers", shown(node, "kilonova", "ActiveState") == "active")
    status = node.run(f"grep -E '^(Uid|CapBnd)' /proc/{pid}/status; stat -c '%a %U' /var/lib/kilonova").split("\n")
    lab.tick("it runs as its own user, without capabilities, with a private state directory",
             status[0].split()[1] != "0" and int(status[1].split()[1], 16) == 0 and status[2] == "700 kilonova", str(status))
    node.run("dpkg --purge kilonova", timeout=180)
    left = node.run("ls -d /usr/bin/kilonova /etc/kilonova/kilonova.conf /usr/lib/systemd/system/kilonova.service "
                    f"/proc/{pid} /var/lib/kilonova 2>/dev/null; true").split()
    lab.tick("after the purge, only its state is left", left == ["/var/lib/kilonova"], str(left))
    node.run("rm -rf /var/lib/kilonova")


def running(lab, node):
    """The agent as its unit runs it."""
    pid = shown(node, agent.UNIT, "MainPID")
    lab.tick("the agent's unit is active", shown(node, agent.UNIT, "ActiveState") == "active")
    bound = int(node.run(f"grep ^CapBnd /proc/{pid}/status").split()[1], 16)
    lab.tick("its capabilities are bounded", 0 < bound < (1 << 38) - 1, f"{bound:x}")
    code, output = node.attempt("kilonova-agent check", timeout=120)
    lab.tick("its check finds no problem", code == 0, output)


def again(lab, node, ident):
    """Removes and reinstalls the agent's package while a guest runs: the guest keeps running, and the
    agent recognizes it."""
    before = lab.cloud.console(ident).ticks[-1]
    node.run(f"dpkg --remove {agent.UNIT}", timeout=180)
    lab.tick("after removal, the agent has stopped and its configuration stays",
             node.run(f"systemctl is-active {agent.UNIT}; ls /etc/kilonova/agent.conf; true").split()
             == ["inactive", "/etc/kilonova/agent.conf"])
    agent.install(node)
    agent.start(node)
    lab.cloud.hosts([one.name for one in lab.nodes])
    log = lab.cloud.guest_log(ident, lambda s: s.ticks and s.ticks[-1] > before, "its guest keeps counting")
    lab.tick("after reinstallation, the guest keeps counting and was not rebooted",
             log.boots == 1 and log.count(MTTY) == 1, log.whole[-300:])
    clean(lab, ident)
    lab.cloud.run("server", "stop", ident)
    lab.cloud.status(ident, "SHUTOFF")
    lab.tick("the agent executes requests")


def run(lab):
    """Both packages on one host."""
    lab.heading("The packages")
    ident = lab.cloud.boot("vgpu", "kept")["id"]
    lab.cloud.guest_log(ident)
    node = of(lab, lab.cloud.server(ident)["OS-EXT-SRV-ATTR:host"])
    running(lab, node)
    again(lab, node, ident)
    lab.cloud.delete(ident)
    clean(lab)
    control_plane(lab, node)
    node.run(f"dpkg --purge {agent.UNIT}", timeout=180)
    left = node.run("ls -d /usr/bin/kilonova-agent /etc/kilonova/agent.conf /usr/lib/systemd/system/kilonova-agent.service "
                    "/var/lib/kilonova-agent 2>/dev/null; true").split()
    lab.tick("after the purge, only the agent's state is left", left == ["/var/lib/kilonova-agent"], str(left))
    agent.configure(node)
    agent.start(node)
    lab.cloud.hosts([one.name for one in lab.nodes])
    lab.tick("after reinstallation, the host is identified by its certificate")
