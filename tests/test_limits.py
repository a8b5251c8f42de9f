"""Each row of `docs/limits.md` has a test that asks for more, or a campaign that does."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.faults.campaigns import CAMPAIGNS

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parent / "docs" / "limits.md"
WIRE: Final = "faults/test_limits_over_the_wire.py"
TOO_MUCH: Final = f"{WIRE}::test_what_is_too_much_is_refused_with_a_word_and_the_connection_stays"
MEMORY: Final = "faults/test_peers_and_memory.py"
SELECTOR: Final = "remoting/server/test_selector.py"
LEFT: Final = "remoting/server/test_left_bytes.py"
INBOUND: Final = "remoting/server/test_inbound.py"
NEWCOMERS: Final = "remoting/server/test_newcomers.py"
GATE: Final = "broker/access/test_gate.py"
LONG: Final = "remoting/server/test_long_requests.py"
CLIENTS: Final = "broker/consumers/test_client_processor.py"
CONSOLE: Final = "broker/console"
HTTP: Final = "broker/http/test_listener.py"
ROUTES: Final = "broker/namesrv/test_route_table.py"

TESTS: Final[dict[str, tuple[str, ...]]] = {
    # What a peer can make the broker keep
    "connections": (
        f"{WIRE}::test_beyond_max_connections_a_peer_is_closed_and_places_come_back",
        f"{MEMORY}::test_a_flood_of_connections_costs_no_write_and_no_probe",
        "W3",
    ),
    "newcomers: connections of which no request was let pass yet": (
        f"{NEWCOMERS}::test_without_a_whole_request_a_connection_is_closed",
        f"{NEWCOMERS}::test_where_requests_need_an_account_those_without_one_do_not_count",
        f"{NEWCOMERS}::test_silent_connections_of_one_address_shut_nobody_out",
        "faults/test_access.py"
        "::test_connections_without_an_account_keep_nobody_out_and_end_in_time",
    ),
    "connections of one address": (
        f"{NEWCOMERS}::test_one_address_keeps_half_of_the_places_where_others_want_one",
        f"{WIRE}::test_beyond_the_connections_of_its_address_a_peer_is_closed_and_others_come_in",
        "remoting/server/test_addresses.py::test_connections_are_counted_by_address_or_network",
    ),
    "connections of metrics and probes": (
        f"{WIRE}::test_idle_connections_of_the_metrics_port_take_neither_slots_nor_descriptors",
        f"{HTTP}::test_where_all_are_at_work_a_new_one_is_refused_with_the_setting",
    ),
    "scrapes of `/metrics`": (
        f"{HTTP}::test_a_scrape_that_waits_too_long_for_others_is_refused",
        f"{HTTP}::test_a_peer_that_reads_too_slowly_is_cut_off_and_its_scrape_ends",
    ),
    "connections of the console": (
        f"{CONSOLE}/pages/test_live.py"
        "::test_a_reader_that_takes_nothing_is_cut_off_and_its_stream_ends",
        f"{CONSOLE}/pages/test_live.py::test_one_live_page_too_many_is_told_so",
        f"{HTTP}::test_where_all_are_at_work_a_new_one_is_refused_with_the_setting",
    ),
    "requests of the console": (
        f"{CONSOLE}/test_web.py::test_long_requests_are_refused",
        f"{CONSOLE}/test_web.py::test_of_a_body_that_is_too_long_nothing_is_read",
        f"{CONSOLE}/test_web.py::test_so_many_bodies_are_on_their_way_at_once",
        f"{CONSOLE}/test_web.py::test_a_body_that_does_not_come_in_time_keeps_no_place",
        f"{CONSOLE}/test_web.py::test_bodies_of_strangers_keep_nobody_out",
        f"{CONSOLE}/test_web.py::test_a_form_with_many_fields_is_told_what_is_wrong",
        f"{CONSOLE}/test_web.py::test_one_answer_has_so_many_messages",
        f"{CONSOLE}/test_web.py::test_a_slow_client_holds_nobody_up",
    ),
    "sessions of the console": (
        f"{CONSOLE}/test_sessions.py::test_sessions_are_bounded_for_a_name_and_for_all",
        f"{CONSOLE}/test_sessions.py::test_guesses_from_one_address_are_limited",
        f"{CONSOLE}/test_web.py::test_wrong_secrets_are_limited",
    ),
    "requests of one account": (
        "faults/test_access.py"
        "::test_the_requests_of_one_account_are_limited_over_all_of_its_connections",
    ),
    "sends to one topic": (
        "broker/topics/test_rates.py::test_so_many_messages_in_a_second",
        "broker/topics/test_rates.py::test_a_long_body_is_taken_and_paid_for_afterwards",
        "broker/grpc/test_service.py::"
        "test_a_producer_that_is_too_fast_for_its_topic_is_told_to_back_off",
    ),
    "what one group receives": (
        "broker/topics/test_rates.py::test_a_group_gets_so_many_messages_in_a_second",
        "broker/grpc/test_service.py::test_a_group_that_receives_too_much_is_told_to_back_off",
    ),
    "bytes of messages that one account or address sends": (
        f"{WIRE}::test_beyond_its_bytes_the_sends_of_an_address_wait_and_nothing_else",
        "faults/test_access.py::test_the_bytes_that_one_account_sends_are_limited",
        "remoting/test_rate_limit.py::test_a_client_has_requests_and_bytes_of_messages",
        "broker/grpc/test_service.py::"
        "test_an_address_that_sends_too_many_bytes_is_told_to_back_off",
    ),
    "requests of one address": (
        f"{WIRE}::test_beyond_its_rate_an_address_is_told_so_and_others_are_served",
        "remoting/test_rate_limit.py::test_there_are_so_many_buckets_and_the_oldest_goes",
    ),
    "a connection that is silent": (
        "remoting/server/test_reactor.py::test_an_idle_connection_is_closed",
    ),
    "bytes of a frame that has not ended": (
        "faults/test_bad_input.py::test_a_claimed_length_costs_no_memory",
        f"{INBOUND}::test_who_leads_for_too_long_is_closed_with_the_oldest_until_half_is_free",
        f"{WIRE}::test_a_frame_beyond_its_limit_closes_its_connection",
    ),
    "the same, of connections that have not shown an account, where requests need one": (
        f"{GATE}::test_s6_who_has_not_signed_shares_a_budget_that_is_none_of_the_others",
    ),
    "wrong signatures": (
        f"{GATE}::test_s6_addresses_with_wrong_signatures_are_few_and_forgotten_in_time",
        "faults/test_access.py"
        "::test_s6_wrong_signatures_slow_their_address_down_and_lock_nobody_out",
    ),
    "frames received and not served": (
        f"{INBOUND}::test_whole_frames_that_wait_count_until_they_are_served",
    ),
    "calls over gRPC whose request is not whole, and Telemetry streams without settings": (
        "remoting/grpc/test_calls.py::test_a_request_that_does_not_come_whole_in_time_ends_its_call",
        "remoting/grpc/test_calls.py"
        "::test_calls_without_a_request_are_refused_where_there_are_too_many",
        "broker/grpc/test_service.py::test_a_stream_has_to_say_its_settings_soon",
        f"{MEMORY}::test_calls_without_a_request_cost_little_and_keep_nobody_out",
    ),
    "bytes left for a later turn, of a socket with more than its turn takes, 20 ms late": (
        f"{LEFT}::test_no_more_is_left_than_the_budget_has_room_for",
        f"{LEFT}::test_it_is_left_in_the_socket_when_others_have_used_the_budget",
        "R23",
    ),
    "answers not taken": (
        "remoting/server/test_grpc_serving.py"
        "::test_a_peer_is_judged_by_the_rate_at_which_it_takes_answers",
        "remoting/server/test_reactor.py"
        "::test_a_peer_that_does_not_read_is_no_longer_read_and_then_closed",
        f"{SELECTOR}"
        "::test_beyond_the_budget_who_has_more_than_its_share_is_not_read_and_at_twice_it_is_closed",
    ),
    "requests of many steps": (
        f"{LONG}::test_few_long_requests_are_worked_at_and_all_of_them_end",
        f"{LONG}::test_a_place_is_given_back_by_who_leaves_or_does_not_read",
    ),
    "our requests and notices to a peer": (
        "remoting/server/test_connection.py"
        "::test_a_peer_that_does_not_read_is_asked_and_told_nothing_more",
    ),
    "requests that run in a pool": (
        "remoting/server/test_pools.py"
        "::test_every_request_runs_once_in_its_connections_order_and_within_the_width",
        "remoting/server/test_reactor.py"
        "::test_a_thousand_slow_requests_of_one_connection_hold_nobody_else_up",
    ),
    "requests that wait in a pool": (
        "remoting/server/test_pools.py::test_a_pool_is_full_at_its_capacity",
        "remoting/server/test_worker.py::test_bodies_of_requests_that_wait_are_bounded_together",
    ),
    "queries by key that wait": (
        "broker/query/test_key_queries.py::test_a_connection_may_have_so_many_queries_wait",
    ),
    "held pulls": (
        f"{MEMORY}::test_who_parks_too_many_pulls_is_answered_and_others_are_held",
        f"{MEMORY}::test_what_is_held_keeps_nothing_of_its_frame",
    ),
    "held pops and notifications": (
        "broker/pop/test_pop_hold.py::test_each_limit_is_kept",
        "broker/pop/test_pop.py::test_a_pop_too_many_is_refused",
    ),
    "messages that gRPC clients work on, which are hidden again and again": (
        "broker/grpc/translation/test_kept_handles.py"
        "::test_there_is_a_limit_for_all_and_for_a_client",
        "broker/grpc/translation/test_kept_handles.py"
        "::test_what_clients_have_changed_takes_no_room_from_what_is_hidden_again",
        "broker/grpc/test_fates.py::test_a_message_is_hidden_again_for_as_long_as_its_account_may",
    ),
    "pops that are over before the timers read their check points": (
        "broker/pop/test_revive_log.py::test_what_timers_that_do_not_run_owe_nobody_is_bounded",
    ),
    "acknowledgements without a check point": (
        "broker/pop/test_revive.py"
        "::test_acknowledgements_without_a_check_point_are_remembered_up_to_a_limit",
    ),
    "answers of one round": (
        "remoting/server/test_selector.py"
        "::test_the_time_that_large_answers_take_to_be_sent_is_the_rounds",
    ),
    "topics and groups": (
        "broker/topics/test_topics.py"
        "::test_topics_are_limited_and_retry_topics_do_not_take_their_room",
        "broker/consumers/test_groups.py::test_groups_are_limited",
        f"{WIRE}::test_a_table_at_its_limit_refuses_with_the_name_of_the_setting",
        "remoting/test_rate_limit.py::test_a_burst_and_then_so_many_per_second",
    ),
    "connected groups": (
        TOO_MUCH,
        "broker/consumers/test_clients.py::test_groups_and_subscriptions_are_limited",
    ),
    "client ids": (
        f"{WIRE}::test_a_connection_has_the_client_id_of_its_last_heartbeat_alone",
        "broker/consumers/test_clients.py"
        "::test_a_connection_that_calls_itself_something_else_each_time_leaves_no_names_behind",
    ),
    "message of a call over gRPC": (
        "broker/grpc/test_service.py::test_a_request_of_very_many_parts_is_not_even_parsed",
        "broker/grpc/test_service.py::test_what_an_answer_has_for_each_queue_is_short",
        "broker/grpc/translation/test_settings.py::test_settings_name_few_topics",
    ),
    "body of a request": (
        TOO_MUCH,
        "remoting/wire/bodies/test_body.py::test_a_request_that_would_take_long_is_not_read",
        "remoting/wire/bodies/test_register_broker.py"
        "::test_a_body_that_inflates_without_end_is_refused",
    ),
    "what brokers register with the name server": (
        f"{ROUTES}::test_brokers_and_topics_are_limited",
        f"{ROUTES}::test_ever_new_addresses_and_ids_find_an_end",
        f"{ROUTES}::test_pairs_of_topic_and_broker_are_limited_and_room_comes_back",
    ),
    "key-value table of the name server": (
        "broker/namesrv/test_kv_config.py::test_entries_are_limited",
        "broker/namesrv/test_kv_config.py::test_bytes_are_limited_and_come_back",
    ),
    "a change of settings (25, 318)": (
        "broker/live_settings/test_live_settings.py"
        "::test_a_bad_body_changes_nothing_and_is_told_why",
    ),
    "users and ACL entries": (
        "broker/users/test_users.py::test_there_are_so_many_users_and_no_more",
        "broker/access/test_policies.py::test_a_user_has_a_limited_number_of_entries",
    ),
    "queue locks": (
        f"{WIRE}::test_locks_of_queues_that_are_not_here_are_not_kept",
        "broker/consumers/test_queue_locks.py::test_a_full_table_grants_no_new_lock",
    ),
    "consumer offsets": (
        TOO_MUCH,
        f"{MEMORY}::test_an_invented_queue_gets_no_offset",
        "broker/consumers/test_consumer_offsets.py"
        "::test_groups_that_take_all_they_may_leave_places_to_the_next",
    ),
    "subscriptions noted from pulls and pops": (
        "broker/consumers/test_compensation.py::test_a_few_groups_do_not_take_the_room_of_all",
    ),
    "SQL filters": (
        "broker/filters/test_consumer_filters.py::test_no_more_are_kept_than_the_limit",
    ),
    "compiled filters, hashes of tags, levels, remarks": (
        "broker/filters/test_sql_filter.py"
        "::test_a_filter_is_compiled_once_and_the_last_ones_are_kept",
        "broker/filters/test_subscription.py"
        "::test_tags_beyond_the_limit_are_refused_and_long_ones_not_kept",
    ),
    "series of metrics and samples": (
        "broker/counters/test_broker_stats.py"
        "::test_past_the_limit_new_names_share_one_counter_and_known_ones_go_on",
        "broker/counters/test_broker_stats.py"
        "::test_names_that_are_not_here_are_counted_together_in_every_metric",
        "remoting/test_latency.py::test_codes_that_nobody_knows_leave_room_for_the_others",
        "broker/metrics/test_samples.py::test_there_is_a_limit",
    ),
    "log lines a peer can cause": (
        f"{CLIENTS}::test_clients_that_come_and_go_write_a_few_lines",
        f"{SELECTOR}::test_a_flood_of_what_is_no_frame_writes_a_few_lines",
        "broker/process/test_log_stream.py"
        "::test_beyond_the_bound_lines_are_dropped_and_the_next_one_says_how_many",
    ),
    # The most that one request makes the loop do
    "SEND_BATCH_MESSAGE 320": (
        TOO_MUCH,
        "store/messages/test_writer.py::test_a_long_batch_is_stored_in_parts_between_which_others_put",
        "G1",
    ),
    "PULL_MESSAGE 11, 361, POP 200050": (
        "store/messages/test_reader.py::test_one_read_looks_at_so_many_units_whatever_was_asked_for",
        "G1",
    ),
    "QUERY_MESSAGE 12": (
        "broker/query/test_query.py"
        "::test_a_key_of_very_many_messages_is_looked_up_as_far_as_a_query_may_look",
        "G1",
    ),
    "HEART_BEAT 34": (
        TOO_MUCH,
        f"{CLIENTS}::test_a_heartbeat_of_many_groups_gives_way_between_them",
        "G1",
    ),
    "LOCK_BATCH_MQ 41, UNLOCK 42": (TOO_MUCH, "G1"),
    "BATCH_ACK_MESSAGE 200151": (
        TOO_MUCH,
        "broker/pop/test_ack.py::test_bit_sets_beyond_what_one_request_may_bring_are_not_read",
        "G1",
    ),
    "QUERY_ASSIGNMENT 400": (
        "broker/assignment/test_assignment.py"
        "::test_a_share_beyond_measure_takes_no_longer_than_there_are_queues",
        "G1",
    ),
    "REGISTER_BROKER 103": (
        "remoting/wire/bodies/test_register_broker.py"
        "::test_a_registration_of_more_than_can_be_read_at_once_is_refused",
        f"{ROUTES}::test_the_limit_on_topics_holds_when_others_register_meanwhile",
        "G1",
    ),
    "WIPE and ADD_WRITE_PERM 205, 327": ("G1",),
    "UPDATE_BROKER_CONFIG 25, UPDATE_NAMESRV_CONFIG 318": (
        "broker/live_settings/test_live_settings.py"
        "::test_a_bad_body_changes_nothing_and_is_told_why",
        "broker/live_settings/test_settings_processor.py"
        "::test_a_permission_that_changes_for_thousands_of_topics_stops_nobody",
    ),
    "lists 21, 201, 206, 219, 224 and what 103 answers": (
        "broker/core/test_lists.py::test_a_long_list_is_encoded_in_steps",
        "broker/core/test_lists.py::test_an_answer_longer_than_clients_take_is_refused",
        "G1",
    ),
    "GET_TOPIC_STATS 202, GET_CONSUME_STATS 208, GET_BROKER_CONSUME_STATS 317": (
        "broker/admin/test_figures.py"
        "::test_consume_stats_of_more_queues_than_one_answer_holds_are_refused",
        "G1",
        "A1",
    ),
    "GET_ALL_CONSUMER_OFFSET 43": (
        "broker/core/test_lists.py::test_an_answer_longer_than_clients_take_is_refused",
        "A1",
    ),
    "CLEAN_EXPIRED_CONSUMEQUEUE 306, CLEAN_UNUSED_TOPIC 316": ("A1",),
    "UNREGISTER_BROKER 104, a broker that leaves the name server by its close or in silence": (
        f"{ROUTES}"
        "::test_who_leaves_is_in_no_route_from_then_on_and_its_topics_are_cleared_away_in_steps",
        "G1",
    ),
    "GET_CONSUMER_LIST_BY_GROUP 38, GET_CONSUMER_CONNECTION_LIST 203": ("S1",),
    "pops that wait, when one moment ends many of them": (
        "broker/pop/test_pop_hold.py"
        "::test_thousands_whose_deadlines_come_at_once_are_answered_a_slice_at_a_time",
    ),
    "pulls that wait, when one moment ends many of them": (
        "broker/pull/test_hold.py"
        "::test_thousands_whose_deadlines_come_at_once_do_not_wait_for_further_ticks",
    ),
    "messages of a queue where many wait with other filters": (
        "broker/pull/test_hold.py"
        "::test_a_batch_asks_none_of_thousands_of_filters_that_want_other_tags",
        "broker/pop/test_pop_hold.py"
        "::test_thousands_of_tags_and_groups_are_not_asked_about_a_message_with_another",
        "broker/holds/test_waiting_lines.py"
        "::test_few_are_asked_and_others_wait_as_if_they_had_no_filter",
        "store/queues/test_dispatch.py"
        "::test_a_step_ends_in_time_whatever_arrivals_cost_and_the_next_one_continues",
    ),
    "QueryRoute, QueryAssignment over gRPC": (
        "broker/grpc/test_service.py::test_what_an_answer_has_for_each_queue_is_short",
    ),
    "any call over gRPC": (
        "broker/grpc/test_service.py::test_a_request_of_very_many_parts_is_not_even_parsed",
    ),
    "ReceiveMessage, PullMessage over gRPC": (
        "broker/grpc/test_service.py::test_messages_of_one_receive_come_in_turns_with_others",
        "broker/grpc/translation/test_bodies.py::test_what_does_not_unpack_is_left_to_its_consumer",
    ),
    "senders that wait for one sync": (
        "store/flush/test_log_flush.py"
        "::test_thousands_that_waited_for_one_sync_are_answered_in_turns_with_others",
        "store/queues/test_dispatch.py::test_what_a_sync_released_is_handed_over_in_batches",
        "S1",
    ),
    "connections that a stop finds": (
        f"{SELECTOR}::test_a_stop_closes_thousands_of_connections_in_turns_with_others",
        "S1",
    ),
    "connections that are silent at the same moment": (
        f"{SELECTOR}::test_thousands_that_are_idle_at_once_are_closed_a_few_at_a_time",
    ),
}
"""Row → its tests: a test is `path::name`, below `tests/`; a campaign is its key."""


def rows() -> list[str]:
    """The first cell of each row of both tables."""
    lines = [line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if "|" in line]
    return [cell for cell in lines if cell not in {"what", "request"} and set(cell) != {"-"}]


def test_every_row_has_a_test_and_nothing_else_is_named() -> None:
    assert sorted(rows()) == sorted(TESTS)


@pytest.mark.parametrize("test", sorted({test for tests in TESTS.values() for test in tests}))
def test_the_tests_of_the_limits_are_there(test: str) -> None:
    path, _, name = test.partition("::")
    if not name:
        assert path in {campaign.key for campaign in CAMPAIGNS}
        return
    assert f"def {name}(" in (HERE / path).read_text()
