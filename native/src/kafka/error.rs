//! What can go wrong between us and a broker.

use crate::kafka::wire::Damaged;
use Outcome::{Final, Lasts, Passes, Unsupported};
use std::time::Duration;
use std::{fmt, io};

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
pub enum KafkaError {
    /// Waiting may help: a broker is away, a leader moves.
    Away(String),
    /// What a broker answered, where waiting does not help.
    Answered(Code),
    /// The login is refused, by the broker or by us.
    Authentication(String),
    /// There is no secure connection.
    Tls(String),
    /// A format or a version that this client does not speak, and librdkafka may.
    Unsupported(String),
    /// A log that is not as it was written.
    Damaged(String),
}

impl KafkaError {
    /// The error that a broker answers with, if it is one.
    pub fn check(number: i16) -> Result<(), Self> {
        if number == 0 {
            return Ok(());
        }
        let Some(code) = Code::ALL.into_iter().find(|code| code.number() == number) else {
            let text = format!("error {number} of the broker, which this client does not know");
            return Err(KafkaError::Unsupported(text));
        };
        Err(match code.entry().0 {
            Passes => KafkaError::Away(code.to_string()),
            Unsupported => KafkaError::Unsupported(code.to_string()),
            Lasts | Final => KafkaError::Answered(code),
        })
    }

    /// Kafka's number, or librdkafka's for what no broker says, because the caller knows these.
    pub fn number(&self) -> i16 {
        match self {
            KafkaError::Away(_) => 0,
            KafkaError::Answered(code) => code.number(),
            KafkaError::Authentication(_) => -169,
            KafkaError::Tls(_) => -181,
            KafkaError::Unsupported(_) => -165,
            KafkaError::Damaged(_) => -1,
        }
    }

    /// Whether asking again for a while is worth it.
    pub fn may_pass(&self) -> bool {
        matches!(self, KafkaError::Answered(code) if code.entry().0 == Lasts)
    }
}

impl std::error::Error for KafkaError {}

impl fmt::Display for KafkaError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KafkaError::Answered(code) => code.fmt(out),
            KafkaError::Away(text)
            | KafkaError::Authentication(text)
            | KafkaError::Tls(text)
            | KafkaError::Unsupported(text)
            | KafkaError::Damaged(text) => out.write_str(text),
        }
    }
}

impl From<io::Error> for KafkaError {
    fn from(error: io::Error) -> Self {
        KafkaError::Away(error.to_string())
    }
}

/// An answer comes whole or not at all: one that cannot be read is one of another version.
impl From<Damaged> for KafkaError {
    fn from(damaged: Damaged) -> Self {
        KafkaError::Unsupported(format!("an answer with {damaged}"))
    }
}

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

macro_rules! codes {
    ($($code:ident = $number:literal, $outcome:ident, $words:literal;)*) => {
        /// Kafka's errors, by Kafka's names: those that answers to our requests can have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(i16)]
        #[expect(non_camel_case_types, reason = "as Kafka writes them")]
        pub enum Code {
            $($code = $number,)*
        }

        impl Code {
            const ALL: [Code; [$($number),*].len()] = [$(Code::$code),*];

            /// What comes after it, and words.
            fn entry(self) -> (Outcome, &'static str) {
                match self {
                    $(Code::$code => ($outcome, $words),)*
                }
            }
        }
    };
}

codes! {
    UNKNOWN_SERVER_ERROR = -1, Passes, "something unexpected went wrong in the broker; its log says what";
    OFFSET_OUT_OF_RANGE = 1, Final, "the offset is not in the partition's log";
    CORRUPT_MESSAGE = 2, Lasts, "the broker finds a damaged record batch in its log";
    UNKNOWN_TOPIC_OR_PARTITION = 3, Lasts, "the broker has no such topic or partition";
    INVALID_FETCH_SIZE = 4, Lasts, "the size of the fetch is invalid";
    LEADER_NOT_AVAILABLE = 5, Passes, "the partition has no leader now";
    NOT_LEADER_OR_FOLLOWER = 6, Passes, "this broker does not lead the partition";
    REQUEST_TIMED_OUT = 7, Passes, "the broker did not get it done in time";
    BROKER_NOT_AVAILABLE = 8, Passes, "the broker is not available";
    REPLICA_NOT_AVAILABLE = 9, Passes, "the replica is not available";
    MESSAGE_TOO_LARGE = 10, Final, "the topic does not take records so large";
    NETWORK_EXCEPTION = 13, Passes, "the broker lost a connection before it could answer";
    INVALID_TOPIC_EXCEPTION = 17, Lasts, "no topic can have this name, or it cannot be used so";
    RECORD_LIST_TOO_LARGE = 18, Final, "the batch is larger than a segment of the log";
    NOT_ENOUGH_REPLICAS = 19, Passes, "too few replicas are in sync";
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, Passes, "it is written, but too few replicas are in sync";
    INVALID_REQUIRED_ACKS = 21, Lasts, "acks has a value that is invalid";
    TOPIC_AUTHORIZATION_FAILED = 29, Final, "this user may not use the topic";
    GROUP_AUTHORIZATION_FAILED = 30, Final, "this user may not use the group";
    CLUSTER_AUTHORIZATION_FAILED = 31, Final, "this user may not do so on the cluster";
    INVALID_TIMESTAMP = 32, Lasts, "a timestamp is out of the range that the topic takes";
    UNSUPPORTED_SASL_MECHANISM = 33, Final, "the broker does not take this SASL mechanism";
    ILLEGAL_SASL_STATE = 34, Final, "the broker expects another step of the login";
    UNSUPPORTED_VERSION = 35, Unsupported, "the broker does not take this API version";
    NOT_CONTROLLER = 41, Passes, "this broker is not the controller";
    INVALID_REQUEST = 42, Lasts, "the broker finds the request malformed";
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, Unsupported, "the log's message format does not allow this request";
    POLICY_VIOLATION = 44, Lasts, "a policy of the cluster forbids it";
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, Lasts, "the broker got a batch out of order";
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, Final, "this user may not use the transactional id";
    SECURITY_DISABLED = 54, Final, "the broker has no security features";
    OPERATION_NOT_ATTEMPTED = 55, Passes, "the broker did not attempt it, because something before it failed";
    KAFKA_STORAGE_ERROR = 56, Passes, "the broker's disk has an error";
    LOG_DIR_NOT_FOUND = 57, Passes, "the broker does not find the folder of the log";
    SASL_AUTHENTICATION_FAILED = 58, Final, "the broker refuses the login";
    REASSIGNMENT_IN_PROGRESS = 60, Passes, "the partition is being moved";
    FETCH_SESSION_ID_NOT_FOUND = 70, Passes, "the broker has forgotten the fetch session";
    INVALID_FETCH_SESSION_EPOCH = 71, Passes, "the fetch session is at another place";
    LISTENER_NOT_FOUND = 72, Passes, "the leader has no listener of this name yet";
    FENCED_LEADER_EPOCH = 74, Passes, "the partition has a newer leader";
    UNKNOWN_LEADER_EPOCH = 75, Passes, "the broker has not heard of the partition's leader yet";
    UNSUPPORTED_COMPRESSION_TYPE = 76, Unsupported, "the records are compressed as this request cannot have them";
    OFFSET_NOT_AVAILABLE = 78, Passes, "a new leader does not know yet how far it may be read";
    INVALID_RECORD = 87, Lasts, "the broker finds a record invalid";
    THROTTLING_QUOTA_EXCEEDED = 89, Passes, "the client's quota is used up";
    UNKNOWN_TOPIC_ID = 100, Passes, "the broker does not know the topic's id";
    INCONSISTENT_TOPIC_ID = 103, Passes, "the log is of a topic with another id";
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, Passes, "the offset is in tiered storage only";
}

impl Code {
    pub fn number(self) -> i16 {
        self as i16
    }
}

impl fmt::Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self:?} ({}): {}", self.number(), self.entry().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_one_entry_and_names_itself_with_its_number() {
        assert!(Code::ALL.is_sorted_by_key(|code| code.number()));
        for code in Code::ALL {
            let said = KafkaError::check(code.number()).unwrap_err();
            let front = format!("{code:?} ({}): ", code.number());
            assert!(said.to_string().starts_with(&front), "{said:?}");
        }
    }

    #[test]
    fn an_error_without_an_entry_is_for_who_may_know_it() {
        let said = KafkaError::check(4711);
        assert!(
            matches!(&said, Err(KafkaError::Unsupported(text)) if text.contains("error 4711")),
            "{said:?}"
        );
    }

    #[test]
    fn waits_grow_to_a_second() {
        let waits: Vec<_> = (0..9).map(|failures| backoff(failures).as_millis()).collect();
        assert_eq!(waits, [0, 50, 100, 200, 400, 800, 1000, 1000, 1000]);
    }
}
