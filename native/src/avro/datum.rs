//! The bytes of one datum, every one of them checked: the twin of `formats/avro_datum.py`.

use crate::avro::plan::{Field, Node, Wire};

/// Items of arrays that take no bytes, in one record: nothing else bounds how many there may be.
const MAX_EMPTY_ITEMS: u64 = 10_000;
/// How often a record may contain itself in one datum.
const MAX_NESTED: usize = 100;

/// Why a record is not taken. The last four are not about the bytes but about the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    End,
    Length,
    Boolean,
    Bits,
    Utf8,
    Index,
    Items,
    Block,
    Key,
    Nested,
    Null,
    Reader,
    Unfit,
    Full,
}

impl Fault {
    pub fn is_of_bytes(&self) -> bool {
        !matches!(self, Fault::Null | Fault::Reader | Fault::Unfit | Fault::Full)
    }
}

pub type Res<T> = Result<T, Fault>;

/// A place in a payload.
pub struct Datum<'a> {
    bytes: &'a [u8],
    pub at: usize,
    empty_items: u64,
    nested: usize,
}

impl<'a> Datum<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Datum { bytes, at, empty_items: 0, nested: 0 }
    }

    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Any value, checked and not kept.
    pub fn skip(&mut self, node: &Node) -> Res<()> {
        match &node.wire {
            Wire::Null(_) => return Ok(()),
            Wire::Boolean => return self.boolean().map(drop),
            Wire::Int(_) => return self.int().map(drop),
            Wire::Long(_) => return self.long().map(drop),
            Wire::Float => return self.take(4).map(drop),
            Wire::Double => return self.take(8).map(drop),
            Wire::Bytes(_) => return self.bytes().map(drop),
            Wire::String => return self.text().map(drop),
            Wire::Fixed(size, _) => return self.take(*size).map(drop),
            Wire::Enum(symbols) => return symbols.get(self.index()?).map(drop).ok_or(Fault::Index),
            Wire::Union(branches) => {
                let branch = branches.get(self.index()?).ok_or(Fault::Index)?;
                return self.skip(branch);
            }
            Wire::Record(plan) => return self.skip_record(&plan.fields),
            Wire::Refused(inner) => return self.skip(inner),
            Wire::Again(named) => {
                self.nested += 1;
                if self.nested > MAX_NESTED {
                    return Err(Fault::Nested);
                }
                let named = named.upgrade().ok_or(Fault::Unfit)?; // the plan holds it
                self.skip_record(named.get().ok_or(Fault::Unfit)?)?;
                self.nested -= 1;
            }
            Wire::Array(items, empty) => {
                let mut blocks = Blocks::new(*empty);
                while blocks.next(self)? {
                    self.skip(items)?;
                }
            }
            Wire::Map(items) => {
                let (mut blocks, mut keys) = (Blocks::new(false), Vec::new());
                while blocks.next(self)? {
                    keys.push(self.text()?);
                    self.skip(items)?;
                }
                keys.sort_unstable();
                if keys.windows(2).any(|pair| pair[0] == pair[1]) {
                    return Err(Fault::Key);
                }
            }
        }
        Ok(())
    }

    pub fn skip_record(&mut self, fields: &[Field]) -> Res<()> {
        fields.iter().try_for_each(|field| self.skip(&field.node))
    }

    #[inline(always)]
    pub fn take(&mut self, size: usize) -> Res<&'a [u8]> {
        let (taken, _) = self.bytes[self.at..].split_at_checked(size).ok_or(Fault::End)?;
        self.at += size;
        Ok(taken)
    }

    #[inline(always)]
    pub fn array<const N: usize>(&mut self) -> Res<[u8; N]> {
        let taken = *self.bytes[self.at..].first_chunk().ok_or(Fault::End)?;
        self.at += N;
        Ok(taken)
    }

    #[inline(always)]
    fn byte(&mut self) -> Res<u8> {
        let byte = *self.bytes.get(self.at).ok_or(Fault::End)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline(always)]
    pub fn boolean(&mut self) -> Res<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::Boolean),
        }
    }

    #[inline(always)]
    pub fn int(&mut self) -> Res<i32> {
        let value = self.varint::<5, 32>()? as u32;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    #[inline(always)]
    pub fn long(&mut self) -> Res<i64> {
        let value = self.varint::<10, 64>()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Seven bits a byte, the lowest first, in at most `LONGEST` bytes.
    #[inline(always)]
    fn varint<const LONGEST: u32, const BITS: u32>(&mut self) -> Res<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(first.into());
        }
        let mut value = u64::from(first & 0x7f);
        for place in 1..LONGEST {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                let last = place == LONGEST - 1 && byte >> (BITS - 7 * place) != 0;
                return if last { Err(Fault::Bits) } else { Ok(value) };
            }
        }
        Err(Fault::Bits)
    }

    #[inline(always)]
    pub fn index(&mut self) -> Res<usize> {
        usize::try_from(self.int()?).map_err(|_| Fault::Index)
    }

    #[inline(always)]
    pub fn bytes(&mut self) -> Res<&'a [u8]> {
        let length = usize::try_from(self.long()?).map_err(|_| Fault::Length)?;
        self.take(length)
    }

    #[inline(always)]
    pub fn text(&mut self) -> Res<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Fault::Utf8)
    }
}

/// The items of an array or a map, block by block.
pub struct Blocks {
    left: u64,
    end: Option<usize>,
    empty: bool,
}

impl Blocks {
    pub fn new(empty: bool) -> Self {
        Blocks { left: 0, end: None, empty }
    }

    /// Whether another item follows. A block with a byte size in front must have just that size.
    #[inline(always)]
    pub fn next(&mut self, datum: &mut Datum<'_>) -> Res<bool> {
        if self.left == 0 && !self.open(datum)? {
            return Ok(false);
        }
        self.left -= 1;
        Ok(true)
    }

    fn open(&mut self, datum: &mut Datum<'_>) -> Res<bool> {
        if self.end.take().is_some_and(|end| end != datum.at) {
            return Err(Fault::Block);
        }
        let count = datum.long()?;
        if count < 0 {
            let size = datum.long()?;
            let size = usize::try_from(size).map_err(|_| Fault::Block)?;
            let end = datum.at.checked_add(size).filter(|end| *end <= datum.bytes.len());
            self.end = Some(end.ok_or(Fault::Block)?);
        }
        self.left = count.unsigned_abs();
        if self.empty {
            datum.empty_items = datum.empty_items.saturating_add(self.left);
            if datum.empty_items > MAX_EMPTY_ITEMS {
                return Err(Fault::Items);
            }
        } else if self.left > (datum.bytes.len() - datum.at) as u64 {
            return Err(Fault::Items);
        }
        Ok(count != 0)
    }
}
