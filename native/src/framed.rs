//! Payloads that name their schema in a registry: a magic byte, the schema's id, the rest. The twin of
//! `formats/framed.py`, which asks the registry and teaches what it hears. Before a Protobuf message there is
//! also the way to it within the schema, as in `formats/protobuf_framing.py`.

use crate::avro::plan::Plan;
use crate::error::NotNative;
use crate::protobuf::Protobuf;
use crate::refusal::{Kind, Refusal};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes of the magic and the id.
const HEADER: usize = 5;
/// protoc nests messages no deeper.
const MAX_INDEXES: i32 = 32;
/// The way to a schema's first message, in short.
const FIRST: &[u8] = &[0];

/// What a header means.
pub enum Lesson {
    /// Nothing more needs to be known.
    Plain,
    Avro(Box<Plan>),
    Protobuf(Box<Protobuf>),
    Refused(Refusal),
}

/// The headers that were met so far. Topics hold few, and the next record mostly has the last one's.
#[derive(Default)]
pub struct Frames {
    lessons: Vec<Lesson>,
    places: HashMap<u64, usize, BuildHasherDefault<Spread>>,
    last: Option<(u64, usize)>,
    /// Whether the way to a message follows the id.
    indexed: bool,
    /// The ways that were met, each with a number: 0 is the shortest one.
    ways: HashMap<Box<[u8]>, u32>,
}

/// A hash that costs nothing: in a topic of several schemas there is one for every record, and only ids
/// that the registry knows are kept, so nobody can choose them to collide.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Frames {
    pub fn new(indexed: bool) -> Self {
        Frames { indexed, ..Frames::default() }
    }

    /// What the payload's header means, and where it ends; a refusal that `wants` it if that is not known.
    #[inline]
    pub fn lesson(&mut self, payload: &[u8]) -> Result<(&mut Lesson, usize), Refusal> {
        let (id, end) = if self.indexed { indexed(payload)? } else { (id(payload)?, HEADER) };
        let way = match &payload[HEADER..end] {
            [] | FIRST => Some(&0),
            way => self.ways.get(way),
        };
        let known = match (way.map(|way| u64::from(*way) << 32 | u64::from(id)), self.last) {
            (Some(key), Some((last, place))) if last == key => Some((key, place)),
            (Some(key), _) => self.places.get(&key).map(|place| (key, *place)),
            (None, _) => None,
        };
        let (key, place) = known.ok_or_else(|| Refusal::wanting(&payload[..end]))?;
        self.last = Some((key, place));
        match &mut self.lessons[place] {
            Lesson::Refused(refusal) => Err(refusal.clone()),
            lesson => Ok((lesson, end)),
        }
    }

    /// Say what a header means, also where something else was said before.
    pub fn learn(&mut self, header: &[u8], lesson: Lesson) -> Result<(), NotNative> {
        let found = if self.indexed { indexed(header) } else { id(header).map(|id| (id, HEADER)) };
        let (id, end) = found.map_err(|refusal| NotNative::Lesson(refusal.message().into()))?;
        let next = self.ways.len() as u32 + 1;
        let way = match &header[HEADER..end] {
            [] | FIRST => 0,
            way => *self.ways.entry(way.into()).or_insert(next),
        };
        self.places.insert(u64::from(way) << 32 | u64::from(id), self.lessons.len());
        self.lessons.push(lesson);
        self.last = None;
        Ok(())
    }
}

#[inline]
fn id(payload: &[u8]) -> Result<u32, Refusal> {
    match payload {
        [] => Err(Refusal::malformed("the payload is empty")),
        [0, a, b, c, d, ..] => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
        [0, ..] => {
            let length = payload.len();
            Err(Refusal::malformed(format!("the payload ends inside of the schema id, after {length} bytes")))
        }
        [first, ..] => Err(Refusal::malformed(format!(
            "the first byte is {first}, not the 0 that a schema registry's serializer puts there"
        ))),
    }
}

/// The id before a Protobuf message, and where the message begins.
#[inline]
fn indexed(payload: &[u8]) -> Result<(u32, usize), Refusal> {
    let [magic, a, b, c, d, _, ..] = payload else {
        let length = payload.len();
        return Err(wrong(format!("the payload has {length} bytes, and the header alone has 6")));
    };
    if *magic != 0 {
        return Err(wrong(format!("the first byte is {magic:#04x} and not 0x00")));
    }
    let id = i32::from_be_bytes([*a, *b, *c, *d]);
    let id = u32::try_from(id).map_err(|_| wrong(format!("the schema id is {id}")))?;
    let (count, mut at) = zigzag(payload, HEADER)?;
    if !(0..=MAX_INDEXES).contains(&count) {
        return Err(wrong(format!("{count} message indexes")));
    }
    for _ in 0..count {
        let (index, next) = zigzag(payload, at)?;
        if index < 0 {
            return Err(wrong(format!("the message index {index}")));
        }
        at = next;
    }
    Ok((id, at))
}

#[inline]
fn zigzag(payload: &[u8], at: usize) -> Result<(i32, usize), Refusal> {
    let mut value = 0u64;
    for place in 0..5 {
        let byte = *payload
            .get(at + place)
            .ok_or_else(|| wrong("the payload ends inside of the message indexes".into()))?;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            let Ok(value) = u32::try_from(value) else { break };
            return Ok(((value >> 1) as i32 ^ -((value & 1) as i32), at + place + 1));
        }
    }
    Err(wrong("a message index of more than 32 bits".into()))
}

#[cold]
fn wrong(reason: String) -> Refusal {
    Refusal::malformed(format!("not in a schema registry's framing: {reason}"))
}

/// A refusal as the teacher has it.
pub fn refused(kind: &str, message: &str) -> Result<Lesson, NotNative> {
    let kind = Kind::named(kind).ok_or_else(|| NotNative::Lesson(format!("no kind: {kind}").into()))?;
    Ok(Lesson::Refused(Refusal::new(kind, message)))
}
