//! What Debezium's envelope says about a row's values: the unit of a time, the scale of a decimal. The twin of
//! `formats/debezium_types.py`.

use crate::columns::{Column, Data};
use crate::json::Json;
use crate::json::explain::{elements, members};
use crate::scalars::{self, Scale};
use arrow_schema::DataType;
use std::borrow::Cow;

pub enum Unit {
    /// What plain JSON makes of it.
    Plain,
    Days,
    /// A time of day.
    Clock,
    Micros,
    Nanos,
    /// Base64 of an unscaled number; without a scale nobody knows which number that is.
    Unscaled(Option<Scale>),
}

impl Unit {
    /// Microseconds from a number in this unit.
    pub fn timestamp(&self, value: i64) -> Option<i64> {
        match self {
            Unit::Micros => scalars::micros(value),
            Unit::Nanos => scalars::micros(value.div_euclid(1000)),
            Unit::Days | Unit::Clock => None,
            Unit::Plain | Unit::Unscaled(_) => scalars::millis(value),
        }
    }

    /// A decimal from its base64.
    pub fn decimal(&self, text: &[u8]) -> Option<i128> {
        let Unit::Unscaled(Some(scale)) = self else { return None };
        let mut bytes = Vec::new();
        if !scalars::base64(text, &mut bytes) {
            return None;
        }
        scale.rescale(scalars::unscaled(&bytes)?)
    }
}

/// What a column takes, for messages.
pub fn expected(column: &Column) -> Cow<'static, str> {
    let moment = |what: &str| {
        let zone = if matches!(column.kind, DataType::Timestamp(_, None)) { "_NTZ" } else { "" };
        Cow::Owned(format!("TIMESTAMP{zone}{what}"))
    };
    match (&column.kind, &column.unit) {
        (DataType::Date32, Unit::Days) => "DATE (days since 1970-01-01; years 0001 to 9999)".into(),
        (DataType::Timestamp(_, _), Unit::Days) => moment(", which a date without a time is not"),
        (DataType::Timestamp(_, _), Unit::Clock) => moment(", which a time of day is not"),
        (DataType::Timestamp(_, _), Unit::Micros) => moment(" (epoch microseconds; years 0001 to 9999)"),
        (DataType::Timestamp(_, _), Unit::Nanos) => moment(" (epoch nanoseconds; years 0001 to 9999)"),
        (kind @ DataType::Decimal128(_, _), Unit::Unscaled(_)) => {
            format!("{} from base64", scalars::expected(kind)).into()
        }
        (kind, _) => scalars::expected(kind),
    }
}

/// Say of the columns of a row what an event's schema says; nothing, where there is none.
pub fn describe(columns: &mut [Column], schema: &[u8]) {
    let row = field(schema, "after").or_else(|| field(schema, "before"));
    fields(columns, row.unwrap_or_default());
}

fn fields(columns: &mut [Column], schema: &[u8]) {
    for column in columns {
        let part = field(schema, &column.name).unwrap_or_default();
        set(column, part);
    }
}

fn set(column: &mut Column, schema: &[u8]) {
    column.unit = unit(&column.kind, schema);
    match &mut column.data {
        Data::Struct(children, _) => fields(children, schema),
        Data::List(_, child) => set(child, get(schema, "items").unwrap_or_default()),
        Data::Map(_, _, values) => set(values, get(schema, "values").unwrap_or_default()),
        _ => {}
    }
}

fn unit(kind: &DataType, schema: &[u8]) -> Unit {
    let Some(name) = get(schema, "name").and_then(string) else { return Unit::Plain };
    match name.as_slice() {
        b"io.debezium.time.Date" | b"org.apache.kafka.connect.data.Date" => Unit::Days,
        b"io.debezium.time.MicroTimestamp" => Unit::Micros,
        b"io.debezium.time.NanoTimestamp" => Unit::Nanos,
        b"io.debezium.time.Time"
        | b"io.debezium.time.MicroTime"
        | b"io.debezium.time.NanoTime"
        | b"org.apache.kafka.connect.data.Time" => Unit::Clock,
        b"org.apache.kafka.connect.data.Decimal" => Unit::Unscaled(written(kind, schema)),
        _ => Unit::Plain,
    }
}

fn written(kind: &DataType, schema: &[u8]) -> Option<Scale> {
    let DataType::Decimal128(precision, to) = kind else { return None };
    let text = get(get(schema, "parameters")?, "scale").and_then(string)?;
    if text.is_empty() || text.len() > 4 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Scale::new(std::str::from_utf8(&text).ok()?.parse().ok()?, *precision, *to)
}

/// The last of a struct's fields that has this name.
fn field<'a>(schema: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let all = get(schema, "fields").filter(|text| text[0] == b'[')?;
    let named = |part: &&[u8]| get(part, "field").and_then(string).is_some_and(|it| it == name.as_bytes());
    elements(all).into_iter().rev().find(named)
}

/// A member of an object, if this is one; of several with a name the last.
pub fn get<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    if text.first() != Some(&b'{') {
        return None;
    }
    members(text).into_iter().rev().find(|(found, _)| **found == *name.as_bytes()).map(|(_, value)| value)
}

pub fn string(text: &[u8]) -> Option<Vec<u8>> {
    Json::new(text).string().ok().map(|text| text.unescaped().into_owned())
}
