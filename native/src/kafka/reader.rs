//! Reads ranges of offsets: every record in them that the broker has, once, and nothing else.
//!
//! Compaction, aborted transactions and transaction markers leave gaps; a gap is not a loss. A range is
//! done when a record at or past its end, or a batch that reaches so far, has been seen. An empty answer
//! is no gap, whatever it says of the log's end: brokers with tiered storage give such answers. It is asked
//! for again, with pauses that grow. While one answer is decoded the next is already under way: it waits in
//! the socket, so that nothing is held twice. Whatever else happens is an event, for the caller to judge.

use crate::kafka::batches::{Batches, Step};
use crate::kafka::client::Client;
use crate::kafka::connection::{Connection, HEAD};
use crate::kafka::error::{GRACE, KafkaError, backoff};
use crate::kafka::messages::{FETCH, Fetched, Wanted, fetch, read_fetch};
use crate::kafka::post::Post;
use crate::kafka::rows::Rows;
use crate::kafka::unpack::Unpackers;
use crate::refusal;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Range {
    pub topic: String,
    pub number: i32,
    pub next: i64,
    pub end: i64,
    pub given_up: bool,
    /// Records that are not refused, since rows were last taken.
    pub good: usize,
    /// What a fetch may bring, and what a record took in the last.
    bytes: i32,
    bytes_per_record: f64,
    /// How often in a row there was nothing in an answer.
    empty: u32,
    /// Since when there has been an error that may last.
    refused: Option<Instant>,
}

impl Range {
    pub fn is_open(&self) -> bool {
        self.next < self.end && !self.given_up
    }

    /// As much as is needed and no more, as far as one can tell.
    fn wanted_bytes(&self) -> i32 {
        let rest = (self.end - self.next) as f64 * self.bytes_per_record * 1.1 + 65_536.0;
        if self.bytes_per_record > 0.0 && rest < f64::from(self.bytes) { rest as i32 } else { self.bytes }
    }
}

/// What is to be said of a range that is not a record.
pub struct Event {
    pub range: usize,
    pub error: KafkaError,
}

pub struct Limits {
    pub rows: usize,
    pub bytes: usize,
    /// The longest record that is taken.
    pub longest: usize,
}

/// A fetch that is not answered yet.
struct Flight {
    range: usize,
    offset: i64,
    node: i32,
    connection: Connection,
    since: Instant,
}

/// Bad records do not make batches of good ones smaller, which would cost more than they do; but they end one.
/// Nothing is never full, however low the limits are.
fn full(rows: &Rows, limits: &Limits) -> bool {
    let full = rows.count() >= limits.rows || rows.refused() >= limits.rows || rows.bytes >= limits.bytes;
    full && rows.count() + rows.refused() > 0
}

pub struct Reader {
    pub client: Arc<Client>,
    pub rows: Rows,
    pub ranges: Vec<Range>,
    pub events: Vec<Event>,
    /// The id of a schema that must be learned before anything more is decoded.
    pub wanted: Option<refusal::Wanted>,
    limits: Limits,
    flight: Option<Flight>,
    batches: Option<(usize, Batches)>,
    unpackers: Unpackers,
    not_before: Instant,
    /// Since there was last a record, a batch or a marker.
    failures: u32,
    /// What the last of them was.
    pub trouble: String,
}

impl Reader {
    pub fn new(client: Arc<Client>, rows: Rows, limits: Limits) -> Self {
        Reader {
            client,
            rows,
            ranges: Vec::new(),
            events: Vec::new(),
            wanted: None,
            limits,
            flight: None,
            batches: None,
            unpackers: Unpackers::default(),
            not_before: Instant::now(),
            failures: 0,
            trouble: String::new(),
        }
    }

    /// Read this range too. They are read one after another.
    pub fn add(&mut self, topic: String, number: i32, start: i64, end: i64) {
        let bytes = self.client.settings.partition_bytes;
        self.ranges.push(Range {
            topic,
            number,
            next: start,
            end,
            given_up: false,
            good: 0,
            bytes,
            bytes_per_record: 0.0,
            empty: 0,
            refused: None,
        });
    }

    /// Fill the rows until they are full, every range is read, a schema is wanted, there is an event, or the
    /// time is over. The post takes what is refused, if it is `posted`.
    pub fn fill(&mut self, timeout: Duration, mut post: Option<&mut Post>) {
        let until = Instant::now() + timeout;
        loop {
            self.decode(post.as_deref_mut());
            if full(&self.rows, &self.limits)
                || self.wanted.is_some()
                || !self.events.is_empty()
                || self.done()
            {
                return;
            }
            let now = Instant::now();
            if now >= until {
                return;
            }
            if now < self.not_before {
                std::thread::sleep(self.not_before.min(until) - now);
                continue;
            }
            if let Err((range, error)) = self.advance(until) {
                self.on_error(range, error);
            }
        }
    }

    pub fn done(&self) -> bool {
        !self.ranges.iter().any(Range::is_open)
    }

    /// Decode what has arrived, until the rows are full.
    fn decode(&mut self, mut post: Option<&mut Post>) {
        while let Some((index, mut batches)) = self.batches.take() {
            let range = &mut self.ranges[index];
            while range.is_open() {
                if full(&self.rows, &self.limits) {
                    self.batches = Some((index, batches));
                    return;
                }
                match batches.next(&mut self.unpackers) {
                    Ok(Step::Record(record)) if record.offset < range.end => {
                        let next = record.offset + 1;
                        let post = post.as_deref_mut();
                        self.wanted = self.rows.push(index, range.number, &mut range.good, &record, post);
                        if self.wanted.is_some() {
                            batches.again();
                            self.batches = Some((index, batches));
                            return;
                        }
                        range.next = next;
                    }
                    Ok(Step::TooLong(offset, length)) if offset < range.end => {
                        range.next = offset + 1;
                        let (longest, post) = (self.limits.longest, post.as_deref_mut());
                        self.rows.too_long(index, offset, range.good, length, longest, post);
                    }
                    Ok(Step::Record(_) | Step::TooLong(..)) => range.next = range.end,
                    Ok(Step::End(next)) => {
                        range.next = range.next.max(next.min(range.end));
                        break;
                    }
                    // What is under way begins behind this batch: it goes, too.
                    Err(error) => return self.on_error(index, error),
                }
            }
            let answer = batches.into_answer(&mut self.unpackers);
            if let (Some(answer), Some(flight)) = (answer, &mut self.flight) {
                flight.connection.recycle(answer);
            }
        }
    }

    /// See to it that a fetch is under way, and take its answer if there is one in time.
    fn advance(&mut self, until: Instant) -> Result<(), (usize, KafkaError)> {
        let Some(flight) = &mut self.flight else {
            let open = self.ranges.iter().position(Range::is_open);
            return open.map_or(Ok(()), |index| self.launch(index, self.ranges[index].next, None));
        };
        let (index, offset) = (flight.range, flight.offset);
        let answer = flight.connection.receive(until).map_err(|error| (index, error))?;
        let Some(answer) = answer else {
            let late = flight.since.elapsed() > self.client.settings.timeout;
            return if late { Err((index, KafkaError::Away("no answer".into()))) } else { Ok(()) };
        };
        let Some(flight) = self.flight.take() else { return Ok(()) };
        self.take(flight, offset, answer).map_err(|error| (index, error))
    }

    fn take(&mut self, flight: Flight, offset: i64, answer: Vec<u8>) -> Result<(), KafkaError> {
        let (range, committed_only) = (&mut self.ranges[flight.range], self.client.settings.committed_only);
        let (throttled_ms, fetched) = read_fetch(&answer[HEAD..], range.number, committed_only)?;
        if throttled_ms > 0 {
            self.not_before = Instant::now() + Duration::from_millis(throttled_ms.unsigned_abs().into());
        }
        let Some(Fetched { error, readable, aborted, records }) = fetched else {
            self.client.give_back(flight.node, flight.connection);
            self.wait("the broker's answer does not have the partition in it".into());
            return Ok(());
        };
        KafkaError::check(error)?;
        range.refused = None;
        let length = records.len();
        let records = records.start + HEAD..records.end + HEAD;
        let (longest, check) = (self.limits.longest, self.client.settings.check_crcs);
        let batches = Batches::new(answer, records, range.next, aborted, longest, check);
        let Some(last) = batches.last()?.filter(|last| *last > offset) else {
            self.client.give_back(flight.node, flight.connection);
            if length > 0 && range.bytes < i32::MAX {
                (range.bytes, range.bytes_per_record) = (range.bytes.saturating_mul(2).max(1024), 0.0);
                return Ok(()); // one batch is longer than what was asked for
            }
            range.empty += 1;
            let what = if length > 0 { "answer without a whole batch of them" } else { "empty answer" };
            let text = format!(
                "records of {}-{} from offset {offset} on were asked for {} times in a row, with an {what} each time; \
                 its end is said to be {readable}",
                range.topic, range.number, range.empty
            );
            self.wait(text);
            return Ok(());
        };
        (range.empty, self.failures) = (0, 0);
        self.trouble.clear();
        range.bytes_per_record = length as f64 / (last - offset).max(1) as f64;
        let index = flight.range;
        let more = last < range.end;
        self.batches = Some((index, batches));
        if self.not_before > Instant::now() {
            self.client.give_back(flight.node, flight.connection);
            return Ok(());
        }
        // The next is under way while this one is decoded; should it fail, it is asked for again then.
        if more {
            let _ = self.launch(index, last, Some((flight.node, flight.connection)));
        } else {
            self.client.give_back(flight.node, flight.connection);
            if let Some(next) = (index + 1..self.ranges.len()).find(|next| self.ranges[*next].is_open()) {
                let _ = self.launch(next, self.ranges[next].next, None);
            }
        }
        Ok(())
    }

    fn launch(
        &mut self,
        index: usize,
        offset: i64,
        connection: Option<(i32, Connection)>,
    ) -> Result<(), (usize, KafkaError)> {
        let (range, settings) = (&self.ranges[index], &self.client.settings);
        let connection = connection.map_or_else(|| self.client.connect(&range.topic, range.number), Ok);
        let (node, mut connection) = connection.map_err(|error| (index, error))?;
        let wanted = Wanted {
            topic: &range.topic,
            number: range.number,
            offset,
            committed_only: settings.committed_only,
            max_wait_ms: settings.max_wait_ms,
            min_bytes: settings.min_bytes,
            max_bytes: settings.max_bytes.max(1),
            partition_bytes: range.wanted_bytes(),
        };
        connection.send(FETCH, fetch(&wanted)).map_err(|error| (index, error))?;
        self.flight = Some(Flight { range: index, offset, node, connection, since: Instant::now() });
        Ok(())
    }

    fn on_error(&mut self, index: usize, error: KafkaError) {
        self.flight = None;
        let range = &mut self.ranges[index];
        self.client.forget(&range.topic, range.number);
        let text = error.to_string();
        let patient = error.may_pass() && range.refused.get_or_insert_with(Instant::now).elapsed() < GRACE;
        if !patient && !matches!(error, KafkaError::Away(_)) {
            self.events.push(Event { range: index, error });
        }
        self.wait(text);
    }

    /// Ask again, each time later.
    fn wait(&mut self, why: String) {
        self.not_before = self.not_before.max(Instant::now() + backoff(self.failures));
        self.failures += 1;
        self.trouble = why;
    }

    /// Go on at another offset of a range, after records before it were found to be gone.
    pub fn seek(&mut self, index: usize, offset: i64) {
        self.flight.take_if(|flight| flight.range == index);
        self.batches.take_if(|(range, _)| *range == index);
        self.ranges[index].next = offset;
    }

    /// Read no more of a range.
    pub fn give_up(&mut self, index: usize) {
        self.seek(index, self.ranges[index].end);
        self.ranges[index].given_up = true;
    }
}
