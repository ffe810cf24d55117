//! Kafka's wire format: numbers with the high byte first, texts and lists with their length in front.

use std::fmt;

/// The bytes end before what they announce, or announce what cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes that are not as long as they say")
    }
}

/// Reads from a slice. Nothing is believed: every length is checked against what is there.
pub struct View<'a> {
    bytes: &'a [u8],
    pub at: usize,
}

impl<'a> View<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        View { bytes, at: 0 }
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let end = self.at.checked_add(length).ok_or(Damaged)?;
        let taken = self.bytes.get(self.at..end).ok_or(Damaged)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.take(N)?.try_into().map_err(|_| Damaged)
    }

    pub fn i8(&mut self) -> Result<i8, Damaged> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    pub fn i16(&mut self) -> Result<i16, Damaged> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Result<i32, Damaged> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64, Damaged> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// How many items follow; none where the list is null. Each has a byte at least.
    pub fn count(&mut self) -> Result<usize, Damaged> {
        let count = usize::try_from(self.i32()?).unwrap_or(0);
        if count > self.bytes.len() - self.at { Err(Damaged) } else { Ok(count) }
    }

    /// A text; empty where it is null.
    pub fn text(&mut self) -> Result<String, Damaged> {
        let length = usize::try_from(self.i16()?).unwrap_or(0);
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    /// Bytes; empty where they are null.
    pub fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let length = usize::try_from(self.i32()?).unwrap_or(0);
        self.take(length)
    }

    /// Seven bits a byte, the lowest first; then zig-zag.
    #[inline]
    pub fn varlong(&mut self) -> Result<i64, Damaged> {
        let first = *self.bytes.get(self.at).ok_or(Damaged)?;
        if first < 0x80 {
            self.at += 1;
            return Ok(i64::from(first >> 1) ^ -i64::from(first & 1));
        }
        let mut value = 0_u64;
        for place in 0..10 {
            let byte = *self.bytes.get(self.at + place).ok_or(Damaged)?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.at += place + 1;
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(Damaged)
    }

    /// Bytes with a varint in front; None where it is negative.
    #[inline]
    pub fn var_bytes(&mut self) -> Result<Option<&'a [u8]>, Damaged> {
        match usize::try_from(self.varlong()?) {
            Ok(length) => self.take(length).map(Some),
            Err(_) => Ok(None),
        }
    }
}

/// Writes a request.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn i8(mut self, value: i8) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i16(mut self, value: i16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Names in Kafka have at most 255 bytes; what is longer is cut, and then refused by the broker.
    pub fn text(self, value: &str) -> Self {
        let cut = &value.as_bytes()[..value.len().min(i16::MAX as usize)];
        let mut written = self.i16(i16::try_from(cut.len()).unwrap_or(i16::MAX));
        written.0.extend(cut);
        written
    }

    pub fn bytes(self, value: &[u8]) -> Self {
        let mut written = self.i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
        written.0.extend(value);
        written
    }
}

/// The other way round of `View::varlong`.
#[inline]
pub fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    if rest < 0x80 {
        return out.push(rest as u8);
    }
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[inline]
pub fn put_var_bytes(out: &mut Vec<u8>, value: Option<&[u8]>) {
    put_varlong(out, value.map_or(-1, |value| value.len() as i64));
    out.extend_from_slice(value.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varlongs_are_read_as_kafka_writes_them() {
        for (bytes, value) in [
            (&[0_u8][..], 0),
            (&[1], -1),
            (&[2], 1),
            (&[0x80, 0x01], 64),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], i64::MIN),
            (&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], i64::MAX),
        ] {
            assert_eq!(View::new(bytes).varlong(), Ok(value));
            let mut written = Vec::new();
            put_varlong(&mut written, value);
            assert_eq!(written, bytes);
        }
        assert_eq!(View::new(&[0x80]).varlong(), Err(Damaged));
        assert_eq!(View::new(&[0x80; 11]).varlong(), Err(Damaged));
    }

    #[test]
    fn absurd_lengths_are_refused() {
        assert_eq!(View::new(&[0x7f, 0xff, 0xff, 0xff, 1]).bytes(), Err(Damaged));
        assert_eq!(View::new(&[0x7f, 0xff, 0xff, 0xff, 1]).count(), Err(Damaged));
        assert_eq!(View::new(&[0x7f, 0xff, 1]).text(), Err(Damaged));
    }
}
