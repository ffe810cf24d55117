//! Why a JSON record is not taken: the slow second look, for bad records that somebody asks about.
//!
//! First the text itself, from its start to its end; then the columns in the order of the schema, as the
//! reference decoder has it, so that both name the same fault of a record that has several.

use crate::columns::{Column, Data};
use crate::debezium::units;
use crate::json::text::Text;
use crate::json::{Json, MAX_DEPTH, absent, find, key};
use crate::refusal::{Kind, Refusal, quote, shorten};
use crate::scalars::expected;
use std::borrow::Cow;

pub fn explain(columns: &mut [Column], row: usize, payload: &[u8]) -> Refusal {
    second_look(columns, row, payload, object)
}

const ODD: &str = "refused at first sight, but not at the second";

/// Fills the columns with one object's values, at this row.
type Fill = fn(&mut [Column], usize, &[u8]) -> Result<(), Refusal>;

/// The same for any shape of a JSON record: `fill` is given the object at the top level.
pub fn second_look(columns: &mut [Column], row: usize, payload: &[u8], fill: Fill) -> Refusal {
    let refused = top_level(payload).and_then(|text| fill(columns, row, text));
    columns.iter_mut().for_each(|column| column.truncate(row));
    refused.err().unwrap_or_else(|| Refusal::new(Kind::Other, ODD))
}

/// Why a column does not take its value, which is known to be JSON, or that it is not there.
pub fn value(column: &mut Column, text: Option<&[u8]>) -> Refusal {
    let rows = column.len();
    let refused = field(column, text);
    column.truncate(rows);
    match refused {
        Err(refusal) => refusal.in_field(&column.name),
        Ok(()) => Refusal::new(Kind::Other, ODD),
    }
}

/// Of what kind the fault is of a value, at the start of the text, that its column does not take. The text is
/// known to be JSON.
pub fn kind(column: &mut Column, text: &[u8]) -> Kind {
    match &column.data {
        _ if text[0] == b'n' => Kind::SchemaMismatch,
        Data::Struct(..) | Data::List(..) | Data::Map(..) => {
            inner(column, text).err().map_or(Kind::Other, |refusal| refusal.kind)
        }
        _ => Kind::TypeConversion,
    }
}

fn top_level(payload: &[u8]) -> Result<&[u8], Refusal> {
    if payload.is_empty() {
        return Err(Refusal::malformed("the payload is empty"));
    }
    if too_deep(payload) {
        return Err(Refusal::malformed(format!("nested deeper than {MAX_DEPTH} levels")));
    }
    if let Err(error) = std::str::from_utf8(payload) {
        return Err(Refusal::malformed(format!("invalid UTF-8 at byte {}", error.valid_up_to())));
    }
    let mut json = Json::new(payload);
    json.space();
    let start = json.at;
    let whole = json.skip(0).is_ok() && {
        json.space();
        json.at == payload.len()
    };
    if !whole {
        let (found, mut digits) = (unexpected(payload, json.at), itoa::Buffer::new());
        let words = ["not JSON: unexpected ", &found, " at byte ", digits.format(json.at)];
        return Err(Refusal::malformed(words.concat()));
    }
    if payload[start] != b'{' {
        let found = describe(&payload[start..]);
        return Err(Refusal::mismatch(["expected an object at the top level, found ", &found].concat()));
    }
    Ok(&payload[start..])
}

fn unexpected(payload: &[u8], at: usize) -> Cow<'static, str> {
    match std::str::from_utf8(&payload[at.min(payload.len())..]).ok().and_then(|rest| rest.chars().next()) {
        Some(character) => format!("{character:?}").into(),
        None => "end".into(),
    }
}

/// Brackets outside of strings, whether or not they match.
fn too_deep(payload: &[u8]) -> bool {
    if payload.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() <= MAX_DEPTH {
        return false; // which is quickly said of most
    }
    let (mut depth, mut quoted, mut at) = (0usize, false, 0);
    while let Some(byte) = payload.get(at) {
        match byte {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    false
}

/// The names of an object and where their values start. The text is known to be JSON.
pub fn members(text: &[u8]) -> Vec<(Cow<'_, [u8]>, &[u8])> {
    let mut json = Json::new(text);
    let mut found = Vec::with_capacity(8);
    json.at = 1;
    let mut more = json.any(b'}').unwrap_or(false);
    while more {
        let Ok(name) = json.name() else { break };
        found.push((name.unescaped(), &text[json.at..]));
        more = json.skip(0).is_ok() && json.more(b'}').unwrap_or(false);
    }
    found
}

pub fn elements(text: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    each_element(text, |element| found.push(element));
    found
}

fn each_element<'a>(text: &'a [u8], mut found: impl FnMut(&'a [u8])) {
    let mut json = Json::new(text);
    json.at = 1;
    let mut more = json.any(b']').unwrap_or(false);
    while more {
        found(&text[json.at..]);
        more = json.skip(0).is_ok() && json.more(b']').unwrap_or(false);
    }
}

pub fn object(columns: &mut [Column], row: usize, text: &[u8]) -> Result<(), Refusal> {
    let (mut values, mut twice, mut next) = (vec![None; columns.len()], None::<&str>, 0);
    for (name, value) in members(text) {
        let Some(index) = find(columns, &Text::plain(&name), next) else { continue };
        let column = &*columns[index].name;
        if values[index].replace(value).is_some() && twice.is_none_or(|first| column < first) {
            twice = Some(column);
        }
        next = index + 1;
    }
    if let Some(name) = twice {
        return Err(Refusal::malformed(format!("the field {} occurs more than once", quote(name))));
    }
    for (column, value) in columns.iter_mut().zip(values) {
        column.truncate(row);
        field(column, value).map_err(|refusal| refusal.in_field(&column.name))?;
    }
    Ok(())
}

fn field(column: &mut Column, value: Option<&[u8]>) -> Result<(), Refusal> {
    match value {
        Some(text) if text[0] != b'n' => inner(column, text),
        _ if absent(column).is_ok() => Ok(()),
        _ => {
            let how = if value.is_some() { "null" } else { "missing" };
            Err(Refusal::mismatch(format!("NOT NULL, but the field is {how}")))
        }
    }
}

/// One value that is not null.
fn inner(column: &mut Column, text: &[u8]) -> Result<(), Refusal> {
    let opens = match &column.data {
        Data::Struct(..) | Data::Map(..) => Some(b'{'),
        Data::List(..) => Some(b'['),
        _ => None,
    };
    if opens.is_some_and(|opens| text[0] != opens) {
        return Err(unfit(column, text));
    }
    match &mut column.data {
        Data::Struct(children, rows) => {
            object(children, *rows, text)?;
            *rows += 1;
        }
        Data::List(ends, child) => {
            for (index, element) in elements(text).into_iter().enumerate() {
                let step = format!("[{index}]");
                if element[0] != b'n' {
                    inner(child, element).map_err(|refusal| refusal.within(&step))?;
                } else if absent(child).is_err() {
                    return Err(Refusal::mismatch("NOT NULL, but the element is null").within(&step));
                }
            }
            ends.push(child.len() as i32);
        }
        Data::Map(ends, keys, values) => {
            let members = members(text);
            let mut names: Vec<_> = members.iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                let name = String::from_utf8_lossy(pair[0]);
                return Err(Refusal::malformed(format!("the key {} occurs more than once", quote(&name))));
            }
            for (name, value) in members {
                let shown = String::from_utf8_lossy(&name);
                let step = format!("[{}]", quote(&shown));
                if value[0] == b'n' && !values.nullable {
                    return Err(Refusal::mismatch("NOT NULL, but the value is null").within(&step));
                }
                if key_of(keys, &name).is_none() {
                    let found = format!("string {}", quote(&shown));
                    return Err(Refusal::unfit(expected(&keys.kind), found).within(&step));
                }
                if value[0] == b'n' {
                    values.push_null();
                } else {
                    inner(values, value).map_err(|refusal| refusal.within(&step))?;
                }
            }
            ends.push(keys.len() as i32);
        }
        _ => {
            let rows = column.len();
            if Json::new(text).value(column, 0).is_err() {
                column.truncate(rows);
                return Err(unfit(column, text));
            }
        }
    }
    Ok(())
}

fn unfit(column: &Column, text: &[u8]) -> Refusal {
    Refusal::unfit(units::expected(column), describe(text))
}

fn key_of(keys: &mut Column, name: &[u8]) -> Option<()> {
    key(keys, &Text::plain(name)).ok()
}

/// The value at the start of the text, in words. Containers are only counted.
pub fn describe(text: &[u8]) -> String {
    let mut json = Json::new(text);
    match text[0] {
        b'n' => "null".into(),
        b't' => "true".into(),
        b'f' => "false".into(),
        b'[' => {
            let (mut count, mut digits) = (0_usize, itoa::Buffer::new());
            each_element(text, |_| count += 1);
            ["an array of ", digits.format(count)].concat()
        }
        b'{' => {
            let mut names: Vec<_> = members(text).into_iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            names.dedup();
            format!("an object of {} fields", names.len())
        }
        b'"' => match json.string() {
            Ok(found) => ["string ", &quote(&String::from_utf8_lossy(&found.unescaped()))].concat(),
            Err(_) => "a string".into(),
        },
        _ => {
            let end = crate::scalars::number_end(text, 0).unwrap_or(0);
            ["number ", &shorten(&String::from_utf8_lossy(&text[..end]))].concat()
        }
    }
}
