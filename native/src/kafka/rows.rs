//! From messages to rows: the value's columns, the key, the metadata columns, in the source's order.

use crate::columns::{Column, Data};
use crate::decoder::{self, Decoder};
use crate::kafka::batches::{Header, Record};
use crate::refusal::{Kind, Refusal};
use arrow_data::ArrayData;
use arrow_schema::{Fields, Schema};

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

    /// Append one record, or put it among the rejected; do neither and give the id of a schema where that
    /// must be learned first.
    #[inline]
    pub fn push(&mut self, range: usize, partition: i32, record: &Record<'_>) -> Option<u32> {
        match self.take(partition, record) {
            Ok(()) => self.count += 1,
            Err(Refusal { wants: Some(id), .. }) => return Some(id),
            Err(refusal) => {
                let value = record.value.map(<[u8]>::to_vec);
                self.rejected.push(Rejected { range, offset: record.offset, refusal, value });
            }
        }
        self.bytes += record.value.map_or(0, <[u8]>::len);
        None
    }

    /// What a schema id means: see `Decoder::learn`.
    pub fn learn(&mut self, id: u32, plan: Option<&str>, kind: &str, message: &str) -> Result<(), String> {
        self.values.as_mut().ok_or("no value is decoded")?.learn(id, plan, kind, message)
    }

    /// A record that is longer than a task may hold.
    pub fn too_long(&mut self, range: usize, offset: i64, length: usize, longest: usize) {
        let refusal = Refusal::new(
            Kind::PayloadTooLarge,
            format!("a record of {length} bytes, and fetch.budget.bytes is {longest}"),
        );
        self.rejected.push(Rejected { range, offset, refusal, value: None });
    }

    #[inline]
    fn take(&mut self, partition: i32, record: &Record<'_>) -> Result<(), Refusal> {
        if let Some(decoder) = &mut self.values {
            decoder.decode(record.value)?;
        }
        self.take_others(partition, record).inspect_err(|_| {
            self.values.iter_mut().for_each(Decoder::undo);
            let count = self.count;
            self.others.iter_mut().for_each(|(_, _, column)| column.truncate(count));
        })
    }

    #[inline]
    fn take_others(&mut self, partition: i32, record: &Record<'_>) -> Result<(), Refusal> {
        for (origin, _, column) in &mut self.others {
            match (origin, &mut column.data) {
                (Origin::Key, _) => decoder::raw(column, record.key)?,
                (Origin::Partition, Data::I32(values)) => values.push(partition),
                (Origin::Offset, Data::I64(values)) => values.push(record.offset),
                (Origin::Timestamp, Data::I64(values)) => {
                    match record.timestamp.and_then(|millis| millis.checked_mul(1000)) {
                        Some(micros) => values.push(micros),
                        None => column.push_null(),
                    }
                }
                (Origin::Headers, _) => column.push_map(&headers(record)?),
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

/// A map has one value a key: the last, as Kafka's own `lastHeader` has it.
fn headers<'a>(record: &Record<'a>) -> Result<Vec<Header<'a>>, Refusal> {
    let all = record.headers().map_err(|_| Refusal::malformed("damaged headers"))?;
    let mut pairs: Vec<Header<'a>> = Vec::new();
    for (name, value) in all {
        match pairs.iter_mut().find(|(known, _)| *known == name) {
            Some(pair) => pair.1 = value,
            None => pairs.push((name, value)),
        }
    }
    Ok(pairs)
}
