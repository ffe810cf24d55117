//! The few requests that reading and dead letters take, in versions that every broker from Kafka 2.3 on answers.

use crate::kafka::error::Code;
use crate::kafka::wire::{Damaged, View, Writer};
use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Api {
    pub key: i16,
    pub version: i16,
    pub name: &'static str,
}

pub const PRODUCE: Api = Api { key: 0, version: 7, name: "Produce" };
pub const FETCH: Api = Api { key: 1, version: 11, name: "Fetch" };
pub const LIST_OFFSETS: Api = Api { key: 2, version: 2, name: "ListOffsets" };
pub const METADATA: Api = Api { key: 3, version: 4, name: "Metadata" };
pub const SASL_HANDSHAKE: Api = Api { key: 17, version: 1, name: "SaslHandshake" };
pub const API_VERSIONS: Api = Api { key: 18, version: 0, name: "ApiVersions" };
pub const SASL_AUTHENTICATE: Api = Api { key: 36, version: 0, name: "SaslAuthenticate" };

/// Times that mean the log's ends to `list_offsets`.
pub const EARLIEST: i64 = -2;
pub const LATEST: i64 = -1;

/// (key, lowest version, highest version)
pub type Offered = (i16, i16, i16);

/// What the broker answers: (error, each API with its versions)
pub fn read_api_versions(answer: &[u8]) -> Result<(i16, Vec<Offered>), Damaged> {
    let mut view = View::new(answer);
    let error = view.i16()?;
    let offered =
        (0..view.count()?).map(|_| Ok((view.i16()?, view.i16()?, view.i16()?))).collect::<Result<_, _>>()?;
    Ok((error, offered))
}

pub struct Broker {
    pub node: i32,
    pub host: String,
    pub port: u16,
}

pub struct Metadata {
    pub brokers: Vec<Broker>,
    /// Of the topic asked for.
    pub error: i16,
    /// (number, leader or -1)
    pub partitions: Vec<(i32, i32)>,
}

pub fn metadata(topic: &str) -> Writer {
    Writer::default().i32(1).text(topic).i8(0) // and do not create it
}

pub fn read_metadata(answer: &[u8], topic: &str) -> Result<Metadata, Damaged> {
    let mut view = View::new(answer);
    view.i32()?; // throttled so long
    let error = Code::UNKNOWN_TOPIC_OR_PARTITION.number(); // unless the topic is in there
    let mut found = Metadata { brokers: Vec::new(), error, partitions: Vec::new() };
    for _ in 0..view.count()? {
        let (node, host, port) = (view.i32()?, view.text()?, view.i32()?);
        view.text()?; // rack
        found.brokers.push(Broker { node, host, port: u16::try_from(port).map_err(|_| Damaged)? });
    }
    view.text()?; // cluster
    view.i32()?; // controller
    for _ in 0..view.count()? {
        let (error, name, _internal) = (view.i16()?, view.text()?, view.i8()?);
        let mut partitions = Vec::new();
        for _ in 0..view.count()? {
            let (_error, number, leader) = (view.i16()?, view.i32()?, view.i32()?);
            for _list in 0..2 {
                for _ in 0..view.count()? {
                    view.i32()?;
                }
            }
            partitions.push((number, leader));
        }
        if name == topic {
            (found.error, found.partitions) = (error, partitions);
        }
    }
    Ok(found)
}

/// How long a broker may wait for its replicas.
const REPLICAS_MS: i32 = 30_000;

/// The request up to its records, which take so many bytes: to be written by all replicas in step.
pub fn produce(topic: &str, number: i32, length: usize) -> Writer {
    let head = Writer::default().i16(-1).i16(-1).i32(REPLICAS_MS).i32(1).text(topic);
    head.i32(1).i32(number).i32(i32::try_from(length).unwrap_or(i32::MAX))
}

/// The error of the one partition.
pub fn read_produce(answer: &[u8]) -> Result<i16, Damaged> {
    let mut view = View::new(answer);
    if view.count()? != 1 {
        return Err(Damaged);
    }
    view.text()?;
    if view.count()? != 1 {
        return Err(Damaged);
    }
    view.i32()?;
    view.i16()
}

pub struct Wanted<'a> {
    pub topic: &'a str,
    pub number: i32,
    pub offset: i64,
    pub committed_only: bool,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub partition_bytes: i32,
}

pub fn fetch(wanted: &Wanted<'_>) -> Writer {
    let head = Writer::default().i32(-1).i32(wanted.max_wait_ms).i32(wanted.min_bytes).i32(wanted.max_bytes);
    let head = head.i8(wanted.committed_only.into()).i32(0).i32(-1); // no session
    let topic = head.i32(1).text(wanted.topic).i32(1).i32(wanted.number).i32(-1).i64(wanted.offset);
    topic.i64(-1).i32(wanted.partition_bytes).i32(0).text("")
}

pub struct Fetched {
    pub error: i16,
    /// What may be read ends here: the high watermark, or where the oldest open transaction begins.
    pub readable: i64,
    /// (first offset, producer), by offset
    pub aborted: Vec<(i64, i64)>,
    /// Where in the answer the record batches are.
    pub records: Range<usize>,
}

/// What the answer says of the partition; None where it is silent: the broker makes us wait.
pub fn read_fetch(
    answer: &[u8],
    number: i32,
    committed_only: bool,
) -> Result<(i32, Option<Fetched>), Damaged> {
    let mut view = View::new(answer);
    let throttled_ms = view.i32()?;
    let error = view.i16()?;
    view.i32()?; // session
    if error != 0 {
        return Ok((throttled_ms, Some(Fetched { error, readable: 0, aborted: Vec::new(), records: 0..0 })));
    }
    for _ in 0..view.count()? {
        view.text()?;
        for _ in 0..view.count()? {
            let (found, error, high, stable) = (view.i32()?, view.i16()?, view.i64()?, view.i64()?);
            view.i64()?; // where the log begins
            let mut aborted = Vec::new();
            for _ in 0..view.count()? {
                let (producer, first) = (view.i64()?, view.i64()?);
                aborted.push((first, producer));
            }
            aborted.sort_unstable();
            view.i32()?; // a replica that would be nearer
            let length = view.bytes()?.len();
            if found == number {
                let readable = if committed_only { stable } else { high };
                let records = view.at - length..view.at;
                return Ok((throttled_ms, Some(Fetched { error, readable, aborted, records })));
            }
        }
    }
    Ok((throttled_ms, None))
}

pub fn list_offsets(topic: &str, number: i32, committed_only: bool, time: i64) -> Writer {
    let head = Writer::default().i32(-1).i8(committed_only.into());
    head.i32(1).text(topic).i32(1).i32(number).i64(time)
}

/// (error, offset)
pub fn read_list_offsets(answer: &[u8]) -> Result<(i16, i64), Damaged> {
    let mut view = View::new(answer);
    view.i32()?;
    if view.count()? != 1 {
        return Err(Damaged);
    }
    view.text()?;
    if view.count()? != 1 {
        return Err(Damaged);
    }
    let (_number, error, _time) = (view.i32()?, view.i16()?, view.i64()?);
    Ok((error, view.i64()?))
}

pub fn sasl_handshake(mechanism: &str) -> Writer {
    Writer::default().text(mechanism)
}

/// (error, what the broker knows)
pub fn read_sasl_handshake(answer: &[u8]) -> Result<(i16, Vec<String>), Damaged> {
    let mut view = View::new(answer);
    let error = view.i16()?;
    let known = (0..view.count()?).map(|_| view.text()).collect::<Result<_, _>>()?;
    Ok((error, known))
}

pub fn sasl_authenticate(token: &[u8]) -> Writer {
    Writer::default().bytes(token)
}

/// (error, its text, the broker's token)
pub fn read_sasl_authenticate(answer: &[u8]) -> Result<(i16, String, Vec<u8>), Damaged> {
    let mut view = View::new(answer);
    Ok((view.i16()?, view.text()?, view.bytes()?.to_vec()))
}
