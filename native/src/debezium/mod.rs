//! FORMAT debezium-json: a change of a row a message, into one row of the columns or two.
//!
//! The rules are those of `formats/debezium_format.py`. As with plain JSON the fast path only answers whether
//! a record is good, and what was wrong is found out by a second look.

pub mod units;

use crate::columns::{Column, Data};
use crate::json::explain::{describe, members, object, second_look};
use crate::json::{Bad, Json, Res};
use crate::refusal::{Kind, Refusal};
use arrow_schema::DataType;
use std::borrow::Cow;

/// `_op`, `_ts_ms` and `_weight`, behind the table's columns.
const CHANGE: usize = 3;
const UNAVAILABLE: &[u8] = b"__debezium_unavailable_value";
const POSTGRESQL: &str = "; ALTER TABLE … REPLICA IDENTITY FULL makes PostgreSQL log it";
const MYSQL: &str = "; binlog_row_image = FULL makes the server log it";
const ORACLE: &str = "; ALTER TABLE … ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS makes Oracle log it";

pub fn fits(columns: &[Column]) -> bool {
    let Some(table) = columns.len().checked_sub(CHANGE) else { return false };
    let kinds: Vec<_> = columns[table..].iter().map(|column| &column.kind).collect();
    kinds == [&DataType::Utf8, &DataType::Int64, &DataType::Int32]
}

/// The schema that the columns' units are from, as its event has it: mostly the next one's too.
#[derive(Default)]
pub struct Described(Vec<u8>);

impl Described {
    /// Append a change's rows and return how many they are and whether one has a case mismatch, or leave the columns
    /// as they were.
    pub fn decode(
        &mut self,
        columns: &mut [Column],
        row: usize,
        payload: &[u8],
        strangers: &mut Vec<u32>,
    ) -> Result<(usize, bool), Refusal> {
        if payload.is_empty() {
            return Ok((0, false)); // a tombstone, as some producers write it
        }
        let mut json = Json::noting(payload, strangers);
        let taken = std::str::from_utf8(payload).map_err(|_| Bad);
        let taken = taken.and_then(|_| self.change(columns, row, &mut json));
        if let Ok(rows) = taken {
            return Ok((rows, json.case_mismatch));
        }
        columns.iter_mut().for_each(|column| column.truncate(row));
        Err(second_look(columns, row, payload, explain))
    }

    fn learn(&mut self, columns: &mut [Column], schema: &[u8]) {
        if self.0 != schema {
            units::describe(columns, schema);
            self.0 = schema.to_vec();
        }
    }
}

/// Where the values of an event start; 0 for those that are missing, since a `{` stands there.
#[derive(Default)]
struct Event {
    payload: usize,
    before: usize,
    after: usize,
    op: usize,
    ts_ms: usize,
    schema: (usize, usize),
}

impl Event {
    /// Walk an object, after its `{`.
    fn read(json: &mut Json<'_>, depth: usize) -> Res<Event> {
        let mut event = Event::default();
        let mut more = json.any(b'}')?;
        while more {
            let name = json.name()?;
            let start = json.at;
            let mut is_schema = false;
            let place = match &*name.unescaped() {
                b"before" => Some(&mut event.before),
                b"after" => Some(&mut event.after),
                b"op" => Some(&mut event.op),
                b"ts_ms" => Some(&mut event.ts_ms),
                b"payload" => Some(&mut event.payload),
                name => {
                    is_schema = name == b"schema";
                    None
                }
            };
            if let Some(place) = place {
                if *place != 0 {
                    return Err(Bad); // named twice
                }
                *place = json.at;
            }
            json.skip(depth)?;
            if is_schema {
                event.schema = (start, json.at);
            }
            more = json.more(b'}')?;
        }
        Ok(event)
    }
}

impl Described {
    fn change(&mut self, columns: &mut [Column], row: usize, json: &mut Json<'_>) -> Res<usize> {
        let payload = json.text;
        json.space();
        json.expect(b'{')?;
        let mut event = Event::read(json, 1)?;
        json.space();
        if json.at != payload.len() {
            return Err(Bad);
        }
        let mut depth = 2;
        let mut schema: &[u8] = &[];
        if event.payload != 0 && event.op == 0 {
            json.at = event.payload;
            if json.peek()? == b'n' {
                return Ok(0);
            }
            json.expect(b'{')?;
            schema = &payload[event.schema.0..event.schema.1];
            event = Event::read(json, 2)?;
            depth = 3;
        }
        let at = |place: usize| if place == 0 { b'n' } else { payload[place] };
        json.at = event.op;
        let op = if at(event.op) == b'"' { json.string()?.unescaped() } else { return Err(Bad) };
        let stamp = if at(event.ts_ms) == b'n' {
            None
        } else {
            json.at = event.ts_ms;
            Some(json.integer()?)
        };
        let images = images(&op).ok_or(Bad)?;
        let (table, change) = columns.split_at_mut(columns.len() - CHANGE);
        self.learn(table, schema);
        for (count, (name, weight)) in images.iter().enumerate() {
            let place = if *name == "before" { event.before } else { event.after };
            if at(place) != b'{' {
                return Err(Bad);
            }
            json.at = place + 1;
            json.fields(table, row + count, depth)?;
            if unavailable(table, row + count).is_some() {
                return Err(Bad);
            }
            if let [Column { data: Data::Bytes(ops), .. }, stamps, Column { data: Data::I32(weights), .. }] =
                change
            {
                ops.push(&op);
                match (stamp, &mut stamps.data) {
                    (Some(stamp), Data::I64(values)) => values.push(stamp),
                    _ => stamps.push_null(),
                }
                weights.push(*weight);
            }
        }
        Ok(images.len())
    }
}

/// What an operation takes back and what it adds.
fn images(op: &[u8]) -> Option<&'static [(&'static str, i32)]> {
    match op {
        b"c" | b"r" => Some(&[("after", 1)]),
        b"u" => Some(&[("before", -1), ("after", 1)]),
        b"d" => Some(&[("before", -1)]),
        _ => None,
    }
}

/// The column, if there is one, whose value the database did not log.
fn unavailable(table: &[Column], row: usize) -> Option<&str> {
    let is = |column: &&Column| match &column.data {
        Data::Bytes(bytes) => bytes.get(row) == UNAVAILABLE,
        _ => false,
    };
    table.iter().find(is).map(|column| column.name.as_str())
}

/// The faults of an event, in the order in which the reference decoder finds them.
fn explain(columns: &mut [Column], row: usize, text: &[u8]) -> Result<(), Refusal> {
    let mut event = members(text);
    unique(&event)?;
    if let (Some(payload), None) = (get(&event, "payload"), get(&event, "op")) {
        match payload[0] {
            b'n' => return Ok(()),
            b'{' => event = members(payload),
            _ => {
                let found = describe(payload);
                return Err(
                    Refusal::mismatch(format!("expected an object, found {found}")).within(".payload")
                );
            }
        }
        unique(&event)?;
    }
    let op = operation(get(&event, "op")).map_err(|refusal| refusal.within(".op"))?;
    if let Some(stamp) = get(&event, "ts_ms").filter(|stamp| stamp[0] != b'n')
        && Json::new(stamp).integer().is_err()
    {
        return Err(Refusal::unfit("BIGINT", describe(stamp)).within(".ts_ms"));
    }
    let table = columns.len() - CHANGE;
    let connector = connector(&event);
    for (name, _) in images(&op).unwrap_or_default() {
        let step = format!(".{name}");
        image(&mut columns[..table], row, &op, name, get(&event, name), &connector)
            .map_err(|refusal| refusal.within(&step))?;
    }
    Ok(())
}

type Members<'a> = Vec<(Cow<'a, [u8]>, &'a [u8])>;

fn get<'a>(event: &Members<'a>, name: &str) -> Option<&'a [u8]> {
    event.iter().find(|(found, _)| **found == *name.as_bytes()).map(|(_, value)| *value)
}

/// The `connector` of the event's `source`: which database it is from.
fn connector(event: &Members<'_>) -> Vec<u8> {
    let source = event.iter().rev().find(|(name, _)| **name == *b"source").map(|(_, value)| *value);
    source.and_then(|source| units::get(source, "connector")).and_then(units::string).unwrap_or_default()
}

/// How to have a row as it was logged.
fn row_hint(connector: &[u8]) -> &'static str {
    match connector {
        b"postgresql" => POSTGRESQL,
        b"mysql" | b"mariadb" => MYSQL,
        b"oracle" => ORACLE,
        _ => "",
    }
}

/// How to have a large value logged.
fn value_hint(connector: &[u8]) -> &'static str {
    if connector == b"postgresql" { POSTGRESQL } else { "" }
}

fn unique(event: &Members<'_>) -> Result<(), Refusal> {
    for name in ["after", "before", "op", "payload", "ts_ms"] {
        if event.iter().filter(|(found, _)| **found == *name.as_bytes()).count() > 1 {
            return Err(Refusal::malformed(format!("the field '{name}' occurs more than once")));
        }
    }
    Ok(())
}

fn operation(value: Option<&[u8]>) -> Result<Vec<u8>, Refusal> {
    let Some(value) = value.filter(|value| value[0] != b'n') else {
        let reason = "missing: this is no change event; FORMAT json reads rows as they are";
        return Err(Refusal::mismatch(reason));
    };
    let op = Json::new(value).string().map(|text| text.unescaped().into_owned()).unwrap_or_default();
    if op == b"t" {
        let reason =
            "a truncate does not say which rows are gone; create the source anew, from a snapshot after it";
        return Err(Refusal::new(Kind::Other, reason));
    }
    if images(&op).is_none() {
        return Err(Refusal::mismatch(format!("expected c, r, u or d, found {}", describe(value))));
    }
    Ok(op)
}

fn image(
    table: &mut [Column],
    row: usize,
    op: &[u8],
    name: &str,
    value: Option<&[u8]>,
    connector: &[u8],
) -> Result<(), Refusal> {
    match value {
        Some(text) if text[0] == b'{' => object(table, row, text)?,
        Some(text) if text[0] != b'n' => {
            return Err(Refusal::mismatch(format!("expected an object, found {}", describe(text))));
        }
        _ => {
            let how = if value.is_some() { "null" } else { "missing" };
            let needed = if name == "before" { row_hint(connector) } else { "" };
            let op = String::from_utf8_lossy(op);
            return Err(Refusal::mismatch(format!("op '{op}' needs the row, but it is {how}{needed}")));
        }
    }
    match unavailable(table, row) {
        Some(column) => {
            let reason = format!("the value was not logged{}", value_hint(connector));
            let refusal = Refusal::new(Kind::TypeConversion, reason);
            Err(refusal.within(&format!(".{column}")))
        }
        None => Ok(()),
    }
}
