//! The plan of `formats/avro_plan.py`, read from its JSON and checked against the columns.

use crate::avro::datum::Datum;
use crate::columns::{Column, Data};
use crate::error::NotNative;
use crate::scalars::Scale;
use arrow_schema::{DataType, TimeUnit};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

/// How a record of the writer becomes one row of the columns.
#[derive(Default)]
pub struct Plan {
    pub fields: Vec<Field>,
    /// The columns that the writer does not have: those with a default, and those that are NULL.
    pub defaults: Vec<Constant>,
    pub absent: Vec<usize>,
    /// Of the whole plan: the records that contain themselves.
    named: Vec<Arc<Named>>,
}

/// The fields of a record that contains itself; known once the plan is read.
type Named = OnceLock<Vec<Field>>;
type Names = HashMap<String, Arc<Named>>;

/// A column that has the same value in every record, as a datum.
pub struct Constant {
    pub column: usize,
    pub node: Node,
    pub datum: Vec<u8>,
}

pub struct Field {
    pub name: String,
    pub column: Option<usize>,
    pub node: Node,
}

pub struct Node {
    pub wire: Wire,
    /// What the column takes, for messages; empty where every value fits.
    pub expected: Box<str>,
}

/// A type as it lies in the bytes.
pub enum Wire {
    /// Whether it is refused: the column is NOT NULL.
    Null(bool),
    Boolean,
    Int(To),
    Long(To),
    Float,
    Double,
    Bytes(To),
    String,
    Fixed(usize, To),
    /// What each index stands for: the writer's symbol, and the reader's if it has one for it.
    Enum(Vec<(String, Option<String>)>),
    Union(Vec<Node>),
    Record(Plan),
    /// A value that the reader cannot take, of a union that has others.
    Refused(Box<Node>),
    /// Whether the items take no bytes.
    Array(Box<Node>, bool),
    Map(Box<Node>),
    /// A record that this is a part of, once more.
    Again(Weak<Named>),
}

/// What the column makes of a value.
pub enum To {
    Nothing,
    Integer(u32),
    Real,
    /// To a double, by way of a float.
    Rounded,
    Date,
    Millis,
    Micros,
    Text,
    Binary,
    Uuid,
    /// Three numbers: months, days, milliseconds.
    Duration,
    Decimal(Scale),
}

impl Plan {
    /// An error means that the plan is not one for these columns.
    pub fn new(plan: &str, columns: &[Column]) -> Result<Self, NotNative> {
        let plan: Value = serde_json::from_str(plan).map_err(|error| wrong(error.to_string()))?;
        let given = plan["named"].as_object().into_iter().flatten();
        let names: Names = given.clone().map(|(name, _)| (name.clone(), Arc::default())).collect();
        let mut found = record(&plan, Some(columns), &names)?;
        for (name, plan) in given {
            let fields = record(plan, None, &names)?.fields;
            names.get(name).map(|named| named.set(fields));
        }
        found.named = names.into_values().collect();
        Ok(found)
    }
}

fn record(plan: &Value, columns: Option<&[Column]>, names: &Names) -> Result<Plan, NotNative> {
    let mut found = Plan { absent: (0..columns.map_or(0, <[Column]>::len)).collect(), ..Plan::default() };
    for field in list(plan, "fields")? {
        let column = field["column"].as_u64().map(|index| index as usize);
        if let Some(index) = column {
            take(&mut found.absent, index)?;
        }
        let target = column.and_then(|index| columns?.get(index));
        let name = text(field, "name")?.into();
        found.fields.push(Field { name, column, node: node(field, target, names)? });
    }
    if !plan["defaults"].is_null() {
        for field in list(plan, "defaults")? {
            let column = field["column"].as_u64().ok_or(wrong("a default without a column"))? as usize;
            take(&mut found.absent, column)?;
            let target = columns.and_then(|columns| columns.get(column));
            let node = node(field, target, names)?;
            let datum = BASE64_STANDARD.decode(text(field, "datum")?).map_err(|_| wrong("a datum"))?;
            let mut end = Datum::new(&datum, 0);
            if end.skip(&node).is_err() || !end.is_over() {
                return Err(wrong("a default that is no datum"));
            }
            found.defaults.push(Constant { column, node, datum });
        }
    }
    if columns.is_some_and(|columns| found.absent.iter().any(|index| !columns[*index].nullable)) {
        return Err(wrong("a NOT NULL column that the writer does not have"));
    }
    Ok(found)
}

/// Each column has one value a record, or they would not stay of one length.
fn take(absent: &mut Vec<usize>, index: usize) -> Result<(), NotNative> {
    let place = absent.iter().position(|left| *left == index).ok_or(wrong("a column twice"))?;
    absent.remove(place);
    Ok(())
}

fn node(plan: &Value, column: Option<&Column>, names: &Names) -> Result<Node, NotNative> {
    if plan["as"] == "refused" {
        let mut inner = plan.clone();
        inner.as_object_mut().map(|inner| inner.remove("as"));
        let wire = Wire::Refused(Box::new(node(&inner, None, names)?));
        return Ok(Node { wire, expected: text(plan, "expected")?.into() });
    }
    let kind = text(plan, "avro")?;
    let to = to(plan, column).ok_or_else(|| unfit(plan, column))?;
    let wire = match (kind, column.map(|column| &column.data)) {
        ("null", _) => Wire::Null(column.is_some_and(|column| !column.nullable)),
        ("boolean", None | Some(Data::Bool(_))) => Wire::Boolean,
        ("int", _) => Wire::Int(to),
        ("long", _) => Wire::Long(to),
        ("float", None | Some(Data::F32(_) | Data::F64(_))) => Wire::Float,
        ("double", None | Some(Data::F64(_))) => Wire::Double,
        ("bytes", _) => Wire::Bytes(to),
        ("string", None | Some(Data::Bytes(_))) => Wire::String,
        ("fixed", _) => {
            let size = plan["size"].as_u64().and_then(|size| size.try_into().ok());
            Wire::Fixed(size.ok_or(wrong("a size"))?, to)
        }
        ("enum", None | Some(Data::Bytes(_))) => {
            let symbols = list(plan, "symbols")?.iter().map(|symbol| self::symbol(plan, symbol));
            Wire::Enum(symbols.collect::<Option<_>>().ok_or(wrong("a symbol"))?)
        }
        ("union", _) => {
            let branches = list(plan, "branches")?.iter().map(|branch| node(branch, column, names));
            Wire::Union(branches.collect::<Result<_, _>>()?)
        }
        ("recursive", None) => {
            let named = names.get(text(plan, "record")?).ok_or(wrong("a record without a name"))?;
            Wire::Again(Arc::downgrade(named))
        }
        ("record", None) => Wire::Record(record(plan, None, names)?),
        ("record", Some(Data::Struct(children, _))) => Wire::Record(record(plan, Some(children), names)?),
        ("array", None) => Wire::Array(Box::new(node(&plan["items"], None, names)?), is_empty(plan)),
        ("array", Some(Data::List(_, child))) => {
            Wire::Array(Box::new(node(&plan["items"], Some(child), names)?), is_empty(plan))
        }
        ("map", None) => Wire::Map(Box::new(node(&plan["items"], None, names)?)),
        ("map", Some(Data::Map(_, keys, values))) if keys.kind == DataType::Utf8 => {
            Wire::Map(Box::new(node(&plan["items"], Some(values), names)?))
        }
        _ => return Err(unfit(plan, column)),
    };
    Ok(Node { wire, expected: plan["expected"].as_str().unwrap_or_default().into() })
}

fn symbol(plan: &Value, symbol: &Value) -> Option<(String, Option<String>)> {
    let written = symbol.as_str()?;
    let becomes = plan["becomes"].get(written).unwrap_or(symbol);
    Some((written.to_owned(), becomes.as_str().map(str::to_owned)))
}

/// The conversion, if it is one that the column's type has.
fn to(plan: &Value, column: Option<&Column>) -> Option<To> {
    let (Some(name), Some(column)) = (plan["as"].as_str(), column) else {
        let kept = column.is_some() && plan["avro"] != "union";
        return (!kept && plan["as"].is_null()).then_some(To::Nothing);
    };
    match (name, &column.kind) {
        ("integer", DataType::Int8) => Some(To::Integer(8)),
        ("integer", DataType::Int16) => Some(To::Integer(16)),
        ("integer", DataType::Int32) => Some(To::Integer(32)),
        ("integer", DataType::Int64) => Some(To::Integer(64)),
        ("double", DataType::Float64) if plan["via"] == "float" => Some(To::Rounded),
        ("float", DataType::Float32) | ("double", DataType::Float64) => Some(To::Real),
        ("date", DataType::Date32) => Some(To::Date),
        ("millis", DataType::Timestamp(TimeUnit::Microsecond, _)) => Some(To::Millis),
        ("micros", DataType::Timestamp(TimeUnit::Microsecond, _)) => Some(To::Micros),
        ("string", DataType::Utf8) => Some(To::Text),
        ("binary", DataType::Binary) => Some(To::Binary),
        ("uuid", DataType::Utf8) if plan["size"] == 16 => Some(To::Uuid),
        ("duration", DataType::Struct(_)) if plan["size"] == 12 && is_duration(column) => Some(To::Duration),
        ("decimal", DataType::Decimal128(precision, scale)) => {
            Some(To::Decimal(Scale::new(plan["written"].as_u64()?, *precision, *scale)?))
        }
        ("null" | "never" | "boolean" | "struct" | "array" | "map", _) => Some(To::Nothing),
        _ => None,
    }
}

fn is_duration(column: &Column) -> bool {
    let Data::Struct(children, _) = &column.data else { return false };
    children.len() == 3 && children.iter().all(|child| child.kind == DataType::Int64)
}

fn is_empty(plan: &Value) -> bool {
    plan["empty"] == true
}

fn text<'a>(plan: &'a Value, name: &str) -> Result<&'a str, NotNative> {
    plan[name].as_str().ok_or_else(|| wrong(format!("no '{name}'")))
}

fn list<'a>(plan: &'a Value, name: &str) -> Result<&'a Vec<Value>, NotNative> {
    plan[name].as_array().ok_or_else(|| wrong(format!("no '{name}'")))
}

fn unfit(plan: &Value, column: Option<&Column>) -> NotNative {
    let kind = column.map_or("nothing".into(), |column| format!("{} {}", column.name, column.kind));
    wrong(format!("{} as {} into {kind}", plan["avro"], plan["as"]))
}

fn wrong(what: impl Into<Cow<'static, str>>) -> NotNative {
    NotNative::Plan("avro", what.into())
}
