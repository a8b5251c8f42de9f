"""Viewers, and what they are shown: the state of all brokers, on a tick while somebody looks.

viewers.py    somebody at a browser, what policies allow them, and what a failure is
looking.py    the broker in this process, from its tables; own.py: its settings, audit and store
cluster.py    the other brokers, by requests, as the account that looks
merging.py    one snapshot of both (snapshot.py)
findings.py   what is wrong
"""
