"""The consume queues: their files, and dispatch, which follows the log and feeds them."""
