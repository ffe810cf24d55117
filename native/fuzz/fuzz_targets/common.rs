//! A schema with every type, and what must hold whatever the bytes are.

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use forebay_native::decoder::Decoder;
use std::sync::Arc;

pub fn scalars() -> Vec<Field> {
    let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let kinds = [
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(10, 2),
        DataType::Utf8,
        DataType::Binary,
        DataType::Date32,
        micros(Some("UTC")),
        micros(None),
    ];
    kinds.into_iter().enumerate().map(|(place, kind)| Field::new(format!("f{place}"), kind, place > 0)).collect()
}

#[allow(dead_code)]
pub fn nested() -> Schema {
    let inner = Fields::from(scalars());
    let list = DataType::List(Arc::new(Field::new("element", DataType::Struct(inner.clone()), false)));
    let pair = Fields::from(vec![
        Field::new("key", DataType::Int32, false),
        Field::new("value", list.clone(), true),
    ]);
    let entries = Field::new("entries", DataType::Struct(pair), false);
    let mut fields = scalars();
    fields.push(Field::new("list", list, true));
    fields.push(Field::new("map", DataType::Map(Arc::new(entries), false), true));
    fields.push(Field::new("struct", DataType::Struct(inner), true));
    Schema::new(fields)
}

/// Good, bad, good again: the columns stay in step, and what they hold is sound Arrow.
pub fn check(mut decoder: Decoder, data: &[u8]) {
    for _ in 0..2 {
        for payload in [Some(data), None, Some(data)] {
            let before = decoder.rows();
            let taken = decoder.decode(payload);
            assert_eq!(decoder.rows(), before + *taken.as_ref().unwrap_or(&0));
            if let Err(refusal) = taken {
                assert!(refusal.message().len() < 100_000);
            }
        }
        let rows = decoder.rows();
        for column in &mut decoder.columns {
            assert_eq!(column.len(), rows);
            let array = column.finish();
            array.validate_full().expect("sound Arrow");
        }
        decoder.clear();
    }
}
