"""Services of a cloud that the lab emulates for a Kilonova in Nova's place: Cinder, Neutron and its agents.

They answer the requests of a compute service and of the stock client, and refuse all others. They must never be more
tolerant than the real ones, because the scenario checks the order of an attachment's states and of a port's bindings.
"""
