#![no_main]
#[allow(dead_code)]
mod common;

use forebay_native::decoder::Decoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = [("protobuf.plan".to_owned(), common::PROTOBUF_PLAN.to_owned())].into_iter().collect();
    common::check(Decoder::new("protobuf", &common::protobuf(), &options).unwrap(), data);
});
