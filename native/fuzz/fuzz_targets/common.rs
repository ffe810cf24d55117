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
            decoder.brief = true;
            let brief = decoder.decode(payload).map_err(|refusal| refusal.kind);
            decoder.truncate(before);
            decoder.brief = false;
            let taken = decoder.decode(payload);
            assert_eq!(brief, taken.clone().map_err(|refusal| refusal.kind));
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

/// A record with every type, unions, skipped fields and zero-byte items, as `formats/avro_plan.py` compiles it.
#[allow(dead_code)]
pub const AVRO_PLAN: &str = include_str!("../avro-plan.json");

#[allow(dead_code)]
pub fn avro() -> Schema {
    let inner = |nullable: bool| {
        let fields = Fields::from(vec![Field::new("b", DataType::Utf8, false), Field::new("a", DataType::Int32, true)]);
        DataType::List(Arc::new(Field::new("element", DataType::Struct(fields), nullable)))
    };
    let pair = Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", inner(true), true)]);
    let entries = Arc::new(Field::new("entries", DataType::Struct(pair), false));
    let field = |name: &str, kind: DataType| Field::new(name, kind, !matches!(name, "f0" | "f11"));
    Schema::new(vec![
        field("f0", DataType::Boolean),
        field("f1", DataType::Int16),
        field("f2", DataType::Int32),
        field("f3", DataType::Int64),
        field("f5", DataType::Float64),
        field("f6", DataType::Float64),
        field("f7", DataType::Decimal128(10, 2)),
        field("f8", DataType::Utf8),
        field("f9", DataType::Binary),
        field("f10", DataType::Date32),
        field("f11", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        field("list", inner(false)),
        field("map", DataType::Map(entries, false)),
    ])
}

/// Numbers, messages, maps, a oneof, a group and well-known types, as `formats/protobuf_plan.py` compiles it.
#[allow(dead_code)]
pub const PROTOBUF_PLAN: &str = include_str!("../protobuf-plan.json");

#[allow(dead_code)]
pub fn protobuf() -> Schema {
    let list = |kind: DataType| DataType::List(Arc::new(Field::new("element", kind, true)));
    let map = |key: DataType, value: DataType| {
        let pair = Fields::from(vec![Field::new("key", key, false), Field::new("value", value, true)]);
        DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair), false)), false)
    };
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    let part = DataType::Struct(Fields::from(vec![
        field("y", DataType::Int32),
        field("s", DataType::Utf8),
        field("cs", DataType::Utf8),
    ]));
    let group = DataType::Struct(Fields::from(vec![field("x", DataType::Int64)]));
    Schema::new(vec![
        field("i", DataType::Int64),
        field("u", DataType::Decimal128(20, 0)),
        field("z", list(DataType::Int32)),
        field("e", DataType::Utf8),
        field("p", part.clone()),
        field("ps", list(part.clone())),
        field("mp", map(DataType::Utf8, part)),
        field("me", map(DataType::Int32, DataType::Utf8)),
        field("t", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        field("d", DataType::Int64),
        field("jv", DataType::Utf8),
        field("w", DataType::Int32),
        field("a", DataType::Binary),
        field("g", list(group)),
        field("f", DataType::Float64),
        field("b", DataType::Boolean),
    ])
}
