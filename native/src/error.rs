//! Why something is not done here: Python's decoders do it, or librdkafka.

use std::borrow::Cow;
use std::fmt;

#[derive(Debug)]
pub enum NotNative {
    /// A format, an option of it or a type of a column.
    Format(Cow<'static, str>),
    /// A plan that is not one for the columns, and the format it is of.
    Plan(&'static str, Cow<'static, str>),
    /// What a header is said to mean, where that cannot be.
    Lesson(Cow<'static, str>),
    /// A setting of the Kafka client.
    Setting(Cow<'static, str>),
}

impl std::error::Error for NotNative {}

impl fmt::Display for NotNative {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotNative::Plan(format, what) => write!(out, "{format}.plan: {what}"),
            NotNative::Format(what) | NotNative::Lesson(what) | NotNative::Setting(what) => {
                out.write_str(what)
            }
        }
    }
}
