"""What an error of Kafka's means: no effect only where that is certain."""

import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.errors import Determinate, Indeterminate, InvalidUsage
from streams.ids import Topic
from streams.kafka.client.error_mapping import admin_fault, cause_of, read_fault, write_fault
from streams.kafka.client.transactions import Fenced
from streams.kafka.log import Truncated, Unanswered


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Determinate),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Determinate),
        (KafkaError.INVALID_RECORD, Determinate),
        (KafkaError._MSG_TIMED_OUT, Indeterminate),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Indeterminate),
        (KafkaError.NOT_ENOUGH_REPLICAS, Indeterminate),
        (KafkaError.REQUEST_TIMED_OUT, Indeterminate),
        (KafkaError._TRANSPORT, Indeterminate),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Indeterminate),
    ],
)
def test_a_failed_write_is_determinate_only_when_the_record_itself_was_refused(code, kind):
    assert type(write_fault("append", KafkaError(code))) is kind


def test_a_failed_read_had_no_effect():
    assert type(read_fault("read", KafkaError(KafkaError.INVALID_TIMESTAMP))) is Determinate


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.KAFKA_STORAGE_ERROR]
)
def test_who_was_not_answered_may_ask_again(code):
    assert type(read_fault("read", KafkaError(code))) is Unanswered


def test_a_write_to_a_full_disk_may_have_had_its_effect():
    assert type(write_fault("w", KafkaError(KafkaError.KAFKA_STORAGE_ERROR))) is Indeterminate


def test_a_wrong_request_for_a_topic_is_misuse_and_the_rest_may_be_repeated():
    wrong = KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR))
    unlucky = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert type(admin_fault("create", wrong)) is InvalidUsage
    assert type(admin_fault("create", unlucky)) is Indeterminate


def test_an_exception_without_a_cause_is_unknown():
    assert cause_of(KafkaException("odd")).code() == KafkaError.UNKNOWN


@pytest.mark.parametrize("error", [Truncated(Topic("t"), 3, "it is gone"), Fenced("sink.1")])
def test_errors_survive_the_way_from_a_worker(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_a_right_that_is_missing_is_named():
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    for fault in (read_fault("follow log", denied), write_fault("append", denied)):
        assert "grant this client's user READ, WRITE and DESCRIBE" in str(fault)
