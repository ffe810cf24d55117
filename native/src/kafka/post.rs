//! Sends dead letters: many at a time, and awaited once, before the task that wrote them ends.
//!
//! A letter that was sent twice counts once, so a broker that does not answer is simply asked again.

use crate::kafka::batches::Record;
use crate::kafka::client::Client;
use crate::kafka::connection::{Connection, HEAD};
use crate::kafka::error::{Code, GRACE, KafkaError, backoff};
use crate::kafka::letters::{self, Form, Head};
use crate::kafka::messages::{PRODUCE, produce, read_produce};
use crate::kafka::parcels::{Letter, Parcel, Parcels, Slot};
use crate::kafka::rows::{Stretch, stretch};
use crate::refusal::{Kind, Refusal};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests to one broker that are not answered yet.
const IN_FLIGHT: usize = 4;
/// Letters that wait to be sent take no more bytes than this; then they are waited for.
const MOST_HELD: usize = 16 << 20;
/// How long one look for answers may take while letters are held back.
const LOOK: Duration = Duration::from_secs(1);

struct Flight {
    connection: Connection,
    parcels: VecDeque<Parcel>,
    /// When it last showed that somebody is there.
    heard: Instant,
}

/// Where records are from, and the headers that are the same in their letters: by kind, of a value and of a key.
struct Origin {
    topic: String,
    number: i32,
    heads: [[Head; 2]; Kind::ALL.len()],
}

/// A letter that nobody has granted yet.
struct Staged {
    slot: Slot,
    range: usize,
    offset: i64,
}

pub struct Post {
    client: Arc<Client>,
    topic: String,
    form: Form,
    origins: Vec<Origin>, // by range
    parcels: Option<Parcels>,
    staged: Vec<Staged>,
    now: i64,
    queue: VecDeque<Parcel>,
    flights: HashMap<i32, Flight>,
    sealed: Vec<u8>, // the parcel that is being sent
    returned: Vec<Letter>,
    /// Why nothing can be written: reported as soon as somebody asks.
    broken: Option<KafkaError>,
    unwritten: usize,
    /// What went wrong last, and has been tried again since.
    pub trouble: String,
    missing: Option<Instant>,
    failures: u32,
    not_before: Instant,
    /// Since when nothing has gone well, and how long that is borne.
    since: Instant,
    patience: Duration,
    /// Nothing is sent from here: all letters are returned.
    aside: bool,
}

impl Post {
    pub fn new(client: Arc<Client>, topic: String, form: Form, patience: Duration) -> Self {
        Post {
            client,
            topic,
            form,
            origins: Vec::new(),
            parcels: None,
            staged: Vec::new(),
            now: 0,
            queue: VecDeque::new(),
            flights: HashMap::new(),
            sealed: Vec::new(),
            returned: Vec::new(),
            broken: None,
            unwritten: 0,
            trouble: String::new(),
            missing: None,
            failures: 0,
            not_before: Instant::now(),
            since: Instant::now(),
            patience,
            aside: false,
        }
    }

    /// Where the records of each range are from.
    pub fn origins<'a>(&mut self, places: impl Iterator<Item = (&'a str, i32)>) {
        let origin =
            |(topic, number)| Origin { topic: str::to_owned(topic), number, heads: Default::default() };
        self.origins = places.map(origin).collect();
    }

    /// Write a letter. It is not sent until it is granted.
    pub fn stage(&mut self, range: usize, offset: i64, refusal: &Refusal, record: Option<&Record<'_>>) {
        if self.staged.is_empty() {
            self.now = letters::now();
        }
        if self.parcels.is_none() {
            self.find_partitions();
        }
        let Some(parcels) = &mut self.parcels else {
            self.unwritten += 1;
            return;
        };
        let (form, origin) = (&self.form, &mut self.origins[range]);
        let head = &mut origin.heads[refusal.kind as usize][usize::from(refusal.of_key)];
        if !head.is_of(self.now) {
            *head = form.head(&origin.topic, origin.number, refusal.kind, refusal.of_key, self.now);
        }
        let size = form.most(refusal, record);
        let slot = parcels.push(self.now, record.and_then(|record| record.key), size, |out| {
            out.reserve(size);
            form.write(out, head, offset, refusal, record);
        });
        self.staged.push(Staged { slot, range, offset });
    }

    /// The first letter of a task waits for the topic, as it would to be sent.
    fn find_partitions(&mut self) {
        while self.parcels.is_none() && self.broken.is_none() {
            match self.client.partitions(&self.topic) {
                Ok(count) => {
                    self.parcels = Some(Parcels::new(count.max(1), self.now));
                    self.failures = 0;
                }
                Err(error) => {
                    self.broken = self.later(error).err();
                    std::thread::sleep(self.not_before.saturating_duration_since(Instant::now()));
                }
            }
        }
    }

    /// Where no broker is asked.
    pub fn assume_partitions(&mut self, count: usize) {
        self.parcels = Some(Parcels::new(count, letters::now()));
    }

    /// Forget all letters.
    pub fn clear(&mut self) {
        self.staged.clear();
        if let Some(parcels) = &mut self.parcels {
            parcels.take(true, self.now).into_iter().for_each(|parcel| parcels.recycle(parcel));
        }
    }

    /// How many letters wait to be granted.
    pub fn staged(&self) -> usize {
        self.staged.len() + self.unwritten
    }

    /// Let the first so many go, and take back the others: where those are.
    pub fn grant(&mut self, count: usize) -> Result<Vec<(String, i32, Stretch)>, KafkaError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let kept_out = self.staged.split_off(count.min(self.staged.len()));
        let mut stretches = Vec::new();
        if let Some(parcels) = &mut self.parcels {
            kept_out.iter().rev().for_each(|letter| parcels.pop(&letter.slot));
            kept_out.iter().for_each(|letter| stretch(&mut stretches, letter.range, letter.offset));
            self.queue.extend(parcels.take(false, self.now));
        }
        self.staged.clear();
        self.dispatch()?;
        while self.held() > MOST_HELD {
            self.pump(Instant::now() + LOOK)?;
        }
        let origins = &self.origins;
        let named = |part: Stretch| (origins[part.range].topic.clone(), origins[part.range].number, part);
        Ok(stretches.into_iter().map(named).collect())
    }

    fn held(&self) -> usize {
        self.queue.iter().map(Parcel::size).sum()
    }

    /// Send all that was granted. Returns how many letters are not durable by then.
    pub fn flush(&mut self, until: Instant) -> Result<usize, KafkaError> {
        if let Some(parcels) = &mut self.parcels {
            self.queue.extend(parcels.take(true, self.now));
        }
        while self.waiting() > 0 && Instant::now() < until {
            self.pump(until)?;
        }
        Ok(self.waiting())
    }

    pub fn waiting(&self) -> usize {
        let flying = self.flights.values().flat_map(|flight| &flight.parcels);
        flying.chain(&self.queue).map(|parcel| parcel.count.unsigned_abs() as usize).sum()
    }

    /// Letters that could not be sent from here, for somebody else to try.
    pub fn returned(&mut self) -> Vec<Letter> {
        std::mem::take(&mut self.returned)
    }

    /// Send what can be sent, and take one answer from each broker that owes one, if it is there in time.
    fn pump(&mut self, until: Instant) -> Result<(), KafkaError> {
        let now = Instant::now();
        if now < self.not_before {
            std::thread::sleep(self.not_before.min(until).saturating_duration_since(now));
        }
        self.dispatch()?;
        for node in self.flights.keys().copied().collect::<Vec<_>>() {
            let Some(flight) = self.flights.get_mut(&node) else { continue };
            if flight.parcels.is_empty() {
                continue;
            }
            match flight.connection.receive(until) {
                Ok(None) if flight.heard.elapsed() > self.client.settings.timeout => {
                    self.lose(node, KafkaError::Away("no answer".into()))?;
                }
                Ok(None) => {}
                Ok(Some(answer)) => {
                    flight.heard = Instant::now();
                    let Some(parcel) = flight.parcels.pop_front() else { continue };
                    match read_produce(&answer[HEAD..]) {
                        Ok(error) => self.settle(parcel, error)?,
                        Err(damaged) => {
                            self.queue.push_back(parcel);
                            self.lose(node, damaged.into())?;
                        }
                    }
                }
                Err(error) => self.lose(node, error)?,
            }
        }
        Ok(())
    }

    fn dispatch(&mut self) -> Result<(), KafkaError> {
        for _ in 0..self.queue.len() {
            if Instant::now() < self.not_before {
                break;
            }
            let Some(parcel) = self.queue.pop_front() else { break };
            if self.aside {
                self.returned.extend(parcel.letters());
            } else {
                self.send(parcel)?;
            }
        }
        Ok(())
    }

    /// Send a parcel; back into the queue with it where that is not possible yet.
    fn send(&mut self, parcel: Parcel) -> Result<(), KafkaError> {
        let node = match self.connect(parcel.number) {
            Ok(node) => node,
            Err(error) => {
                self.client.forget(&self.topic, parcel.number); // its leader may be another one now
                self.queue.push_back(parcel);
                return self.later(error);
            }
        };
        let Some(flight) = self.flights.get_mut(&node).filter(|flight| flight.parcels.len() < IN_FLIGHT)
        else {
            self.queue.push_back(parcel);
            return Ok(());
        };
        let number = parcel.number;
        parcel.seal(&mut self.sealed);
        let request = produce(&self.topic, number, self.sealed.len());
        let sent = flight.connection.send_with(PRODUCE, request, &self.sealed);
        match sent {
            Ok(()) => {
                if flight.parcels.is_empty() {
                    flight.heard = Instant::now();
                }
                flight.parcels.push_back(parcel);
            }
            Err(error) => {
                self.client.forget(&self.topic, number);
                self.queue.push_back(parcel);
                self.lose(node, error)?;
            }
        }
        Ok(())
    }

    /// The leader of a partition, with a connection to it among the flights.
    fn connect(&mut self, number: i32) -> Result<i32, KafkaError> {
        let leader = self.client.leader(&self.topic, number)?;
        if self.flights.contains_key(&leader) {
            return Ok(leader);
        }
        let (node, connection) = self.client.connect(&self.topic, number)?;
        self.flights.insert(node, Flight { connection, parcels: VecDeque::new(), heard: Instant::now() });
        Ok(node)
    }

    /// The broker's word on a parcel.
    fn settle(&mut self, parcel: Parcel, error: i16) -> Result<(), KafkaError> {
        let error = match KafkaError::check(error) {
            Ok(()) => {
                (self.failures, self.missing, self.since) = (0, None, Instant::now());
                if let Some(parcels) = &mut self.parcels {
                    parcels.recycle(parcel);
                }
                return Ok(());
            }
            Err(KafkaError::Answered(Code::MESSAGE_TOO_LARGE | Code::RECORD_LIST_TOO_LARGE)) => {
                self.returned.extend(parcel.letters());
                return Ok(());
            }
            // Not a damaged log: the batch was damaged on its way.
            Err(KafkaError::Answered(code @ Code::CORRUPT_MESSAGE)) => KafkaError::Away(code.to_string()),
            Err(error) => error,
        };
        self.client.forget(&self.topic, parcel.number);
        self.queue.push_back(parcel);
        self.later(error)
    }

    /// A connection is of no use any more. What it had not answered is sent again.
    fn lose(&mut self, node: i32, error: KafkaError) -> Result<(), KafkaError> {
        if let Some(flight) = self.flights.remove(&node) {
            for parcel in flight.parcels {
                self.client.forget(&self.topic, parcel.number);
                self.queue.push_back(parcel);
            }
        }
        self.later(error)
    }

    /// Try again in a while; an error where that is of no use, or has been done for long enough.
    fn later(&mut self, error: KafkaError) -> Result<(), KafkaError> {
        let began = if self.failures == 0 { Instant::now() } else { self.since };
        self.since = began;
        let unknown = KafkaError::Answered(Code::UNKNOWN_TOPIC_OR_PARTITION);
        match error {
            // OpenSSL may see it otherwise, and librdkafka speak what we do not: they have the last word.
            KafkaError::Tls(_) | KafkaError::Unsupported(_) => {
                self.aside = true;
                self.parcels.get_or_insert_with(|| Parcels::new(1, self.now));
            }
            error if error == unknown && self.missing.get_or_insert_with(Instant::now).elapsed() < GRACE => {
                self.trouble = error.to_string();
            }
            KafkaError::Away(text) if began.elapsed() < self.patience => self.trouble = text,
            error => return Err(error),
        }
        self.not_before = Instant::now() + backoff(self.failures);
        self.failures += 1;
        Ok(())
    }
}

impl Drop for Post {
    /// Connections that owe no answer are for the next task.
    fn drop(&mut self) {
        for (node, flight) in self.flights.drain().filter(|(_, flight)| flight.parcels.is_empty()) {
            self.client.give_back(node, flight.connection);
        }
    }
}
