#![no_main]
//! Payloads that name their schema: the first byte says in which format, its lowest bits which headers are known.
#[allow(dead_code)]
mod common;

use arrow_schema::Schema;
use forebay_native::decoder::Decoder;
use libfuzzer_sys::fuzz_target;

/// A payload names one schema; a decoder that asks again and again has not learned.
const MOST_LESSONS: usize = 3;

fn check(format: &str, schema: &Schema, plan: &str, refuses: bool, payload: &[u8]) {
    let options = [("framed".to_owned(), "true".to_owned())].into_iter().collect();
    let mut decoder = Decoder::new(format, schema, &options).unwrap();
    for lessons in 0.. {
        let Err(refusal) = decoder.decode(Some(payload)) else { break };
        let Some(wanted) = refusal.wants else { break };
        assert!(lessons < MOST_LESSONS && payload.starts_with(&wanted.header) && decoder.rows() == 0);
        let known = (!refuses).then_some(plan);
        decoder.learn(&wanted.header, known, "UnknownSchemaId", "not known").unwrap();
    }
    let taken = decoder.rows();
    decoder.truncate(0);
    assert!(taken <= 1 && (!refuses || taken == 0));
    common::check(decoder, payload);
}

fuzz_target!(|data: &[u8]| {
    let Some((first, payload)) = data.split_first() else { return };
    let refuses = first & 4 != 0;
    match first & 3 {
        0 => check("avro", &common::avro(), common::AVRO_PLAN, refuses, payload),
        1 => check("protobuf", &common::protobuf(), common::PROTOBUF_PLAN, refuses, payload),
        _ => check("json", &common::nested(), "", refuses, payload),
    }
});
