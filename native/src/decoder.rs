//! One format with one schema: payloads in, columns out, bad ones refused.

use crate::avro::{self, Plan};
use crate::columns::{Column, Data};
use crate::csv::Csv;
use crate::debezium;
use crate::error::NotNative;
use crate::framed::{self, Frames, Lesson};
use crate::json;
use crate::protobuf::Protobuf;
use crate::refusal::Refusal;
use arrow_schema::{DataType, Schema};
use std::collections::HashMap;

pub struct Decoder {
    pub columns: Vec<Column>,
    format: Format,
    /// Where payloads name their schema.
    frames: Option<Frames>,
    rows: usize,
    /// Nobody wants to know why a record is refused, only its kind: words are left out where they cost.
    pub brief: bool,
    /// Whether the last record that was taken has a NULL for a field that differs from its column only in case.
    pub case_mismatch: bool,
    /// Memory that JSON's records use one after the other.
    strangers: Vec<u32>,
}

enum Format {
    Json,
    Csv(Box<Csv>),
    Raw,
    /// Without a plan of its own where each schema id has one.
    Avro(Option<Box<Plan>>),
    Protobuf(Option<Box<Protobuf>>),
    Debezium(debezium::Described),
}

impl Decoder {
    /// An error means that this format, schema or option is for the reference decoder.
    pub fn new(format: &str, schema: &Schema, options: &HashMap<String, String>) -> Result<Self, NotNative> {
        let columns =
            schema.fields().iter().map(|field| Column::new(field)).collect::<Result<Vec<_>, _>>()?;
        let option =
            |name: &str, default: &'static str| options.get(name).map_or(default, String::as_str).to_owned();
        let framed = option("framed", "") == "true" && matches!(format, "json" | "avro" | "protobuf");
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
            "avro" if framed => Format::Avro(None),
            "avro" => Format::Avro(Some(Box::new(Plan::new(&option("avro.plan", ""), &columns)?))),
            "protobuf" if framed => Format::Protobuf(None),
            "protobuf" => {
                let made = Protobuf::new(&option("protobuf.plan", ""), &columns)?;
                Format::Protobuf(Some(Box::new(made)))
            }
            "debezium-json" if debezium::fits(&columns) => Format::Debezium(debezium::Described::default()),
            other => return Err(NotNative::Format(format!("format {other} is not read natively").into())),
        };
        let indexed = matches!(format, Format::Protobuf(_));
        let frames = framed.then(|| Frames::new(indexed));
        Ok(Decoder {
            columns,
            format,
            frames,
            rows: 0,
            brief: false,
            case_mismatch: false,
            strangers: Vec::new(),
        })
    }

    /// Say what a header means: a plan (an empty one, where the format needs none), or why its records are
    /// refused.
    pub fn learn(
        &mut self,
        header: &[u8],
        plan: Option<&str>,
        kind: &str,
        message: &str,
    ) -> Result<(), NotNative> {
        let lesson = match (plan, &self.format) {
            (None, _) => framed::refused(kind, message)?,
            (Some(plan), Format::Avro(_)) => Lesson::Avro(Box::new(Plan::new(plan, &self.columns)?)),
            (Some(plan), Format::Protobuf(_)) => {
                Lesson::Protobuf(Box::new(Protobuf::new(plan, &self.columns)?))
            }
            (Some(_), _) => Lesson::Plain,
        };
        let unnamed = NotNative::Lesson("these payloads name no schema".into());
        self.frames.as_mut().ok_or(unnamed)?.learn(header, lesson)
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Append one record, or leave everything as it was and say why. Returns how many rows it is: one, or
    /// none if it is skipped (a header line, a comment, a tombstone), or two if it is a change's update. If
    /// the refusal `wants` a schema, nothing is known about the record until `learn` was called with its header.
    #[inline]
    pub fn decode(&mut self, payload: Option<&[u8]>) -> Result<usize, Refusal> {
        let (columns, row, brief) = (&mut self.columns, self.rows, self.brief);
        self.case_mismatch = false;
        let (mismatch, strangers) = (&mut self.case_mismatch, &mut self.strangers);
        let mut json = |columns: &mut [Column], payload: &[u8]| {
            json::decode(columns, row, payload, brief, strangers).map(|found| {
                *mismatch = found;
                1
            })
        };
        let taken = match (&mut self.format, payload) {
            (Format::Raw, payload) => raw(&mut columns[0], payload).map(|()| 1),
            (Format::Debezium(_), None) => Ok(0),
            (_, None) => Err(Refusal::malformed("the payload is null (a tombstone)")),
            (format, Some(payload)) => match (format, &mut self.frames) {
                (_, Some(frames)) => match frames.lesson(payload)? {
                    (Lesson::Avro(plan), end) => {
                        avro::decode(plan, columns, row, payload, end, brief).map(|()| 1)
                    }
                    (Lesson::Protobuf(made), end) => made.decode(columns, row, &payload[end..]).map(|()| 1),
                    (_, end) => json(columns, &payload[end..]),
                },
                (Format::Csv(csv), None) => csv.decode(columns, row, payload),
                (Format::Avro(Some(plan)), None) => {
                    avro::decode(plan, columns, row, payload, 0, brief).map(|()| 1)
                }
                (Format::Protobuf(Some(protobuf)), None) => {
                    protobuf.decode(columns, row, payload).map(|()| 1)
                }
                (Format::Debezium(described), None) => {
                    described.decode(columns, row, payload, &mut self.strangers).map(|(rows, found)| {
                        self.case_mismatch = found;
                        rows
                    })
                }
                _ => json(columns, payload),
            },
        };
        self.rows += *taken.as_ref().unwrap_or(&0);
        taken
    }

    /// Take back all records beyond so many rows.
    pub fn truncate(&mut self, rows: usize) {
        self.rows = rows;
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
    }

    /// Append a row of NULLs; the reason is why there cannot be one.
    pub fn absent(&mut self, reason: &str) -> Result<(), Refusal> {
        if let Some(column) = self.columns.iter().find(|column| !column.nullable) {
            return Err(Refusal::mismatch(reason).in_field(&column.name));
        }
        self.columns.iter_mut().for_each(Column::push_null);
        self.case_mismatch = false;
        self.rows += 1;
        Ok(())
    }

    pub fn clear(&mut self) {
        self.rows = 0;
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
    taken.map_err(|refusal| refusal.in_field(&column.name))
}

fn utf8_fault(column: &Column, bytes: &[u8]) -> Option<usize> {
    if column.kind != DataType::Utf8 {
        return None;
    }
    std::str::from_utf8(bytes).err().map(|error| error.valid_up_to())
}
