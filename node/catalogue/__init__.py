"""The metadata of a cluster, and the commands that change it.

Vhosts, users and their permissions, exchanges, queues, bindings, policies, parameters, and the cluster's members. All
nodes apply the same log of commands in the same order, so all have the same catalogue; `catalogue.py` is the way in.
"""
