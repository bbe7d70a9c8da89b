"""The virtual compute hosts: QEMU processes (machine.py) and commands inside them (node.py)."""
