//! Columns that grow by a value at a time and can be cut back to the last good row.
//!
//! One tree is both the plan and the builder: a column knows its name, whether it may be NULL and its
//! type, and holds the values so far. A record that fails in its last field is undone by `truncate`, so
//! that one bad record costs one record. NULLs are kept as a list of places: a value that is there costs
//! nothing, and the bitmap is made once a batch.

use crate::debezium::units::Unit;
use crate::error::NotNative;
use crate::json::text::folded;
use arrow_buffer::{BooleanBufferBuilder, Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, TimeUnit};

pub struct Column {
    pub name: String,
    /// The name as JSON writes it; no text has this byte where an escape would be needed.
    pub quoted: Vec<u8>,
    pub folded: u32,
    pub nullable: bool,
    pub kind: DataType,
    pub data: Data,
    /// What a change log's envelope says about the numbers in JSON.
    pub unit: Unit,
    nulls: Vec<u32>,
}

/// The values, by how they lie in memory: a DATE is an I32, a TIMESTAMP an I64, text and binary are Bytes.
pub enum Data {
    Bool(Vec<bool>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Decimal(Vec<i128>),
    Bytes(Bytes),
    Struct(Vec<Column>, usize),
    List(Vec<i32>, Box<Column>),
    Map(Vec<i32>, Box<Column>, Box<Column>),
}

#[derive(Default)]
pub struct Bytes {
    ends: Vec<i32>,
    pub data: Vec<u8>,
}

impl Bytes {
    #[inline(always)]
    pub fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.close();
    }

    /// What was appended to `data` since the last value is the next one.
    #[inline(always)]
    pub fn close(&mut self) {
        self.ends.push(self.data.len() as i32);
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.data[start as usize..self.ends[index] as usize]
    }

    fn start(&self) -> usize {
        self.ends.last().map_or(0, |end| *end as usize)
    }

    /// Forget what was appended but not closed.
    pub fn reopen(&mut self) {
        self.data.truncate(self.start());
    }
}

fn unreadable(field: &Field, why: &str) -> NotNative {
    NotNative::Format(format!("column {}: {why}", field.name()).into())
}

impl Column {
    pub fn new(field: &Field) -> Result<Column, NotNative> {
        let kind = field.data_type().clone();
        let data = match &kind {
            DataType::Boolean => Data::Bool(Vec::new()),
            DataType::Int8 => Data::I8(Vec::new()),
            DataType::Int16 => Data::I16(Vec::new()),
            DataType::Int32 | DataType::Date32 => Data::I32(Vec::new()),
            DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, _) => Data::I64(Vec::new()),
            DataType::Float32 => Data::F32(Vec::new()),
            DataType::Float64 => Data::F64(Vec::new()),
            DataType::Decimal128(_, _) => Data::Decimal(Vec::new()),
            DataType::Utf8 | DataType::Binary => Data::Bytes(Bytes::default()),
            DataType::Struct(fields) => {
                Data::Struct(fields.iter().map(|f| Column::new(f)).collect::<Result<_, _>>()?, 0)
            }
            DataType::List(element) => Data::List(Vec::new(), Box::new(Column::new(element)?)),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => {
                    Data::Map(Vec::new(), Box::new(Column::new(&pair[0])?), Box::new(Column::new(&pair[1])?))
                }
                other => return Err(unreadable(field, &format!("a map of {other}"))),
            },
            other => return Err(unreadable(field, &format!("type {other} cannot be read"))),
        };
        Ok(Column {
            name: field.name().clone(),
            quoted: quoted(field.name()),
            folded: folded(field.name().as_bytes()),
            nullable: field.is_nullable(),
            kind,
            data,
            unit: Unit::Plain,
            nulls: Vec::new(),
        })
    }

    /// Whether a value occurs twice from `first` on, as no map's key may.
    pub fn repeats_from(&self, first: usize) -> bool {
        fn twice<T: Ord + Copy>(values: &[T]) -> bool {
            let mut sorted = values.to_vec();
            sorted.sort_unstable();
            sorted.windows(2).any(|pair| pair[0] == pair[1])
        }
        match &self.data {
            Data::Bytes(bytes) => {
                twice(&(first..bytes.len()).map(|index| bytes.get(index)).collect::<Vec<_>>())
            }
            Data::I8(values) => twice(&values[first..]),
            Data::I16(values) => twice(&values[first..]),
            Data::I32(values) => twice(&values[first..]),
            Data::I64(values) => twice(&values[first..]),
            _ => false,
        }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Bool(v) => v.len(),
            Data::I8(v) => v.len(),
            Data::I16(v) => v.len(),
            Data::I32(v) => v.len(),
            Data::I64(v) => v.len(),
            Data::F32(v) => v.len(),
            Data::F64(v) => v.len(),
            Data::Decimal(v) => v.len(),
            Data::Bytes(b) => b.len(),
            Data::Struct(_, rows) => *rows,
            Data::List(ends, _) | Data::Map(ends, _, _) => ends.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Append a map from text to bytes. The keys must differ and be UTF-8, or they are fixed.
    pub fn push_map(&mut self, pairs: &[(&[u8], Option<&[u8]>)]) {
        let Data::Map(ends, keys, values) = &mut self.data else { return };
        for (key, value) in pairs {
            if let Data::Bytes(bytes) = &mut keys.data {
                bytes.push(String::from_utf8_lossy(key).as_bytes());
            }
            match (value, &mut values.data) {
                (Some(value), Data::Bytes(bytes)) => bytes.push(value),
                _ => values.push_null(),
            }
        }
        ends.push(keys.len() as i32);
    }

    /// Append NULL, whatever the column says about it: whether it may be is checked by who calls.
    pub fn push_null(&mut self) {
        self.nulls.push(self.len() as u32);
        self.push_nothing();
    }

    /// Append what lies under a NULL: a place in memory without a meaning.
    fn push_nothing(&mut self) {
        match &mut self.data {
            Data::Bool(v) => v.push(false),
            Data::I8(v) => v.push(0),
            Data::I16(v) => v.push(0),
            Data::I32(v) => v.push(0),
            Data::I64(v) => v.push(0),
            Data::F32(v) => v.push(0.0),
            Data::F64(v) => v.push(0.0),
            Data::Decimal(v) => v.push(0),
            Data::Bytes(b) => b.close(),
            Data::Struct(children, rows) => {
                for child in children {
                    if child.nullable { child.push_null() } else { child.push_nothing() }
                }
                *rows += 1;
            }
            Data::List(ends, child) => ends.push(child.len() as i32),
            Data::Map(ends, keys, _) => ends.push(keys.len() as i32),
        }
    }

    /// Cut back to the first `rows` values, also where a value was begun and not finished.
    pub fn truncate(&mut self, rows: usize) {
        while self.nulls.last().is_some_and(|place| *place as usize >= rows) {
            self.nulls.pop();
        }
        match &mut self.data {
            Data::Bool(v) => v.truncate(rows),
            Data::I8(v) => v.truncate(rows),
            Data::I16(v) => v.truncate(rows),
            Data::I32(v) => v.truncate(rows),
            Data::I64(v) => v.truncate(rows),
            Data::F32(v) => v.truncate(rows),
            Data::F64(v) => v.truncate(rows),
            Data::Decimal(v) => v.truncate(rows),
            Data::Bytes(b) => {
                b.ends.truncate(rows);
                b.reopen();
            }
            Data::Struct(children, count) => {
                children.iter_mut().for_each(|child| child.truncate(rows));
                *count = (*count).min(rows);
            }
            Data::List(ends, child) => {
                ends.truncate(rows);
                child.truncate(last(ends));
            }
            Data::Map(ends, keys, values) => {
                ends.truncate(rows);
                keys.truncate(last(ends));
                values.truncate(last(ends));
            }
        }
    }

    /// The values as an Arrow array; the column is empty afterwards and keeps its capacity's size.
    pub fn finish(&mut self) -> ArrayData {
        let rows = self.len();
        let nulls = std::mem::take(&mut self.nulls);
        let builder = ArrayData::builder(self.kind.clone()).len(rows);
        let builder =
            if nulls.is_empty() { builder } else { builder.null_bit_buffer(Some(bitmap(rows, &nulls))) };
        let builder = match &mut self.data {
            Data::Bool(v) => builder.add_buffer(bits(&fresh(v))),
            Data::I8(v) => builder.add_buffer(Buffer::from_vec(fresh(v))),
            Data::I16(v) => builder.add_buffer(Buffer::from_vec(fresh(v))),
            Data::I32(v) => builder.add_buffer(Buffer::from_vec(fresh(v))),
            Data::I64(v) => builder.add_buffer(Buffer::from_vec(fresh(v))),
            Data::F32(v) => builder.add_buffer(Buffer::from_vec(fresh(v))),
            Data::F64(v) => builder.add_buffer(Buffer::from_vec(fresh(v))),
            Data::Decimal(v) => builder.add_buffer(Buffer::from_vec(fresh(v))),
            Data::Bytes(b) => {
                let offsets = offsets(&b.ends);
                b.ends.clear();
                builder.add_buffer(offsets).add_buffer(Buffer::from_vec(fresh(&mut b.data)))
            }
            Data::Struct(children, count) => {
                *count = 0;
                builder.child_data(children.iter_mut().map(Column::finish).collect())
            }
            Data::List(ends, child) => {
                let offsets = offsets(ends);
                ends.clear();
                builder.add_buffer(offsets).add_child_data(child.finish())
            }
            Data::Map(ends, keys, values) => {
                let offsets = offsets(ends);
                ends.clear();
                let DataType::Map(entries, _) = &self.kind else { unreachable!("made from a map's type") };
                let count = keys.len();
                let pairs = ArrayData::builder(entries.data_type().clone())
                    .len(count)
                    .child_data(vec![keys.finish(), values.finish()]);
                // SAFETY: as below.
                builder.add_buffer(offsets).add_child_data(unsafe { pairs.build_unchecked() })
            }
        };
        // SAFETY: every buffer has `rows` values of the type that `new` chose `data` by, offsets rise by
        // construction, and text was checked to be UTF-8 before it was appended.
        unsafe { builder.build_unchecked() }
    }
}

fn quoted(name: &str) -> Vec<u8> {
    let plain = !name.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\');
    if plain { format!("\"{name}\"").into_bytes() } else { vec![0xff] }
}

fn last(ends: &[i32]) -> usize {
    ends.last().map_or(0, |end| *end as usize)
}

/// The vector's values; a new one of the same size takes its place, since the next batch is as large.
fn fresh<T>(values: &mut Vec<T>) -> Vec<T> {
    let next = Vec::with_capacity(values.len());
    std::mem::replace(values, next)
}

fn offsets(ends: &[i32]) -> Buffer {
    let mut buffer = MutableBuffer::with_capacity((ends.len() + 1) * 4);
    buffer.push(0i32);
    buffer.extend_from_slice(ends);
    buffer.into()
}

fn bits(values: &[bool]) -> Buffer {
    let mut builder = BooleanBufferBuilder::new(values.len());
    builder.append_slice(values);
    builder.finish().into_inner()
}

fn bitmap(rows: usize, nulls: &[u32]) -> Buffer {
    let mut builder = BooleanBufferBuilder::new(rows);
    builder.append_n(rows, true);
    nulls.iter().for_each(|place| builder.set_bit(*place as usize, false));
    builder.finish().into_inner()
}
