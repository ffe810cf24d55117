//! Records whose producer follows them: a sampled `traceparent` header, as W3C has it.

use super::batches::Record;
use crate::refusal::Kind;

const SAMPLED: u32 = 1;

/// Where a record is, the header's value, and why the record was refused, if it was.
pub type Traced = (usize, i64, String, Option<&'static str>);

/// The first few of a read, good and refused ones apart: many good ones must not hide the one that is bad.
pub struct Traces {
    good: usize,
    refused: usize,
    pub found: Vec<Traced>,
}

impl Traces {
    /// At most so many of each.
    pub fn new(most: usize) -> Self {
        Traces { good: most, refused: most, found: Vec::new() }
    }

    #[inline]
    pub fn see(&mut self, range: usize, record: &Record<'_>, refused: Option<Kind>) {
        let left = if refused.is_some() { &mut self.refused } else { &mut self.good };
        if *left == 0 {
            return;
        }
        let Some(parent) = record.last_header(b"traceparent").and_then(sampled) else { return };
        *left -= 1;
        self.found.push((range, record.offset, parent.to_owned(), refused.map(Kind::name)));
    }
}

/// `version-trace-span-flags`, if it says that somebody keeps the trace. Most say that nobody does: that is looked at first.
#[inline]
fn sampled(header: &[u8]) -> Option<&str> {
    let flags = *header.last().filter(|_| header.len() == 55)?;
    let kept = char::from(flags).to_digit(16)? & SAMPLED != 0;
    let fits = |(at, byte): (usize, &u8)| match at {
        2 | 35 | 52 => *byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
    };
    if !kept || !header.iter().enumerate().all(fits) {
        return None;
    }
    std::str::from_utf8(header).ok()
}

#[cfg(test)]
mod tests {
    use super::sampled;

    #[test]
    fn only_a_whole_header_of_a_trace_that_is_kept_counts() {
        let kept = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(sampled(kept).map(str::as_bytes), Some(&kept[..]));
        assert!(sampled(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00").is_none());
        assert!(sampled(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0").is_none());
        assert!(sampled(b"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").is_none());
        assert!(sampled(b"00-0af7651916cd43dd8448eb211c80319cb7ad6b7169203331---01").is_none());
        assert!(sampled(&[0xff; 55]).is_none());
    }
}
