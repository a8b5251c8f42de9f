"""Which broker is in which cluster. It is made of the same brokers as a route, so `route` has
it.
"""

from __future__ import annotations
