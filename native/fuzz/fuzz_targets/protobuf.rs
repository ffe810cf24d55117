#![no_main]
#[allow(dead_code)]
mod common;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use forebay_native::decoder::Decoder;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Numbers, messages, maps, a oneof, a group and well-known types, as `formats/protobuf_plan.py` compiles it.
const PLAN: &str = include_str!("../protobuf-plan.json");

fn schema() -> Schema {
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

fuzz_target!(|data: &[u8]| {
    let options = [("protobuf.plan".to_owned(), PLAN.to_owned())].into_iter().collect();
    common::check(Decoder::new("protobuf", &schema(), &options).unwrap(), data);
});
