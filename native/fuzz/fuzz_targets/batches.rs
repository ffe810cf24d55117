#![no_main]

use forebay_native::kafka::batches::{Batches, Step};
use forebay_native::kafka::messages::read_fetch;
use forebay_native::kafka::unpack::Unpackers;
use libfuzzer_sys::fuzz_target;

/// The answer to a fetch, whatever it says: offsets only rise, lengths are kept to, and it comes to an end.
fuzz_target!(|data: &[u8]| {
    let _ = read_fetch(data, 0, true);
    let mut batches = Batches::new(data.to_vec(), 0..data.len(), 0, vec![(3, 1)], 1 << 16, false);
    let _ = batches.last();
    let mut unpackers = Unpackers::default();
    let mut last = -1;
    for _ in 0..100_000 {
        match batches.next(&mut unpackers) {
            Ok(Step::Record(record)) => {
                assert!(record.offset > last);
                last = record.offset;
                assert!(record.value.map_or(0, <[u8]>::len) <= 1 << 16);
                let _ = record.headers();
            }
            Ok(Step::TooLong(offset, length)) => {
                assert!(offset > last && length > 1 << 16);
                last = offset;
            }
            Ok(Step::End(_)) | Err(_) => break,
        }
    }
});
