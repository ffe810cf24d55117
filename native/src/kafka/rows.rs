//! From messages to rows: the value's columns, the key, the metadata columns, in the source's order.

use crate::columns::{Column, Data};
use crate::decoder::{self, Decoder};
use crate::error::NotNative;
use crate::kafka::batches::{Header, Record};
use crate::kafka::post::Post;
use crate::kafka::traces::Traces;
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
    /// Of those that are in the rows: with a NULL for a field that differs from its column only in case.
    pub case_mismatches: usize,
    /// Of the values in the rows.
    pub bytes: usize,
    /// Of keys and values as they were fetched, refused records too, since it was last taken.
    pub fetched: usize,
    keep: Keep,
    pub rejected: Vec<Rejected>,
    /// Those that are not among the rejected: by their kind, and where they are.
    pub counted: [usize; Kind::ALL.len()],
    pub stretches: Vec<Stretch>,
    refused: usize,
    /// Whether the refused go into a post, and it is not the caller who sees to them.
    pub posted: bool,
    lettered: usize,
    /// Where somebody follows single records.
    pub traces: Option<Traces>,
}

/// What is kept of records that are refused: so many of them, with all of their bytes or only with the
/// reason. The others are counted. Where they become letters, only so many are reported, too.
#[derive(Clone, Copy)]
pub struct Keep {
    pub most: usize,
    pub whole: bool,
    pub reported: usize,
}

/// A part of a range in which records were refused: from, up to, how many of them.
pub struct Stretch {
    pub range: usize,
    pub start: i64,
    pub end: i64,
    pub count: usize,
}

/// Refused records that are no further apart are in one stretch: whoever reads it again finds out which.
const NEAR: i64 = 1000;

/// Add a refused record to the stretches, in order.
pub fn stretch(stretches: &mut Vec<Stretch>, range: usize, offset: i64) {
    match stretches.last_mut() {
        Some(last) if last.range == range && offset - last.end < NEAR => {
            last.end = offset + 1;
            last.count += 1;
        }
        _ => stretches.push(Stretch { range, start: offset, end: offset + 1, count: 1 }),
    }
}

pub struct Rejected {
    pub range: usize,
    pub offset: i64,
    /// Records of its range that are not refused, since rows were last taken and before this one.
    pub before: usize,
    pub refusal: Refusal,
    pub record: Option<Whole>,
}

/// A record as it is in the log.
pub struct Whole {
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Whole {
    fn of(record: &Record<'_>) -> Self {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        // Damaged headers are of no use to anybody.
        let headers = record.headers().unwrap_or_default();
        let headers = headers.into_iter().map(|(name, value)| (name.to_vec(), owned(value))).collect();
        Whole { timestamp: record.timestamp, key: owned(record.key), value: owned(record.value), headers }
    }
}

impl Rows {
    pub fn new(
        values: Option<Decoder>,
        keys: Option<Decoder>,
        schema: &Schema,
        origins: Vec<Origin>,
    ) -> Result<Self, NotNative> {
        if schema.fields().len() != origins.len() {
            return Err(NotNative::Format("a column without an origin".into()));
        }
        let mut others = Vec::new();
        for (place, (origin, field)) in origins.iter().zip(schema.fields()).enumerate() {
            let known = |decoder: &Option<Decoder>, index: usize| {
                let found = decoder.as_ref().is_some_and(|decoder| index < decoder.columns.len());
                let why = || NotNative::Format(format!("column {}: no such origin", field.name()).into());
                if found { Ok(()) } else { Err(why()) }
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
        Ok(Rows {
            values,
            keys,
            others,
            origins,
            fields,
            count: 0,
            taken: 0,
            skipped: 0,
            case_mismatches: 0,
            bytes: 0,
            fetched: 0,
            keep: Keep { most: usize::MAX, whole: false, reported: usize::MAX },
            rejected: Vec::new(),
            counted: Default::default(),
            stretches: Vec::new(),
            refused: 0,
            posted: false,
            lettered: 0,
            traces: None,
        })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// How many records were refused since rows were last taken.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Append one record, or put it among the rejected; do neither and say which schema must be learned first.
    /// `good` counts those of its range that are not refused, which the post takes, if they are `posted`.
    #[inline]
    pub fn push(
        &mut self,
        range: usize,
        partition: i32,
        good: &mut usize,
        record: &Record<'_>,
        post: Option<&mut Post>,
    ) -> Option<Wanted> {
        match self.take(partition, record) {
            Ok(0) => {
                self.skipped += 1;
                *good += 1;
            }
            Ok(rows) => {
                self.count += rows;
                self.taken += 1;
                self.case_mismatches += usize::from(self.has_case_mismatch());
                *good += 1;
                self.trace(range, record, None);
            }
            Err(Refusal { wants: Some(wanted), .. }) => return Some(wanted),
            Err(refusal) => {
                self.trace(range, record, Some(refusal.kind));
                self.reject(range, record.offset, *good, refusal, Some(record), post);
            }
        }
        let value = record.value.map_or(0, <[u8]>::len);
        self.bytes += value;
        self.fetched += value + record.key.map_or(0, <[u8]>::len);
        None
    }

    #[inline]
    fn trace(&mut self, range: usize, record: &Record<'_>, refused: Option<Kind>) {
        if let Some(traces) = &mut self.traces {
            traces.see(range, record, refused);
        }
    }

    /// Whether the record that was just taken has one, in its value or its key.
    #[inline]
    fn has_case_mismatch(&self) -> bool {
        [&self.values, &self.keys].into_iter().flatten().any(|decoder| decoder.case_mismatch)
    }

    /// The decoder that a schema is wanted for.
    pub fn pupil(&mut self, of_key: bool) -> Option<&mut Decoder> {
        if of_key { self.keys.as_mut() } else { self.values.as_mut() }
    }

    #[cold]
    fn reject(
        &mut self,
        range: usize,
        offset: i64,
        before: usize,
        refusal: Refusal,
        record: Option<&Record<'_>>,
        post: Option<&mut Post>,
    ) {
        self.refused += 1;
        let kept = self.keeps();
        let reported = if self.posted { self.rejected.len() < self.keep.reported } else { kept };
        if let Some(post) = post.filter(|_| kept) {
            self.lettered += 1;
            post.stage(range, offset, &refusal, record);
        }
        if !kept {
            stretch(&mut self.stretches, range, offset);
        }
        if reported {
            let whole = self.keep.whole && !self.posted;
            let record = record.filter(|_| whole).map(Whole::of);
            self.rejected.push(Rejected { range, offset, before, refusal, record });
        } else {
            self.counted[refusal.kind as usize] += 1;
        }
        self.choose_words();
    }

    /// Whether the next refused record is a letter, or handed over.
    fn keeps(&self) -> bool {
        let kept = if self.posted { self.lettered } else { self.rejected.len() };
        kept < self.keep.most
    }

    /// Why a record is refused is found out only where somebody will hear of it.
    fn choose_words(&mut self) {
        let brief = !self.keeps() && (!self.posted || self.rejected.len() >= self.keep.reported);
        [&mut self.values, &mut self.keys].into_iter().flatten().for_each(|decoder| decoder.brief = brief);
    }

    /// Before rows are read: what to keep of those that are refused.
    pub fn keep(&mut self, keep: Keep) {
        self.keep = keep;
        self.choose_words();
    }

    /// A record that is longer than a task may hold.
    pub fn too_long(
        &mut self,
        range: usize,
        offset: i64,
        before: usize,
        length: usize,
        longest: usize,
        post: Option<&mut Post>,
    ) {
        let refusal = Refusal::new(
            Kind::PayloadTooLarge,
            format!("a record of {length} bytes, and fetch.budget.bytes is {longest}"),
        );
        self.fetched += length;
        self.reject(range, offset, before, refusal, None, post);
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
            Ok(_) => {
                Err(Refusal::malformed("a header line or a comment, and no key").within(".key").of_key())
            }
            Err(mut refusal) => {
                refusal.wants.iter_mut().for_each(|wanted| wanted.of_key = true);
                Err(refusal.within(".key").of_key())
            }
        }
    }

    #[inline]
    fn take_others(&mut self, partition: i32, record: &Record<'_>) -> Result<(), Refusal> {
        for (origin, _, column) in &mut self.others {
            match (origin, &mut column.data) {
                (Origin::Key, _) => decoder::raw(column, record.key).map_err(Refusal::of_key)?,
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

    /// The records that were refused; none afterwards.
    pub fn take_rejected(&mut self) -> Vec<Rejected> {
        (self.refused, self.lettered) = (0, 0);
        let rejected = std::mem::take(&mut self.rejected);
        self.choose_words();
        rejected
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
