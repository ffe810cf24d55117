//! What can go wrong between us and a broker.

use crate::kafka::wire::Damaged;
use Outcome::{Final, Lasts, Passes, Unsupported};
use std::ffi::c_int;
use std::io;
use std::time::Duration;

/// librdkafka's numbers for what no broker says, because the caller knows these.
pub const AUTHENTICATION: c_int = -169;
pub const SSL: c_int = -181;
/// A format or a version that this client does not speak, and librdkafka may.
pub const UNSUPPORTED: c_int = -165;
/// Something that the caller should never see.
pub const FAULT: c_int = -1;

/// How long an error that may last is asked about again: a broker may not have heard of a new topic yet, and another
/// leader may have a sound copy of the log.
pub const GRACE: Duration = Duration::from_secs(3);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How long to wait after so many failures in a row. The first is tried again at once: a connection may have been
/// closed while it was idle.
pub fn backoff(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        failures => Duration::from_millis(50 << (failures - 1).min(5)).min(LONGEST_WAIT),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Waiting may help: a broker is away, a leader moves.
    Away(String),
    /// It does not: the number of the error, and words.
    Refused(c_int, String),
}

impl Trouble {
    pub fn unsupported(text: String) -> Self {
        Trouble::Refused(UNSUPPORTED, text)
    }

    /// A log that is not as it was written.
    pub fn damaged(text: String) -> Self {
        Trouble::Refused(FAULT, text)
    }

    /// An error that a broker answered with.
    pub fn answered(error: i16) -> Self {
        let Some((_, name, outcome, words)) = ERRORS.iter().find(|(number, ..)| *number == error) else {
            return Trouble::unsupported(format!(
                "error {error} of the broker, which this client does not know"
            ));
        };
        let text = format!("{name} ({error}): {words}");
        match outcome {
            Passes => Trouble::Away(text),
            Unsupported => Trouble::unsupported(text),
            Lasts | Final => Trouble::Refused(error.into(), text),
        }
    }

    /// Whether asking again for a while is worth it.
    pub fn may_pass(&self) -> bool {
        let lasts = |code| ERRORS.iter().any(|(n, _, o, _)| c_int::from(*n) == code && *o == Lasts);
        matches!(self, Trouble::Refused(code, _) if lasts(*code))
    }

    pub fn text(&self) -> &str {
        match self {
            Trouble::Away(text) | Trouble::Refused(_, text) => text,
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Away(error.to_string())
    }
}

/// An answer comes whole or not at all: one that cannot be read is one of another version.
impl From<Damaged> for Trouble {
    fn from(damaged: Damaged) -> Self {
        Trouble::unsupported(format!("an answer with {damaged}"))
    }
}

pub const OFFSET_OUT_OF_RANGE: i16 = 1;
pub const CORRUPT_MESSAGE: i16 = 2;
pub const UNKNOWN_TOPIC: i16 = 3;
pub const MESSAGE_TOO_LARGE: i16 = 10;
pub const RECORD_LIST_TOO_LARGE: i16 = 18;
pub const UNSUPPORTED_VERSION: i16 = 35;

/// What comes after an error of a broker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It passes by itself, or after a look at where the leader is now.
    Passes,
    /// It mostly does not, but is asked about again for `GRACE`.
    Lasts,
    /// The caller has to know at once.
    Final,
    /// This client does not speak what the broker speaks; librdkafka may.
    Unsupported,
}

/// Kafka's errors: those that answers to our requests can have.
const ERRORS: [(i16, &str, Outcome, &str); 48] = [
    (-1, "UNKNOWN_SERVER_ERROR", Passes, "something unexpected went wrong in the broker; its log says what"),
    (OFFSET_OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE", Final, "the offset is not in the partition's log"),
    (CORRUPT_MESSAGE, "CORRUPT_MESSAGE", Lasts, "the broker finds a damaged record batch in its log"),
    (UNKNOWN_TOPIC, "UNKNOWN_TOPIC_OR_PARTITION", Lasts, "the broker has no such topic or partition"),
    (4, "INVALID_FETCH_SIZE", Lasts, "the size of the fetch is invalid"),
    (5, "LEADER_NOT_AVAILABLE", Passes, "the partition has no leader now"),
    (6, "NOT_LEADER_OR_FOLLOWER", Passes, "this broker does not lead the partition"),
    (7, "REQUEST_TIMED_OUT", Passes, "the broker did not get it done in time"),
    (8, "BROKER_NOT_AVAILABLE", Passes, "the broker is not available"),
    (9, "REPLICA_NOT_AVAILABLE", Passes, "the replica is not available"),
    (MESSAGE_TOO_LARGE, "MESSAGE_TOO_LARGE", Final, "the topic does not take records so large"),
    (13, "NETWORK_EXCEPTION", Passes, "the broker lost a connection before it could answer"),
    (17, "INVALID_TOPIC_EXCEPTION", Lasts, "no topic can have this name, or it cannot be used so"),
    (RECORD_LIST_TOO_LARGE, "RECORD_LIST_TOO_LARGE", Final, "the batch is larger than a segment of the log"),
    (19, "NOT_ENOUGH_REPLICAS", Passes, "too few replicas are in sync"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Passes, "it is written, but too few replicas are in sync"),
    (21, "INVALID_REQUIRED_ACKS", Lasts, "acks has a value that is invalid"),
    (29, "TOPIC_AUTHORIZATION_FAILED", Final, "this user may not use the topic"),
    (30, "GROUP_AUTHORIZATION_FAILED", Final, "this user may not use the group"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", Final, "this user may not do so on the cluster"),
    (32, "INVALID_TIMESTAMP", Lasts, "a timestamp is out of the range that the topic takes"),
    (33, "UNSUPPORTED_SASL_MECHANISM", Final, "the broker does not take this SASL mechanism"),
    (34, "ILLEGAL_SASL_STATE", Final, "the broker expects another step of the login"),
    (UNSUPPORTED_VERSION, "UNSUPPORTED_VERSION", Unsupported, "the broker does not take this API version"),
    (41, "NOT_CONTROLLER", Passes, "this broker is not the controller"),
    (42, "INVALID_REQUEST", Lasts, "the broker finds the request malformed"),
    (
        43,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        Unsupported,
        "the log's message format does not allow this request",
    ),
    (44, "POLICY_VIOLATION", Lasts, "a policy of the cluster forbids it"),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", Lasts, "the broker got a batch out of order"),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Final, "this user may not use the transactional id"),
    (54, "SECURITY_DISABLED", Final, "the broker has no security features"),
    (
        55,
        "OPERATION_NOT_ATTEMPTED",
        Passes,
        "the broker did not attempt it, because something before it failed",
    ),
    (56, "KAFKA_STORAGE_ERROR", Passes, "the broker's disk has an error"),
    (57, "LOG_DIR_NOT_FOUND", Passes, "the broker does not find the folder of the log"),
    (58, "SASL_AUTHENTICATION_FAILED", Final, "the broker refuses the login"),
    (60, "REASSIGNMENT_IN_PROGRESS", Passes, "the partition is being moved"),
    (70, "FETCH_SESSION_ID_NOT_FOUND", Passes, "the broker has forgotten the fetch session"),
    (71, "INVALID_FETCH_SESSION_EPOCH", Passes, "the fetch session is at another place"),
    (72, "LISTENER_NOT_FOUND", Passes, "the leader has no listener of this name yet"),
    (74, "FENCED_LEADER_EPOCH", Passes, "the partition has a newer leader"),
    (75, "UNKNOWN_LEADER_EPOCH", Passes, "the broker has not heard of the partition's leader yet"),
    (
        76,
        "UNSUPPORTED_COMPRESSION_TYPE",
        Unsupported,
        "the records are compressed as this request cannot have them",
    ),
    (78, "OFFSET_NOT_AVAILABLE", Passes, "a new leader does not know yet how far it may be read"),
    (87, "INVALID_RECORD", Lasts, "the broker finds a record invalid"),
    (89, "THROTTLING_QUOTA_EXCEEDED", Passes, "the client's quota is used up"),
    (100, "UNKNOWN_TOPIC_ID", Passes, "the broker does not know the topic's id"),
    (103, "INCONSISTENT_TOPIC_ID", Passes, "the log is of a topic with another id"),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", Passes, "the offset is in tiered storage only"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_one_entry_and_names_itself_with_its_number() {
        assert!(ERRORS.is_sorted_by(|(one, ..), (other, ..)| one < other));
        for (number, name, ..) in ERRORS {
            let said = Trouble::answered(number);
            assert!(said.text().starts_with(&format!("{name} ({number}): ")), "{said:?}");
        }
    }

    #[test]
    fn an_error_without_an_entry_is_for_who_may_know_it() {
        let said = Trouble::answered(4711);
        assert!(
            matches!(&said, Trouble::Refused(UNSUPPORTED, text) if text.contains("error 4711")),
            "{said:?}"
        );
    }

    #[test]
    fn waits_grow_to_a_second() {
        let waits: Vec<_> = (0..9).map(|failures| backoff(failures).as_millis()).collect();
        assert_eq!(waits, [0, 50, 100, 200, 400, 800, 1000, 1000, 1000]);
    }
}
