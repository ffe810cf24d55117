//! Kafka's record batches, as a fetch answers them: checked, unpacked, and cut into records.
//!
//! A batch is unpacked bit by bit: however much it holds, no more of it is in memory than a window, or
//! the longest record.

use crate::kafka::error::KafkaError;
use crate::kafka::unpack::{LAST_METHOD, Piece, Unpacker, Unpackers, Unreadable};
use crate::kafka::wire::{Damaged, View};
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

const HEAD: usize = 61;
/// Attributes, time and offset of a record take no more.
const MOST_FRONT: usize = 21;
const CONTROL: i16 = 0x20;
const TRANSACTIONAL: i16 = 0x10;
const APPEND_TIME: i16 = 0x08;
const COMPRESSION: i16 = 0x07;

pub struct Record<'a> {
    pub offset: i64,
    /// Milliseconds; None where the producer gave none.
    pub timestamp: Option<i64>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// How many, and where they begin.
    headers: (usize, &'a [u8]),
}

/// Its name and its value.
pub type Header<'a> = (&'a [u8], Option<&'a [u8]>);

impl<'a> Record<'a> {
    /// All of them, a name as often as it is there.
    pub fn headers(&self) -> Result<Vec<Header<'a>>, Damaged> {
        let mut view = View::new(self.headers.1);
        let mut found = Vec::new();
        for _ in 0..self.headers.0 {
            found.push((view.var_bytes()?.ok_or(Damaged)?, view.var_bytes()?));
        }
        Ok(found)
    }

    /// The last of this name; None where there is none, or where they are damaged.
    #[inline]
    pub fn last_header(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut view = View::new(self.headers.1);
        let mut found = None;
        for _ in 0..self.headers.0 {
            let (this, value) = (view.var_bytes().ok()??, view.var_bytes().ok()?);
            if this == name {
                found = value;
            }
        }
        found
    }

    /// How many bytes they take.
    pub fn headers_size(&self) -> usize {
        self.headers.1.len()
    }

    /// How many there are, and all of them as they stand in the batch.
    pub fn raw_headers(&self) -> Result<(usize, &'a [u8]), Damaged> {
        let mut view = View::new(self.headers.1);
        for _ in 0..self.headers.0 {
            view.var_bytes()?.ok_or(Damaged)?;
            view.var_bytes()?;
        }
        Ok((self.headers.0, &self.headers.1[..view.at]))
    }
}

/// What became of one call to `next`.
pub enum Step<'a> {
    Record(Record<'a>),
    /// A record that is longer than allowed, with its length; it is passed over.
    TooLong(i64, usize),
    /// All batches are read; this offset is the next.
    End(i64),
}

struct Head {
    base: i64,
    end: usize, // where the batch ends, in the answer
    attributes: i16,
    next: i64,
    base_time: i64,
    max_time: i64,
    producer: i64,
    count: i32,
}

/// The record batches of one answer.
pub struct Batches {
    answer: Arc<Vec<u8>>,
    at: usize,
    end: usize,
    next: i64,
    aborted: Vec<(i64, i64)>, // (first offset, producer), those to come
    aborting: Vec<i64>,       // producers in an aborted transaction here
    current: Option<Current>,
    longest: usize,
    check_crcs: bool,
    last: Option<Found>,
    again: bool,
}

/// The offset of a record, and its place, or its length if that is too long.
type Found = (i64, Result<Range<usize>, usize>);

struct Current {
    head: Head,
    unpacker: Unpacker,
    left: i32,
}

impl Batches {
    /// `records` is where they are in the answer; those before `next` are passed over.
    pub fn new(
        answer: Vec<u8>,
        records: Range<usize>,
        next: i64,
        aborted: Vec<(i64, i64)>,
        longest: usize,
        check_crcs: bool,
    ) -> Self {
        let aborted = aborted.into_iter().rev().collect();
        let answer = Arc::new(answer);
        Batches {
            answer,
            at: records.start,
            end: records.end,
            next,
            aborted,
            aborting: Vec::new(),
            current: None,
            longest,
            check_crcs,
            last: None,
            again: false,
        }
    }

    /// The record that `next` gave is not taken yet: give it once more.
    pub fn again(&mut self) {
        self.again = true;
    }

    /// The offset after the last whole batch; None if there is none. Looks at heads only.
    pub fn last(&self) -> Result<Option<i64>, KafkaError> {
        let (mut at, mut last) = (self.at, None);
        while let Some(head) = head(&self.answer[at..self.end], at)? {
            last = Some(head.next);
            at = head.end;
        }
        Ok(last)
    }

    /// The answer's bytes, to be used again.
    pub fn into_answer(mut self, unpackers: &mut Unpackers) -> Option<Vec<u8>> {
        if let Some(current) = self.current.take() {
            unpackers.give_back(current.unpacker);
        }
        Arc::try_unwrap(self.answer).ok()
    }

    /// The next record, in order. An error is about this batch: it is damaged, or of another time.
    #[inline]
    pub fn next(&mut self, unpackers: &mut Unpackers) -> Result<Step<'_>, KafkaError> {
        if !std::mem::take(&mut self.again) {
            self.last = self.find(unpackers)?;
        }
        match (&self.last, &self.current) {
            (Some((offset, Ok(place))), Some(Current { head, unpacker, .. })) => {
                let found = record(unpacker.bytes(place), head, *offset);
                found
                    .map(Step::Record)
                    .map_err(|_| KafkaError::Damaged(format!("a damaged record at offset {offset}")))
            }
            (Some((offset, Err(length))), _) => Ok(Step::TooLong(*offset, *length)),
            _ => Ok(Step::End(self.next)),
        }
    }

    /// The next record, or None at the end.
    #[inline]
    fn find(&mut self, unpackers: &mut Unpackers) -> Result<Option<Found>, KafkaError> {
        loop {
            if self.current.is_none() && !self.begin(unpackers)? {
                return Ok(None);
            }
            let Some(current) = &mut self.current else { continue };
            if current.left == 0 {
                self.next = current.head.next.max(self.next);
                if let Some(current) = self.current.take() {
                    unpackers.give_back(current.unpacker);
                }
                continue;
            }
            current.left -= 1;
            let (base, own) = (current.head.base, current.head.base..current.head.next);
            let unpacker = &mut current.unpacker;
            let unreadable = |reason: Unreadable| damaged(base, reason);
            let length = unpacker.length().map_err(unreadable)?;
            let too_long = length > self.longest;
            // Of one that is too long only the offset is looked at, which is in front.
            let place = unpacker.advance(if too_long { MOST_FRONT } else { length }).map_err(unreadable)?;
            let offset = offset(unpacker.bytes(&place)).map_err(|_| damaged(base, "no offset"))?;
            let offset = base.checked_add(offset).filter(|offset| own.contains(offset));
            let offset = offset.ok_or_else(|| damaged(base, "an offset that is not in it"))?;
            if too_long {
                unpacker.skip(length - MOST_FRONT).map_err(unreadable)?;
            }
            if offset < self.next {
                continue;
            }
            self.next = offset + 1;
            return Ok(Some((offset, if too_long { Err(length) } else { Ok(place) })));
        }
    }

    /// Go to the next batch that has records for us; false if there is none.
    fn begin(&mut self, unpackers: &mut Unpackers) -> Result<bool, KafkaError> {
        while let Some(head) = head(&self.answer[self.at..self.end], self.at)? {
            let start = self.at;
            self.at = head.end;
            if self.leave_out(&head) || head.next <= self.next {
                self.next = self.next.max(head.next);
                continue;
            }
            if self.check_crcs {
                let bytes = &self.answer[start..head.end];
                let said = u32::from_be_bytes(bytes[17..21].try_into().unwrap_or_default());
                if crc32c::crc32c(&bytes[21..]) != said {
                    return Err(damaged(head.base, "its checksum is wrong"));
                }
            }
            let piece = Piece::new(self.answer.clone(), start + HEAD..head.end);
            let method = head.attributes & COMPRESSION;
            if method > LAST_METHOD {
                return Err(KafkaError::Unsupported(format!("a batch compressed by method {method}")));
            }
            let unpacker = unpackers.unpacker(method, piece).map_err(|reason| damaged(head.base, reason))?;
            let left = head.count.max(0);
            self.current = Some(Current { head, unpacker, left });
            return Ok(true);
        }
        Ok(false)
    }

    /// Whether the batch is a marker, or of a transaction that came to nothing. Keeps account of both.
    fn leave_out(&mut self, head: &Head) -> bool {
        while self.aborted.last().is_some_and(|(first, _)| *first < head.next) {
            self.aborting.extend(self.aborted.pop().map(|(_, producer)| producer));
        }
        if head.attributes & CONTROL != 0 {
            // Whether it says commit or abort: the transaction ends here.
            self.aborting.retain(|producer| *producer != head.producer);
            return true;
        }
        head.attributes & TRANSACTIONAL != 0 && self.aborting.contains(&head.producer)
    }
}

/// The head of the batch at the start of `bytes`; None where it is cut off.
fn head(bytes: &[u8], at: usize) -> Result<Option<Head>, KafkaError> {
    let Some(start) = bytes.get(..HEAD) else {
        // Older formats have shorter heads, and the same place for their number.
        return match bytes.get(16) {
            Some(0 | 1) => Err(other_format(bytes[16])),
            _ => Ok(None),
        };
    };
    if start[16] != 2 {
        return Err(other_format(start[16]));
    }
    let mut view = View::new(start);
    let read = |view: &mut View<'_>| -> Result<Head, Damaged> {
        let (base, length) = (view.i64()?, view.i32()?);
        view.take(9)?; // leader epoch, magic, checksum
        let (attributes, last) = (view.i16()?, view.i32()?);
        let (base_time, max_time, producer) = (view.i64()?, view.i64()?, view.i64()?);
        view.take(6)?; // epoch and sequence of the producer
        let count = view.i32()?;
        let length = usize::try_from(length).map_err(|_| Damaged)?.checked_add(12).ok_or(Damaged)?;
        let next = base.checked_add(i64::from(last)).and_then(|last| last.checked_add(1)).ok_or(Damaged)?;
        if length < HEAD || last < 0 {
            return Err(Damaged);
        }
        Ok(Head { base, end: length, attributes, next, base_time, max_time, producer, count })
    };
    let mut head =
        read(&mut view).map_err(|damaged| KafkaError::Damaged(format!("a damaged batch: {damaged}")))?;
    if head.end > bytes.len() {
        return Ok(None);
    }
    head.end += at;
    Ok(Some(head))
}

fn other_format(format: u8) -> KafkaError {
    KafkaError::Unsupported(format!(
        "a batch in message format {format}: the native reader reads format 2, of Kafka 0.11 and later"
    ))
}

fn damaged(base: i64, reason: impl Display) -> KafkaError {
    KafkaError::Damaged(format!("a damaged batch at offset {base}: {reason}"))
}

/// The offset of a record within its batch.
#[inline]
fn offset(bytes: &[u8]) -> Result<i64, Damaged> {
    let mut view = View::new(bytes);
    view.i8()?;
    view.varlong()?;
    view.varlong()
}

#[inline]
fn record<'a>(bytes: &'a [u8], head: &Head, offset: i64) -> Result<Record<'a>, Damaged> {
    let mut view = View::new(bytes);
    view.i8()?;
    let (time, _) = (view.varlong()?, view.varlong()?);
    let (key, value) = (view.var_bytes()?, view.var_bytes()?);
    let headers = usize::try_from(view.varlong()?).map_err(|_| Damaged)?;
    let rest = bytes.get(view.at..).ok_or(Damaged)?;
    if headers > rest.len() {
        return Err(Damaged);
    }
    let append_time = head.attributes & APPEND_TIME != 0;
    let time = if append_time { head.max_time } else { head.base_time.checked_add(time).ok_or(Damaged)? };
    Ok(Record { offset, timestamp: (time != -1).then_some(time), key, value, headers: (headers, rest) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::wire::Writer;

    fn varint(value: i64) -> Vec<u8> {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        let mut bytes = Vec::new();
        while rest >= 0x80 {
            bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    }

    fn one(delta: i64, value: &[u8]) -> Vec<u8> {
        let length = varint(value.len() as i64);
        let body =
            [&[0], &varint(delta)[..], &varint(delta), &varint(-1), &length, value, &varint(0)].concat();
        [varint(body.len() as i64), body].concat()
    }

    /// A batch of records at these offsets, which ends at `last`.
    fn batch(base: i64, offsets: &[i64], last: i64, attributes: i16, producer: i64) -> Vec<u8> {
        let records: Vec<u8> = offsets.iter().flat_map(|o| one(o - base, &o.to_be_bytes())).collect();
        let records =
            if attributes & COMPRESSION == 4 { zstd::bulk::compress(&records, 1).unwrap() } else { records };
        let body =
            Writer::default().i16(attributes).i32((last - base) as i32).i64(1000).i64(2000).i64(producer);
        let mut body = body.i16(0).i32(0).i32(offsets.len() as i32).0;
        body.extend(records);
        let head = Writer::default().i64(base).i32(body.len() as i32 + 9).i32(0).i8(2);
        let mut bytes = head.i32(crc32c::crc32c(&body).cast_signed()).0;
        bytes.extend(body);
        bytes
    }

    fn read(bytes: Vec<u8>, start: i64, aborted: Vec<(i64, i64)>) -> Result<(Vec<i64>, i64), KafkaError> {
        let end = bytes.len();
        let mut batches = Batches::new(bytes, 0..end, start, aborted, 100, true);
        let (mut found, mut unpackers) = (Vec::new(), Unpackers::default());
        loop {
            match batches.next(&mut unpackers)? {
                Step::Record(record) => {
                    assert_eq!(record.value, Some(&record.offset.to_be_bytes()[..]));
                    found.push(record.offset);
                }
                Step::TooLong(offset, _) => found.push(-offset),
                Step::End(next) => return Ok((found, next)),
            }
        }
    }

    #[test]
    fn gaps_are_passed_over_and_the_start_may_be_inside_of_a_batch() {
        for attributes in [0, 4] {
            let bytes =
                [batch(0, &[0, 1, 5], 7, attributes, -1), batch(10, &[12], 12, attributes, -1)].concat();
            assert_eq!(read(bytes.clone(), 0, vec![]), Ok((vec![0, 1, 5, 12], 13)));
            assert_eq!(read(bytes.clone(), 2, vec![]), Ok((vec![5, 12], 13)));
            assert_eq!(read(bytes[..bytes.len() - 1].to_vec(), 6, vec![]), Ok((vec![], 8)));
        }
    }

    #[test]
    fn what_was_aborted_and_every_marker_is_left_out() {
        let (data, marker) = (TRANSACTIONAL, TRANSACTIONAL | CONTROL);
        let bytes = [
            batch(0, &[0, 1], 1, data, 7), // aborted
            batch(2, &[2], 2, data, 8),
            batch(3, &[3], 3, 0, -1),
            batch(4, &[4], 4, marker, 7),
            batch(5, &[5], 5, data, 7), // the same producer's next transaction
            batch(6, &[6], 6, marker, 8),
            batch(7, &[7], 7, marker, 7),
            batch(8, &[8], 8, data, 7), // aborted again
        ];
        assert_eq!(read(bytes.concat(), 0, vec![(0, 7), (8, 7)]), Ok((vec![2, 3, 5], 9)));
        assert_eq!(read(bytes[2..].concat(), 3, vec![(0, 7), (8, 7)]), Ok((vec![3, 5], 9)));
    }

    #[test]
    fn damage_is_found_and_never_passed_over() {
        let good = batch(0, &[0, 1, 2], 2, 0, -1);
        // Base offset and leader's epoch, around the length, are the broker's and not under the checksum.
        for place in (8..12).chain(16..good.len()) {
            let mut bad = good.clone();
            bad[place] ^= 0x55;
            let found = read(bad, 0, vec![]);
            assert!(found.is_err() || found == Ok((vec![], 0)), "{place}: {found:?}");
        }
        let mut short = batch(0, &[0], 0, 0, -1);
        short[60] = 2; // one record more than there is
        let crc = crc32c::crc32c(&short[21..]).to_be_bytes();
        short[17..21].copy_from_slice(&crc);
        assert!(read(short, 0, vec![]).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn a_record_outside_of_its_batch_is_damage_whatever_its_offset() {
        for offset in [4, 8, i64::MAX - 1, i64::MAX] {
            let found = read(batch(5, &[5, offset], 7, 0, -1), 0, vec![]);
            assert!(
                found.as_ref().is_err_and(|error| error.to_string().contains("damaged")),
                "{offset}: {found:?}"
            );
        }
    }

    #[test]
    fn another_format_or_compression_is_named_and_for_librdkafka() {
        let mut old = batch(0, &[0], 0, 0, -1);
        old[16] = 1;
        for (bytes, what) in [(old, "format 1"), (batch(0, &[0], 0, 5, -1), "method 5")] {
            let found = read(bytes, 0, vec![]);
            assert!(matches!(&found, Err(KafkaError::Unsupported(text)) if text.contains(what)), "{found:?}");
        }
    }

    #[test]
    fn a_record_too_long_is_told_and_passed_over() {
        let mut records = one(0, &[1; 500]);
        records.extend(one(1, &1_i64.to_be_bytes()));
        let mut bytes = batch(0, &[], 1, 0, -1);
        bytes[57..61].copy_from_slice(&2_i32.to_be_bytes());
        bytes.extend(records);
        let length = (bytes.len() as i32 - 12).to_be_bytes();
        bytes[8..12].copy_from_slice(&length);
        let crc = crc32c::crc32c(&bytes[21..]).to_be_bytes();
        bytes[17..21].copy_from_slice(&crc);
        assert_eq!(read(bytes, 0, vec![]), Ok((vec![0, 1], 2))); // -0: too long, then 1
    }
}
