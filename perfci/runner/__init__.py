"""Nodes: how one is set up and kept at work, and how the control plane knows who speaks.

box             what is on this machine: driver, disk, compiler, clock, the ways to the server
environments    the two environments: a small one for the worker, one with torch for what is measured
users           the worker, and the subject that a suite's commands run as
keys            the node's private key, and the tokens that it signs
roster          on the control plane: the public keys of the nodes that may work there
binding         in front of Airflow's edge API: a node speaks for itself alone
worker          `airflow edge worker`, started, watched and ended
"""
