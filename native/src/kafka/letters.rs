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
/// The headers that every letter has, and what those that differ take more.
const FIXED: usize = 400;

/// What a letter carries of the record's own value.
#[derive(Clone, Copy)]
pub struct Carried {
    /// Whether any of it.
    pub value: bool,
    /// The most bytes of it; of a longer one its head and its SHA-256.
    pub most: usize,
}

/// The parts of a letter that are the same in many, each up to the name of a header whose value is not.
pub struct Form {
    carried: Carried,
    /// By kind, of a value and of a key: up to the message.
    told: Vec<[Vec<u8>; 2]>,
    /// By kind: up to the message, once more.
    own: Vec<Vec<u8>>,
    now: i64,
    /// When it failed: up to the size.
    failed_at: Vec<u8>,
    field: Vec<u8>,
    timestamp: Vec<u8>,
    sha256: Vec<u8>,
    headers: Vec<u8>,
}

/// The first headers of every letter of a partition: up to the offset.
pub fn origin(topic: &str, number: i32) -> Vec<u8> {
    let mut out = Vec::new();
    header(&mut out, &format!("{CONNECT}topic"), topic.as_bytes());
    header(&mut out, &format!("{CONNECT}partition"), number.to_string().as_bytes());
    name(&mut out, &format!("{CONNECT}offset"));
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
            name(&mut out, &format!("{CONNECT}exception.message"));
            out
        };
        let own = |kind: Kind| {
            let mut out = Vec::new();
            header(&mut out, "forebay.source", source.as_bytes());
            header(&mut out, "forebay.error.kind", kind.name().as_bytes());
            name(&mut out, "forebay.error.message");
            out
        };
        let named = |text: &str| {
            let mut out = Vec::new();
            name(&mut out, text);
            out
        };
        Form {
            carried,
            told: Kind::ALL.map(|kind| [told(kind, b"VALUE_CONVERTER"), told(kind, b"KEY_CONVERTER")]).into(),
            own: Kind::ALL.map(own).into(),
            now: 0,
            failed_at: Vec::new(),
            field: named("forebay.error.field"),
            timestamp: named("forebay.timestamp.ms"),
            sha256: named("forebay.sha256"),
            headers: named("forebay.headers"),
        }
    }

    /// Look at the clock: what is refused from here on failed now. Returns milliseconds.
    pub fn now(&mut self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        if now != self.now {
            self.now = now;
            self.failed_at.clear();
            header(&mut self.failed_at, "forebay.failed.at.ms", now.to_string().as_bytes());
            name(&mut self.failed_at, "forebay.size");
        }
        now
    }

    /// A letter takes about so many bytes, and hardly ever more.
    pub fn most(&self, origin: &[u8], refusal: &Refusal, record: Option<&Record<'_>>) -> usize {
        let own = record.map_or(0, |record| {
            let value = record.value.map_or(0, |value| value.len().min(self.carried.most));
            value + record.key.map_or(0, <[u8]>::len) + record.headers_size()
        });
        let said = 2 * refusal.reason().len() + 3 * refusal.path().len();
        own + said + origin.len() + FIXED + self.told[0][0].len() + self.own[0].len()
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
        let (kind, mut digits) = (refusal.kind as usize, itoa::Buffer::new());
        for part in [own, origin] {
            out.extend_from_slice(part);
        }
        put_value(out, digits.format(offset).as_bytes());
        out.extend_from_slice(&self.told[kind][usize::from(refusal.of_key)]);
        put_message(out, refusal);
        out.extend_from_slice(&self.own[kind]);
        put_message(out, refusal);
        out.extend_from_slice(&self.failed_at);
        let size = record.map_or(-1, |_| value.map_or(0, <[u8]>::len) as i64);
        put_value(out, digits.format(size).as_bytes());
        if let Some(path) = path {
            out.extend_from_slice(&self.field);
            put_value(out, path.as_bytes());
        }
        if let Some(timestamp) = timestamp {
            out.extend_from_slice(&self.timestamp);
            put_value(out, digits.format(timestamp).as_bytes());
        }
        if let Some(hidden) = hidden {
            out.extend_from_slice(&self.sha256);
            put_value(out, sha256(hidden).as_bytes());
        }
        out.extend_from_slice(&self.headers);
        put_value(out, digits.format(own_count).as_bytes());
    }
}

fn name(out: &mut Vec<u8>, name: &str) {
    put_value(out, name.as_bytes());
}

fn header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    put_value(out, name.as_bytes());
    put_value(out, value);
}

#[inline]
fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    put_varlong(out, value.len() as i64);
    out.extend_from_slice(value);
}

/// As `Refusal::message` has it, without making a text of it.
fn put_message(out: &mut Vec<u8>, refusal: &Refusal) {
    let (path, reason) = (refusal.path().as_bytes(), refusal.reason().as_bytes());
    if path.is_empty() {
        return put_value(out, reason);
    }
    put_varlong(out, (path.len() + 2 + reason.len()) as i64);
    for part in [path, b": ", reason] {
        out.extend_from_slice(part);
    }
}

fn sha256(bytes: &[u8]) -> String {
    digest::digest(&digest::SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
