//! A dead letter as a record of its topic: byte for byte what `deadletter/letter.py` makes of the same record.
//!
//! Written straight from the bytes that were fetched, because at ten letters in a hundred records an object
//! for each would cost more than the good ones.

use crate::kafka::batches::Record;
use crate::kafka::wire::{put_var_bytes, put_varlong};
use crate::refusal::{Kind, Refusal};
use ring::digest;
use std::time::{SystemTime, UNIX_EPOCH};

const CONNECT: &str = "__connect.errors.";
const OFFSET: &str = "__connect.errors.offset";
const MESSAGE: &str = "__connect.errors.exception.message";

/// What a letter carries of the record's own value.
#[derive(Clone, Copy)]
pub struct Carried {
    /// Whether any of it.
    pub value: bool,
    /// The most bytes of it; of a longer one its head and its SHA-256.
    pub most: usize,
}

pub struct Form {
    carried: Carried,
    /// By kind, of a value and of a key: what is the same in every letter, between the offset and the message.
    told: Vec<[Vec<u8>; 2]>,
    /// By kind: the same, behind the message.
    own: Vec<Vec<u8>>,
    failed_at: (i64, Vec<u8>),
}

/// The first headers of every letter of a partition.
pub fn origin(topic: &str, number: i32) -> Vec<u8> {
    let mut out = Vec::new();
    header(&mut out, &format!("{CONNECT}topic"), topic.as_bytes());
    header(&mut out, &format!("{CONNECT}partition"), number.to_string().as_bytes());
    out
}

impl Form {
    pub fn new(source: &str, carried: Carried) -> Self {
        let told = |kind: Kind, stage: &[u8]| {
            let mut out = Vec::new();
            for (name, value) in [
                ("connector.name", source.as_bytes()),
                ("stage", stage),
                ("class.name", b"forebay"),
                ("exception.class.name", kind.name().as_bytes()),
            ] {
                header(&mut out, &format!("{CONNECT}{name}"), value);
            }
            out
        };
        let own = |kind: Kind| {
            let mut out = Vec::new();
            header(&mut out, "forebay.source", source.as_bytes());
            header(&mut out, "forebay.error.kind", kind.name().as_bytes());
            out
        };
        Form {
            carried,
            told: Kind::ALL.map(|kind| [told(kind, b"VALUE_CONVERTER"), told(kind, b"KEY_CONVERTER")]).into(),
            own: Kind::ALL.map(own).into(),
            failed_at: (0, Vec::new()),
        }
    }

    /// Look at the clock: what is refused from here on failed now. Returns milliseconds.
    pub fn now(&mut self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        if now != self.failed_at.0 {
            self.failed_at = (now, now.to_string().into_bytes());
        }
        now
    }

    /// Append key, value and headers of the letter, as they stand in a record batch. Without the record, which
    /// was too long to be held, it says only what is known.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        origin: &[u8],
        offset: i64,
        refusal: &Refusal,
        record: Option<&Record<'_>>,
    ) {
        let value = record.and_then(|record| record.value);
        let shown = match value {
            Some(value) if self.carried.value => Some(&value[..value.len().min(self.carried.most)]),
            _ => None,
        };
        put_var_bytes(out, record.and_then(|record| record.key));
        put_var_bytes(out, shown);
        // Damaged headers are of no use to anybody.
        let (own_count, own) = record.and_then(|record| record.raw_headers().ok()).unwrap_or((0, &[]));
        let path = Some(refusal.path()).filter(|path| !path.is_empty());
        let timestamp = record.and_then(|record| record.timestamp);
        let hidden = value.filter(|value| shown.is_none_or(|shown| shown.len() < value.len()));
        let optional = [path.is_some(), timestamp.is_some(), hidden.is_some()];
        let count = own_count + 14 + optional.iter().filter(|there| **there).count();
        put_varlong(out, count as i64);
        out.extend_from_slice(own);
        out.extend_from_slice(origin);
        let (message, mut digits) = (refusal.message(), Digits::default());
        header(out, OFFSET, digits.of(offset));
        out.extend_from_slice(&self.told[refusal.kind as usize][usize::from(refusal.of_key)]);
        header(out, MESSAGE, message.as_bytes());
        out.extend_from_slice(&self.own[refusal.kind as usize]);
        header(out, "forebay.error.message", message.as_bytes());
        header(out, "forebay.failed.at.ms", &self.failed_at.1);
        let size = record.map_or(-1, |_| value.map_or(0, <[u8]>::len) as i64);
        header(out, "forebay.size", digits.of(size));
        if let Some(path) = path {
            header(out, "forebay.error.field", path.as_bytes());
        }
        if let Some(timestamp) = timestamp {
            header(out, "forebay.timestamp.ms", digits.of(timestamp));
        }
        if let Some(hidden) = hidden {
            header(out, "forebay.sha256", sha256(hidden).as_bytes());
        }
        header(out, "forebay.headers", digits.of(own_count as i64));
    }
}

#[inline]
fn header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    put_varlong(out, name.len() as i64);
    out.extend_from_slice(name.as_bytes());
    put_varlong(out, value.len() as i64);
    out.extend_from_slice(value);
}

fn sha256(bytes: &[u8]) -> String {
    digest::digest(&digest::SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decimal digits, without an allocation.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn of(&mut self, value: i64) -> &[u8] {
        let (mut rest, mut at) = (value.unsigned_abs(), self.0.len());
        loop {
            at -= 1;
            self.0[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            at -= 1;
            self.0[at] = b'-';
        }
        &self.0[at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        for value in [0, 7, -1, 10, 1_700_000_000_000, i64::MAX, i64::MIN] {
            assert_eq!(Digits::default().of(value), value.to_string().as_bytes());
        }
    }
}
