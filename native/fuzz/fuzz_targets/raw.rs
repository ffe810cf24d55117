#![no_main]
#[allow(dead_code)]
mod common;

use arrow_schema::{DataType, Field, Schema};
use forebay_native::decoder::Decoder;
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

fuzz_target!(|data: &[u8]| {
    for kind in [DataType::Utf8, DataType::Binary] {
        let schema = Schema::new(vec![Field::new("value", kind, true)]);
        common::check(Decoder::new("raw", &schema, &HashMap::new()).unwrap(), data);
    }
});
