"""The parts of compute_clients.py: the stock client in one interpreter, recordings, and the story."""
