#![no_main]
mod common;

use arrow_schema::{DataType, Field, Schema};
use forebay_native::decoder::Decoder;
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

fuzz_target!(|data: &[u8]| {
    let mut fields: Vec<_> = common::nested().fields().iter().map(|field| field.as_ref().clone()).collect();
    fields.push(Field::new("_op", DataType::Utf8, false));
    fields.push(Field::new("_ts_ms", DataType::Int64, true));
    fields.push(Field::new("_weight", DataType::Int32, false));
    common::check(Decoder::new("debezium-json", &Schema::new(fields), &HashMap::new()).unwrap(), data);
});
