#!/usr/bin/env python3
"""Compare the table of upstream's options with the installed packages.

Run it with the Python of an environment that has the packages (pip install nova==34.0.0
openstack-placement==16.0.0 openstack-cyborg==17.0.0). It prints the options that the table lacks,
for each file that has them, and exits 1 if there are any. The table may have more: options that
keystoneauth's plugins register, and names that an older release used.
"""

import importlib
import importlib.metadata
import multiprocessing
import pathlib
import sys

TABLE = pathlib.Path(__file__).parent.parent / "crates/program/src/config/upstream/options.txt"
LIBRARIES = """keystonemiddleware.audit keystonemiddleware.auth_token oslo.concurrency oslo.config
    oslo.db oslo.limit oslo.log oslo.messaging oslo.middleware oslo.policy oslo.privsep oslo.reports
    oslo.service.periodic_task oslo.service.service oslo.service.sslutils oslo.service.wsgi
    oslo.versionedobjects"""
NAMESPACES = {
    "nova": ["nova.conf", "oslo.cache", "castellan.config", "os_brick", "os_vif", *LIBRARIES.split()],
    "placement": """placement.conf keystonemiddleware.auth_token oslo.log oslo.middleware oslo.policy
        oslo.reports""".split(),
}
CYBORG = "agent api database default devices glance nova nvme placement service_token utils"


def group_name(group):
    return getattr(group, "name", group) or "DEFAULT"


def options_of(lists):
    """Yield group, option, and its deprecated names."""
    for group, options in lists:
        for option in options:
            old = {(one.group or group_name(group), one.name or option.dest)
                   for one in option.deprecated_opts}
            yield group_name(group), option.dest, old | {(group_name(group), option.name)}


def of_file(file):
    """Return file, group, option and deprecated names of every option of one file."""
    if file == "cyborg":
        modules = [importlib.import_module(f"cyborg.conf.{name}") for name in CYBORG.split()]
        lists = [module.list_opts() for module in modules]
        lists = [one.items() if hasattr(one, "items") else one for one in lists]
    else:
        points = {one.name: one for one in importlib.metadata.entry_points(group="oslo.config.opts")}
        lists = [points[name].load()() for name in NAMESPACES[file]]
    return [(file, *one) for each in lists for one in options_of(each)]


def upstream():
    """Return the options of every file. The packages register options globally and collide."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return [one for each in pool.map(of_file, ["nova", "placement", "cyborg"], 1) for one in each]


def table():
    """The known names by file, group and option."""
    known, shared, files, groups = set(), {}, [], []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        head, _, rest = line.partition(":")
        if line.startswith("@"):
            shared[head] = rest.split()
        elif line.startswith("file "):
            files = line.split()[1:]
        elif line.startswith("["):
            groups = line.strip("[]").split()
        elif line and not line.startswith(("#", "reason ")):
            for word in rest.split():
                for name in shared.get(word, [word]):
                    for one in name.split("<"):
                        group, _, option = one.rpartition("/")
                        for file in files:
                            known |= {(file, group or own, option) for own in groups}
    return known


def main():
    known = table()
    missing = set()
    for file, group, option, old in upstream():
        for place, name in {(group, option)} | old:
            if (file, place, name.replace("-", "_")) not in known:
                missing.add((file, place, name))
    for file, group, option in sorted(missing):
        print(f"{file}.conf: [{group}] {option}")
    print(f"{len(missing)} missing, {len(known)} names in the table", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
