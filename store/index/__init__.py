"""Messages by key: the index files, built behind dispatch."""
