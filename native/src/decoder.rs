//! One format with one schema: payloads in, columns out, bad ones refused.

use crate::avro::{self, Plan};
use crate::columns::{Column, Data};
use crate::csv::Csv;
use crate::debezium;
use crate::json;
use crate::refusal::Refusal;
use arrow_schema::{DataType, Schema};
use std::collections::HashMap;

pub struct Decoder {
    pub columns: Vec<Column>,
    format: Format,
    rows: usize,
    last: usize, // rows of the record that was decoded last
}

enum Format {
    Json,
    Csv(Box<Csv>),
    Raw,
    Avro(Box<Plan>),
    Debezium,
}

impl Decoder {
    /// An error means that this format, schema or option is for the reference decoder.
    pub fn new(format: &str, schema: &Schema, options: &HashMap<String, String>) -> Result<Self, String> {
        let columns =
            schema.fields().iter().map(|field| Column::new(field)).collect::<Result<Vec<_>, _>>()?;
        let option =
            |name: &str, default: &'static str| options.get(name).map_or(default, String::as_str).to_owned();
        let format = match format {
            "json" => Format::Json,
            "csv" => {
                let delimiter = option("csv.delimiter", ",").replace("\\t", "\t");
                let (quote, escape) = (option("csv.quote", "\""), option("csv.escape", ""));
                let mut csv = Csv::new(&delimiter, &quote, &escape, &option("csv.null", ""))?;
                csv.skip_comments(&option("csv.comment", "").replace("\\t", "\t"))?;
                if option("csv.header", "false").eq_ignore_ascii_case("true") {
                    csv.skip_header(&columns);
                }
                Format::Csv(Box::new(csv))
            }
            "raw" if matches!(columns.as_slice(), [Column { data: Data::Bytes(_), .. }]) => Format::Raw,
            "avro" => Format::Avro(Box::new(Plan::new(&option("avro.plan", ""), &columns)?)),
            "debezium-json" if debezium::fits(&columns) => Format::Debezium,
            other => return Err(format!("format {other} is not read natively")),
        };
        Ok(Decoder { columns, format, rows: 0, last: 0 })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Append one record, or leave everything as it was and say why. Returns how many rows it is: one, or
    /// none if it is skipped (a header line, a comment, a tombstone), or two if it is a change's update.
    #[inline]
    pub fn decode(&mut self, payload: Option<&[u8]>) -> Result<usize, Refusal> {
        let (columns, row) = (&mut self.columns, self.rows);
        let taken = match (&mut self.format, payload) {
            (Format::Raw, payload) => raw(&mut columns[0], payload).map(|()| 1),
            (Format::Debezium, None) => Ok(0),
            (_, None) => Err(Refusal::malformed("the payload is null (a tombstone)")),
            (Format::Json, Some(payload)) => json::decode(columns, row, payload).map(|()| 1),
            (Format::Csv(csv), Some(payload)) => csv.decode(columns, row, payload),
            (Format::Avro(plan), Some(payload)) => avro::decode(plan, columns, row, payload).map(|()| 1),
            (Format::Debezium, Some(payload)) => debezium::decode(columns, row, payload),
        };
        self.last = *taken.as_ref().unwrap_or(&0);
        self.rows += self.last;
        taken
    }

    /// Take back the record that was decoded last, all its rows.
    pub fn undo(&mut self) {
        self.rows -= std::mem::take(&mut self.last);
        let rows = self.rows;
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
    }

    pub fn clear(&mut self) {
        (self.rows, self.last) = (0, 0);
    }
}

pub fn raw(column: &mut Column, payload: Option<&[u8]>) -> Result<(), Refusal> {
    let taken = match payload {
        None if column.nullable => {
            column.push_null();
            Ok(())
        }
        None => Err(Refusal::mismatch("NOT NULL, but the payload is null (a tombstone)")),
        Some(bytes) => match utf8_fault(column, bytes) {
            Some(place) => Err(Refusal::malformed(format!("invalid UTF-8 at byte {place}"))),
            None => {
                if let Data::Bytes(values) = &mut column.data {
                    values.push(bytes);
                }
                Ok(())
            }
        },
    };
    taken.map_err(|refusal| refusal.within(&format!(".{}", column.name)))
}

fn utf8_fault(column: &Column, bytes: &[u8]) -> Option<usize> {
    if column.kind != DataType::Utf8 {
        return None;
    }
    std::str::from_utf8(bytes).err().map(|error| error.valid_up_to())
}
