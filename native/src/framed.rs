//! Payloads that name their schema in a registry: a magic byte, the schema's id, the rest. The twin of
//! `formats/framed.py`, which asks the registry and teaches what it hears.

use crate::avro_plan::Plan;
use crate::refusal::{Kind, Refusal};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes before the rest.
pub const HEADER: usize = 5;

/// What an id means.
pub enum Lesson {
    /// Nothing more needs to be known.
    Plain,
    Avro(Box<Plan>),
    Refused(Refusal),
}

/// The ids that were met so far. Topics hold few, and the next record mostly has the last one's.
#[derive(Default)]
pub struct Frames {
    lessons: Vec<Lesson>,
    places: HashMap<u32, usize, BuildHasherDefault<Spread>>,
    last: Option<(u32, usize)>,
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
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    #[inline]
    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Frames {
    /// What the payload's id means; a refusal that `wants` it if that is not known.
    #[inline]
    pub fn lesson(&mut self, payload: &[u8]) -> Result<&Lesson, Refusal> {
        let id = id(payload)?;
        let place = match self.last {
            Some((last, place)) if last == id => place,
            _ => *self.places.get(&id).ok_or_else(|| Refusal::wanting(id))?,
        };
        self.last = Some((id, place));
        match &self.lessons[place] {
            Lesson::Refused(refusal) => Err(refusal.clone()),
            lesson => Ok(lesson),
        }
    }

    /// Say what an id means, also where something else was said before.
    pub fn learn(&mut self, id: u32, lesson: Lesson) {
        self.places.insert(id, self.lessons.len());
        self.lessons.push(lesson);
        self.last = None;
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

/// A refusal as the teacher has it.
pub fn refused(kind: &str, message: &str) -> Result<Lesson, String> {
    let kind = Kind::named(kind).ok_or_else(|| format!("no kind: {kind}"))?;
    Ok(Lesson::Refused(Refusal::new(kind, message)))
}
