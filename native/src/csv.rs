//! FORMAT csv: one record a message, columns by position. Takes what Python's `csv` takes in strict mode.

use crate::columns::{Column, Data};
use crate::error::NotNative;
use crate::refusal::{Refusal, quote, shorten};
use crate::scalars::{self, expected};
use arrow_schema::DataType;

/// The dialect, and the fields of the record at hand.
pub struct Csv {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    null: Vec<u8>,
    comment: Option<u8>,
    header: Option<Vec<Vec<u8>>>, // the columns' names, to tell the line of them by
    text: Vec<u8>,
    ends: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Start,
    Plain,
    Escaped,
    Quoted,
    EscapedInQuoted,
    QuoteInQuoted,
    LineOver,
}

impl Csv {
    /// Characters beyond ASCII are left to the reference decoder.
    pub fn new(delimiter: &str, quote: &str, escape: &str, null: &str) -> Result<Self, NotNative> {
        let quote = one(quote)?;
        Ok(Csv {
            delimiter: one(delimiter)?.ok_or(NotNative::Format("a delimiter is needed".into()))?,
            quote,
            escape: one(escape)?.filter(|escape| Some(*escape) != quote),
            null: null.as_bytes().to_vec(),
            comment: None,
            header: None,
            text: Vec::new(),
            ends: Vec::new(),
        })
    }

    pub fn skip_comments(&mut self, character: &str) -> Result<(), NotNative> {
        self.comment = one(character)?;
        Ok(())
    }

    pub fn skip_header(&mut self, columns: &[Column]) {
        let names = columns.iter().map(|column| column.name.as_bytes().to_ascii_lowercase());
        self.header = Some(names.collect());
    }

    /// Append one record and return 1; 0 for a line that is none.
    pub fn decode(&mut self, columns: &mut [Column], row: usize, payload: &[u8]) -> Result<usize, Refusal> {
        let line = one_line(payload)?;
        if self.comment.is_some() && line.first().copied() == self.comment {
            return if line.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
                Err(Refusal::malformed("more than one line"))
            } else {
                Ok(0)
            };
        }
        self.split(line)?;
        if self.is_header()? {
            return Ok(0);
        }
        let taken = self.fill(columns);
        if taken.is_err() {
            columns.iter_mut().for_each(|column| column.truncate(row));
        }
        taken.map(|()| 1)
    }

    fn is_header(&self) -> Result<bool, Refusal> {
        let Some(names) = &self.header else { return Ok(false) };
        if self.ends.len() != names.len() {
            return Ok(false);
        }
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let fields = starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end]);
        if fields.clone().zip(names).all(|(field, name)| field.eq_ignore_ascii_case(name)) {
            return Ok(true);
        }
        let mut found: Vec<Vec<u8>> = fields.map(<[u8]>::to_ascii_lowercase).collect();
        let mut wanted = names.clone();
        found.sort_unstable();
        wanted.sort_unstable();
        if found == wanted {
            // As a record it would be good wherever the columns are text.
            return Err(Refusal::mismatch("the header line names the columns in another order"));
        }
        Ok(false)
    }

    fn fill(&self, columns: &mut [Column]) -> Result<(), Refusal> {
        if self.ends.len() != columns.len() {
            return Err(Refusal::mismatch(format!(
                "expected {} fields, found {}",
                columns.len(),
                self.ends.len()
            )));
        }
        let mut start = 0;
        for (column, end) in columns.iter_mut().zip(&self.ends) {
            let text = &self.text[start..*end];
            start = *end;
            let taken = if text != self.null {
                field(column, text)
            } else if column.nullable {
                column.push_null();
                Ok(())
            } else {
                Err(Refusal::mismatch("NOT NULL, but the field is null"))
            };
            taken.map_err(|refusal| refusal.in_field(&column.name))?;
        }
        Ok(())
    }

    /// Cut the line into `text` and `ends`.
    fn split(&mut self, line: &[u8]) -> Result<(), Refusal> {
        self.text.clear();
        self.ends.clear();
        let special = |byte: &u8| Some(*byte) == self.quote || Some(*byte) == self.escape;
        if !line.iter().any(|byte| special(byte) || matches!(byte, b'\n' | b'\r')) {
            for part in line.split(|byte| *byte == self.delimiter) {
                self.text.extend_from_slice(part);
                self.ends.push(self.text.len());
            }
            return Ok(());
        }
        self.walk(line)
    }

    fn walk(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let mut state = State::Start;
        for byte in line {
            let is = |special: Option<u8>| special == Some(*byte);
            let end_of_line = matches!(byte, b'\n' | b'\r');
            state = match state {
                State::LineOver if end_of_line => State::LineOver,
                State::LineOver => return Err(Refusal::malformed("more than one line")),
                State::Start if is(self.quote) => State::Quoted,
                State::Start | State::Plain if end_of_line => self.close(State::LineOver),
                State::Start | State::Plain if is(self.escape) => State::Escaped,
                State::Start | State::Plain if *byte == self.delimiter => self.close(State::Start),
                State::Start | State::Plain | State::Escaped => self.add(*byte, State::Plain),
                State::Quoted if is(self.escape) => State::EscapedInQuoted,
                State::Quoted if is(self.quote) => State::QuoteInQuoted,
                State::Quoted | State::EscapedInQuoted => self.add(*byte, State::Quoted),
                State::QuoteInQuoted if is(self.quote) => self.add(*byte, State::Quoted),
                State::QuoteInQuoted if *byte == self.delimiter => self.close(State::Start),
                State::QuoteInQuoted if end_of_line => self.close(State::LineOver),
                State::QuoteInQuoted => {
                    let (delimiter, quote) =
                        (char::from(self.delimiter), char::from(self.quote.unwrap_or(b'"')));
                    return Err(Refusal::malformed(format!(
                        "not CSV: '{delimiter}' expected after '{quote}'"
                    )));
                }
            };
        }
        match state {
            State::Start | State::Plain | State::QuoteInQuoted => self.close(State::LineOver),
            State::LineOver => State::LineOver,
            _ => return Err(Refusal::malformed("not CSV: unexpected end of data")),
        };
        Ok(())
    }

    fn add(&mut self, byte: u8, next: State) -> State {
        self.text.push(byte);
        next
    }

    fn close(&mut self, next: State) -> State {
        self.ends.push(self.text.len());
        next
    }
}

fn one(text: &str) -> Result<Option<u8>, NotNative> {
    match text.as_bytes() {
        [] => Ok(None),
        [byte] if byte.is_ascii() => Ok(Some(*byte)),
        _ => Err(NotNative::Format(format!("'{text}' is not one ASCII character").into())),
    }
}

/// The payload without the line break at its end.
fn one_line(payload: &[u8]) -> Result<&[u8], Refusal> {
    if payload.is_empty() {
        return Err(Refusal::malformed("the payload is empty"));
    }
    if let Err(error) = std::str::from_utf8(payload) {
        return Err(Refusal::malformed(format!("invalid UTF-8 at byte {}", error.valid_up_to())));
    }
    let line = payload.strip_suffix(b"\n").unwrap_or(payload);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.last() {
        None => Err(Refusal::malformed("the payload is an empty line")),
        Some(b'\n' | b'\r') => Err(Refusal::malformed("more than one line")),
        Some(_) => Ok(line),
    }
}

/// One field that is not NULL.
fn field(column: &mut Column, text: &[u8]) -> Result<(), Refusal> {
    let taken = match &mut column.data {
        Data::Bool(values) => boolean(text).map(|value| values.push(value)),
        Data::I8(values) => small(text).map(|value| values.push(value)),
        Data::I16(values) => small(text).map(|value| values.push(value)),
        Data::I32(values) if column.kind == DataType::Date32 => {
            scalars::date(text).map(|value| values.push(value))
        }
        Data::I32(values) => small(text).map(|value| values.push(value)),
        Data::I64(values) if column.kind == DataType::Int64 => small(text).map(|value| values.push(value)),
        Data::I64(values) => {
            let zoned = matches!(column.kind, DataType::Timestamp(_, Some(_)));
            let found = if scalars::is_integer(text) {
                scalars::integer(text).and_then(scalars::millis)
            } else {
                scalars::timestamp(text, zoned)
            };
            found.map(|value| values.push(value))
        }
        Data::F32(values) => number(text).and_then(scalars::float).map(|value| values.push(value)),
        Data::F64(values) => number(text).and_then(scalars::double).map(|value| values.push(value)),
        Data::Decimal(values) => match column.kind {
            DataType::Decimal128(precision, scale) if scalars::is_number(text) => {
                scalars::decimal(text, precision, scale).map(|value| values.push(value))
            }
            _ => None,
        },
        Data::Bytes(bytes) if column.kind == DataType::Utf8 => {
            bytes.push(text);
            Some(())
        }
        Data::Bytes(bytes) => {
            let taken = scalars::base64(text, &mut bytes.data);
            if taken {
                bytes.close()
            } else {
                bytes.reopen()
            }
            taken.then_some(())
        }
        Data::Struct(..) | Data::List(..) | Data::Map(..) => None,
    };
    taken.ok_or_else(|| Refusal::unfit(expected(&column.kind), describe(text)))
}

fn boolean(text: &[u8]) -> Option<bool> {
    let is = |word: &[u8]| text.eq_ignore_ascii_case(word);
    is(b"true").then_some(true).or(is(b"false").then_some(false))
}

fn small<T: TryFrom<i64>>(text: &[u8]) -> Option<T> {
    scalars::integer(text).and_then(|value| value.try_into().ok())
}

fn number(text: &[u8]) -> Option<&[u8]> {
    scalars::is_number(text).then_some(text)
}

fn describe(text: &[u8]) -> String {
    let shown = String::from_utf8_lossy(text);
    if scalars::is_number(text) {
        format!("number {}", shorten(&shown))
    } else {
        format!("string {}", quote(&shown))
    }
}
