//! The strings of JSON: where one ends, and what its escapes stand for.

/// A string as it was written, without its quotes; every escape in it is a valid one.
pub struct Text<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Text<'a> {
    #[inline(always)]
    pub fn plain(raw: &'a [u8]) -> Self {
        Text { raw, escaped: false }
    }

    /// One with escapes, which have been checked.
    pub fn escaped(raw: &'a [u8]) -> Self {
        Text { raw, escaped: true }
    }

    pub fn unescaped(&self) -> std::borrow::Cow<'a, [u8]> {
        if !self.escaped {
            return self.raw.into();
        }
        let mut text = Vec::with_capacity(self.raw.len());
        self.append_to(&mut text);
        text.into()
    }

    #[inline(always)]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        if self.escaped { unescape(self.raw, out) } else { out.extend_from_slice(self.raw) }
    }

    #[inline(always)]
    pub fn is(&self, name: &str) -> bool {
        if self.escaped { *self.unescaped() == *name.as_bytes() } else { self.raw == name.as_bytes() }
    }
}

#[cold]
fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(place) = raw[at..].iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&raw[at..at + place]);
        at += place + 2;
        match raw[at - 1] {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let mut code = hex(&raw[at..at + 4]).unwrap_or(0);
                at += 4;
                if (0xd800..0xdc00).contains(&code) {
                    let low = hex(&raw[at + 2..at + 6]).unwrap_or(0);
                    at += 6;
                    code = 0x10000 + ((code - 0xd800) << 10) + (low & 0x3ff);
                }
                let mut bytes = [0; 4];
                let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
            }
            plain => out.push(plain),
        }
    }
    out.extend_from_slice(&raw[at..]);
}

/// A hash of a name that is the same in any case of ASCII letters: to tell most names apart at once.
pub fn folded(name: &[u8]) -> u32 {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    let mix =
        |hash: u64, word: u64| (hash ^ (word | LOWER)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = name.as_chunks::<8>();
    let hash = words.iter().fold(name.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let rest = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    (mix(hash, rest) >> 32) as u32
}

/// What digits are in base 16; None if one of them is none.
pub fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum, byte| Some(sum * 16 + char::from(*byte).to_digit(16)?))
}

/// Where a run of characters that mean themselves ends: at a quote, a backslash or a control character.
#[inline(always)]
pub fn plain_end(text: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    while let Some(chunk) = text.get(at..at + 8) {
        let word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        let (quote, slash) = (word ^ (ONES * u64::from(b'"')), word ^ (ONES * u64::from(b'\\')));
        let zero = |value: u64| value.wrapping_sub(ONES) & !value;
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let found = (zero(quote) | zero(slash) | control) & HIGH;
        if found != 0 {
            // The lowest mark is right; those above it may come from a borrow.
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while text.get(at).is_some_and(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\') {
        at += 1;
    }
    at
}
