"""The processor pools: their sizes, and monitoring of them."""
