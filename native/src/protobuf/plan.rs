//! The plan of `formats/protobuf_plan.py`, read from its JSON and checked against the columns.

use crate::columns::{Column, Data};
use crate::error::NotNative;
use arrow_schema::{DataType, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::LazyLock;

/// The fields of one message, and how to find them by their number.
pub struct Message {
    pub fields: Vec<Field>,
    /// The places of the fields with a column, in the order of the columns.
    pub order: Vec<usize>,
    /// The columns that the message does not have.
    pub absent: Vec<usize>,
    /// Place + 1 of small numbers; 0 is no field.
    dense: Vec<u16>,
    sparse: Vec<(u32, u16)>,
}

pub struct Field {
    pub number: u32,
    pub name: String,
    /// Whether something looks at it. If not, it is a member of a oneof that only unsets the others.
    pub kept: bool,
    pub column: usize,
    pub wire: Wire,
    pub kind: String,
    pub repeated: bool,
    pub oneof: Option<u64>,
    pub read: Read,
    pub limits: Option<(i128, i128)>,
    pub expected: String,
    pub missing: Option<String>,
    pub default: Option<Default>,
}

/// A type as it lies in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Int,
    Uint,
    Sint,
    Fixed32,
    Sfixed32,
    Fixed64,
    Sfixed64,
    Float,
    Double,
    Bytes,
    Message,
    Group,
}

/// What the column makes of a value.
pub enum Read {
    Nothing,
    Integer,
    Boolean,
    Real,
    Decimal(i128),
    Millis,
    Enum(Vec<(i128, String)>),
    Float,
    /// Whether the schema has a string: then bytes that are not UTF-8 are malformed.
    Text {
        string: bool,
    },
    Binary {
        string: bool,
    },
    Struct(Message),
    Only(Message),
    Map(Message),
    Timestamp,
    Duration,
    Json(Part),
}

pub enum Default {
    Number(i128),
    Real(f64),
    Bytes(Vec<u8>),
    Empty,
}

/// The well-known types that are read as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Moment,
    Struct,
    Entry,
    List,
    Value,
}

const DENSE: u32 = 256;

impl Message {
    /// An error means that the plan is not one for these columns.
    pub fn new(plan: &str, columns: &[Column]) -> Result<Self, NotNative> {
        let plan: Value = serde_json::from_str(plan).map_err(|error| wrong(error.to_string()))?;
        message(&plan, columns)
    }

    fn of(fields: Vec<Field>, columns: usize) -> Result<Self, NotNative> {
        let mut order: Vec<usize> = (0..fields.len()).filter(|place| fields[*place].kept).collect();
        order.sort_by_key(|place| fields[*place].column);
        if order.windows(2).any(|pair| fields[pair[0]].column == fields[pair[1]].column) {
            return Err(wrong("a column twice"));
        }
        let absent = (0..columns).filter(|column| !fields.iter().any(|f| f.kept && f.column == *column));
        let absent = absent.collect();
        let mut made = Message { fields, order, absent, dense: Vec::new(), sparse: Vec::new() };
        for (place, field) in made.fields.iter().enumerate() {
            let place = u16::try_from(place).map_err(|_| wrong("too many fields"))?;
            if field.number < DENSE {
                let needed = field.number as usize + 1;
                made.dense.resize(made.dense.len().max(needed), 0);
                made.dense[field.number as usize] = place + 1;
            } else {
                made.sparse.push((field.number, place));
            }
        }
        made.sparse.sort_unstable();
        Ok(made)
    }

    #[inline(always)]
    pub fn find(&self, number: u32) -> Option<usize> {
        if number < DENSE {
            return self.dense.get(number as usize).and_then(|place| place.checked_sub(1)).map(usize::from);
        }
        let found = self.sparse.binary_search_by_key(&number, |(known, _)| *known).ok()?;
        Some(self.sparse[found].1.into())
    }

    /// The message of a well-known type, made once.
    pub fn part(part: Part) -> &'static Message {
        static PARTS: [LazyLock<Message>; 5] = [
            LazyLock::new(|| Message::made(Part::Moment)),
            LazyLock::new(|| Message::made(Part::Struct)),
            LazyLock::new(|| Message::made(Part::Entry)),
            LazyLock::new(|| Message::made(Part::List)),
            LazyLock::new(|| Message::made(Part::Value)),
        ];
        &PARTS[part as usize]
    }

    fn made(part: Part) -> Self {
        let field = |number: u32, name: &str, wire: Wire, repeated: bool, oneof: Option<u64>| Field {
            number,
            name: name.into(),
            kept: true,
            column: number as usize - 1,
            wire,
            kind: wire.name().into(),
            repeated,
            oneof,
            read: Read::Nothing,
            limits: None,
            expected: String::new(),
            missing: None,
            default: None,
        };
        let fields = match part {
            Part::Moment => {
                vec![field(1, "seconds", Wire::Int, false, None), field(2, "nanos", Wire::Int, false, None)]
            }
            Part::Struct => vec![field(1, "fields", Wire::Message, true, None)],
            Part::Entry => {
                vec![field(1, "key", Wire::Bytes, false, None), field(2, "value", Wire::Message, false, None)]
            }
            Part::List => vec![field(1, "values", Wire::Message, true, None)],
            Part::Value => vec![
                field(1, "null_value", Wire::Int, false, Some(0)),
                field(2, "number_value", Wire::Double, false, Some(0)),
                field(3, "string_value", Wire::Bytes, false, Some(0)),
                field(4, "bool_value", Wire::Uint, false, Some(0)),
                field(5, "struct_value", Wire::Message, false, Some(0)),
                field(6, "list_value", Wire::Message, false, Some(0)),
            ],
        };
        Message::of(fields, 0).expect("as it stands above")
    }
}

impl Part {
    /// What a field of this part is in turn.
    pub fn inside(self, place: usize) -> Option<Part> {
        match (self, place) {
            (Part::Struct, 0) => Some(Part::Entry),
            (Part::Entry, 1) | (Part::List, 0) => Some(Part::Value),
            (Part::Value, 4) => Some(Part::Struct),
            (Part::Value, 5) => Some(Part::List),
            _ => None,
        }
    }
}

impl Wire {
    fn of(name: &str) -> Option<Wire> {
        let all = [
            Wire::Int,
            Wire::Uint,
            Wire::Sint,
            Wire::Fixed32,
            Wire::Sfixed32,
            Wire::Fixed64,
            Wire::Sfixed64,
            Wire::Float,
            Wire::Double,
            Wire::Bytes,
            Wire::Message,
            Wire::Group,
        ];
        all.into_iter().find(|wire| wire.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Wire::Int => "int64",
            Wire::Uint => "uint64",
            Wire::Sint => "sint64",
            Wire::Fixed32 => "fixed32",
            Wire::Sfixed32 => "sfixed32",
            Wire::Fixed64 => "fixed64",
            Wire::Sfixed64 => "sfixed64",
            Wire::Float => "float",
            Wire::Double => "double",
            Wire::Bytes => "bytes",
            Wire::Message => "message",
            Wire::Group => "group",
        }
    }

    /// The wire type of the tag.
    #[inline(always)]
    pub fn tag(self) -> u32 {
        match self {
            Wire::Int | Wire::Uint | Wire::Sint => 0,
            Wire::Fixed64 | Wire::Sfixed64 | Wire::Double => 1,
            Wire::Bytes | Wire::Message => 2,
            Wire::Group => 3,
            Wire::Fixed32 | Wire::Sfixed32 | Wire::Float => 5,
        }
    }

    #[inline(always)]
    pub fn packable(self) -> bool {
        !matches!(self, Wire::Bytes | Wire::Message | Wire::Group)
    }
}

fn message(plan: &Value, columns: &[Column]) -> Result<Message, NotNative> {
    let nodes = plan.as_array().ok_or(wrong("no list of fields"))?;
    let fields = nodes.iter().map(|node| field(node, columns)).collect::<Result<Vec<_>, _>>()?;
    let made = Message::of(fields, columns.len())?;
    match made.absent.iter().find(|column| !columns[**column].nullable) {
        Some(_) => Err(wrong("a NOT NULL column that the message does not have")),
        None => Ok(made),
    }
}

fn field(node: &Value, columns: &[Column]) -> Result<Field, NotNative> {
    let name = text(node, "name")?;
    let wire = Wire::of(text(node, "wire")?).ok_or(wrong("a wire type"))?;
    let number = node["number"].as_u64().filter(|number| (1..1 << 29).contains(number));
    let column = node["column"].as_u64().map(|column| column as usize);
    let repeated = node["repeated"] == true;
    let read = match column {
        None => Read::Nothing,
        Some(column) => {
            let target = columns.get(column).ok_or(wrong("a column that is not there"))?;
            reading(node, wire, repeated, target).ok_or_else(|| unfit(node, target))??
        }
    };
    let nullable = column.is_none_or(|column| columns[column].nullable);
    let missing = node["missing"].as_str().map(str::to_owned);
    let default = default(node, wire)?;
    if !nullable && !repeated && missing.is_none() && default.is_none() {
        return Err(wrong(format!("{name} may be NULL, and its column not")));
    }
    Ok(Field {
        number: number.ok_or(wrong("a number"))? as u32,
        name: name.into(),
        kept: column.is_some(),
        column: column.unwrap_or_default(),
        wire,
        kind: node["type"].as_str().unwrap_or(wire.name()).into(),
        repeated,
        oneof: node["oneof"].as_u64(),
        limits: limits(node),
        read,
        expected: node["expected"].as_str().unwrap_or_default().into(),
        missing,
        default,
    })
}

type Reading = Option<Result<Read, NotNative>>;

/// The conversion, if it is one that the column's type has.
fn reading(node: &Value, wire: Wire, repeated: bool, column: &Column) -> Reading {
    match &column.data {
        Data::Map(_, keys, values) if repeated && node["key"].is_object() && wire == Wire::Message => {
            Some(entry(node, keys, values).map(Read::Map))
        }
        Data::List(_, child) if repeated => value(node, wire, child),
        _ if repeated => None,
        _ => value(node, wire, column),
    }
}

fn entry(node: &Value, keys: &Column, values: &Column) -> Result<Message, NotNative> {
    let mut fields = Vec::new();
    for (name, column) in [("key", keys), ("value", values)] {
        let mut part = field(&with_column(&node[name], 0), std::slice::from_ref(column))?;
        part.column = fields.len();
        if part.repeated || part.default.is_none() {
            return Err(wrong("an entry's part without a default"));
        }
        fields.push(part);
    }
    Message::of(fields, 2)
}

fn with_column(node: &Value, column: u64) -> Value {
    let mut node = node.clone();
    node["column"] = column.into();
    node
}

fn value(node: &Value, wire: Wire, column: &Column) -> Reading {
    let part = wire == Wire::Message || wire == Wire::Group;
    let number = wire.packable() && !matches!(wire, Wire::Float | Wire::Double);
    let read = match (node["as"].as_str()?, &column.data, &column.kind) {
        ("integer", Data::I8(_) | Data::I16(_) | Data::I32(_) | Data::I64(_), kind)
            if number && kind.is_integer() =>
        {
            Read::Integer
        }
        ("boolean", Data::Bool(_), _) if number => Read::Boolean,
        ("real", Data::F32(_) | Data::F64(_), _) if number => Read::Real,
        ("decimal", Data::Decimal(_), DataType::Decimal128(_, scale)) if number => {
            Read::Decimal(10i128.checked_pow(u32::try_from(*scale).ok()?)?)
        }
        ("millis", Data::I64(_), DataType::Timestamp(TimeUnit::Microsecond, _)) if number => Read::Millis,
        ("enum", Data::Bytes(_), DataType::Utf8) if number => Read::Enum(names(node)?),
        ("float", Data::F32(_), _) if wire == Wire::Float => Read::Float,
        ("float", Data::F64(_), _) if matches!(wire, Wire::Float | Wire::Double) => Read::Float,
        ("string", Data::Bytes(_), DataType::Utf8) if wire == Wire::Bytes => {
            Read::Text { string: node["utf8"] == "malformed" }
        }
        ("binary", Data::Bytes(_), DataType::Binary) if wire == Wire::Bytes => {
            Read::Binary { string: node["utf8"] == "malformed" }
        }
        ("struct", Data::Struct(children, _), _) if part => {
            return Some(message(&node["fields"], children).map(Read::Struct));
        }
        ("only", _, _) if part => {
            return Some(message(&node["fields"], std::slice::from_ref(column)).map(Read::Only));
        }
        ("timestamp", Data::I64(_), DataType::Timestamp(TimeUnit::Microsecond, Some(_))) if part => {
            Read::Timestamp
        }
        ("duration", Data::I64(_), DataType::Int64) if part => Read::Duration,
        ("json", Data::Bytes(_), DataType::Utf8) if part => Read::Json(match node["json"].as_str()? {
            "Struct" => Part::Struct,
            "Value" => Part::Value,
            "ListValue" => Part::List,
            _ => return None,
        }),
        _ => return None,
    };
    Some(Ok(read))
}

fn names(node: &Value) -> Option<Vec<(i128, String)>> {
    let names = node["names"].as_object()?.iter();
    let mut names: Vec<(i128, String)> = names
        .map(|(number, name)| Some((number.parse().ok()?, name.as_str()?.to_owned())))
        .collect::<Option<_>>()?;
    names.sort_unstable();
    Some(names)
}

fn limits(node: &Value) -> Option<(i128, i128)> {
    Some((whole(&node["low"])?, whole(&node["high"])?))
}

/// A limit may be beyond 64 bits, where a DECIMAL's digits are it; no number on the wire is.
fn whole(value: &Value) -> Option<i128> {
    match (value.as_i64(), value.as_u64(), value.as_f64()) {
        (Some(value), _, _) => Some(value.into()),
        (_, Some(value), _) => Some(value.into()),
        (_, _, Some(value)) => Some(value as i128),
        _ => None,
    }
}

fn default(node: &Value, wire: Wire) -> Result<Option<Default>, NotNative> {
    let Some(given) = node.get("default") else { return Ok(None) };
    let found = match wire {
        Wire::Message | Wire::Group => Some(Default::Empty),
        Wire::Bytes => given.as_str().and_then(|text| STANDARD.decode(text).ok()).map(Default::Bytes),
        Wire::Float | Wire::Double => given.as_str().and_then(|text| text.parse().ok()).map(Default::Real),
        _ => whole(given).map(Default::Number),
    };
    found.map(Some).ok_or_else(|| wrong("a default"))
}

fn text<'a>(node: &'a Value, name: &str) -> Result<&'a str, NotNative> {
    node[name].as_str().ok_or_else(|| wrong(format!("no '{name}'")))
}

fn unfit(node: &Value, column: &Column) -> NotNative {
    wrong(format!("{} as {} into {} {}", node["wire"], node["as"], column.name, column.kind))
}

fn wrong(what: impl Into<Cow<'static, str>>) -> NotNative {
    NotNative::Plan("protobuf", what.into())
}
