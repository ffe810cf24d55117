//! Forebay's reader: from Kafka's bytes to Arrow columns, without the GIL and without a Python object per
//! record. `python` is its face; what is behind it knows nothing of Python.
//!
//! A module for each format, and `kafka` for what comes before and after decoding. They share `decoder` (one format
//! with one schema), `columns`, `scalars` and `refusal`.

pub mod avro;
pub mod columns;
pub mod csv;
pub mod debezium;
pub mod decoder;
pub mod error;
pub mod framed;
pub mod json;
pub mod kafka;
pub mod protobuf;
#[cfg(feature = "python")]
mod python;
pub mod refusal;
pub mod scalars;
