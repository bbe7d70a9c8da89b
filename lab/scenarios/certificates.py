"""Certificates of the cloud's own authority, which hosts use for TLS between each other. The libvirtd of
the other hosts refuses a revoked certificate. A host whose certificate has expired joins again, and its
guest keeps running."""

import json
import os
import tempfile
import textwrap

import agent
from build.cache import run as call
from host import MTTY, clean, of, other
from scenarios import hosts, live

CONFIG = "/etc/kilonova/agent.conf"
IDENTITY = "/var/lib/kilonova-agent/identity.json"
OWN = "libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket"
# Arguments of openssl for a signature with a date in the past.
PAST = """\
    [ca]
    default_ca = own
    [own]
    database = {folder}/index.txt
    new_certs_dir = {folder}
    rand_serial = yes
    default_md = sha256
    policy = any
    x509_extensions = host
    [any]
    commonName = optional
    [host]
    basicConstraints = critical,CA:FALSE
    extendedKeyUsage = clientAuth,serverAuth
    subjectAltName = DNS:{name}
    """


def listen(node, door, instead_of):
    """Makes libvirtd listen for other hosts on one socket instead of another."""
    node.run(f"systemctl stop libvirtd {OWN} {instead_of}; systemctl start {door} {OWN} && systemctl start libvirtd",
             timeout=180)


def over_tls(lab):
    """Switches live migration to TLS, with certificates that the agents install for libvirt."""
    for node in lab.nodes:
        node.run(f"cp {CONFIG} /root/agent.conf; mkdir -p /etc/pki; printf '[node]\\npki_dir = /etc/pki\\n' >>{CONFIG}; "
                 f"sed -i 's/^live_migration_uri = .*/live_migration_scheme = tls/' {CONFIG}; "
                 "systemctl restart kilonova-agent", timeout=180)
        node.until("ls /etc/pki/libvirt/*.pem /etc/pki/libvirt/private/*.pem /etc/pki/CA/*.pem | wc -l",
                   lambda output: output == "6",
                   "the agent installs its certificate and the revocation list for libvirt")
        listen(node, "libvirtd-tls.socket", "libvirtd-tcp.socket")
        modes = node.run("stat -c '%a %U' /etc/pki/libvirt/private/*.pem").split("\n")
        lab.tick(f"{node.name}: only root can read its key", set(modes) == {"600 root"}, str(modes))
    lab.cloud.hosts([node.name for node in lab.nodes])
    for node in lab.nodes:
        code, output = node.attempt("kilonova-agent check", timeout=120)
        lab.tick(f"{node.name}: `kilonova-agent check` finds no problem", code == 0, output)
        peer = other(lab, node.name)
        uri = f"qemu+%s://10.98.0.{peer.number}/system"
        node.run(f"virsh -q -c {uri % 'tls'} uri", timeout=180)
        node.run(f"virsh -q -c {uri % 'tcp'} uri", fails=True)
        lab.tick(f"{node.name} reaches libvirt of {peer.name} with TLS only")


def over_tcp(lab):
    """Switches back to TCP with the nodes' earlier configuration."""
    for node in lab.nodes:
        node.run(f"[ ! -e /root/agent.conf ] || mv /root/agent.conf {CONFIG}")
        listen(node, "libvirtd-tcp.socket", "libvirtd-tls.socket")
        node.run("systemctl restart kilonova-agent; rm -rf /etc/pki/libvirt /etc/pki/CA", timeout=180)
    lab.cloud.hosts([node.name for node in lab.nodes])


def revoked(lab, node):
    """The host's certificate is revoked while a connection with it is open. The libvirtd of the other
    host closes the connection and refuses the certificate. Then the host joins again."""
    peer = other(lab, node.name)
    copy = "/root/stolen"
    node.run(f"mkdir -p {copy} && cd /etc/pki && cp CA/cacert.pem libvirt/clientcert.pem "
             f"libvirt/private/clientkey.pem {copy}")
    virsh = f"virsh -q -c 'qemu+tls://10.98.0.{peer.number}/system?pkipath={copy}'"
    node.run(f"{virsh} uri", timeout=180)
    node.run(f"(setsid {virsh} event --all --loop >/root/stolen.log 2>&1; echo ended >>/root/stolen.log) "
             "</dev/null >/dev/null 2>&1 &")
    peer.until("virt-admin client-list libvirtd", lambda output: " tls " in output,
               "a connection with the host's certificate is open")
    answer = hosts.command(lab, "node", "revoke", node.name)
    lab.tick(f"`kilonova node revoke {node.name}` revokes its certificate", answer["revoked"]["certificates"] >= 1,
             str(answer))
    node.until("cat /root/stolen.log", lambda output: "ended" in output,
               "the other host's libvirtd closes the open connection")
    code, output = node.attempt(f"{virsh} uri", timeout=180)
    lab.tick("the other host's libvirtd refuses the certificate", code != 0, output)
    agent.join(node, *hosts.enroll(lab, node))
    lab.cloud.hosts([one.name for one in lab.nodes])
    node.run(f"virsh -q -c qemu+tls://10.98.0.{peer.number}/system uri", timeout=180)
    lab.tick("the host joined again, and libvirtd accepts its new certificate")


def expired(lab, node, folder):
    """The host's identity with an expired certificate of the cloud's authority."""
    def path(name, content=None):
        whole = os.path.join(folder, name)
        if content is not None:
            with open(whole, "w", encoding="utf-8") as file:
                file.write(content)
        return whole
    known = json.loads(node.run(f"cat {IDENTITY}"))
    serve, authority = lab.cloud.serve, path("authority")
    config = ["--config", serve.config] if serve.config else []
    call(serve.binary, "ca", "export", authority, "--state-dir", serve.state, *config)
    path("index.txt", "")
    config = path("past.cnf", textwrap.dedent(PAST).format(folder=folder, name=node.name))
    call("openssl", "req", "-new", "-key", path("key", known["key"]), "-subj", f"/CN={node.name}", "-out", path("csr"))
    call("openssl", "ca", "-batch", "-notext", "-config", config, "-cert", os.path.join(authority, "ca.crt"),
         "-keyfile", os.path.join(authority, "ca.key"), "-startdate", "20250101000000Z", "-enddate", "20250401000000Z",
         "-in", path("csr"), "-out", path("crt"))
    with open(path("crt"), encoding="utf-8") as file:
        known["certificate"] = file.read()
    return json.dumps(known)


def let_in_again(lab, node, ident):
    """The host was off for too long: it is refused, logs the reason, and joins again while its agent runs."""
    before = lab.cloud.console(ident).ticks[-1]
    with tempfile.TemporaryDirectory() as folder:
        old = expired(lab, node, folder)
    node.run("systemctl stop kilonova-agent", timeout=180)
    node.write(IDENTITY, old, "0600")
    node.run("systemctl start kilonova-agent", timeout=180)
    node.until("journalctl -u kilonova-agent -o cat -n 100", lambda log: "has expired" in log and "node enroll" in log,
               "its log says that the certificate has expired, and what to do")
    code, output = node.attempt("kilonova-agent check", timeout=120)
    lab.tick("`kilonova-agent check` reports it too", code == 1 and "certificate of this host has expired" in output, output)
    left = {one.name for one in lab.nodes if one is not node}
    lab.cloud.hosts(left)
    lab.tick("the host is down, and its guest keeps running", node.run(f"virsh -q domstate {ident}") == "running")
    agent.join(node, *hosts.enroll(lab, node))
    lab.cloud.hosts([one.name for one in lab.nodes])
    lab.tick("the host joined again, and its running agent was accepted")
    log = lab.cloud.guest_log(ident, lambda log: log.ticks and log.ticks[-1] > before, "its guest keeps counting")
    # The log does not contain a guest's earlier messages from the other host.
    lab.tick("its guest keeps counting and was not rebooted", log.boots <= 1, f"{log.boots} boots")
    clean(lab, ident)


def run(lab):
    """One guest, over TLS to the other host and back; a revoked certificate; then an expired one while
    the guest runs."""
    lab.heading("Certificates: live migration over TLS, a revoked certificate, and an expired one")
    ident = lab.cloud.boot("vgpu", "certified")["id"]
    log = lab.cloud.guest_log(ident)
    lab.tick("the guest sees its device", log.count(MTTY) == 1)
    try:
        over_tls(lab)
        live.there_and_back(lab, ident)
        revoked(lab, other(lab, live.host_of(lab, ident)))
    finally:
        over_tcp(lab)
    let_in_again(lab, of(lab, live.host_of(lab, ident)), ident)
    lab.cloud.delete(ident)
    clean(lab)
    lab.cloud.doctor()
