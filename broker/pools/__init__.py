"""The processor pools: their sizes, and who watches them."""
