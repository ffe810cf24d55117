//! Ranges of offsets from Kafka, through the librdkafka that confluent-kafka brings along.

pub mod client;
pub mod library;
pub mod partition;
pub mod reader;
pub mod rows;
