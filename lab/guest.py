"""The boot parameters of a guest, and the parser of its console output (files/guest-init)."""

import re

# Disables what takes a kernel seconds on an emulated processor, where each port access is a VM exit: the search
# for absent PCI buses, loading certificates, collecting entropy.
COMMAND_LINE = ("console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable no_timer_check pci=lastbus=0 lsm= audit=0 "
                "initcall_blacklist=jent_mod_init,load_system_certificate_list,bpf_dummy_struct_ops_init,"
                "bpf_tcp_ca_kfunc_init,trace_eval_init")


class GuestLog:
    """A console log, from the guest's last boot on."""

    def __init__(self, text):
        self.whole = text or ""
        begin = self.whole.rfind("guest: boot ")
        self.booted = begin >= 0
        self.text = self.whole[begin:] if self.booted else ""

    def _all(self, pattern):
        return re.findall(rf"^guest: {pattern}\s*$", self.text, re.M)

    @property
    def ready(self):
        """True if the guest has printed everything and has begun to count."""
        return bool(self._all("ready")) and bool(self.ticks)

    @property
    def boots(self):
        """The number of boots in the log."""
        return self.whole.count("guest: boot ")

    @property
    def pci(self):
        """`vendor:product` of each PCI device."""
        return [ids for _, ids in self._all(r"pci (\S+) (\S+) \S+")]

    @property
    def disks(self):
        """By name: sectors, the name in the image, the number of boots from it."""
        found = {}
        for name, sectors, image, boots in self._all(
                r"disk (\S+) (\d+) sectors(?:, image (\S*), boots (\d+))?"):
            found[name] = (int(sectors), image, int(boots or 0))
        return found

    @property
    def hostname(self):
        return next(iter(self._all(r"hostname (\S+)")), None)

    @property
    def addresses(self):
        """`(mac, addresses)` of each card."""
        return [(mac, words.split()) for mac, words in self._all(r"address \S+ (\S+) ?(.*)")]

    @property
    def ticks(self):
        """The counter's values."""
        return [int(number) for number in re.findall(r"^tick (\d+)\s*$", self.text or self.whole, re.M)]

    def count(self, ids):
        """The number of PCI devices with these ids."""
        return self.pci.count(ids)
