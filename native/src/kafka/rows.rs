//! From messages to rows: the value's columns, the key, the metadata columns, in the source's order.

use crate::columns::{Column, Data};
use crate::decoder::{self, Decoder};
use crate::kafka::library::{Handle, Message, Rdkafka};
use crate::refusal::Refusal;
use arrow_data::ArrayData;
use arrow_schema::{Fields, Schema};
use std::ffi::{CStr, c_int};

/// Where a column of the batch comes from.
#[derive(Clone, Copy)]
pub enum Origin {
    Value(usize),
    Key,
    Partition,
    Offset,
    Timestamp,
    Headers,
}

pub struct Rows {
    values: Option<Decoder>,
    /// All but the value's columns, each with its origin and its place in the batch.
    others: Vec<(Origin, usize, Column)>,
    origins: Vec<Origin>,
    pub fields: Fields,
    count: usize,
    pub bytes: usize,
    pub rejected: Vec<Rejected>,
}

pub struct Rejected {
    pub range: usize,
    pub offset: i64,
    pub refusal: Refusal,
    pub value: Option<Vec<u8>>,
}

impl Rows {
    pub fn new(values: Option<Decoder>, schema: &Schema, origins: Vec<Origin>) -> Result<Self, String> {
        if schema.fields().len() != origins.len() {
            return Err("a column without an origin".into());
        }
        let mut others = Vec::new();
        for (place, (origin, field)) in origins.iter().zip(schema.fields()).enumerate() {
            if !matches!(origin, Origin::Value(_)) {
                others.push((*origin, place, Column::new(field)?));
            }
        }
        let fields = schema.fields().clone();
        Ok(Rows { values, others, origins, fields, count: 0, bytes: 0, rejected: Vec::new() })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.rejected.is_empty()
    }

    /// Append one message, or put it among the rejected.
    #[inline]
    pub fn push(&mut self, library: &Rdkafka, range: usize, message: &Message) {
        let value = slice(message.payload, message.len);
        self.bytes += value.map_or(0, <[u8]>::len);
        match self.take(library, message, value) {
            Ok(()) => self.count += 1,
            Err(refusal) => self.rejected.push(Rejected {
                range,
                offset: message.offset,
                refusal,
                value: value.map(<[u8]>::to_vec),
            }),
        }
    }

    #[inline]
    fn take(&mut self, library: &Rdkafka, message: &Message, value: Option<&[u8]>) -> Result<(), Refusal> {
        if let Some(decoder) = &mut self.values {
            decoder.decode(value)?;
        }
        for (origin, _, column) in &mut self.others {
            match (origin, &mut column.data) {
                (Origin::Key, _) => {
                    if let Err(refusal) = decoder::raw(column, slice(message.key, message.key_len)) {
                        self.values.iter_mut().for_each(Decoder::undo);
                        let count = self.count;
                        self.others.iter_mut().for_each(|(_, _, column)| column.truncate(count));
                        return Err(refusal);
                    }
                }
                (Origin::Partition, Data::I32(values)) => values.push(message.partition),
                (Origin::Offset, Data::I64(values)) => values.push(message.offset),
                (Origin::Timestamp, Data::I64(values)) => match timestamp(library, message) {
                    Some(micros) => values.push(micros),
                    None => column.push_null(),
                },
                (Origin::Headers, _) => headers(library, message, column),
                _ => {}
            }
        }
        Ok(())
    }

    /// The rows so far, as the columns of a batch, and how many; empty afterwards.
    pub fn finish(&mut self) -> (Vec<ArrayData>, usize) {
        let mut columns = Vec::with_capacity(self.origins.len());
        for (place, origin) in self.origins.iter().enumerate() {
            let column = match (origin, &mut self.values) {
                (Origin::Value(index), Some(decoder)) => decoder.columns.get_mut(*index),
                _ => self.others.iter_mut().find(|(_, at, _)| *at == place).map(|(_, _, column)| column),
            };
            columns.extend(column.map(Column::finish));
        }
        if let Some(decoder) = &mut self.values {
            decoder.columns.iter_mut().for_each(|column| column.truncate(0)); // those that nobody asked for
            decoder.clear();
        }
        let count = std::mem::take(&mut self.count);
        self.bytes = 0;
        (columns, count)
    }
}

fn slice<'a>(start: *const u8, length: usize) -> Option<&'a [u8]> {
    // SAFETY: a message's payload and key are null, or as long as it says, for as long as the message.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, length) })
}

/// Microseconds; None where the broker has no timestamp.
fn timestamp(library: &Rdkafka, message: &Message) -> Option<i64> {
    let mut kind: c_int = 0;
    // SAFETY: a message as it was handed to us, and a number to write to.
    let millis = unsafe { (library.message_timestamp)(message, &mut kind) };
    if kind == 0 { None } else { millis.checked_mul(1000) }
}

/// A map has one value a key: the last, as Kafka's own `lastHeader` has it.
fn headers(library: &Rdkafka, message: &Message, column: &mut Column) {
    let mut pairs: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
    let mut all: Handle = std::ptr::null_mut();
    // SAFETY: headers belong to the message and live as long; names end in NUL.
    unsafe {
        if (library.message_headers)(message, &mut all) == 0 {
            let (mut name, mut value, mut length) = (std::ptr::null(), std::ptr::null(), 0);
            let mut index = 0;
            while (library.header_get_all)(all, index, &mut name, &mut value, &mut length) == 0 {
                let name = CStr::from_ptr(name).to_bytes();
                let value = slice(value, length);
                match pairs.iter_mut().find(|(known, _)| *known == name) {
                    Some(pair) => pair.1 = value,
                    None => pairs.push((name, value)),
                }
                index += 1;
            }
        }
    }
    column.push_map(&pairs);
}
