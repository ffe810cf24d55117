//! One value from its text, exactly or not at all. The rules are those of `formats/scalars.py` and
//! `formats/temporal.py`; what they take and what they refuse is the same.

use arrow_schema::DataType;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

/// Microseconds of 0001-01-01 00:00 and of 9999-12-31 23:59:59.999999.
const FIRST_MICROS: i64 = -62_135_596_800_000_000;
const LAST_MICROS: i64 = 253_402_300_799_999_999;

/// Days of 0001-01-01 and 9999-12-31.
const FIRST_DAY: i64 = -719_162;
const LAST_DAY: i64 = 2_932_896;

/// The end of the number that starts at `from`, as JSON writes numbers; None if there is none.
#[inline]
pub fn number_end(text: &[u8], from: usize) -> Option<usize> {
    let digits = |mut at: usize| {
        let start = at;
        while text.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at > start).then_some(at)
    };
    let mut at = from + usize::from(text.get(from) == Some(&b'-'));
    at = if text.get(at) == Some(&b'0') { at + 1 } else { digits(at)? };
    if text.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        at += usize::from(matches!(text.get(at), Some(b'+' | b'-')));
        at = digits(at)?;
    }
    Some(at)
}

pub fn is_number(text: &[u8]) -> bool {
    number_end(text, 0) == Some(text.len())
}

/// A number without fraction and exponent.
pub fn is_integer(text: &[u8]) -> bool {
    is_number(text) && !text.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
}

/// The value of an integer in JSON's spelling, if 64 bits hold it.
#[inline]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || (digits.len() > 1 && digits[0] == b'0') {
        return None;
    }
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Downwards, because the smallest number has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// The nearest double to a number in JSON's spelling; None where that is infinite.
#[inline]
pub fn double(text: &[u8]) -> Option<f64> {
    if let Some(value) = short_double(text) {
        return Some(value);
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Digits and a point, few enough that one division of two exact doubles gives the nearest one.
#[inline(always)]
fn short_double(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if digits.len() > 16 {
        return None;
    }
    let (mut mantissa, mut point) = (0u64, None);
    for (place, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(byte - b'0'),
            b'.' => point = Some(place),
            _ => return None,
        }
    }
    if mantissa >= 1 << 53 {
        return None;
    }
    let fraction = point.map_or(0, |place| digits.len() - place - 1);
    let value = mantissa as f64 / POWERS[fraction];
    Some(if negative { -value } else { value })
}

/// The nearest FLOAT to a number in JSON's spelling, rounded once; None where that is infinite.
#[inline]
pub fn float(text: &[u8]) -> Option<f32> {
    /// The bits of a double that a FLOAT has not, and what they are in the middle between two FLOATs.
    const LOST: u64 = (1 << 29) - 1;
    const MIDDLE: u64 = 1 << 28;
    // The double may be rounded to the middle, and a second rounding would not know from which side. Short texts are
    // 0 or far from the smallest FLOATs, which have fewer bits.
    if let Some(value) = short_double(text)
        && value.to_bits() & LOST != MIDDLE
    {
        return Some(value as f32);
    }
    let value: f32 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// A number as the unscaled value of DECIMAL(precision, scale), if no digit is lost.
pub fn decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let end = rest.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(rest.len());
    let (digits, exponent) = (&rest[..end], rest.get(end + 1..).unwrap_or(b"0"));
    let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
    let significant = || digits.iter().filter(|byte| **byte != b'.');
    let Some(first) = significant().position(|byte| *byte != b'0') else { return Some(0) };
    let total = significant().count();
    let last = total - significant().rev().position(|byte| *byte != b'0')?;
    if last - first > 38 {
        return None;
    }
    let mut value: i128 = 0;
    for byte in significant().take(last).skip(first) {
        value = value * 10 + i128::from(byte - b'0');
    }
    // The last digit kept stands for 10^place.
    let place = point.min(total) as i64 - last as i64 + clamped(exponent);
    let shift = u32::try_from(place.checked_add(i64::from(scale))?).ok().filter(|shift| *shift <= 38)?;
    let unscaled = value.checked_mul(10i128.pow(shift))?;
    (unscaled < 10i128.pow(u32::from(precision))).then_some(if negative { -unscaled } else { unscaled })
}

/// An exponent as written; one that no column reaches is as good as any other such.
fn clamped(text: &[u8]) -> i64 {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let value = digits.iter().fold(0i64, |sum, byte| (sum * 10 + i64::from(byte - b'0')).min(1 << 40));
    if negative { -value } else { value }
}

/// Base64 in its one canonical spelling, appended to `out`.
pub fn base64(text: &[u8], out: &mut Vec<u8>) -> bool {
    STANDARD.decode_vec(text, out).is_ok()
}

/// `YYYY-MM-DD` as days since 1970.
pub fn date(text: &[u8]) -> Option<i32> {
    if text.len() != 10 || text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let (year, month, day) = (digits(&text[..4])?, digits(&text[5..7])?, digits(&text[8..])?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if year == 0 || !(1..=12).contains(&month) || day == 0 || day > days[month as usize - 1] {
        return None;
    }
    // Years that begin in March put the leap day last, so that days before a month are a formula.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    Some(y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719_468)
}

#[inline]
fn digits(text: &[u8]) -> Option<i32> {
    let mut value = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i32::from(digit);
    }
    Some(value)
}

/// Days within the years 0001 to 9999.
#[inline(always)]
pub fn days(value: i64) -> Option<i32> {
    if (FIRST_DAY..=LAST_DAY).contains(&value) { value.try_into().ok() } else { None }
}

/// Epoch milliseconds as microseconds, within the years 0001 to 9999.
#[inline]
pub fn millis(value: i64) -> Option<i64> {
    value.checked_mul(1000).and_then(micros)
}

/// Epoch microseconds within the years 0001 to 9999.
#[inline]
pub fn micros(value: i64) -> Option<i64> {
    (FIRST_MICROS..=LAST_MICROS).contains(&value).then_some(value)
}

/// ISO 8601 text as microseconds. Without a zone it is UTC; where `zoned` is false a zone is refused.
pub fn timestamp(text: &[u8], zoned: bool) -> Option<i64> {
    if text.len() < 16 || !matches!(text[10], b'T' | b' ') || text[13] != b':' {
        return None;
    }
    let days = i64::from(date(&text[..10])?);
    let (hour, minute) = (digits(&text[11..13])?, digits(&text[14..16])?);
    let (mut second, mut fraction, mut at) = (0, 0i64, 16);
    if text.get(at) == Some(&b':') {
        second = digits(text.get(17..19)?)?;
        at = 19;
        if text.get(at) == Some(&b'.') {
            let count = text[20..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&count) {
                return None;
            }
            for place in 0..6 {
                let digit = if place < count { i64::from(text[20 + place] - b'0') } else { 0 };
                fraction = fraction * 10 + digit;
            }
            at = 20 + count;
        }
    }
    if hour > 23 || minute > 59 || second > 59 || (at < text.len() && !zoned) {
        return None;
    }
    let clock = i64::from(hour * 3600 + minute * 60 + second) - zone(&text[at..])?;
    micros((days * 86_400 + clock) * 1_000_000 + fraction)
}

/// Seconds east of UTC: nothing, `Z`, `+HH`, `+HHMM` or `+HH:MM`, at most 18 hours away.
fn zone(text: &[u8]) -> Option<i64> {
    let (sign, rest) = match text {
        [] | [b'Z'] => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest.len() {
        2 => (digits(rest)?, 0),
        4 => (digits(&rest[..2])?, digits(&rest[2..])?),
        5 if rest[2] == b':' => (digits(&rest[..2])?, digits(&rest[3..])?),
        _ => return None,
    };
    let seconds = hours * 3600 + minutes * 60;
    (minutes < 60 && seconds <= 18 * 3600).then_some(sign * i64::from(seconds))
}

/// What a column of this type takes, for messages.
pub fn expected(kind: &DataType) -> Cow<'static, str> {
    match kind {
        DataType::Boolean => "BOOLEAN (true or false)".into(),
        DataType::Int8 => "TINYINT (an integer from -128 to 127)".into(),
        DataType::Int16 => "SMALLINT (an integer from -32768 to 32767)".into(),
        DataType::Int32 => "INT (an integer from -2147483648 to 2147483647)".into(),
        DataType::Int64 => "BIGINT (an integer from -9223372036854775808 to 9223372036854775807)".into(),
        DataType::Float32 => "FLOAT (a finite number)".into(),
        DataType::Float64 => "DOUBLE (a finite number)".into(),
        DataType::Decimal128(precision, scale) => {
            format!("DECIMAL({precision},{scale}) (exact, no rounding)").into()
        }
        DataType::Utf8 => "STRING".into(),
        DataType::Binary => "BINARY (base64 text)".into(),
        DataType::Date32 => "DATE (YYYY-MM-DD)".into(),
        DataType::Timestamp(_, Some(_)) => {
            "TIMESTAMP (ISO 8601 text, or epoch milliseconds; years 0001 to 9999)".into()
        }
        DataType::Timestamp(_, None) => {
            "TIMESTAMP_NTZ (ISO 8601 text without a zone, or epoch milliseconds; years 0001 to 9999)".into()
        }
        DataType::Struct(_) => "STRUCT (an object)".into(),
        DataType::List(_) => "ARRAY".into(),
        DataType::Map(_, _) => "MAP (an object)".into(),
        other => other.to_string().into(),
    }
}

/// Big-endian two's complement of at most 38 digits; None also where there is no byte.
pub fn unscaled(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let (lead, tail) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut whole = [sign; 16];
    whole[16 - tail.len()..].copy_from_slice(tail);
    let value = i128::from_be_bytes(whole);
    // Bytes that only repeat the sign say nothing, however many there are.
    let extended = lead.iter().all(|byte| *byte == sign) && (value < 0) == (sign != 0);
    (extended && value.unsigned_abs() < 10u128.pow(38)).then_some(value)
}

/// From the writer's scale to the column's: a factor, or a divisor that is not 0.
pub struct Scale {
    pub written: usize,
    factor: i128,
    divisor: i128,
    /// The first magnitude that has more digits than the column.
    end: u128,
}

impl Scale {
    /// To a column of this precision and scale.
    pub fn new(written: u64, precision: u8, scale: i8) -> Option<Self> {
        let shift = i64::from(scale) - i64::try_from(written).ok()?;
        let power = 10i128.checked_pow(u32::try_from(shift.abs()).ok()?)?;
        Some(Scale {
            written: written.try_into().ok()?,
            factor: if shift >= 0 { power } else { 0 },
            divisor: if shift < 0 { power } else { 0 },
            end: 10u128.checked_pow(precision.into())?,
        })
    }

    /// The unscaled value in the column's scale, if no digit is lost and none too many.
    pub fn rescale(&self, value: i128) -> Option<i128> {
        let rescaled = match self.divisor {
            0 => value.checked_mul(self.factor)?,
            divisor if value % divisor == 0 => value / divisor,
            _ => return None,
        };
        (rescaled.unsigned_abs() < self.end).then_some(rescaled)
    }
}
