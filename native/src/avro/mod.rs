//! FORMAT avro: one datum a message, by a plan that was compiled from the writer's schema and the columns
//! (and the reader's schema, where there is one).
//!
//! As in `json`, the fast path only answers whether a record is good; `explain` looks again at the
//! bad ones. The rules are those of `formats/avro_datum.py` and `formats/avro_values.py`.

pub mod datum;
pub mod explain;
pub mod plan;

use crate::avro::datum::{Blocks, Datum, Fault, Res};
use crate::avro::explain::explain;
pub use crate::avro::plan::Plan;
use crate::avro::plan::{Constant, Node, To, Wire};
use crate::columns::{Column, Data};
use crate::refusal::Refusal;
use crate::scalars;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Bytes in a column of what takes fewer or none in the payload: symbols, defaults, UUIDs. As many again
/// may come from payloads.
const MOST_GIVEN: usize = 1 << 30;

/// Append one record, which begins at `at`, to the columns, or leave them as they were. A refusal need have
/// no words if it is to be `brief`.
#[inline]
pub fn decode(
    plan: &Plan,
    columns: &mut [Column],
    row: usize,
    payload: &[u8],
    at: usize,
    brief: bool,
) -> Result<(), Refusal> {
    let mut datum = Datum::new(payload, at);
    let read = datum.record(plan, columns);
    // An empty payload may be a datum (a record of nulls), but no format takes one.
    if read.is_ok() && datum.is_over() && !payload.is_empty() {
        return Ok(());
    }
    columns.iter_mut().for_each(|column| column.truncate(row));
    // What is wrong with the bytes themselves goes before whatever else is wrong.
    if brief && read.as_ref().err().is_none_or(Fault::is_of_bytes) {
        return Err(Refusal::malformed(""));
    }
    Err(explain(plan, payload, at))
}

impl Datum<'_> {
    /// One row of the columns.
    #[inline(always)]
    fn record(&mut self, plan: &Plan, columns: &mut [Column]) -> Res<()> {
        for field in &plan.fields {
            match field.column {
                Some(index) => self.value(&field.node, &mut columns[index])?,
                None => self.skip(&field.node)?,
            }
        }
        for constant in &plan.defaults {
            constant.append(&mut columns[constant.column])?;
        }
        for index in &plan.absent {
            columns[*index].push_null();
        }
        Ok(())
    }

    /// One value into one column, which grows by one.
    fn value(&mut self, node: &Node, column: &mut Column) -> Res<()> {
        match (&node.wire, &mut column.data) {
            (Wire::Union(branches), _) => {
                let branch = branches.get(self.index()?).ok_or(Fault::Index)?;
                return self.value(branch, column);
            }
            (Wire::Null(refused), _) if !refused => column.push_null(),
            (Wire::Null(_), _) => return Err(Fault::Null),
            (Wire::Boolean, Data::Bool(values)) => values.push(self.boolean()?),
            (Wire::Int(to), data) => number(i64::from(self.int()?), to, data)?,
            (Wire::Long(to), data) => number(self.long()?, to, data)?,
            (Wire::Float, Data::F32(values)) => values.push(f32::from_le_bytes(self.array()?)),
            (Wire::Float, Data::F64(values)) => values.push(f32::from_le_bytes(self.array()?).into()),
            (Wire::Double, Data::F64(values)) => values.push(f64::from_le_bytes(self.array()?)),
            (Wire::String, Data::Bytes(values)) => values.push(self.text()?.as_bytes()),
            (Wire::Bytes(to), data) => {
                let bytes = self.bytes()?;
                binary(bytes, to, data)?;
            }
            (Wire::Fixed(size, to), data) => {
                let bytes = self.take(*size)?;
                binary(bytes, to, data)?;
            }
            (Wire::Enum(symbols), Data::Bytes(values)) => {
                let (_, symbol) = symbols.get(self.index()?).ok_or(Fault::Index)?;
                let symbol = symbol.as_ref().ok_or(Fault::Reader)?;
                // One byte of payload may be a long symbol, so the payloads' size does not bound this.
                if values.data.len() + symbol.len() > MOST_GIVEN {
                    return Err(Fault::Full);
                }
                values.push(symbol.as_bytes());
            }
            (Wire::Refused(_), _) => return Err(Fault::Reader),
            (Wire::Record(plan), Data::Struct(children, rows)) => {
                self.record(plan, children)?;
                *rows += 1;
            }
            (Wire::Array(items, empty), Data::List(ends, child)) => {
                let mut blocks = Blocks::new(*empty);
                while blocks.next(self)? {
                    self.value(items, child)?;
                }
                ends.push(child.len().try_into().map_err(|_| Fault::Full)?);
            }
            (Wire::Map(items), Data::Map(ends, keys, values)) => {
                let first = keys.len();
                let mut blocks = Blocks::new(false);
                while blocks.next(self)? {
                    let Data::Bytes(keys) = &mut keys.data else { return Err(Fault::Unfit) };
                    keys.push(self.text()?.as_bytes());
                    self.value(items, values)?;
                }
                if keys.len() > first + 1 && keys.repeats_from(first) {
                    return Err(Fault::Key);
                }
                ends.push(keys.len().try_into().map_err(|_| Fault::Full)?);
            }
            _ => return Err(Fault::Unfit), // the plan was checked against the columns: not reached
        }
        Ok(())
    }
}

impl Constant {
    fn append(&self, column: &mut Column) -> Res<()> {
        if !has_room(column, self.datum.len()) {
            return Err(Fault::Full);
        }
        Datum::new(&self.datum, 0).value(&self.node, column)
    }
}

/// Whether no column of text or bytes gets too full by so many bytes.
fn has_room(column: &Column, more: usize) -> bool {
    match &column.data {
        Data::Bytes(values) => values.data.len() + more <= MOST_GIVEN,
        Data::Struct(children, _) => children.iter().all(|child| has_room(child, more)),
        Data::List(_, child) => has_room(child, more),
        Data::Map(_, keys, values) => has_room(keys, more) && has_room(values, more),
        _ => true,
    }
}

/// An integer into a column, if its type holds it.
#[inline(always)]
fn number(value: i64, to: &To, data: &mut Data) -> Res<()> {
    match (to, data) {
        (To::Integer(_), Data::I64(values)) => values.push(value),
        (To::Integer(_), Data::I32(values)) => values.push(value.try_into().map_err(|_| Fault::Unfit)?),
        (To::Millis, Data::I64(values)) => values.push(scalars::millis(value).ok_or(Fault::Unfit)?),
        (To::Micros, Data::I64(values)) => values.push(scalars::micros(value).ok_or(Fault::Unfit)?),
        (To::Date, Data::I32(values)) => values.push(scalars::days(value).ok_or(Fault::Unfit)?),
        (To::Real, Data::F64(values)) => values.push(value as f64),
        (To::Rounded, Data::F64(values)) => values.push((value as f32).into()),
        (To::Real, Data::F32(values)) => values.push(value as f32),
        (To::Integer(_), Data::I16(values)) => values.push(value.try_into().map_err(|_| Fault::Unfit)?),
        (To::Integer(_), Data::I8(values)) => values.push(value.try_into().map_err(|_| Fault::Unfit)?),
        _ => return Err(Fault::Unfit),
    }
    Ok(())
}

#[inline(always)]
fn binary(bytes: &[u8], to: &To, data: &mut Data) -> Res<()> {
    match (to, data) {
        (To::Binary, Data::Bytes(values)) => values.push(bytes),
        (To::Text, Data::Bytes(values)) => {
            values.push(std::str::from_utf8(bytes).map_err(|_| Fault::Unfit)?.as_bytes());
        }
        (To::Uuid, Data::Bytes(values)) => {
            if values.data.len() + 36 > MOST_GIVEN {
                return Err(Fault::Full);
            }
            for (index, byte) in bytes.iter().enumerate() {
                if matches!(index, 4 | 6 | 8 | 10) {
                    values.data.push(b'-');
                }
                values.data.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            values.close();
        }
        (To::Duration, Data::Struct(children, rows)) => {
            for (child, number) in children.iter_mut().zip(bytes.chunks_exact(4)) {
                let (Data::I64(values), Ok(number)) = (&mut child.data, number.try_into()) else {
                    return Err(Fault::Unfit);
                };
                values.push(u32::from_le_bytes(number).into());
            }
            *rows += 1;
        }
        (To::Decimal(scale), Data::Decimal(values)) => {
            let rescaled = scalars::unscaled(bytes).and_then(|value| scale.rescale(value));
            values.push(rescaled.ok_or(Fault::Unfit)?);
        }
        _ => return Err(Fault::Unfit),
    }
    Ok(())
}
