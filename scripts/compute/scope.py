"""Exclusions from the comparison with upstream. Every entry has its reason.

COMMANDS: commands of the client that are not run. LINES: recorded command lines that are not run.
DIFFERENCES: (command line, or None for all; part of the difference; reason).
"""

VOLUMES = "volumes: there is no Cinder"
SHARES = "shares: there is no Manila"
NONE = "the stand-in had a network of every name, including `none`; it is run with --nic none"

COMMANDS = {
    "server add volume": VOLUMES, "server remove volume": VOLUMES, "server volume set": VOLUMES,
    "server volume update": VOLUMES,
    "server add share": SHARES, "server remove share": SHARES, "server share list": SHARES,
    "server share show": SHARES,
    "server ssh": "it starts ssh to an address of the server, and simulated guests answer nothing",
    "compute agent create": "the API answers 410 since Nova 23; there are no guest agents",
    "compute agent delete": "as above", "compute agent list": "as above", "compute agent set": "as above",
    "cloud cache delete": "no request",
    "configuration show": "no request",
}

# Recorded with another outcome, but still compared.
ENDINGS = {"server show --topology s1", "server delete s1 --wait", "console url show s1", "aggregate cache image a1 cirros"}

MISSED = "its device profile could not be created when it was recorded; acc2 is the same with one"
LINES = {
    "server create --nic none --flavor af --image tiny --wait acc1": MISSED,
    "server delete --wait acc1": MISSED,
    **dict.fromkeys((
        "server create --network none --flavor t1 --image tiny --description d --tag t --hostname hn --wait vt",
        "server create --flavor t1 --image tiny vnonic",
        "server create --flavor m1 --image cirros --network none s1",
        "server create --flavor m1 --image cirros --network none --min 2 --max 2 s1",
        "server create --flavor m1 --image cirros --network none --host h1 --availability-zone nova --key-name k1 "
        "--hint group=ID s1"), NONE),
    "server add network s1 private": "the stand-in had no such route; here it is run on servers with a network",
    "server add security group v1 default": "there was no Neutron when it was recorded; here it is run on servers with one",
    "quota show --usage": "the client failed on the recorded answer; here it is run and its output is checked",
    "compute service set --up compute9 nova-compute": "refused there, because no host had taken over the servers; here it succeeds",
}

STAND_IN = "the stand-in accepted a name where Nova accepts only ids"
DIFFERENCES = [
    (None, "GET NOVA /v2.1/flavors/ID/os-extra_specs", "the client sends this for flavors without extra specs; "
     "other flavors had none when it was recorded"),
    ("flavor list --long --all", "GET NOVA /v2.1/flavors/t1/os-extra_specs", "one flavor's id was chosen by hand"),
    (None, "no stores", "of Glance: there is one store"),
    (None, "only here: GET KS /v3/projects?name=admin", "the stand-in accepted a name where Keystone accepts only ids"),
    ("server list --all-projects --limit 3", "servers_links", "there were fewer than three servers then"),
    ("hypervisor show h1", "only here: GET NOVA /v2.1/os-hypervisors @2.88", STAND_IN),
    ("server backup create s1 --name b --type daily --rotate 1", "only here: GET GL /v2/images?name=b", STAND_IN),
    ("server show --topology s1", "with the same client: GET GL", "the stand-in had topologies in every version"),
    ("server shelve --offload s1", "only here: POST", "the stand-in's server was shelved already"),
    ("server shelve --offload s1", "only here: GET NOVA /v2.1/servers/ID", "as above"),
]
