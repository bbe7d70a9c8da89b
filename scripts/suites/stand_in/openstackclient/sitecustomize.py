"""Changes three things in openstackclient's functional tests. Python imports this module at its start.

A command runs in a process forked from one that has read the client's modules (scripts/warm.py), because reading them
takes most of a command's time. `server create` then takes a second longer, because tests distinguish servers by their
time of change, which is in seconds. The identity tests use the domain `Default`: their set-up creates a domain for each
class, and Kilonova has one domain.
"""

import importlib.abc
import importlib.util
import os
import shlex
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# No command of a test takes longer.
TIMEOUT = 300
CLIENTS = {}


def run(words, environment):
    """Runs a command of a client; its exit code, output and errors."""
    program = os.path.join(os.environ["TOX_ENV_DIR"], "bin", words[0])
    if program not in CLIENTS:
        spec = importlib.util.spec_from_file_location("warm", os.path.join(HERE, "../../../warm.py"))
        warm = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(warm)
        CLIENTS[program] = warm.Warm(program, dict(os.environ))
    return CLIENTS[program].run(words[1:], environment, TIMEOUT)


def with_warm_commands(module):
    """Replaces `execute`."""
    def execute(cmd, *, fail_ok=False):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OS_")}
        code, out, err = run(shlex.split(cmd), environment)
        if code and not fail_ok:
            raise module.exceptions.CommandFailed(code, cmd, out, err.encode())
        if " server create " in cmd:
            time.sleep(1)
        return out

    module.execute = execute


def in_default_domain(module):
    """Replaces setup and cleanup of the identity tests."""
    from tempest.lib.common.utils import data_utils

    tests = module.IdentityTests

    @classmethod
    def set_up(cls):
        super(tests, cls).setUpClass()
        cls.DOMAIN_NAME, cls.DOMAIN_DESCRIPTION = "Default", ""
        cls.PROJECT_NAME = data_utils.rand_name("TestProject")
        cls.PROJECT_DESCRIPTION = data_utils.rand_name("description")
        cls.openstack(f"project create --domain {cls.DOMAIN_NAME} --description {cls.PROJECT_DESCRIPTION} "
                      f"--enable {cls.PROJECT_NAME}")

    @classmethod
    def clean_up(cls):
        try:
            cls.openstack(f"project delete {cls.PROJECT_NAME}")
        finally:
            super(tests, cls).tearDownClass()

    tests.setUpClass, tests.tearDownClass = set_up, clean_up


CHANGES = {
    "openstackclient.tests.functional.base": with_warm_commands,
    "openstackclient.tests.functional.identity.v3.common": in_default_domain,
}


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that change, and changes each once it is loaded."""

    def find_spec(self, name, path, target=None):
        """The module's own spec, with a loader that also changes the module."""
        change = CHANGES.pop(name, None)
        if not change:
            return None
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            change(module)

        spec.loader.exec_module = load_and_change
        return spec


sys.meta_path.insert(0, Finder())
