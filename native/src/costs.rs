//! What a bad record costs, part by part, for `make bench`: the parts are too small to be told apart from outside.

use crate::decoder::Decoder;
use crate::kafka::batches::{Batches, Record, Step};
use crate::kafka::client::Client;
use crate::kafka::letters::{Carried, Form};
use crate::kafka::parcels::Parcels;
use crate::kafka::post::Post;
use crate::kafka::rows::{Keep, Origin, Rows};
use crate::kafka::settings::Settings;
use crate::kafka::unpack::Unpackers;
use crate::kafka::wire::{put_var_bytes, put_varlong};
use arrow_schema::Schema;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Nanoseconds a record: to find it bad and of which kind; to skip it, over that; to find words for it, over
/// the first; and to make a letter of it, over both.
pub struct Costs {
    pub find: f64,
    pub skip: f64,
    pub words: f64,
    pub letter: f64,
}

/// The records in one batch, as a broker would send them.
struct Sample {
    answer: Vec<u8>,
    count: usize,
}

impl Sample {
    fn new(values: &[&[u8]]) -> Result<Self, String> {
        let mut parcels = Parcels::new(1, 0);
        for value in values {
            let mut body = Vec::new();
            put_var_bytes(&mut body, None);
            put_var_bytes(&mut body, Some(value));
            put_varlong(&mut body, 0);
            parcels.push(0, None, body.len(), |out| out.extend(&body));
        }
        let mut answer = Vec::new();
        match parcels.take(true, 0).as_slice() {
            [parcel] => {
                parcel.seal(&mut answer);
                Ok(Sample { answer, count: values.len() })
            }
            _ => Err("more records than one batch holds".into()),
        }
    }

    /// Nanoseconds a record of what is done with each.
    fn time(&self, mut each: impl FnMut(&Record<'_>)) -> Result<f64, String> {
        let mut unpackers = Unpackers::default();
        let length = self.answer.len();
        let mut batches = Batches::new(self.answer.clone(), 0..length, 0, Vec::new(), length, false);
        let began = Instant::now();
        while let Step::Record(record) =
            batches.next(&mut unpackers).map_err(|trouble| trouble.text().to_owned())?
        {
            each(&record);
        }
        Ok(began.elapsed().as_nanos() as f64 / self.count as f64)
    }
}

/// Of so many rounds, each part as it is in the quietest tenth. Every value is one that the format refuses.
pub fn costs(
    format: &str,
    schema: &Schema,
    options: &HashMap<String, String>,
    values: &[&[u8]],
    rounds: usize,
) -> Result<Costs, String> {
    let sample = Sample::new(values)?;
    let decoder = || Decoder::new(format, schema, options);
    let rows = || {
        let origins = (0..schema.fields().len()).map(Origin::Value).collect();
        Rows::new(Some(decoder()?), None, schema, origins)
    };
    let (mut brief, mut worded, mut skipping, mut routing) = (decoder()?, decoder()?, rows()?, rows()?);
    brief.brief = true;
    skipping.keep(Keep { most: 0, whole: false, told: 0 });
    routing.keep(Keep { most: usize::MAX, whole: true, told: 0 });
    let form = Form::new("source", Carried { value: true, most: 1 << 20 }, HashMap::new());
    let mut post = Post::new(Client::get(Settings::new(&[])?)?, "letters".into(), form, Duration::ZERO);
    post.origins(std::iter::once(("topic", 0)));
    post.assume_partitions(1);
    routing.posted = true;
    let (mut bad, mut good) = (0, 0);
    let mut found = Vec::new();
    for _ in 0..rounds {
        let nothing = sample.time(|record| bad += usize::from(record.value.is_none()))?;
        let find = sample.time(|record| bad += usize::from(brief.decode(record.value).is_err()))?;
        let words = sample.time(|record| bad += usize::from(worded.decode(record.value).is_err()))?;
        let skip = sample.time(|record| drop(skipping.push(0, 0, &mut good, record, None)))?;
        let letter = sample.time(|record| drop(routing.push(0, 0, &mut good, record, Some(&mut post))))?;
        found.push([nothing, find, skip, words, letter]);
        for rows in [&mut skipping, &mut routing] {
            rows.take_rejected();
            rows.stretches.clear();
        }
        post.clear();
    }
    if bad != 2 * rounds * values.len() || good > 0 {
        return Err("a record that is not bad".into());
    }
    let [nothing, find, skip, words, letter] = [0, 1, 2, 3, 4].map(|part: usize| {
        let mut sorted: Vec<f64> = found.iter().map(|round| round[part]).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[sorted.len() / 10]
    });
    Ok(Costs { find: find - nothing, skip: skip - find, words: words - find, letter: letter - words })
}
