#![no_main]
#[allow(dead_code)]
mod common;

use forebay_native::decoder::Decoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = [("avro.plan".to_owned(), common::AVRO_PLAN.to_owned())].into_iter().collect();
    common::check(Decoder::new("avro", &common::avro(), &options).unwrap(), data);
});
