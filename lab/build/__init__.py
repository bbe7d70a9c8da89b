"""Builds the nodes' kernels, modules, root file system and images. See plan.py."""
