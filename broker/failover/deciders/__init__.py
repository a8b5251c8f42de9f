"""The deciders: etcd, and RocketMQ's controller, each behind the four calls."""
