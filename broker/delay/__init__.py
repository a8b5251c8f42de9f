"""Delay levels: messages that wait in SCHEDULE_TOPIC_XXXX."""
