//! Reads ranges of offsets: every record in them that the broker has, once, and nothing else.
//!
//! Compaction, aborted transactions and transaction markers leave gaps; a gap is not a loss. A range is
//! done when its last record, one past it, or the partition's end has been seen. Whatever else happens is
//! an event, for the caller to judge.

use crate::kafka::client::Client;
use crate::kafka::library::{Handle, Message, PARTITION_EOF};
use crate::kafka::partition::Partition;
use crate::kafka::rows::Rows;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A range this long is one of many: its partition goes on fetching. After a short one we are at the end.
const LINGER_RECORDS: i64 = 20_000;
/// One wait for records; between waits the library may tell of errors.
const WAIT_MS: c_int = 100;

pub struct Range {
    pub partition: Option<Partition>, // None once it is read, or given up
    pub topic: String,
    pub number: i32,
    pub next: i64,
    pub end: i64,
    lingers: bool,
    doubted: bool,
}

/// What the library says of a range that is not a record.
pub struct Event {
    pub range: usize,
    pub code: c_int,
    pub text: String,
}

pub struct Limits {
    pub rows: usize,
    pub bytes: usize,
}

pub struct Reader {
    pub client: Arc<Client>,
    pub rows: Rows,
    pub ranges: Vec<Range>,
    pub events: Vec<Event>,
    limits: Limits,
}

impl Reader {
    pub fn new(client: Arc<Client>, rows: Rows, limits: Limits) -> Self {
        Reader { client, rows, ranges: Vec::new(), events: Vec::new(), limits }
    }

    /// Read this range too. All are fetched at once, and read one after another.
    pub fn add(&mut self, topic: String, number: i32, start: i64, end: i64) -> Result<(), String> {
        let partition = if start < end { Some(self.client.take(&topic, number, start)?) } else { None };
        let lingers = end - start >= LINGER_RECORDS;
        self.ranges.push(Range { partition, topic, number, next: start, end, lingers, doubted: false });
        Ok(())
    }

    /// Fill the rows until they are full, every range is read, there is an event, or the time is over.
    pub fn fill(&mut self, timeout: Duration) -> Result<(), String> {
        let started = Instant::now();
        while let Some(index) = self.ranges.iter().position(|range| range.partition.is_some()) {
            let mut wait = 0;
            while self.ranges[index].partition.is_some() {
                let before = (self.rows.count(), self.rows.rejected.len());
                self.serve(index, wait)?;
                if self.full() || !self.events.is_empty() {
                    return Ok(());
                }
                if before != (self.rows.count(), self.rows.rejected.len()) {
                    wait = 0;
                    continue;
                }
                if let Some((code, text)) = self.client.fault() {
                    self.events.push(Event { range: index, code, text });
                    return Ok(());
                }
                if wait > 0 && started.elapsed() >= timeout {
                    return Ok(());
                }
                wait = WAIT_MS;
            }
        }
        Ok(())
    }

    pub fn done(&self) -> bool {
        self.ranges.iter().all(|range| range.partition.is_none())
    }

    fn full(&self) -> bool {
        self.rows.count() + self.rows.rejected.len() >= self.limits.rows
            || self.rows.bytes >= self.limits.bytes
    }

    fn serve(&mut self, index: usize, wait_ms: c_int) -> Result<(), String> {
        let Some(mut partition) = self.ranges[index].partition.take() else { return Ok(()) };
        let range = &mut self.ranges[index];
        let mut sink = Sink {
            client: &self.client,
            rows: &mut self.rows,
            limits: &self.limits,
            index,
            next: range.next,
            end: range.end,
            sure: partition.sure || range.doubted,
            doubt: false,
            overshot: false,
            event: None,
        };
        // SAFETY: `on_message` takes a Sink and does not unwind.
        unsafe { partition.serve(wait_ms, on_message, (&raw mut sink).cast()) };
        let Sink { next, sure, doubt, overshot, event, .. } = sink;
        range.next = next;
        partition.next = next;
        partition.sure = sure;
        partition.overshot |= overshot;
        if let Some((code, text)) = event {
            let text = text.unwrap_or_else(|| self.client.library.error(code));
            self.events.push(Event { range: index, code, text });
        }
        if doubt {
            range.doubted = true;
            partition.restart(next)?;
        }
        if next < range.end {
            range.partition = Some(partition);
        } else if range.lingers {
            self.client.give_back(partition);
        }
        Ok(())
    }

    /// Go on at another offset of a range, after records before it were found to be gone.
    pub fn seek(&mut self, index: usize, offset: i64) -> Result<(), String> {
        let range = &mut self.ranges[index];
        range.next = offset;
        match &mut range.partition {
            Some(partition) => partition.restart(offset),
            None => Ok(()),
        }
    }

    /// Read no more of a range.
    pub fn give_up(&mut self, index: usize) {
        self.ranges[index].partition = None;
    }
}

struct Sink<'a> {
    client: &'a Client,
    rows: &'a mut Rows,
    limits: &'a Limits,
    index: usize,
    next: i64,
    end: i64,
    sure: bool,
    doubt: bool,
    overshot: bool,
    event: Option<(c_int, Option<String>)>,
}

unsafe extern "C" fn on_message(message: *mut Message, opaque: Handle) {
    // SAFETY: `Reader::serve` passes a Sink, and the library a message that lives until we return.
    let (sink, message) = unsafe { (&mut *opaque.cast::<Sink<'_>>(), &*message) };
    let stop = catch_unwind(AssertUnwindSafe(|| sink.take(message))).unwrap_or_else(|_| {
        sink.event = Some((-1, Some(format!("a fault in the decoder, at offset {}", message.offset))));
        true
    });
    if stop {
        // SAFETY: makes `consume_callback_queue` return after this message; what is left stays queued.
        unsafe { (sink.client.library.r#yield)(sink.client.handle) };
    }
}

impl Sink<'_> {
    /// Take one message; true to take no more for now.
    #[inline]
    fn take(&mut self, message: &Message) -> bool {
        if self.doubt || self.event.is_some() {
            self.overshot = true;
            return true;
        }
        if message.err == PARTITION_EOF {
            // All that there is has been seen. Short of the range's end it may be old news.
            if message.offset >= self.end && self.believe(message.offset) {
                self.next = self.end;
                self.overshot = message.offset > self.end; // it is not said a second time
                return true;
            }
            return self.doubt;
        }
        if message.err != 0 {
            self.event = Some((message.err, None));
            return true;
        }
        if message.offset < self.next {
            return false;
        }
        if !self.believe(message.offset) {
            return true;
        }
        if message.offset >= self.end {
            self.next = self.end;
            self.overshot = true;
            return true;
        }
        self.rows.push(self.client.library, self.index, message);
        self.next = message.offset + 1;
        self.next >= self.end
            || self.rows.count() + self.rows.rejected.len() >= self.limits.rows
            || self.rows.bytes >= self.limits.bytes
    }

    /// Whether to trust a first offset. One that leaves others out must come twice: a gap does.
    #[inline]
    fn believe(&mut self, offset: i64) -> bool {
        if self.sure || offset == self.next {
            self.sure = true;
            return true;
        }
        self.doubt = true;
        false
    }
}
