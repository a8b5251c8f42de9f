"""What a client does, step by step, without doing it: generators that yield effects.

A function here returns `Steps[T]`: it yields `Ask` (a request to an address) or `Wait` (for a
signal or some time), is sent the answer or thrown the error, and returns a `T`. It owns every
decision and all state of a client; it never sees a socket, a task, a thread or a clock of its
own. The two fronts (`aerobee.client` on anyio, `aerobee.blocking` on threads) carry the effects
out, and that is all that exists twice. State changes only between two yields; a front that uses
threads holds its lock while it advances a generator.
"""
