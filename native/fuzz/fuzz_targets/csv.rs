#![no_main]
mod common;

use arrow_schema::Schema;
use forebay_native::decoder::Decoder;
use libfuzzer_sys::fuzz_target;

const DIALECTS: [(&str, &str, &str); 4] = [(",", "\"", ""), (";", "'", "\\"), ("\t", "", "\\"), ("|", "", "")];

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let (delimiter, quote, escape) = DIALECTS[usize::from(*first) % DIALECTS.len()];
    let options = [
        ("csv.delimiter", delimiter),
        ("csv.quote", quote),
        ("csv.escape", escape),
        ("csv.header", "true"),
        ("csv.comment", "#"),
    ];
    let options = options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    common::check(Decoder::new("csv", &Schema::new(common::scalars()), &options).unwrap(), rest);
});
