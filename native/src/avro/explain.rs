//! Why an Avro record is not taken: the slow second look, for bad records only.
//!
//! First the whole datum; then the columns in the order in which they are declared, as the reference decoder
//! has it, so that both name the same fault of a record that has several.

use crate::avro::datum::{Blocks, Datum, Fault};
use crate::avro::plan::{Field, Node, Plan, To, Wire};
use crate::refusal::{Kind, Refusal, quote, shorten};
use crate::scalars::{self, Scale};

pub fn explain(plan: &Plan, payload: &[u8], at: usize) -> Refusal {
    if payload.is_empty() {
        return Refusal::malformed("the payload is empty");
    }
    let mut datum = Datum::new(payload, at);
    if let Err(fault) = datum.skip_record(&plan.fields) {
        let reason = words(fault);
        return Refusal::malformed(format!("not a datum of the schema: {reason}, at byte {}", datum.at));
    }
    if !datum.is_over() {
        let (left, at) = (payload.len() - datum.at, datum.at);
        return Refusal::malformed(format!("{left} bytes are left after the datum's end at byte {at}"));
    }
    record(&plan.fields, payload, at)
        .err()
        .unwrap_or_else(|| Refusal::new(Kind::Other, "refused at first sight, but not at the second"))
}

fn words(fault: Fault) -> &'static str {
    match fault {
        Fault::End => "the payload ends inside of a value",
        Fault::Length => "a negative length",
        Fault::Boolean => "a boolean that is neither 0 nor 1",
        Fault::Bits => "a number of too many bits",
        Fault::Utf8 => "a string that is not UTF-8",
        Fault::Index => "an index that the union or enum does not have",
        Fault::Items => "a block of more items than there can be",
        Fault::Block => "a block that is not as long as it says",
        Fault::Key => "a key twice in a map",
        Fault::Nested => "a record that contains itself too often",
        Fault::Null | Fault::Reader | Fault::Unfit | Fault::Full => "a value that its column does not take",
    }
}

/// The datum is known to be one, so the walk itself meets no fault.
impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Refusal::new(Kind::Other, words(fault))
    }
}

fn record(fields: &[Field], payload: &[u8], at: usize) -> Result<(), Refusal> {
    let mut datum = Datum::new(payload, at);
    let mut kept = Vec::new();
    for field in fields {
        kept.extend(field.column.map(|column| (column, field, datum.at)));
        datum.skip(&field.node)?;
    }
    kept.sort_unstable_by_key(|(column, _, _)| *column);
    for (_, field, at) in kept {
        value(&field.node, &mut Datum::new(payload, at), payload)
            .map_err(|refusal| refusal.in_field(&field.name))?;
    }
    Ok(())
}

/// One value that a column is to hold; the datum stands behind it afterwards, if it can.
fn value(node: &Node, datum: &mut Datum<'_>, payload: &[u8]) -> Result<(), Refusal> {
    match &node.wire {
        Wire::Null(true) => return Err(Refusal::mismatch("NOT NULL, but the value is null")),
        Wire::Int(to) => number(i64::from(datum.int()?), to, node)?,
        Wire::Long(to) => number(datum.long()?, to, node)?,
        Wire::Bytes(to) => binary(datum.bytes()?, to, node)?,
        Wire::Fixed(size, to) => binary(datum.take(*size)?, to, node)?,
        Wire::Union(branches) => {
            let branch = branches.get(datum.index()?).ok_or(Fault::Index)?;
            value(branch, datum, payload)?;
        }
        Wire::Refused(_) => return Err(Refusal::mismatch(&*node.expected)),
        Wire::Enum(symbols) => {
            if let Some((written, None)) = symbols.get(datum.index()?) {
                let symbol = quote(written);
                return Err(Refusal::mismatch(format!(
                    "the symbol {symbol} is not one of the reader's, which has no default"
                )));
            }
        }
        Wire::Record(plan) => {
            record(&plan.fields, payload, datum.at)?;
            datum.skip(node)?;
        }
        Wire::Array(items, empty) => {
            let (mut blocks, mut index) = (Blocks::new(*empty), 0);
            while blocks.next(datum)? {
                value(items, datum, payload).map_err(|refusal| refusal.within(&format!("[{index}]")))?;
                index += 1;
            }
        }
        Wire::Map(items) => {
            let mut blocks = Blocks::new(false);
            while blocks.next(datum)? {
                let key = datum.text()?;
                value(items, datum, payload)
                    .map_err(|refusal| refusal.within(&format!("[{}]", quote(key))))?;
            }
        }
        _ => datum.skip(node)?,
    }
    Ok(())
}

fn number(value: i64, to: &To, node: &Node) -> Result<(), Refusal> {
    let fits = match to {
        To::Integer(bits) => value >> (bits - 1) == 0 || value >> (bits - 1) == -1,
        To::Date => scalars::days(value).is_some(),
        To::Millis => scalars::millis(value).is_some(),
        To::Micros => scalars::micros(value).is_some(),
        _ => true,
    };
    if fits { Ok(()) } else { Err(Refusal::unfit(&node.expected, format!("number {value}"))) }
}

fn binary(bytes: &[u8], to: &To, node: &Node) -> Result<(), Refusal> {
    let found = match to {
        To::Text if std::str::from_utf8(bytes).is_err() => "bytes that are not UTF-8".into(),
        To::Decimal(_) if bytes.is_empty() => "no bytes".into(),
        To::Decimal(scale) => match scalars::unscaled(bytes) {
            None => "a number of more than 38 digits".into(),
            Some(value) if scale.rescale(value).is_some() => return Ok(()),
            Some(value) => format!("number {}", shorten(&decimal(value, scale))),
        },
        _ => return Ok(()),
    };
    Err(Refusal::unfit(&node.expected, found))
}

/// The number as the writer has it.
fn decimal(value: i128, scale: &Scale) -> String {
    let mut digits = format!("{:0>width$}", value.unsigned_abs(), width = scale.written + 1);
    if scale.written > 0 {
        digits.insert(digits.len() - scale.written, '.');
    }
    if value < 0 { format!("-{digits}") } else { digits }
}
