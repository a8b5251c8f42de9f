"""The settings of the name server. Source: configuration §3.6 (NamesrvConfig)."""

from dataclasses import dataclass

from aerobee.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """The name server inside this process."""

    embedded_namesrv: bool = setting("embeddedNamesrv", True, own=True)
    """Run the name server inside this process."""
    namesrv_listen_port: int = setting("namesrvListenPort", 9_876, ge=0, le=65_535, own=True)
    """Its port; 0: none, its codes are answered on listenPort."""
    kv_config_path: str = setting(
        "kvConfigPath", "", kind="path", derived="config/kvConfig.json below storePathRootDir"
    )
    """File of its key-value settings."""
    order_message_enable: bool = setting("orderMessageEnable", False, live=True)
    """Add the order settings of a topic to its route."""
    return_order_topic_config_to_broker: bool = setting(
        "returnOrderTopicConfigToBroker", True, live=True
    )
    """Send the order settings to brokers that register."""
    delete_topic_with_broker_registration: bool = setting(
        "deleteTopicWithBrokerRegistration", False, live=True
    )
    """Take the topics of each registration for all that the broker has, and delete its others;
    its brokers need enableSingleTopicRegister."""
    scan_not_active_broker_interval_ms: int = setting(
        "scanNotActiveBrokerInterval", 5_000, ge=100, le=3_600_000, unit="ms"
    )
    """Period of the search for brokers whose registration has expired."""
    enable_all_topic_list: bool = setting("enableAllTopicList", True, live=True)
    """Answer the list of all topics (code 206)."""
    enable_topic_list: bool = setting("enableTopicList", True, live=True)
    """Answer the lists of topics (224, 311 to 313)."""
    support_acting_master: bool = setting("supportActingMaster", False)
    """Show the slave that acts for its master as the master, in routes."""
    notify_min_broker_id_changed: bool = setting("notifyMinBrokerIdChanged", False)
    """Notify the brokers of one name when the smallest id among them changes."""
    need_wait_for_service: bool = setting("needWaitForService", False)
    """Give no routes until waitSecondsForService have passed since the start."""
    wait_seconds_for_service_s: int = setting("waitSecondsForService", 45, ge=0, le=3_600, unit="s")
    """How long routes are withheld, so that brokers can register first."""
