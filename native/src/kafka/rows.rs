//! From messages to rows: the value's columns, the key, the metadata columns, in the source's order.

use crate::columns::{Column, Data};
use crate::decoder::{self, Decoder};
use crate::kafka::batches::{Header, Record};
use crate::refusal::{Kind, Refusal, Wanted};
use arrow_data::ArrayData;
use arrow_schema::{Fields, Schema};

/// Where a column of the batch comes from.
#[derive(Clone, Copy)]
pub enum Origin {
    Value(usize),
    /// A column of the key's decoder.
    KeyPart(usize),
    /// The key as it is.
    Key,
    Partition,
    Offset,
    Timestamp,
    Headers,
}

pub struct Rows {
    values: Option<Decoder>,
    keys: Option<Decoder>,
    /// The columns that no decoder fills, each with its origin and its place in the batch.
    others: Vec<(Origin, usize, Column)>,
    origins: Vec<Origin>,
    pub fields: Fields,
    count: usize,
    /// Records that are in the rows; a change log has some that are two rows.
    pub taken: usize,
    /// Records that hold no row and are not meant to.
    pub skipped: usize,
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
    pub fn new(
        values: Option<Decoder>,
        keys: Option<Decoder>,
        schema: &Schema,
        origins: Vec<Origin>,
    ) -> Result<Self, String> {
        if schema.fields().len() != origins.len() {
            return Err("a column without an origin".into());
        }
        let mut others = Vec::new();
        for (place, (origin, field)) in origins.iter().zip(schema.fields()).enumerate() {
            let known = |decoder: &Option<Decoder>, index: usize| {
                let found = decoder.as_ref().is_some_and(|decoder| index < decoder.columns.len());
                if found { Ok(()) } else { Err(format!("column {}: no such origin", field.name())) }
            };
            match origin {
                Origin::Value(index) => known(&values, *index)?,
                Origin::KeyPart(index) => known(&keys, *index)?,
                _ => others.push((*origin, place, Column::new(field)?)),
            }
        }
        for (_, _, column) in others.iter_mut().filter(|(origin, _, _)| matches!(origin, Origin::Key)) {
            column.name = "key".into(); // whatever it is called in the batch
        }
        let fields = schema.fields().clone();
        let (count, taken, skipped, bytes, rejected) = (0, 0, 0, 0, Vec::new());
        Ok(Rows { values, keys, others, origins, fields, count, taken, skipped, bytes, rejected })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Append one record, or put it among the rejected; do neither and say which schema must be learned first.
    #[inline]
    pub fn push(&mut self, range: usize, partition: i32, record: &Record<'_>) -> Option<Wanted> {
        match self.take(partition, record) {
            Ok(0) => self.skipped += 1,
            Ok(rows) => {
                self.count += rows;
                self.taken += 1;
            }
            Err(Refusal { wants: Some(wanted), .. }) => return Some(wanted),
            Err(refusal) => {
                let value = record.value.map(<[u8]>::to_vec);
                self.rejected.push(Rejected { range, offset: record.offset, refusal, value });
            }
        }
        self.bytes += record.value.map_or(0, <[u8]>::len);
        None
    }

    /// The decoder that a schema is wanted for.
    pub fn pupil(&mut self, of_key: bool) -> Option<&mut Decoder> {
        if of_key { self.keys.as_mut() } else { self.values.as_mut() }
    }

    /// A record that is longer than a task may hold.
    pub fn too_long(&mut self, range: usize, offset: i64, length: usize, longest: usize) {
        let refusal = Refusal::new(
            Kind::PayloadTooLarge,
            format!("a record of {length} bytes, and fetch.budget.bytes is {longest}"),
        );
        self.rejected.push(Rejected { range, offset, refusal, value: None });
    }

    /// How many rows the record is.
    #[inline]
    fn take(&mut self, partition: i32, record: &Record<'_>) -> Result<usize, Refusal> {
        let rows = match &mut self.values {
            Some(decoder) => decoder.decode(record.value)?,
            None => 1,
        };
        for _ in 0..rows {
            if let Err(refusal) = self.take_key(record).and_then(|()| self.take_others(partition, record)) {
                let count = self.count;
                [&mut self.values, &mut self.keys].into_iter().flatten().for_each(|d| d.truncate(count));
                self.others.iter_mut().for_each(|(_, _, column)| column.truncate(count));
                return Err(refusal);
            }
        }
        Ok(rows)
    }

    #[inline]
    fn take_key(&mut self, record: &Record<'_>) -> Result<(), Refusal> {
        let Some(keys) = &mut self.keys else { return Ok(()) };
        let taken = match record.key {
            None => keys.absent("NOT NULL, but the record has no key").map(|()| 1),
            key => keys.decode(key),
        };
        match taken {
            Ok(1) => Ok(()),
            Ok(_) => Err(Refusal::malformed("a header line or a comment, and no key").within(".key")),
            Err(mut refusal) => {
                refusal.wants.iter_mut().for_each(|wanted| wanted.of_key = true);
                Err(refusal.within(".key"))
            }
        }
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
            let column = match origin {
                Origin::Value(index) => self.values.as_mut().and_then(|d| d.columns.get_mut(*index)),
                Origin::KeyPart(index) => self.keys.as_mut().and_then(|d| d.columns.get_mut(*index)),
                _ => self.others.iter_mut().find(|(_, at, _)| *at == place).map(|(_, _, column)| column),
            };
            columns.extend(column.map(Column::finish));
        }
        for decoder in [&mut self.values, &mut self.keys].into_iter().flatten() {
            decoder.truncate(0); // and the columns that nobody asked for
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
