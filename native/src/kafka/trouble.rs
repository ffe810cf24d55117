//! What can go wrong between us and a broker.

use crate::kafka::wire::Damaged;
use std::ffi::c_int;
use std::io;

/// librdkafka's numbers for what no broker says, because the caller knows these.
pub const AUTHENTICATION: c_int = -169;
pub const SSL: c_int = -181;
/// Something that the caller should never see.
pub const FAULT: c_int = -1;

#[derive(Debug, Clone)]
pub enum Trouble {
    /// Waiting may mend it: a broker is away, a leader moves.
    Away(String),
    /// It does not: the number of the error, and words.
    Refused(c_int, String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Away(error.to_string())
    }
}

impl From<Damaged> for Trouble {
    fn from(damaged: Damaged) -> Self {
        Trouble::Away(format!("an answer with {damaged}"))
    }
}

/// Kafka's numbers for what passes by itself, or after a look at where the leader is now.
pub fn passes(error: i16) -> bool {
    // 5 leader not available, 6 not the leader, 7 timed out, 8, 9 replica or broker not available, 13 network,
    // 19, 20 too few replicas in step,
    // 56 storage, 74 fenced and 75 unknown leader epoch, 76 unsupported compression: no; 78 offset not available
    matches!(error, 5 | 6 | 7 | 8 | 9 | 13 | 19 | 20 | 56 | 74 | 75 | 78 | 100 | 103)
}

pub const OFFSET_OUT_OF_RANGE: i16 = 1;
pub const UNKNOWN_TOPIC: i16 = 3;
pub const MESSAGE_TOO_LARGE: i16 = 10;
pub const RECORD_LIST_TOO_LARGE: i16 = 18;
