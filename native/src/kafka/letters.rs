//! A dead letter as a record of its topic: byte for byte what `deadletter/letter.py` makes of the same record.
//!
//! Written straight from the bytes that were fetched, because at ten letters in a hundred records an object
//! for each would cost more than the good ones.

use crate::kafka::batches::Record;
use crate::kafka::wire::{put_var_bytes, put_varlong};
use crate::refusal::{Kind, Refusal};
use ring::digest;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The headers that every letter has, and what those that differ take more, in bytes.
const FIXED: usize = 750;

/// The names of headers whose values differ, each with its length in front, as a record batch has it.
const OFFSET: &[u8; 24] = b"\x2e__connect.errors.offset";
const MESSAGE: &[u8; 35] = b"\x44__connect.errors.exception.message";
const OWN_MESSAGE: &[u8; 22] = b"\x2aforebay.error.message";
const FIELD: &[u8; 20] = b"\x26forebay.error.field";
const TIMESTAMP: &[u8; 21] = b"\x28forebay.timestamp.ms";
const SIZE: &[u8; 13] = b"\x18forebay.size";
const SHA256: &[u8; 15] = b"\x1cforebay.sha256";
const HEADERS: &[u8; 16] = b"\x1eforebay.headers";

/// What a letter carries of the record's own value.
#[derive(Clone, Copy)]
pub struct Carried {
    /// Whether any of it.
    pub value: bool,
    /// The most bytes of it; of a longer one its head and its SHA-256.
    pub most: usize,
}

pub struct Form {
    source: String,
    carried: Carried,
    /// Of the topics that records are from, where they are known.
    ids: HashMap<String, String>,
}

/// The headers that are the same in all letters of a partition, a kind, a stage and a millisecond, up to where
/// the offset comes.
#[derive(Default)]
pub struct Head {
    bytes: Vec<u8>,
    /// How many headers these are, with that of the offset.
    count: usize,
    now: i64,
}

impl Head {
    /// Whether it is for letters of what failed now.
    pub fn is_of(&self, now: i64) -> bool {
        self.now == now
    }
}

/// What the clock says, in milliseconds.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

impl Form {
    pub fn new(source: &str, carried: Carried, ids: HashMap<String, String>) -> Self {
        Form { source: source.into(), carried, ids }
    }

    pub fn head(&self, topic: &str, number: i32, kind: Kind, of_key: bool, now: i64) -> Head {
        let stage = if of_key { "KEY_CONVERTER" } else { "VALUE_CONVERTER" };
        let now_text = now.to_string();
        let number = number.to_string();
        let mut fields = vec![
            ("__connect.errors.topic", topic),
            ("__connect.errors.partition", number.as_str()),
            ("__connect.errors.connector.name", self.source.as_str()),
            ("__connect.errors.stage", stage),
            ("__connect.errors.class.name", "forebay"),
            ("__connect.errors.exception.class.name", kind.name()),
            ("forebay.source", &self.source),
            ("forebay.error.kind", kind.name()),
            ("forebay.failed.at.ms", now_text.as_str()),
        ];
        if let Some(id) = self.ids.get(topic) {
            fields.push(("forebay.topic.id", id.as_str()));
        }
        let mut bytes = Vec::new();
        for (name, value) in &fields {
            put_text(&mut bytes, name);
            put_text(&mut bytes, value);
        }
        bytes.extend_from_slice(OFFSET);
        Head { bytes, count: fields.len() + 1, now }
    }

    /// A letter takes about so many bytes, and hardly ever more.
    pub fn most(&self, refusal: &Refusal, record: Option<&Record<'_>>) -> usize {
        let own = record.map_or(0, |record| {
            let value = record.value.map_or(0, |value| value.len().min(self.carried.most));
            value + record.key.map_or(0, <[u8]>::len) + record.headers_size()
        });
        own + 2 * refusal.reason().len() + 3 * refusal.path().len() + 2 * self.source.len() + FIXED
    }

    /// Append key, value and headers of the letter, as they stand in a record batch. Without the record, which
    /// was too long to be held, it says only what is known.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        head: &Head,
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
        // Those of the head, and two messages, the size and the count of the record's own.
        let count = own_count + head.count + 4 + optional.iter().filter(|there| **there).count();
        put_varlong(out, count as i64);
        if own_count > 0 {
            out.extend_from_slice(own);
        }
        out.extend_from_slice(&head.bytes);
        let mut digits = itoa::Buffer::new();
        put_text(out, digits.format(offset));
        out.extend_from_slice(MESSAGE);
        let said = out.len();
        put_message(out, refusal);
        let said = said..out.len();
        out.extend_from_slice(OWN_MESSAGE);
        out.extend_from_within(said);
        out.extend_from_slice(SIZE);
        put_text(out, digits.format(record.map_or(-1, |_| value.map_or(0, <[u8]>::len) as i64)));
        if let Some(path) = path {
            out.extend_from_slice(FIELD);
            put_text(out, path);
        }
        if let Some(timestamp) = timestamp {
            out.extend_from_slice(TIMESTAMP);
            put_text(out, digits.format(timestamp));
        }
        if let Some(hidden) = hidden {
            out.extend_from_slice(SHA256);
            put_text(out, &sha256(hidden));
        }
        out.extend_from_slice(HEADERS);
        put_text(out, digits.format(own_count));
    }
}

#[inline]
fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varlong(out, text.len() as i64);
    out.extend_from_slice(text.as_bytes());
}

/// As `Refusal::message` has it, without making a text of it.
fn put_message(out: &mut Vec<u8>, refusal: &Refusal) {
    let (path, reason) = (refusal.path(), refusal.reason());
    if path.is_empty() {
        return put_text(out, reason);
    }
    put_varlong(out, (path.len() + 2 + reason.len()) as i64);
    out.extend_from_slice(path.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(reason.as_bytes());
}

fn sha256(bytes: &[u8]) -> String {
    digest::digest(&digest::SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_long_as_they_say() {
        for name in [&OFFSET[..], MESSAGE, OWN_MESSAGE, FIELD, TIMESTAMP, SIZE, SHA256, HEADERS] {
            let mut written = Vec::new();
            let text = name.iter().position(|byte| byte.is_ascii_lowercase() || *byte == b'_');
            let text = std::str::from_utf8(&name[text.unwrap_or_default()..]).unwrap_or_default();
            put_text(&mut written, text);
            assert_eq!(written, name);
        }
    }
}
