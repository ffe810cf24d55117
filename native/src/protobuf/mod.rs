//! FORMAT protobuf: one message a record, by a plan that was compiled from the schema and the columns.
//!
//! A message's fields may come in any order, more than once and in parts. So each message is first scanned
//! (`wire`), and then its columns are filled in their order: that is also the order in which the
//! reference decoder meets what is wrong with them. The rules are those of `formats/protobuf_values.py`.

pub mod json;
pub mod plan;
pub mod wire;

use crate::columns::{Column, Data};
use crate::error::NotNative;
use crate::protobuf::json::append_json;
use crate::protobuf::plan::{Default, Field, Message, Part, Read, Wire};
use crate::protobuf::wire::{Found, Frame, Inside, Packed, Scratch, Torn, inside, walk};
use crate::refusal::{Kind, Refusal, quote};
use crate::scalars;
use std::collections::HashMap;

/// The longest Duration, in seconds, by its definition.
const LONGEST: i64 = 315_576_000_000;
const BILLION: i64 = 1_000_000_000;

pub struct Protobuf {
    plan: Message,
    scratch: Scratch,
}

/// Why a record is not taken; bytes that are no message are looked at again.
pub enum Fault {
    Torn,
    Refused(Box<Refusal>),
}

pub type Res<T> = Result<T, Fault>;

impl From<Torn> for Fault {
    fn from(_: Torn) -> Self {
        Fault::Torn
    }
}

impl Fault {
    #[cold]
    fn within(self, step: &str) -> Self {
        match self {
            Fault::Torn => Fault::Torn,
            Fault::Refused(refusal) => Fault::Refused(Box::new(refusal.within(step))),
        }
    }
}

#[cold]
pub fn refused(refusal: Refusal) -> Fault {
    Fault::Refused(Box::new(refusal))
}

#[cold]
fn unfit(field: &Field, found: impl AsRef<str>) -> Fault {
    refused(Refusal::unfit(&field.expected, found))
}

#[cold]
fn full() -> Fault {
    refused(Refusal::new(Kind::Other, "more than Arrow's columns hold"))
}

impl Protobuf {
    pub fn new(plan: &str, columns: &[Column]) -> Result<Self, NotNative> {
        Ok(Protobuf { plan: Message::new(plan, columns)?, scratch: Scratch::default() })
    }

    /// Append one record to the columns, or leave them as they were.
    #[inline]
    pub fn decode(&mut self, columns: &mut [Column], row: usize, payload: &[u8]) -> Result<(), Refusal> {
        self.scratch.clear();
        let Err(fault) = message(&mut self.scratch, &self.plan, payload, columns, 0) else { return Ok(()) };
        columns.iter_mut().for_each(|column| column.truncate(row));
        // Bytes that are no message are malformed, whatever else was met before that showed.
        if let Err(refusal) = walk(&Inside::Message(&self.plan), payload, 0) {
            return Err(*refusal);
        }
        Err(match fault {
            Fault::Refused(refusal) => *refusal,
            Fault::Torn => Refusal::malformed("not a Protobuf message"),
        })
    }
}

/// One row of the columns.
fn message(
    scratch: &mut Scratch,
    plan: &Message,
    bytes: &[u8],
    columns: &mut [Column],
    depth: usize,
) -> Res<()> {
    let (frame, mismatch) = scratch.scan(plan, None, bytes, depth)?;
    if let Some(refusal) = mismatch {
        return Err(Fault::Refused(refusal));
    }
    for place in &plan.order {
        let field = &plan.fields[*place];
        fill(scratch, plan, frame, *place, bytes, &mut columns[field.column], depth)
            .map_err(|fault| fault.within(&format!(".{}", field.name)))?;
    }
    for column in &plan.absent {
        columns[*column].push_null();
    }
    scratch.leave(frame);
    Ok(())
}

/// One field into its column.
#[inline(always)]
fn fill(
    scratch: &mut Scratch,
    plan: &Message,
    frame: Frame,
    place: usize,
    bytes: &[u8],
    column: &mut Column,
    depth: usize,
) -> Res<()> {
    let field = &plan.fields[place];
    if field.repeated {
        return match &field.read {
            Read::Map(entry) => map(scratch, entry, frame, place, bytes, column, depth),
            _ => list(scratch, field, frame, place, bytes, column, depth),
        };
    }
    match scratch.last(frame, place) {
        Some(found) if matches!(field.wire, Wire::Message | Wire::Group) => {
            let first = scratch.first(frame, place).unwrap_or(found);
            match scratch.next(&first) {
                None => part(scratch, field, found.slice(bytes), column, depth + 1),
                Some(_) => {
                    let whole = merged(scratch, &inside(plan, None, place), first, bytes, depth)?;
                    part(scratch, field, &whole, column, depth + 1)
                }
            }
        }
        Some(found) => scalar(field, &found, bytes, column),
        None => absent(scratch, field, column, depth),
    }
}

/// A message that comes in parts: one behind the other they are their merge. Each is sound by itself.
pub fn merged(
    scratch: &Scratch,
    inside: &Inside<'_>,
    first: Found,
    bytes: &[u8],
    depth: usize,
) -> Res<Vec<u8>> {
    let (mut whole, mut next) = (Vec::new(), Some(first));
    while let Some(found) = next {
        walk(inside, found.slice(bytes), depth + 1).map_err(|_| Fault::Torn)?;
        whole.extend_from_slice(found.slice(bytes));
        next = scratch.next(&found);
    }
    Ok(whole)
}

fn absent(scratch: &mut Scratch, field: &Field, column: &mut Column, depth: usize) -> Res<()> {
    match (&field.default, &field.missing) {
        (Some(Default::Number(value)), _) => number(field, *value, column),
        (Some(Default::Real(value)), _) => real(*value, column),
        (Some(Default::Bytes(bytes)), _) => text(field, bytes, column),
        (Some(Default::Empty), _) => part(scratch, field, &[], column, depth + 1),
        (None, Some(missing)) => Err(refused(Refusal::mismatch(missing.as_str()))),
        (None, None) => {
            column.push_null();
            Ok(())
        }
    }
}

fn list(
    scratch: &mut Scratch,
    field: &Field,
    frame: Frame,
    place: usize,
    bytes: &[u8],
    column: &mut Column,
    depth: usize,
) -> Res<()> {
    let Data::List(ends, child) = &mut column.data else { return Err(full()) };
    let start = ends.last().map_or(0, |end| *end as usize);
    let mut next = scratch.first(frame, place);
    while let Some(found) = next {
        let taken = match field.wire {
            Wire::Message | Wire::Group => part(scratch, field, found.slice(bytes), child, depth + 1),
            wire if found.sized && wire.packable() => packed(field, found.slice(bytes), child),
            _ => scalar(field, &found, bytes, child),
        };
        // The item that failed may have been begun; the ones before it are whole.
        taken.map_err(|fault| fault.within(&format!("[{}]", child.len() - start)))?;
        next = scratch.next(&found);
    }
    ends.push(child.len().try_into().map_err(|_| full())?);
    Ok(())
}

fn packed(field: &Field, bytes: &[u8], column: &mut Column) -> Res<()> {
    let mut numbers = Packed::new(bytes, field.wire);
    while let Some(raw) = numbers.take()? {
        raw_number(field, raw, column)?;
    }
    Ok(())
}

/// The last value of each key, at its last place.
fn map(
    scratch: &mut Scratch,
    entry: &Message,
    frame: Frame,
    place: usize,
    bytes: &[u8],
    column: &mut Column,
    depth: usize,
) -> Res<()> {
    let Data::Map(ends, keys, values) = &mut column.data else { return Err(full()) };
    let start = ends.last().map_or(0, |end| *end as usize);
    let mut next = scratch.first(frame, place);
    while let Some(found) = next {
        pair(scratch, entry, found.slice(bytes), keys, values, depth + 1)?;
        next = scratch.next(&found);
    }
    if keys.len() > start + 1 && is_repeated(keys, start) {
        let mut latest = HashMap::new();
        for at in start..keys.len() {
            latest.insert(key_text(keys, at), at - start);
        }
        let kept: Vec<bool> =
            (start..keys.len()).map(|at| latest[&key_text(keys, at)] == at - start).collect();
        keys.truncate(start);
        values.truncate(start);
        let (mut next, mut at) = (scratch.first(frame, place), 0);
        while let Some(found) = next {
            if kept[at] {
                pair(scratch, entry, found.slice(bytes), keys, values, depth + 1)?;
            }
            at += 1;
            next = scratch.next(&found);
        }
    }
    ends.push(keys.len().try_into().map_err(|_| full())?);
    Ok(())
}

fn pair(
    scratch: &mut Scratch,
    entry: &Message,
    bytes: &[u8],
    keys: &mut Column,
    values: &mut Column,
    depth: usize,
) -> Res<()> {
    let (frame, mismatch) = scratch.scan(entry, None, bytes, depth)?;
    if let Some(refusal) = mismatch {
        return Err(Fault::Refused(refusal));
    }
    fill(scratch, entry, frame, 0, bytes, keys, depth)?;
    fill(scratch, entry, frame, 1, bytes, values, depth)
        .map_err(|fault| fault.within(&format!("[{}]", quote(&key_text(keys, keys.len() - 1)))))?;
    scratch.leave(frame);
    Ok(())
}

fn is_repeated(keys: &Column, start: usize) -> bool {
    match &keys.data {
        Data::Bool(values) => values.len() > start + 2 || values[start] == values[start + 1],
        _ => keys.repeats_from(start),
    }
}

fn key_text(keys: &Column, at: usize) -> String {
    match &keys.data {
        Data::Bytes(values) => String::from_utf8_lossy(values.get(at)).into_owned(),
        Data::Bool(values) => if values[at] { "True" } else { "False" }.into(),
        Data::I8(values) => values[at].to_string(),
        Data::I16(values) => values[at].to_string(),
        Data::I32(values) => values[at].to_string(),
        Data::I64(values) => values[at].to_string(),
        _ => String::new(),
    }
}

/// One value of a field that is a message.
fn part(scratch: &mut Scratch, field: &Field, bytes: &[u8], column: &mut Column, depth: usize) -> Res<()> {
    match (&field.read, &mut column.data) {
        (Read::Struct(inner), Data::Struct(children, rows)) => {
            message(scratch, inner, bytes, children, depth)?;
            *rows += 1;
        }
        (Read::Only(inner), _) => message(scratch, inner, bytes, std::slice::from_mut(column), depth)?,
        (Read::Timestamp, Data::I64(values)) => values.push(moment(scratch, field, bytes, depth, timestamp)?),
        (Read::Duration, Data::I64(values)) => values.push(moment(scratch, field, bytes, depth, duration)?),
        (Read::Json(part), Data::Bytes(values)) => {
            append_json(scratch, *part, field, bytes, depth, &mut values.data)?;
            if values.data.len() > i32::MAX as usize {
                return Err(full());
            }
            values.close();
        }
        _ => return Err(full()), // the plan was checked against the columns: not reached
    }
    Ok(())
}

fn moment(
    scratch: &mut Scratch,
    field: &Field,
    bytes: &[u8],
    depth: usize,
    make: fn(i64, i64) -> Option<i64>,
) -> Res<i64> {
    let (frame, mismatch) = scratch.scan(Message::part(Part::Moment), Some(Part::Moment), bytes, depth)?;
    if let Some(refusal) = mismatch {
        return Err(Fault::Refused(refusal));
    }
    let [seconds, nanos] =
        [0, 1].map(|place| scratch.last(frame, place).map_or(0, |found| found.value as i64));
    scratch.leave(frame);
    make(seconds, nanos).ok_or_else(|| unfit(field, format!("{seconds} seconds and {nanos} nanoseconds")))
}

fn timestamp(seconds: i64, nanos: i64) -> Option<i64> {
    let micros = seconds.checked_mul(1_000_000)?;
    if (0..BILLION).contains(&nanos) { scalars::micros(micros.checked_add(nanos / 1000)?) } else { None }
}

fn duration(seconds: i64, nanos: i64) -> Option<i64> {
    let fits = seconds.unsigned_abs() <= LONGEST as u64 && nanos.unsigned_abs() < BILLION as u64;
    (fits && seconds.signum() * nanos.signum() >= 0).then(|| seconds * 1_000_000 + nanos / 1000)
}

/// One value of a field that is no message.
#[inline(always)]
fn scalar(field: &Field, found: &Found, bytes: &[u8], column: &mut Column) -> Res<()> {
    match field.wire {
        Wire::Bytes => text(field, found.slice(bytes), column),
        _ => raw_number(field, found.value, column),
    }
}

#[inline(always)]
fn raw_number(field: &Field, raw: u64, column: &mut Column) -> Res<()> {
    let value = match field.wire {
        Wire::Int | Wire::Sfixed64 => i128::from(raw as i64),
        Wire::Uint | Wire::Fixed64 | Wire::Fixed32 => i128::from(raw),
        Wire::Sint => i128::from((raw >> 1) as i64 ^ -((raw & 1) as i64)),
        Wire::Sfixed32 => i128::from(raw as u32 as i32),
        Wire::Float => {
            let value = f32::from_bits(raw as u32);
            match &mut column.data {
                Data::F32(values) => values.push(value),
                Data::F64(values) => values.push(value.into()),
                _ => return Err(full()),
            }
            return Ok(());
        }
        Wire::Double => return real(f64::from_bits(raw), column),
        Wire::Bytes | Wire::Message | Wire::Group => return Err(full()),
    };
    number(field, value, column)
}

fn real(value: f64, column: &mut Column) -> Res<()> {
    match &mut column.data {
        Data::F32(values) => values.push(value as f32),
        Data::F64(values) => values.push(value),
        _ => return Err(full()),
    }
    Ok(())
}

#[inline(always)]
fn number(field: &Field, value: i128, column: &mut Column) -> Res<()> {
    if let Some((low, high)) = field.limits
        && !(low..=high).contains(&value)
    {
        return Err(unfit(field, format!("number {value}")));
    }
    let wide = || unfit(field, format!("number {value}"));
    match (&field.read, &mut column.data) {
        (Read::Integer, Data::I64(values)) => values.push(value.try_into().map_err(|_| wide())?),
        (Read::Integer, Data::I32(values)) => values.push(value.try_into().map_err(|_| wide())?),
        (Read::Integer, Data::I16(values)) => values.push(value.try_into().map_err(|_| wide())?),
        (Read::Integer, Data::I8(values)) => values.push(value.try_into().map_err(|_| wide())?),
        (Read::Boolean, Data::Bool(values)) => values.push(value != 0),
        (Read::Real, Data::F64(values)) => values.push(value as f64),
        (Read::Real, Data::F32(values)) => values.push(value as f32),
        (Read::Decimal(unit), Data::Decimal(values)) => {
            values.push(value.checked_mul(*unit).ok_or_else(wide)?);
        }
        (Read::Millis, Data::I64(values)) => {
            let millis = i64::try_from(value).ok().and_then(scalars::millis);
            values.push(millis.ok_or_else(wide)?);
        }
        (Read::Enum(names), Data::Bytes(values)) => {
            let place = names.binary_search_by_key(&value, |(number, _)| *number).map_err(|_| wide())?;
            // One byte of payload may be a long name, so the payloads' size does not bound this.
            if values.data.len() + names[place].1.len() > i32::MAX as usize {
                return Err(full());
            }
            values.push(names[place].1.as_bytes());
        }
        _ => return Err(full()),
    }
    Ok(())
}

#[inline(always)]
fn text(field: &Field, bytes: &[u8], column: &mut Column) -> Res<()> {
    let Data::Bytes(values) = &mut column.data else { return Err(full()) };
    if !matches!(field.read, Read::Binary { string: false })
        && let Err(fault) = as_text(bytes)
    {
        let unfit_only = matches!(field.read, Read::Text { string: false });
        return Err(if unfit_only { unfit(field, "bytes that are not UTF-8") } else { fault });
    }
    values.push(bytes);
    Ok(())
}

/// A string of the message.
#[inline(always)]
pub fn as_text(bytes: &[u8]) -> Res<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        refused(Refusal::malformed(format!("a string that is not UTF-8, at its byte {at}")))
    })
}
