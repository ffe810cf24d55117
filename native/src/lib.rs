//! Forebay's reader: from Kafka's bytes to Arrow columns, without the GIL and without a Python object per
//! record. `python.rs` is its face; the rooms behind it know nothing of Python.

pub mod avro;
pub mod avro_datum;
pub mod avro_explain;
pub mod avro_plan;
pub mod columns;
pub mod costs;
pub mod csv;
pub mod debezium;
pub mod decoder;
pub mod explain;
pub mod framed;
pub mod json;
pub mod json_text;
pub mod kafka;
pub mod protobuf;
pub mod protobuf_json;
pub mod protobuf_plan;
pub mod protobuf_wire;
#[cfg(feature = "python")]
mod python;
pub mod refusal;
pub mod scalars;
pub mod units;
