//! Kafka's side: from a partition's range of offsets to rows, and to dead letters.

pub mod batches;
pub mod client;
pub mod connection;
pub mod error;
pub mod letters;
pub mod messages;
pub mod parcels;
pub mod post;
pub mod reader;
pub mod rows;
pub mod sasl;
pub mod settings;
pub mod tls;
pub mod traces;
pub mod unpack;
pub mod wire;
