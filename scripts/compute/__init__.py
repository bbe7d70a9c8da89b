"""The parts of compute_clients.py: the stock client in one interpreter, the recordings, and the steps."""
