//! The bytes of a message: scanned into the places of its fields, or walked to find where they are none.
//!
//! The twin of protobuf's runtime in what it takes, and of `formats/protobuf_explain.py` in what it says.

use crate::protobuf::plan::{Message, Part, Read, Wire};
use crate::refusal::Refusal;

/// Messages and groups inside of each other.
pub const MAX_DEPTH: usize = 100;
const NONE: u32 = u32::MAX;
const WIRE_TYPES: [&str; 6] =
    ["a varint", "8 bytes", "length-delimited bytes", "a group", "the end of a group", "4 bytes"];

/// The bytes are no message; the walk says why.
pub struct Torn;

/// One time that a field is there: a number, or where its bytes are.
#[derive(Clone, Copy)]
pub struct Found {
    pub value: u64,
    /// Written as length-delimited bytes: of a number that is repeated, all of them.
    pub sized: bool,
    next: u32,
}

impl Found {
    #[inline(always)]
    pub fn slice<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[(self.value >> 32) as usize..(self.value & 0xffff_ffff) as usize]
    }
}

#[derive(Clone, Copy)]
struct Slot {
    first: u32,
    last: u32,
}

/// What the messages at hand have, the innermost last. Kept from record to record for its memory.
#[derive(Default)]
pub struct Scratch {
    slots: Vec<Slot>,
    found: Vec<Found>,
}

/// Where one message's part of the scratch begins.
#[derive(Clone, Copy)]
pub struct Frame {
    slots: usize,
    found: usize,
}

impl Scratch {
    pub fn clear(&mut self) {
        self.slots.clear();
        self.found.clear();
    }

    #[inline(always)]
    pub fn leave(&mut self, frame: Frame) {
        self.slots.truncate(frame.slots);
        self.found.truncate(frame.found);
    }

    /// The first time that a field is there.
    #[inline(always)]
    pub fn first(&self, frame: Frame, place: usize) -> Option<Found> {
        self.get(self.slots[frame.slots + place].first)
    }

    #[inline(always)]
    pub fn last(&self, frame: Frame, place: usize) -> Option<Found> {
        self.get(self.slots[frame.slots + place].last)
    }

    #[inline(always)]
    pub fn next(&self, found: &Found) -> Option<Found> {
        self.get(found.next)
    }

    #[inline(always)]
    fn get(&self, at: u32) -> Option<Found> {
        self.found.get(at as usize).copied()
    }

    /// All fields of one message, each with every time that it is there. A refusal is about another wire type.
    pub fn scan(
        &mut self,
        message: &Message,
        part: Option<Part>,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(Frame, Option<Box<Refusal>>), Torn> {
        let frame = Frame { slots: self.slots.len(), found: self.found.len() };
        if depth > MAX_DEPTH {
            return Err(Torn);
        }
        self.slots.resize(frame.slots + message.fields.len(), Slot { first: NONE, last: NONE });
        let mut mismatch = None;
        let mut cursor = Cursor { bytes, at: 0 };
        while cursor.at < bytes.len() {
            let (number, tag) = cursor.tag()?;
            if number == 0 {
                return Err(Torn);
            }
            let place = message.find(number);
            let (value, sized) = match tag {
                0 => (cursor.varint()?, false),
                1 => (u64::from_le_bytes(cursor.array()?), false),
                5 => (u64::from(u32::from_le_bytes(cursor.array()?)), false),
                2 => (cursor.sized()?, true),
                3 => {
                    let start = cursor.at;
                    let end = cursor.group(number, depth + 1)?;
                    ((start as u64) << 32 | end as u64, false)
                }
                _ => return Err(Torn),
            };
            let Some(place) = place else { continue };
            let field = &message.fields[place];
            if tag != field.wire.tag() && !(sized && field.repeated && field.wire.packable()) {
                if field.kept && mismatch.is_none() {
                    let reason = match part {
                        Some(part) if part != Part::Moment => format!(
                            "in its {}, {} is written in another wire type",
                            part_name(part),
                            field.name
                        ),
                        _ => format!(
                            "the schema has {} here, but the bytes have {}",
                            field.kind, WIRE_TYPES[tag as usize]
                        ),
                    };
                    let refusal = Refusal::mismatch(reason);
                    let whole = matches!(part, Some(part) if part != Part::Moment);
                    let step = format!(".{}", field.name);
                    mismatch = Some(Box::new(if whole { refusal } else { refusal.within(&step) }));
                }
                continue;
            }
            if !field.kept && field.wire == Wire::Group {
                let content = Found { value, sized, next: NONE }.slice(bytes);
                walk(&Inside::Nothing, content, depth + 1).map_err(|_| Torn)?;
            }
            if let Some(oneof) = field.oneof {
                self.unset(frame, message, part, place, oneof, bytes, depth)?;
            }
            let at = self.found.len() as u32;
            self.found.push(Found { value, sized, next: NONE });
            let slot = &mut self.slots[frame.slots + place];
            if slot.last == NONE {
                slot.first = at;
            } else {
                self.found[slot.last as usize].next = at;
            }
            slot.last = at;
        }
        Ok((frame, mismatch))
    }

    /// The other members of a oneof are gone; what was in them had to be sound all the same.
    #[allow(clippy::too_many_arguments)]
    fn unset(
        &mut self,
        frame: Frame,
        message: &Message,
        part: Option<Part>,
        place: usize,
        oneof: u64,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), Torn> {
        for (other, field) in message.fields.iter().enumerate() {
            if other == place || field.oneof != Some(oneof) {
                continue;
            }
            let mut found = self.first(frame, other);
            while let Some(one) = found {
                if matches!(field.wire, Wire::Message | Wire::Group) {
                    let inner = inside(message, part, other);
                    walk(&inner, one.slice(bytes), depth + 1).map_err(|_| Torn)?;
                }
                found = self.next(&one);
            }
            self.slots[frame.slots + other] = Slot { first: NONE, last: NONE };
        }
        Ok(())
    }
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Moment => "Moment",
        Part::Struct => "Struct",
        Part::Entry => "Entry",
        Part::List => "ListValue",
        Part::Value => "Value",
    }
}

/// What a field's own message is made of.
pub enum Inside<'a> {
    Nothing,
    Message(&'a Message),
    Part(Part),
}

pub fn inside<'a>(message: &'a Message, part: Option<Part>, place: usize) -> Inside<'a> {
    if let Some(part) = part {
        return part.inside(place).map_or(Inside::Nothing, Inside::Part);
    }
    match &message.fields[place].read {
        Read::Struct(inner) | Read::Only(inner) | Read::Map(inner) => Inside::Message(inner),
        Read::Timestamp | Read::Duration => Inside::Part(Part::Moment),
        Read::Json(part) => Inside::Part(*part),
        _ => Inside::Nothing,
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Result<u8, Torn> {
        let byte = *self.bytes.get(self.at).ok_or(Torn)?;
        self.at += 1;
        Ok(byte)
    }

    /// Field number and wire type.
    #[inline(always)]
    fn tag(&mut self) -> Result<(u32, u32), Torn> {
        let tag = self.limited(u64::from(u32::MAX))? as u32;
        Ok((tag >> 3, tag & 7))
    }

    /// A varint of at most five bytes.
    #[inline(always)]
    fn limited(&mut self, most: u64) -> Result<u64, Torn> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(first.into());
        }
        let mut value = u64::from(first & 0x7f);
        for place in 1..5 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return if value > most { Err(Torn) } else { Ok(value) };
            }
        }
        Err(Torn)
    }

    /// A varint of at most ten bytes; what is beyond 64 bits is dropped, as all readers do.
    #[inline(always)]
    fn varint(&mut self) -> Result<u64, Torn> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(first.into());
        }
        let mut value = u64::from(first & 0x7f);
        for place in 1..10 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Torn)
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Torn> {
        let taken = *self.bytes[self.at..].first_chunk().ok_or(Torn)?;
        self.at += N;
        Ok(taken)
    }

    /// Where length-delimited bytes begin and end.
    #[inline(always)]
    fn sized(&mut self) -> Result<u64, Torn> {
        let length = self.limited(i32::MAX as u64)? as usize;
        let start = self.at;
        if length > self.bytes.len() - start {
            return Err(Torn);
        }
        self.at += length;
        Ok((start as u64) << 32 | self.at as u64)
    }

    /// Over a group, to behind its end; the answer is where its content ends. In a group that is not known
    /// the runtime does not mind a field number 0, so who knows it looks at the content, too.
    fn group(&mut self, number: u32, depth: usize) -> Result<usize, Torn> {
        if depth > MAX_DEPTH {
            return Err(Torn);
        }
        loop {
            let end = self.at;
            let (inner, tag) = self.tag()?;
            match tag {
                0 => drop(self.varint()?),
                1 => drop(self.array::<8>()?),
                2 => drop(self.sized()?),
                3 => drop(self.group(inner, depth + 1)?),
                4 if inner == number => return Ok(end),
                5 => drop(self.array::<4>()?),
                _ => return Err(Torn),
            }
        }
    }
}

/// The numbers of a packed field.
pub struct Packed<'a> {
    cursor: Cursor<'a>,
    tag: u32,
}

impl<'a> Packed<'a> {
    pub fn new(bytes: &'a [u8], wire: Wire) -> Self {
        Packed { cursor: Cursor { bytes, at: 0 }, tag: wire.tag() }
    }

    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<u64>, Torn> {
        if self.cursor.at == self.cursor.bytes.len() {
            return Ok(None);
        }
        Ok(Some(match self.tag {
            0 => self.cursor.varint()?,
            1 => u64::from_le_bytes(self.cursor.array()?),
            _ => u64::from(u32::from_le_bytes(self.cursor.array()?)),
        }))
    }
}

/// Whether the bytes are a message all the way down; if not, where they stop to be one.
pub fn walk(inside: &Inside<'_>, bytes: &[u8], depth: usize) -> Result<(), Box<Refusal>> {
    Walk { bytes }.message(inside, 0, bytes.len(), depth, None, true).map(drop)
}

struct Walk<'a> {
    bytes: &'a [u8],
}

type Walked<T> = Result<T, Box<Refusal>>;

impl Walk<'_> {
    fn message(
        &self,
        inside: &Inside<'_>,
        mut at: usize,
        end: usize,
        depth: usize,
        group: Option<u32>,
        known: bool,
    ) -> Walked<usize> {
        if depth > MAX_DEPTH {
            return Err(fault(format!("messages inside of each other, more than {MAX_DEPTH} levels"), at));
        }
        let (message, part) = match inside {
            Inside::Nothing => (None, None),
            Inside::Message(message) => (Some(*message), None),
            Inside::Part(part) => (Some(Message::part(*part)), Some(*part)),
        };
        while at < end {
            let start = at;
            let tag;
            (tag, at) = self.varint(at, end, 5, u64::from(u32::MAX), "a field's tag")?;
            let (number, wire) = ((tag >> 3) as u32, tag & 7);
            if wire == 4 && group == Some(number) {
                return Ok(at);
            }
            if (number == 0 && known) || wire == 4 || wire > 5 {
                return Err(fault(format!("the tag {tag} (field {number}, wire type {wire})"), start));
            }
            let place = message.and_then(|message| message.find(number));
            at =
                self.field(message, part, place, number, wire, at, end, depth).map_err(|refusal| {
                    match (message, place) {
                        (Some(message), Some(place)) => {
                            Box::new(refusal.within(&format!(".{}", message.fields[place].name)))
                        }
                        _ => refusal,
                    }
                })?;
        }
        if group.is_some() { Err(fault("the bytes end inside of a group".into(), at)) } else { Ok(at) }
    }

    #[allow(clippy::too_many_arguments)]
    fn field(
        &self,
        message: Option<&Message>,
        part: Option<Part>,
        place: Option<usize>,
        number: u32,
        wire: u64,
        at: usize,
        end: usize,
        depth: usize,
    ) -> Walked<usize> {
        let field = message.zip(place).map(|(message, place)| &message.fields[place]);
        let inner = |wanted: Wire| match (message, place, field) {
            (Some(message), Some(place), Some(field)) if field.wire == wanted => inside(message, part, place),
            _ => Inside::Nothing,
        };
        match wire {
            0 => return self.varint(at, end, 10, u64::MAX, "a number").map(|(_, at)| at),
            1 => return self.take(at, end, 8),
            5 => return self.take(at, end, 4),
            3 => {
                let known = field.is_some_and(|field| field.wire == Wire::Group);
                return self.message(&inner(Wire::Group), at, end, depth + 1, Some(number), known);
            }
            _ => {}
        }
        let (length, at) = self.varint(at, end, 5, i32::MAX as u64, "a length")?;
        let stop = self.take(at, end, length as usize)?;
        match field {
            Some(field) if field.wire == Wire::Message => {
                self.message(&inner(Wire::Message), at, stop, depth + 1, None, true)?;
            }
            Some(field) if field.repeated && field.wire.packable() => {
                let mut at = at;
                while at < stop {
                    at = match field.wire.tag() {
                        0 => self.varint(at, stop, 10, u64::MAX, "a number")?.1,
                        1 => self.take(at, stop, 8)?,
                        _ => self.take(at, stop, 4)?,
                    };
                }
            }
            _ => {}
        }
        Ok(stop)
    }

    fn varint(&self, at: usize, end: usize, longest: usize, most: u64, what: &str) -> Walked<(u64, usize)> {
        let mut value = 0u64;
        for place in 0..longest {
            if at + place >= end {
                return Err(fault(format!("the bytes end inside of {what}"), at + place));
            }
            let byte = self.bytes[at + place];
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                if value > most {
                    return Err(fault(format!("{what} of {value}"), at));
                }
                return Ok((value, at + place + 1));
            }
        }
        Err(fault(format!("{what} of more than {longest} bytes"), at))
    }

    fn take(&self, at: usize, end: usize, length: usize) -> Walked<usize> {
        if length > end - at {
            return Err(fault(format!("{length} bytes are announced, and {} are left", end - at), at));
        }
        Ok(at + length)
    }
}

fn fault(reason: String, at: usize) -> Box<Refusal> {
    Box::new(Refusal::malformed(format!("not a Protobuf message: {reason}, at byte {at}")))
}
