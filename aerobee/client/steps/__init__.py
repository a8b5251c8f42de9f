"""The decisions of a client as generators that yield effects and do no I/O.

A function here returns `Steps[T]`: it yields `Ask` (a request to an address) or `Wait` (for a
signal or some time), is sent the response or thrown the error, and returns a `T`. The steps make
every decision and hold all state of a client; they use no socket, task, thread or system clock.
The two fronts (`aerobee.client` on anyio, `aerobee.blocking` on threads) perform the effects; only
that code exists twice. State changes only between two yields; a front that uses threads holds its
lock while it advances a generator.
"""
