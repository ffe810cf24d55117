//! Letters as record batches: which partition each goes to, and how they are packed.

use crate::kafka::wire::{Damaged, View, put_varlong};
use flate2::Crc;
use lz4_flex::block::{compress_into, get_maximum_output_size};

/// A batch is closed at so many bytes: what brokers take by default.
const FULL: usize = 900_000;
const HEAD: usize = 61;
/// Bytes that the length of a record takes, from 64 bytes to 8 KB.
const USUAL: usize = 2;
const MOST_SPARE: usize = 8;
/// What the attributes of a batch call LZ4.
const LZ4: i16 = 3;
/// A frame of LZ4 begins so, if its blocks are independent, of 64 KB at most, and without checksums.
const FRAME: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const BLOCK: usize = 64 << 10;
/// In the length of a block that is not packed.
const AS_IT_IS: u32 = 1 << 31;

/// A record batch that is being filled, or is on its way.
pub struct Parcel {
    pub number: i32,
    pub count: i32,
    bytes: Vec<u8>,
    times: (i64, i64), // of the first record and the last
}

/// Where a letter stands in the parcels.
pub struct Slot {
    parcel: usize,
    start: usize,
}

/// Key, value and headers of a letter.
pub type Letter = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

impl Parcel {
    fn new(number: i32, now: i64, mut room: Vec<u8>) -> Self {
        room.clear();
        room.resize(HEAD, 0);
        Parcel { number, count: 0, bytes: room, times: (now, now) }
    }

    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Add a record, of which `write` appends key, value and headers.
    fn push(&mut self, now: i64, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0, 0]); // room for the length of most records, and no attributes
        put_varlong(&mut self.bytes, now - self.times.0);
        put_varlong(&mut self.bytes, self.count.into());
        write(&mut self.bytes);
        let length = self.bytes.len() - start - USUAL;
        if (64..8192).contains(&length) {
            let zigzag = length << 1;
            self.bytes[start] = zigzag as u8 | 0x80;
            self.bytes[start + 1] = (zigzag >> 7) as u8;
        } else {
            let mut written = Vec::new();
            put_varlong(&mut written, length as i64);
            self.bytes.splice(start..start + USUAL, written);
        }
        self.times.1 = now;
        self.count += 1;
    }

    /// The batch as a broker takes it: packed into `out`, because letters say the same again and again.
    pub fn seal(&self, out: &mut Vec<u8>) {
        out.clear();
        out.resize(HEAD, 0);
        pack(&self.bytes[HEAD..], out);
        let length = out.len() as i32 - 12;
        let (first, last) = self.times;
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&0_i64.to_be_bytes());
        put(&length.to_be_bytes());
        put(&(-1_i32).to_be_bytes()); // the leader's epoch is for the leader
        put(&[2, 0, 0, 0, 0]); // the format; its checksum comes last
        put(&LZ4.to_be_bytes());
        put(&(self.count - 1).to_be_bytes());
        put(&first.to_be_bytes());
        put(&last.to_be_bytes());
        put(&(-1_i64).to_be_bytes()); // no producer id: a letter that is sent twice counts once
        put(&(-1_i16).to_be_bytes());
        put(&(-1_i32).to_be_bytes());
        put(&self.count.to_be_bytes());
        let sum = crc32c::crc32c(&out[21..]);
        out[17..21].copy_from_slice(&sum.to_be_bytes());
    }

    /// The letters in it, for somebody else to send.
    pub fn letters(&self) -> Vec<Letter> {
        let mut view = View::new(&self.bytes[HEAD..]);
        let mut letter = || {
            view.varlong()?;
            view.i8()?;
            let _front = (view.varlong()?, view.varlong()?);
            let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            let (key, value) = (owned(view.var_bytes()?), owned(view.var_bytes()?));
            let mut headers = Vec::new();
            for _ in 0..view.varlong()? {
                headers.push((owned(view.var_bytes()?).unwrap_or_default(), owned(view.var_bytes()?)));
            }
            Ok::<_, Damaged>((key, value, headers))
        };
        (0..self.count).map_while(|_| letter().ok()).collect()
    }
}

/// Those that are being filled, one a partition, and those that are full.
pub struct Parcels {
    parcels: Vec<Parcel>,
    open: Vec<usize>, // by partition
    turn: usize,      // the partition of letters without a key
    spare: Vec<Vec<u8>>,
}

impl Parcels {
    pub fn new(partitions: usize, now: i64) -> Self {
        let parcels = (0..partitions).map(|number| Parcel::new(number as i32, now, Vec::new())).collect();
        // As good as any to begin with, and another one for each task.
        let turn = now as usize % partitions;
        Parcels { parcels, open: (0..partitions).collect(), turn, spare: Vec::new() }
    }

    /// Room for those to come: one that was delivered, to be used again.
    pub fn recycle(&mut self, parcel: Parcel) {
        if self.spare.len() < MOST_SPARE && parcel.bytes.capacity() <= 2 * FULL {
            self.spare.push(parcel.bytes);
        }
    }

    /// Add a letter of about this size, of which `write` appends key, value and headers.
    pub fn push(
        &mut self,
        now: i64,
        key: Option<&[u8]>,
        size: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Slot {
        let number = match key {
            Some(key) if !key.is_empty() => partition(key, self.open.len()),
            _ => self.turn,
        };
        let full = &self.parcels[self.open[number]];
        if full.count > 0 && full.size() + size > FULL {
            self.open[number] = self.parcels.len();
            let room = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(FULL + FULL / 8));
            self.parcels.push(Parcel::new(number as i32, now, room));
            self.turn = (self.turn + 1) % self.open.len();
        }
        let parcel = self.open[number];
        let start = self.parcels[parcel].size();
        self.parcels[parcel].push(now, write);
        Slot { parcel, start }
    }

    /// Take back a letter: the last one that is in there.
    pub fn pop(&mut self, slot: &Slot) {
        let parcel = &mut self.parcels[slot.parcel];
        parcel.bytes.truncate(slot.start);
        parcel.count -= 1;
    }

    /// Those that nothing is added to any more; all of them, if it is the end.
    pub fn take(&mut self, all: bool, now: i64) -> Vec<Parcel> {
        if !all && self.parcels.len() == self.open.len() {
            return Vec::new();
        }
        let mut rest = Vec::new();
        let mut taken = Vec::new();
        for (index, parcel) in std::mem::take(&mut self.parcels).into_iter().enumerate() {
            let number = parcel.number as usize;
            let is_open = self.open[number] == index;
            if is_open && (all || parcel.count == 0) {
                rest.push(Parcel::new(parcel.number, now, self.spare.pop().unwrap_or_default()));
                taken.push(parcel);
            } else if is_open {
                rest.push(parcel);
            } else {
                taken.push(parcel);
            }
        }
        rest.sort_unstable_by_key(|parcel| parcel.number);
        (self.open, self.parcels) = ((0..rest.len()).collect(), rest);
        taken.retain(|parcel| parcel.count > 0);
        taken
    }
}

/// Append the bytes as a frame of LZ4.
fn pack(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&FRAME);
    for block in bytes.chunks(BLOCK) {
        let start = out.len() + 4;
        out.resize(start + get_maximum_output_size(block.len()), 0);
        let (size, mark) = match compress_into(block, &mut out[start..]) {
            Ok(size) if size < block.len() => (size, 0),
            _ => {
                out[start..start + block.len()].copy_from_slice(block);
                (block.len(), AS_IT_IS)
            }
        };
        out[start - 4..start].copy_from_slice(&(size as u32 | mark).to_le_bytes());
        out.truncate(start + size);
    }
    out.extend_from_slice(&[0; 4]);
}

/// librdkafka's partitioner: equal keys stay together, whichever of the two writes their letters.
fn partition(key: &[u8], partitions: usize) -> usize {
    let mut crc = Crc::new();
    crc.update(key);
    crc.sum() as usize % partitions
}

#[cfg(test)]
mod tests {
    use super::*;
    use lz4_flex::frame::FrameDecoder;
    use std::io::Read;

    #[test]
    fn what_is_taken_back_is_not_sent_and_the_rest_is_all_there() {
        let mut parcels = Parcels::new(3, 1_000);
        let mut body = Vec::new();
        put_varlong(&mut body, -1);
        put_varlong(&mut body, 400_000);
        body.extend(vec![7; 400_000]);
        put_varlong(&mut body, 0);
        let keys: Vec<Vec<u8>> = (0..40_u8).map(|n| if n % 4 == 0 { Vec::new() } else { vec![n] }).collect();
        let slots: Vec<Slot> = keys
            .iter()
            .map(|key| parcels.push(1_001, Some(key), body.len(), |out| out.extend(&body)))
            .collect();
        slots[30..].iter().rev().for_each(|slot| parcels.pop(slot));
        let mut sent = parcels.take(false, 1_002);
        assert!(!sent.is_empty());
        parcels.push(1_003, None, body.len(), |out| out.extend(&body));
        sent.extend(parcels.take(true, 1_004));
        assert_eq!(sent.iter().map(|parcel| parcel.count).sum::<i32>(), 31);
        assert_eq!(sent.iter().map(|parcel| parcel.letters().len()).sum::<usize>(), 31);
        assert!(parcels.take(true, 1_005).is_empty());
        for parcel in &sent {
            let (mut sealed, mut unpacked) = (Vec::new(), Vec::new());
            parcel.seal(&mut sealed);
            assert!(FrameDecoder::new(&sealed[HEAD..]).read_to_end(&mut unpacked).is_ok());
            assert_eq!(unpacked, parcel.bytes[HEAD..]);
            assert!(sealed.len() < parcel.size() / 10);
        }
    }

    #[test]
    fn what_does_not_get_smaller_is_packed_as_it_is() {
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(3 * BLOCK + 5)
        .collect();
        let (mut packed, mut unpacked) = (Vec::new(), Vec::new());
        pack(&noise, &mut packed);
        assert!(packed.len() < noise.len() + 64);
        assert!(FrameDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).is_ok());
        assert_eq!(unpacked, noise);
    }
}
