"""Python processes of Spark import PySpark where it is installed, and not from its zip.

Spark puts that zip first on their path. Python keeps nothing of what it compiles of a zip: each of
these processes spends a second on it, and the tests have a hundred of them.
"""

import sys

sys.path[:] = [place for place in sys.path if "/pyspark/python/lib/" not in place]
