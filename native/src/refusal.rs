//! Why a record is not taken. The kinds are those of `formats/contract.py`, word for word.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    MalformedPayload,
    SchemaMismatch,
    TypeConversion,
    PayloadTooLarge,
    UnknownSchemaId,
    Other,
}

impl Kind {
    pub const ALL: [Kind; 6] = [
        Kind::MalformedPayload,
        Kind::SchemaMismatch,
        Kind::TypeConversion,
        Kind::PayloadTooLarge,
        Kind::UnknownSchemaId,
        Kind::Other,
    ];

    pub fn named(name: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::MalformedPayload => "MalformedPayload",
            Kind::SchemaMismatch => "SchemaMismatch",
            Kind::TypeConversion => "TypeConversion",
            Kind::PayloadTooLarge => "PayloadTooLarge",
            Kind::UnknownSchemaId => "UnknownSchemaId",
            Kind::Other => "Other",
        }
    }
}

/// One refused record: its kind, and a message for people that never holds all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: Kind,
    path: String,
    reason: String,
    /// What the decoder must be taught before it can say anything about the record.
    pub wants: Option<Wanted>,
    /// Whether it is the key that is refused, and not the value.
    pub of_key: bool,
}

/// A schema that is not known yet, by the header that names it, and whose it is: the value's or the key's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub header: Box<[u8]>,
    pub of_key: bool,
}

impl Refusal {
    pub fn new(kind: Kind, reason: impl Into<String>) -> Self {
        Refusal { kind, path: String::new(), reason: reason.into(), wants: None, of_key: false }
    }

    pub fn wanting(header: &[u8]) -> Self {
        let wants = Some(Wanted { header: header.into(), of_key: false });
        Refusal { wants, ..Refusal::new(Kind::UnknownSchemaId, "wants a schema") }
    }

    pub fn malformed(reason: impl Into<String>) -> Self {
        Refusal::new(Kind::MalformedPayload, reason)
    }

    pub fn mismatch(reason: impl Into<String>) -> Self {
        Refusal::new(Kind::SchemaMismatch, reason)
    }

    pub fn unfit(expected: impl AsRef<str>, found: impl AsRef<str>) -> Self {
        Refusal::new(
            Kind::TypeConversion,
            ["expected ", expected.as_ref(), ", found ", found.as_ref()].concat(),
        )
    }

    /// Put one step (`.name`, `[3]`, `['key']`) in front of the path.
    pub fn within(mut self, step: &str) -> Self {
        self.path.insert_str(0, step);
        self
    }

    /// Put a field's name in front of the path.
    pub fn in_field(mut self, name: &str) -> Self {
        self.path = [".", name, &self.path].concat();
        self
    }

    /// The same, of the key.
    pub fn of_key(mut self) -> Self {
        self.of_key = true;
        self
    }

    /// Where in the record, if it is one place.
    pub fn path(&self) -> &str {
        self.path.strip_prefix('.').unwrap_or(&self.path)
    }

    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The path and the reason.
    pub fn message(&self) -> String {
        if self.path.is_empty() {
            return self.reason.clone();
        }
        format!("{}: {}", self.path(), self.reason)
    }
}

/// Characters of a value that a message shows: enough to recognise it, too few to leak a payload.
const SHOWN: usize = 40;

pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub fn quote(text: &str) -> String {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\');
    if text.len() <= SHOWN && text.bytes().all(plain) {
        return ["'", text, "'"].concat(); // as most are
    }
    format!("'{}'", shorten(text).escape_debug().to_string().replace("\\\"", "\""))
}
