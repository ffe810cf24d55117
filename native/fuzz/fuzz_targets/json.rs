#![no_main]
mod common;

use forebay_native::decoder::Decoder;
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

fuzz_target!(|data: &[u8]| {
    common::check(Decoder::new("json", &common::nested(), &HashMap::new()).unwrap(), data);
});
