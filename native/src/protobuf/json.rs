//! google.protobuf.Struct, Value and ListValue as JSON text: the twin of `formats/protobuf_json.py`.

use crate::protobuf::plan::{Field, Message, Part};
use crate::protobuf::wire::{Found, Frame, Inside, Scratch};
use crate::protobuf::{Fault, Res, as_text, merged, refused};
use crate::refusal::Refusal;
use std::collections::HashMap;

/// Append the text of a well-known type to a column's bytes.
pub fn append_json(
    scratch: &mut Scratch,
    part: Part,
    field: &Field,
    bytes: &[u8],
    depth: usize,
    out: &mut Vec<u8>,
) -> Res<()> {
    let (frame, mismatch) = scratch.scan(Message::part(part), Some(part), bytes, depth)?;
    if let Some(refusal) = mismatch {
        return Err(Fault::Refused(refusal));
    }
    match part {
        Part::Struct => object(scratch, field, frame, bytes, depth, out)?,
        Part::List => array(scratch, field, frame, bytes, depth, out)?,
        _ => value(scratch, field, frame, bytes, depth, out)?,
    }
    scratch.leave(frame);
    Ok(())
}

/// The last value of each key, at its last place.
fn object(
    scratch: &mut Scratch,
    field: &Field,
    frame: Frame,
    bytes: &[u8],
    depth: usize,
    out: &mut Vec<u8>,
) -> Res<()> {
    let mut entries: Vec<(String, Vec<u8>)> = Vec::new();
    let mut next = scratch.first(frame, 0);
    while let Some(found) = next {
        entries.push(entry(scratch, field, found.slice(bytes), depth + 1)?);
        next = scratch.next(&found);
    }
    let latest: HashMap<&str, usize> =
        entries.iter().enumerate().map(|(at, (key, _))| (key.as_str(), at)).collect();
    out.push(b'{');
    let mut comma = false;
    for (at, (key, value)) in entries.iter().enumerate() {
        if latest[key.as_str()] == at {
            if comma {
                out.push(b',');
            }
            comma = true;
            quoted(key, out);
            out.push(b':');
            out.extend_from_slice(value);
        }
    }
    out.push(b'}');
    Ok(())
}

fn entry(scratch: &mut Scratch, field: &Field, bytes: &[u8], depth: usize) -> Res<(String, Vec<u8>)> {
    let (frame, mismatch) = scratch.scan(Message::part(Part::Entry), Some(Part::Entry), bytes, depth)?;
    if let Some(refusal) = mismatch {
        return Err(Fault::Refused(refusal));
    }
    let key = scratch.last(frame, 0).map_or(Ok(""), |found| as_text(found.slice(bytes)))?.to_owned();
    let mut value = Vec::new();
    inner(scratch, field, frame, 1, bytes, depth, Part::Value, &mut value)?;
    scratch.leave(frame);
    Ok((key, value))
}

fn array(
    scratch: &mut Scratch,
    field: &Field,
    frame: Frame,
    bytes: &[u8],
    depth: usize,
    out: &mut Vec<u8>,
) -> Res<()> {
    out.push(b'[');
    let mut next = scratch.first(frame, 0);
    let mut comma = false;
    while let Some(found) = next {
        if comma {
            out.push(b',');
        }
        comma = true;
        append_json(scratch, Part::Value, field, found.slice(bytes), depth + 1, out)?;
        next = scratch.next(&found);
    }
    out.push(b']');
    Ok(())
}

fn value(
    scratch: &mut Scratch,
    field: &Field,
    frame: Frame,
    bytes: &[u8],
    depth: usize,
    out: &mut Vec<u8>,
) -> Res<()> {
    let Some(place) = (0..6).find(|place| scratch.last(frame, *place).is_some()) else {
        return Err(no(field, "a Value that is nothing, not even null".into()));
    };
    let found: Option<Found> = scratch.last(frame, place);
    let Some(found) = found else { return Ok(()) };
    match place {
        0 => out.extend_from_slice(b"null"),
        1 => {
            let number = f64::from_bits(found.value);
            if !number.is_finite() {
                let name = if number.is_nan() {
                    "nan"
                } else if number > 0.0 {
                    "inf"
                } else {
                    "-inf"
                };
                return Err(no(field, format!("the number {name}, which JSON has not")));
            }
            let _ = serde_json::to_writer(&mut *out, &number); // into memory: never fails
        }
        2 => quoted(as_text(found.slice(bytes))?, out),
        3 => out.extend_from_slice(if found.value == 0 { b"false" } else { b"true" }),
        4 => inner(scratch, field, frame, 4, bytes, depth, Part::Struct, out)?,
        _ => inner(scratch, field, frame, 5, bytes, depth, Part::List, out)?,
    }
    Ok(())
}

/// A message inside of one of these, which may come in parts or not at all.
#[allow(clippy::too_many_arguments)]
fn inner(
    scratch: &mut Scratch,
    field: &Field,
    frame: Frame,
    place: usize,
    bytes: &[u8],
    depth: usize,
    part: Part,
    out: &mut Vec<u8>,
) -> Res<()> {
    match scratch.first(frame, place) {
        None => append_json(scratch, part, field, &[], depth + 1, out),
        Some(first) if scratch.next(&first).is_none() => {
            append_json(scratch, part, field, first.slice(bytes), depth + 1, out)
        }
        Some(first) => {
            let whole = merged(scratch, &Inside::Part(part), first, bytes, depth)?;
            append_json(scratch, part, field, &whole, depth + 1, out)
        }
    }
}

fn quoted(text: &str, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, text); // into memory: never fails
}

#[cold]
fn no(field: &Field, found: String) -> Fault {
    refused(Refusal::unfit(&field.expected, found))
}
