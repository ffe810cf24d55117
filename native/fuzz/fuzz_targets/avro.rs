#![no_main]
#[allow(dead_code)]
mod common;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use forebay_native::decoder::Decoder;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// A record with every type, unions, skipped fields and zero-byte items, as `formats/avro_plan.py` compiles it.
const PLAN: &str = include_str!("../avro-plan.json");

fn schema() -> Schema {
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

fuzz_target!(|data: &[u8]| {
    let options = [("avro.plan".to_owned(), PLAN.to_owned())].into_iter().collect();
    common::check(Decoder::new("avro", &schema(), &options).unwrap(), data);
});
