//! What a bad JSON record costs, part by part, for `make bench`: the parts are too small to be told apart from outside.
//!
//! `costs ROUNDS NAME=TYPE …` reads records from its standard input, each as a line of base64, and prints nanoseconds a
//! record: to find it bad and of which kind; to skip it, over that; to find words for it, over the first; and to make a
//! letter of it, over both. Every record is one that is refused.

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use forebay_native::decoder::Decoder;
use forebay_native::kafka::batches::{Batches, Record, Step};
use forebay_native::kafka::client::Client;
use forebay_native::kafka::letters::{Carried, Form};
use forebay_native::kafka::parcels::Parcels;
use forebay_native::kafka::post::Post;
use forebay_native::kafka::rows::{Keep, Origin, Rows};
use forebay_native::kafka::settings::Settings;
use forebay_native::kafka::unpack::Unpackers;
use forebay_native::kafka::wire::{put_var_bytes, put_varlong};
use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant};

type Res<T> = Result<T, Box<dyn Error>>;

fn main() -> Res<()> {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().ok_or("how many rounds?")?.parse()?;
    let schema = Schema::new(arguments.map(|column| field(&column)).collect::<Res<Vec<_>>>()?);
    let values = std::io::stdin().lines().map(|line| Ok(STANDARD.decode(line?)?)).collect::<Res<Vec<_>>>()?;
    let [find, skip, words, letter] = costs(&schema, &values, rounds)?;
    println!("{find} {skip} {words} {letter}");
    Ok(())
}

fn field(column: &str) -> Res<Field> {
    let (name, kind) = column.split_once('=').ok_or("a column without a type")?;
    let kind = match kind {
        "long" => DataType::Int64,
        "int" => DataType::Int32,
        "double" => DataType::Float64,
        "string" => DataType::Utf8,
        "time" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        other => return Err(format!("no type: {other}").into()),
    };
    Ok(Field::new(name, kind, true))
}

/// The records in one batch, as a broker would send them.
struct Sample {
    answer: Vec<u8>,
    count: usize,
}

impl Sample {
    fn new(values: &[Vec<u8>]) -> Res<Self> {
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
    fn time(&self, mut each: impl FnMut(&Record<'_>)) -> Res<f64> {
        let mut unpackers = Unpackers::default();
        let length = self.answer.len();
        let mut batches = Batches::new(self.answer.clone(), 0..length, 0, Vec::new(), length, false);
        let began = Instant::now();
        while let Step::Record(record) = batches.next(&mut unpackers)? {
            each(&record);
        }
        Ok(began.elapsed().as_nanos() as f64 / self.count as f64)
    }
}

/// Of so many rounds, each part as it is in the quietest tenth.
fn costs(schema: &Schema, values: &[Vec<u8>], rounds: usize) -> Res<[f64; 4]> {
    let sample = Sample::new(values)?;
    let decoder = || Decoder::new("json", schema, &HashMap::new());
    let rows = || {
        let origins = (0..schema.fields().len()).map(Origin::Value).collect();
        Rows::new(Some(decoder()?), None, schema, origins)
    };
    let (mut brief, mut worded, mut skipping, mut routing) = (decoder()?, decoder()?, rows()?, rows()?);
    brief.brief = true;
    skipping.keep(Keep { most: 0, whole: false, reported: 0 });
    routing.keep(Keep { most: usize::MAX, whole: true, reported: 0 });
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
    Ok([find - nothing, skip - find, words - find, letter - words])
}
