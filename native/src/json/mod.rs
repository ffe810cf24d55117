//! FORMAT json: one object a message, read straight into the columns that the schema asks for.
//!
//! The fast path answers whether a record is good, and of what kind a bad one is; what was wrong with it, in
//! words, is found out by `explain`, which looks again at those that somebody asks about, in the order in
//! which the reference decoder does.

pub mod explain;
pub mod text;

use crate::columns::{Column, Data};
use crate::debezium::units::Unit;
use crate::json::explain::explain;
use crate::json::text::{Text, folded, hex, plain_end};
use crate::refusal::{Kind, Refusal};
use crate::scalars;
use arrow_schema::DataType;

/// Nesting beyond this is malformed, as in `formats/json_text.py`.
pub const MAX_DEPTH: usize = 256;

/// The depth of a record's own fields.
const TOP: usize = 1;

/// The record is not taken.
pub struct Bad;
pub type Res<T> = Result<T, Bad>;

/// Append one record to the columns, or leave them as they were. A refusal has no words if it is to be
/// `brief`: only its kind. Returns whether the record has a case mismatch.
pub fn decode(
    columns: &mut [Column],
    row: usize,
    payload: &[u8],
    brief: bool,
    strangers: &mut Vec<u32>,
) -> Result<bool, Refusal> {
    let mut json = Json::noting(payload, strangers);
    let fault = match std::str::from_utf8(payload) {
        Ok(_) => json.record(columns, row),
        Err(_) => Some(Fault::Text),
    };
    let Some(fault) = fault else { return Ok(json.case_mismatch) };
    columns.iter_mut().for_each(|column| column.truncate(row));
    Err(match fault {
        _ if brief => Refusal::new(fault.kind(), ""),
        Fault::Column(unfit) => {
            explain::value(&mut columns[unfit.index], unfit.start.map(|at| &payload[at..]))
        }
        Fault::Text | Fault::Shape => explain(columns, row, payload),
    })
}

/// What is wrong with a record, as far as the first look tells.
enum Fault {
    /// It is no JSON, or an object that names a field twice.
    Text,
    /// It is JSON, but no object.
    Shape,
    Column(Unfit),
}

impl Fault {
    fn kind(&self) -> Kind {
        match self {
            Fault::Text => Kind::MalformedPayload,
            Fault::Shape => Kind::SchemaMismatch,
            Fault::Column(unfit) => unfit.kind,
        }
    }
}

/// A column that does not take its value, and where that begins, if it is there at all.
#[derive(Clone, Copy)]
struct Unfit {
    index: usize,
    start: Option<usize>,
    kind: Kind,
}

/// A place in a payload that is UTF-8.
pub struct Json<'a> {
    pub text: &'a [u8],
    pub at: usize,
    /// The first column, in the order of the schema, whose value is not taken. Reading goes on to find out
    /// whether the text is JSON at all: if not, that is the fault.
    unfit: Option<Unfit>,
    /// Whether a column is NULL because its field differs from it only in case.
    pub case_mismatch: bool,
    /// Where the names are, in the objects that are open, of fields that are no columns.
    strangers: Option<&'a mut Vec<u32>>,
}

impl<'a> Json<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Json { text, at: 0, unfit: None, case_mismatch: false, strangers: None }
    }

    /// One that looks for case mismatches, with a list that is there already.
    pub fn noting(text: &'a [u8], strangers: &'a mut Vec<u32>) -> Self {
        strangers.clear();
        Json { strangers: Some(strangers), ..Json::new(text) }
    }

    /// None if the record is good.
    fn record(&mut self, columns: &mut [Column], row: usize) -> Option<Fault> {
        self.space();
        if self.peek().is_ok_and(|first| first != b'{') {
            return Some(self.no_object());
        }
        let read = self.expect(b'{').and_then(|()| self.fields(columns, row, TOP));
        self.space();
        match read {
            Ok(()) if self.at == self.text.len() => self.unfit.map(Fault::Column),
            _ => Some(Fault::Text),
        }
    }

    #[cold]
    fn no_object(&mut self) -> Fault {
        let read = self.skip(0);
        self.space();
        let whole = read.is_ok() && self.at == self.text.len();
        if whole { Fault::Shape } else { Fault::Text }
    }

    /// A column's value, which begins at `start`, is not taken: if it is JSON, take note and go on behind it.
    #[cold]
    fn note(&mut self, column: &mut Column, index: usize, row: usize, start: usize) -> Res<()> {
        column.truncate(row);
        self.at = start;
        self.skip(TOP)?;
        let kind = explain::kind(column, &self.text[start..]);
        column.truncate(row);
        column.push_null(); // so that it is seen if it is named twice
        self.keep(Unfit { index, start: Some(start), kind });
        Ok(())
    }

    fn keep(&mut self, unfit: Unfit) {
        if self.unfit.is_none_or(|first| unfit.index < first.index) {
            self.unfit = Some(unfit);
        }
    }

    #[inline(always)]
    pub fn peek(&self) -> Res<u8> {
        self.text.get(self.at).copied().ok_or(Bad)
    }

    #[inline(always)]
    pub fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    #[inline(always)]
    pub fn expect(&mut self, byte: u8) -> Res<()> {
        if self.peek()? != byte {
            return Err(Bad);
        }
        self.at += 1;
        Ok(())
    }

    #[inline(always)]
    pub fn word(&mut self, word: &[u8]) -> Res<()> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Bad);
        }
        self.at += word.len();
        Ok(())
    }

    /// After a value in `{…}` or `[…]`: whether another one follows.
    #[inline(always)]
    pub fn more(&mut self, close: u8) -> Res<bool> {
        self.space();
        let byte = self.peek()?;
        self.at += 1;
        if byte == b',' {
            self.space();
            Ok(true)
        } else if byte == close {
            Ok(false)
        } else {
            Err(Bad)
        }
    }

    /// After `{` or `[`: whether there is anything in it.
    #[inline(always)]
    pub fn any(&mut self, close: u8) -> Res<bool> {
        self.space();
        if self.peek()? != close {
            return Ok(true);
        }
        self.at += 1;
        Ok(false)
    }

    /// The fields of an object, after its `{`, into one row of the columns.
    pub fn fields(&mut self, columns: &mut [Column], row: usize, depth: usize) -> Res<()> {
        let (mut next, mut found) = (0, 0); // records mostly name their fields in one order
        let strangers = self.strangers.as_ref().map_or(0, |list| list.len());
        let mut more = self.any(b'}')?;
        while more {
            let index = match columns.get(next) {
                Some(column) if self.text[self.at..].starts_with(&column.quoted) => {
                    self.at += column.quoted.len();
                    self.colon()?;
                    Some(next)
                }
                _ => {
                    let start = self.at;
                    let index = find(columns, &self.name()?, next);
                    if index.is_none()
                        && let Some(list) = &mut self.strangers
                    {
                        list.push(start as u32);
                    }
                    index
                }
            };
            match index {
                Some(index) => {
                    let column = &mut columns[index];
                    if column.len() != row {
                        return Err(Bad); // named twice
                    }
                    let start = self.at;
                    if self.value(column, depth).is_err() {
                        if depth > TOP {
                            return Err(Bad);
                        }
                        self.note(column, index, row, start)?;
                    }
                    next = index + 1;
                    found += 1;
                }
                None => self.skip(depth)?,
            }
            more = self.more(b'}')?;
        }
        if found < columns.len() {
            self.look_for_case(columns, row, strangers);
            for (index, column) in columns.iter_mut().enumerate().filter(|(_, column)| column.len() == row) {
                match absent(column) {
                    Err(bad) if depth > TOP => return Err(bad),
                    Err(_) => self.keep(Unfit { index, start: None, kind: Kind::SchemaMismatch }),
                    Ok(()) => {}
                }
            }
        }
        if let Some(list) = &mut self.strangers {
            list.truncate(strangers);
        }
        Ok(())
    }

    /// Whether one of the strangers, from the first of this object on, differs only in case from a column that is absent.
    #[cold]
    #[inline(never)]
    fn look_for_case(&mut self, columns: &[Column], row: usize, first: usize) {
        let strangers = self.strangers.as_ref().map_or(&[][..], |list| &list[first..]);
        if strangers.is_empty() {
            return;
        }
        let bit = |folded: u32| 1_u64 << (folded % 64);
        let absent = columns.iter().filter(|column| column.len() == row);
        let bits = absent.clone().fold(0, |bits, column| bits | bit(column.folded));
        for start in strangers {
            let mut there = Json { at: *start as usize, ..Json::new(self.text) };
            let Ok(name) = there.string() else { continue };
            let name = name.unescaped();
            let folded = folded(&name);
            let alike = |column: &Column| {
                column.folded == folded && column.name.as_bytes().eq_ignore_ascii_case(&name)
            };
            if bits & bit(folded) != 0 && absent.clone().any(alike) {
                self.case_mismatch = true;
                return;
            }
        }
    }

    /// A name and its colon; the value comes next.
    #[inline(always)]
    pub fn name(&mut self) -> Res<Text<'a>> {
        let name = self.string()?;
        self.colon()?;
        Ok(name)
    }

    #[inline(always)]
    fn colon(&mut self) -> Res<()> {
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(())
    }

    /// One value into one column, which grows by one.
    pub fn value(&mut self, column: &mut Column, depth: usize) -> Res<()> {
        let first = self.peek()?;
        if first == b'n' {
            self.word(b"null")?;
            return absent(column);
        }
        match &mut column.data {
            Data::I64(values) => match &column.kind {
                DataType::Int64 => values.push(self.integer()?),
                kind => {
                    let zoned = matches!(kind, DataType::Timestamp(_, Some(_)));
                    values.push(self.timestamp(first, zoned, &column.unit)?);
                }
            },
            Data::F64(values) => values.push(self.double()?),
            Data::Bytes(bytes) => {
                let text = self.string()?;
                if matches!(column.kind, DataType::Utf8) {
                    text.append_to(&mut bytes.data);
                } else {
                    let text = text.unescaped();
                    if !scalars::base64(&text, &mut bytes.data) {
                        bytes.reopen();
                        return Err(Bad);
                    }
                }
                bytes.close();
            }
            Data::I32(values) if matches!((&column.kind, &column.unit), (DataType::Date32, Unit::Days)) => {
                values.push(scalars::days(self.integer()?).ok_or(Bad)?);
            }
            Data::I32(values) if matches!(column.kind, DataType::Date32) => {
                values.push(scalars::date(&self.string()?.unescaped()).ok_or(Bad)?);
            }
            Data::I32(values) => values.push(self.integer()?.try_into().map_err(|_| Bad)?),
            Data::I16(values) => values.push(self.integer()?.try_into().map_err(|_| Bad)?),
            Data::I8(values) => values.push(self.integer()?.try_into().map_err(|_| Bad)?),
            Data::F32(values) => values.push(scalars::float(self.number()?).ok_or(Bad)?),
            Data::Bool(values) => {
                self.word(if first == b't' { b"true" } else { b"false" })?;
                values.push(first == b't');
            }
            Data::Decimal(values) if matches!(column.unit, Unit::Unscaled(_)) => {
                values.push(column.unit.decimal(&self.string()?.unescaped()).ok_or(Bad)?);
            }
            Data::Decimal(values) => {
                let DataType::Decimal128(precision, scale) = column.kind else { return Err(Bad) };
                let text;
                let number = if first == b'"' {
                    text = self.string()?.unescaped();
                    &*text
                } else {
                    self.number()?
                };
                if !scalars::is_number(number) {
                    return Err(Bad);
                }
                values.push(scalars::decimal(number, precision, scale).ok_or(Bad)?);
            }
            Data::Struct(children, rows) => {
                self.enter(b'{', depth)?;
                self.fields(children, *rows, depth + 1)?;
                *rows += 1;
            }
            Data::List(ends, child) => {
                self.enter(b'[', depth)?;
                let mut more = self.any(b']')?;
                while more {
                    self.value(child, depth + 1)?;
                    more = self.more(b']')?;
                }
                ends.push(child.len().try_into().map_err(|_| Bad)?);
            }
            Data::Map(ends, keys, values) => {
                self.enter(b'{', depth)?;
                let first = keys.len();
                let mut more = self.any(b'}')?;
                while more {
                    key(keys, &self.name()?)?;
                    self.value(values, depth + 1)?;
                    more = self.more(b'}')?;
                }
                if keys.repeats_from(first) {
                    return Err(Bad);
                }
                ends.push(keys.len().try_into().map_err(|_| Bad)?);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn enter(&mut self, open: u8, depth: usize) -> Res<()> {
        if depth >= MAX_DEPTH {
            return Err(Bad);
        }
        self.expect(open)
    }

    #[inline(always)]
    fn number(&mut self) -> Res<&'a [u8]> {
        let end = scalars::number_end(self.text, self.at).ok_or(Bad)?;
        let number = &self.text[self.at..end];
        self.at = end;
        Ok(number)
    }

    #[inline(always)]
    pub fn integer(&mut self) -> Res<i64> {
        let start = self.at;
        let mut at = start + usize::from(self.peek()? == b'-');
        while self.text.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if let Some(b'.' | b'e' | b'E') = self.text.get(at) {
            return Err(Bad);
        }
        self.at = at;
        scalars::integer(&self.text[start..at]).ok_or(Bad)
    }

    #[inline(always)]
    fn double(&mut self) -> Res<f64> {
        scalars::double(self.number()?).ok_or(Bad)
    }

    fn timestamp(&mut self, first: u8, zoned: bool, unit: &Unit) -> Res<i64> {
        if first == b'"' && matches!(unit, Unit::Plain | Unit::Unscaled(_)) {
            scalars::timestamp(&self.string()?.unescaped(), zoned).ok_or(Bad)
        } else {
            unit.timestamp(self.integer()?).ok_or(Bad)
        }
    }

    /// A string, from its opening quote to behind its closing one.
    #[inline(always)]
    pub fn string(&mut self) -> Res<Text<'a>> {
        self.expect(b'"')?;
        let start = self.at;
        let at = plain_end(self.text, start);
        match self.text.get(at) {
            Some(b'"') => {
                self.at = at + 1;
                Ok(Text::plain(&self.text[start..at]))
            }
            Some(b'\\') => {
                self.at = at;
                self.escaped_string(start)
            }
            _ => {
                self.at = at; // a control character, or the end
                Err(Bad)
            }
        }
    }

    #[cold]
    fn escaped_string(&mut self, start: usize) -> Res<Text<'a>> {
        loop {
            match self.peek()? {
                b'"' => {
                    let raw = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(Text::escaped(raw));
                }
                b'\\' => self.escape()?,
                byte if byte < 0x20 => return Err(Bad),
                _ => self.at += 1,
            }
        }
    }

    /// One escape, checked; half a surrogate pair is no character.
    fn escape(&mut self) -> Res<()> {
        let kind = *self.text.get(self.at + 1).ok_or(Bad)?;
        self.at += 2;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => match self.code_unit()? {
                0xd800..=0xdbff => {
                    self.word(b"\\u")?;
                    if (0xdc00..=0xdfff).contains(&self.code_unit()?) { Ok(()) } else { Err(Bad) }
                }
                0xdc00..=0xdfff => Err(Bad),
                _ => Ok(()),
            },
            _ => Err(Bad),
        }
    }

    fn code_unit(&mut self) -> Res<u32> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(Bad)?;
        self.at += 4;
        hex(digits).ok_or(Bad)
    }

    /// Any value, checked and not kept.
    pub fn skip(&mut self, depth: usize) -> Res<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            b'{' => {
                self.enter(b'{', depth)?;
                let mut more = self.any(b'}')?;
                while more {
                    self.name()?;
                    self.skip(depth + 1)?;
                    more = self.more(b'}')?;
                }
                Ok(())
            }
            b'[' => {
                self.enter(b'[', depth)?;
                let mut more = self.any(b']')?;
                while more {
                    self.skip(depth + 1)?;
                    more = self.more(b']')?;
                }
                Ok(())
            }
            _ => self.number().map(drop),
        }
    }
}

#[inline(always)]
pub fn find(columns: &[Column], name: &Text<'_>, next: usize) -> Option<usize> {
    if columns.get(next).is_some_and(|column| name.is(&column.name)) {
        return Some(next);
    }
    columns.iter().position(|column| name.is(&column.name))
}

/// A field that is missing or null.
#[inline(always)]
pub fn absent(column: &mut Column) -> Res<()> {
    if !column.nullable {
        return Err(Bad);
    }
    column.push_null();
    Ok(())
}

/// A map's key: text, or an integer in its one usual spelling.
pub fn key(keys: &mut Column, name: &Text<'_>) -> Res<()> {
    let text = name.unescaped();
    if let Data::Bytes(bytes) = &mut keys.data {
        bytes.push(&text);
        return Ok(());
    }
    if *text == *b"-0" {
        return Err(Bad);
    }
    let value = scalars::integer(&text).ok_or(Bad)?;
    match &mut keys.data {
        Data::I8(values) => values.push(value.try_into().map_err(|_| Bad)?),
        Data::I16(values) => values.push(value.try_into().map_err(|_| Bad)?),
        Data::I32(values) => values.push(value.try_into().map_err(|_| Bad)?),
        Data::I64(values) => values.push(value),
        _ => return Err(Bad),
    }
    Ok(())
}
