"""Makes what the virtual hosts start from: kernels, modules, root file system, images. See plan.py."""
