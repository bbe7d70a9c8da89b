"""The virtual compute hosts: QEMU processes (machine.py) and what is run inside them (node.py)."""
