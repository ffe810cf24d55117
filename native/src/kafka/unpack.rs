//! The bytes of a batch's records, as they are or unpacked: gzip, snappy, lz4, zstd.

use crate::kafka::wire::View;
use lz4_flex::frame::FrameDecoder;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::Arc;
use zstd::stream::raw::{Decoder as Zstd, InBuffer, Operation, OutBuffer};

/// Of those that a batch can name, the last one that is known here: none, gzip, snappy, lz4, zstd.
pub const LAST_METHOD: i16 = 4;
/// How much is unpacked at a time: enough for speed, and small enough for the processor's cache.
const WINDOW: usize = 128 << 10;
/// Snappy unpacks in one go. Its bytes can grow so much, and no more.
const SNAPPY_GROWTH: usize = 25;
/// What xerial's snappy, which Java's clients write, has in front of its blocks.
const XERIAL: &[u8] = b"\x82SNAPPY\0";

/// Why the records of a batch cannot be had.
#[derive(Debug)]
pub enum Unreadable {
    /// Packed by a method that is not known.
    Method(i16),
    /// A record's length that cannot be.
    Length,
    /// The bytes end inside of a record.
    Record,
    /// Snappy's lengths are not right.
    Snappy(&'static str),
    /// What the unpacking library says.
    Packed(io::Error),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Method(method) => write!(out, "packed by a method {method} that is not known"),
            Unreadable::Length => out.write_str("the length of a record"),
            Unreadable::Record => out.write_str("it ends inside of a record"),
            Unreadable::Snappy(what) => write!(out, "snappy: {what}"),
            Unreadable::Packed(error) => error.fmt(out),
        }
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Unreadable::Packed(error)
    }
}

/// A part of an answer, which lives on with it.
pub struct Piece {
    answer: Arc<Vec<u8>>,
    at: usize,
    end: usize,
}

impl Piece {
    pub fn new(answer: Arc<Vec<u8>>, place: Range<usize>) -> Self {
        Piece { answer, at: place.start, end: place.end }
    }

    fn rest(&self) -> &[u8] {
        &self.answer[self.at..self.end]
    }
}

impl Read for Piece {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.rest().read(into)?;
        self.at += read;
        Ok(read)
    }
}

impl BufRead for Piece {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.rest())
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

enum Source {
    /// Not packed: `at` is a place in the answer.
    Plain(Piece),
    /// All of it is in the buffer.
    Whole,
    Stream(Box<dyn Read + Send + Sync>),
    Zstd(Piece, Box<Zstd<'static>>),
}

pub struct Unpacker {
    source: Source,
    buffer: Vec<u8>,
    at: usize,
}

/// What is used again from batch to batch, because making it costs.
#[derive(Default)]
pub struct Unpackers {
    buffer: Vec<u8>,
    zstd: Option<Box<Zstd<'static>>>,
}

impl Unpackers {
    /// `method` is as a batch has it.
    pub fn unpacker(&mut self, method: i16, piece: Piece) -> Result<Unpacker, Unreadable> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut at = 0;
        let source = match method {
            0 => {
                at = piece.at;
                Source::Plain(piece)
            }
            1 => Source::Stream(Box::new(flate2::bufread::MultiGzDecoder::new(piece))),
            2 => {
                snappy(piece.rest(), &mut buffer)?;
                Source::Whole
            }
            3 => Source::Stream(Box::new(FrameDecoder::new(piece))),
            4 => {
                let mut decoder = match self.zstd.take() {
                    Some(decoder) => decoder,
                    None => Box::new(Zstd::new()?),
                };
                decoder.reinit()?;
                Source::Zstd(piece, decoder)
            }
            other => return Err(Unreadable::Method(other)),
        };
        Ok(Unpacker { source, buffer, at })
    }

    pub fn give_back(&mut self, unpacker: Unpacker) {
        if unpacker.buffer.capacity() <= 4 * WINDOW {
            self.buffer = unpacker.buffer;
        }
        if let Source::Zstd(_, decoder) = unpacker.source {
            self.zstd = Some(decoder);
        }
    }
}

impl Unpacker {
    /// The bytes at a place that `advance` gave.
    #[inline]
    pub fn bytes(&self, place: &Range<usize>) -> &[u8] {
        match &self.source {
            Source::Plain(piece) => &piece.answer[place.clone()],
            _ => &self.buffer[place.clone()],
        }
    }

    #[inline]
    fn available(&self) -> &[u8] {
        match &self.source {
            Source::Plain(piece) => &piece.answer[self.at..piece.end],
            _ => &self.buffer[self.at..],
        }
    }

    /// The length of the record that comes next.
    #[inline]
    pub fn length(&mut self) -> Result<usize, Unreadable> {
        let mut view = View::new(self.available());
        let (length, taken) = match view.varlong() {
            Ok(length) => (length, view.at),
            Err(_) => {
                while self.available().len() < 10 && self.more(10)? {}
                let mut view = View::new(self.available());
                (view.varlong().map_err(|_| Unreadable::Length)?, view.at)
            }
        };
        self.at += taken;
        usize::try_from(length).ok().filter(|length| *length >= 6).ok_or(Unreadable::Length)
    }

    /// The place of the next bytes, which are gone after the call that follows.
    #[inline]
    pub fn advance(&mut self, length: usize) -> Result<Range<usize>, Unreadable> {
        while self.available().len() < length {
            if !self.more(length)? {
                return Err(Unreadable::Record);
            }
        }
        self.at += length;
        Ok(self.at - length..self.at)
    }

    pub fn skip(&mut self, mut length: usize) -> Result<(), Unreadable> {
        while length > 0 {
            let step = length.min(WINDOW);
            self.advance(step)?;
            length -= step;
        }
        Ok(())
    }

    /// Unpack more, towards as many bytes as are wanted; false at the end.
    fn more(&mut self, wanted: usize) -> Result<bool, Unreadable> {
        if matches!(self.source, Source::Plain(_) | Source::Whole) {
            return Ok(false);
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let have = self.buffer.len();
        // Not all at once: a length is believed as far as there are bytes.
        let room = WINDOW.max(have.min(wanted)) & !0xff;
        self.buffer.reserve(room);
        match &mut self.source {
            Source::Plain(_) | Source::Whole => return Ok(false),
            Source::Stream(stream) => {
                stream.take(room as u64).read_to_end(&mut self.buffer)?;
            }
            Source::Zstd(piece, decoder) => unzstd(piece, decoder, &mut self.buffer, room)?,
        }
        Ok(self.buffer.len() > have)
    }
}

/// Append up to `room` bytes, more than none unless the piece is at its end.
fn unzstd(
    piece: &mut Piece,
    decoder: &mut Zstd<'_>,
    buffer: &mut Vec<u8>,
    room: usize,
) -> Result<(), Unreadable> {
    let have = buffer.len();
    while buffer.len() < have + room {
        let start = buffer.len();
        let mut input = InBuffer::around(piece.rest());
        let mut output = OutBuffer::around_pos(buffer, start);
        decoder.run(&mut input, &mut output)?;
        let (read, written) = (input.pos(), output.pos());
        piece.consume(read);
        if written == start && read == 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// One block, or xerial's: a head of sixteen bytes, then blocks with their lengths in front.
fn snappy(packed: &[u8], into: &mut Vec<u8>) -> Result<(), Unreadable> {
    let mut add = |block: &[u8]| {
        let length = snap::raw::decompress_len(block).map_err(io::Error::from)?;
        if length > block.len().saturating_mul(SNAPPY_GROWTH) {
            return Err(Unreadable::Snappy("a length that cannot be"));
        }
        let start = into.len();
        into.resize(start + length, 0);
        snap::raw::Decoder::new().decompress(block, &mut into[start..]).map_err(io::Error::from)?;
        Ok(())
    };
    if !packed.starts_with(XERIAL) {
        return add(packed);
    }
    let mut view = View::new(packed);
    let short = |_| Unreadable::Snappy("bytes that end early");
    view.take(16).map_err(short)?;
    while view.at < packed.len() {
        add(view.bytes().map_err(short)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn unpacked(method: i16, packed: Vec<u8>) -> Result<Vec<u8>, Unreadable> {
        let end = packed.len();
        let piece = Piece::new(Arc::new(packed), 0..end);
        let mut unpacker = Unpackers::default().unpacker(method, piece)?;
        while unpacker.more(usize::MAX)? {}
        Ok(unpacker.available().to_vec())
    }

    fn text() -> Vec<u8> {
        (0..200_000_u32).flat_map(|n| (n % 1009).to_le_bytes()).collect()
    }

    #[test]
    fn every_method_gives_back_what_was_packed() {
        let text = text();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&text).unwrap();
        let mut xerial = [XERIAL, &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
        for block in text.chunks(32 << 10) {
            let packed = snap::raw::Encoder::new().compress_vec(block).unwrap();
            xerial.extend(u32::try_from(packed.len()).unwrap().to_be_bytes());
            xerial.extend(packed);
        }
        for (method, packed) in [
            (0, text.clone()),
            (1, gzip.finish().unwrap()),
            (2, snap::raw::Encoder::new().compress_vec(&text).unwrap()),
            (2, xerial),
            (3, lz4.finish().unwrap()),
            (4, zstd::bulk::compress(&text, 3).unwrap()),
        ] {
            assert!(unpacked(method, packed.clone()).unwrap() == text, "{method}");
            for cut in [1, packed.len() / 2] {
                // Cut short it is an error, or less than there was: then a record ends early.
                assert!(unpacked(method, packed[..cut].to_vec()).ok() != Some(text.clone()), "{method}");
            }
        }
    }

    #[test]
    fn a_bomb_is_unpacked_a_window_at_a_time() {
        let bomb = zstd::bulk::compress(&vec![0; 200 << 20], 1).unwrap();
        let end = bomb.len();
        let mut unpacker = Unpackers::default().unpacker(4, Piece::new(Arc::new(bomb), 0..end)).unwrap();
        unpacker.skip(200 << 20).unwrap();
        assert!(unpacker.buffer.capacity() <= 4 * WINDOW, "{}", unpacker.buffer.capacity());
    }
}
