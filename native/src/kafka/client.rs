//! A client a process and settings: where the leaders are, and connections that wait for the next task.
//!
//! It has no threads: what nobody reads stays with the broker, or in the socket.

use crate::error::NotNative;
use crate::kafka::connection::Connection;
use crate::kafka::error::{Code, KafkaError};
use crate::kafka::messages::{self, Broker};
use crate::kafka::settings::Settings;
use crate::kafka::tls;
use rustls::ClientConfig;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connection that lay idle longer is not used again: something between may have forgotten it.
const KEEP: Duration = Duration::from_secs(30);

pub struct Client {
    pub settings: Settings,
    tls: Option<Arc<ClientConfig>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    brokers: HashMap<i32, (String, u16)>,
    leaders: HashMap<(String, i32), i32>,
    idle: Vec<(i32, Connection, Instant)>,
}

/// By process as well: after a fork both would read from one socket.
type Clients = HashMap<(u32, Settings), Arc<Client>>;
static CLIENTS: LazyLock<Mutex<Clients>> = LazyLock::new(Mutex::default);

/// A lock that a panic left behind is as good as any: what it guards is whole at every moment.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// The client of these settings in this process.
    pub fn get(settings: Settings) -> Result<Arc<Client>, NotNative> {
        let key = (std::process::id(), settings);
        if let Some(client) = lock(&CLIENTS).get(&key) {
            return Ok(client.clone());
        }
        let tls = key.1.tls.as_ref().map(tls::config).transpose()?;
        let client = Arc::new(Client { settings: key.1.clone(), tls, known: Mutex::default() });
        Ok(lock(&CLIENTS).entry(key).or_insert(client).clone())
    }

    /// A connection to the partition's leader, and the leader's number.
    pub fn connect(&self, topic: &str, number: i32) -> Result<(i32, Connection), KafkaError> {
        let leader = self.leader(topic, number)?;
        if let Some(connection) = self.idle(Some(leader)) {
            return Ok((leader, connection));
        }
        let place = lock(&self.known).brokers.get(&leader).cloned();
        let place = place.ok_or_else(|| KafkaError::Away(format!("broker {leader} is not known")))?;
        Ok((leader, Connection::open(&self.settings, self.tls.as_ref(), &place)?))
    }

    /// The number of the partition's leader.
    pub fn leader(&self, topic: &str, number: i32) -> Result<i32, KafkaError> {
        let known = lock(&self.known).leaders.get(&(topic.to_owned(), number)).copied();
        known.map_or_else(|| self.ask(topic, |found| self.learn(found, topic, number)), Ok)
    }

    /// How many partitions the topic has.
    pub fn partitions(&self, topic: &str) -> Result<usize, KafkaError> {
        self.ask(topic, |found| KafkaError::check(found.error).map(|()| found.partitions.len()))
    }

    /// Keep a connection that owes no answer.
    pub fn give_back(&self, node: i32, connection: Connection) {
        lock(&self.known).idle.push((node, connection, Instant::now()));
    }

    /// What is known of a partition is not so any more.
    pub fn forget(&self, topic: &str, number: i32) {
        let mut known = lock(&self.known);
        if let Some(leader) = known.leaders.remove(&(topic.to_owned(), number)) {
            known.idle.retain(|(node, _, _)| *node != leader);
        }
    }

    fn idle(&self, node: Option<i32>) -> Option<Connection> {
        let mut known = lock(&self.known);
        known.idle.retain(|(_, _, since)| since.elapsed() < KEEP);
        let place = known.idle.iter().rposition(|(owner, _, _)| node.is_none_or(|node| node == *owner))?;
        Some(known.idle.remove(place).1)
    }

    /// Ask about a topic, of whoever answers.
    fn ask<T>(
        &self,
        topic: &str,
        judge: impl Fn(messages::Metadata) -> Result<T, KafkaError>,
    ) -> Result<T, KafkaError> {
        let mut last = KafkaError::Away("no bootstrap.servers".into());
        for place in std::iter::once(None).chain(self.settings.servers.iter().map(Some)) {
            let connection = match place {
                None => self.idle(None).map(Ok),
                Some(place) => Some(Connection::open(&self.settings, self.tls.as_ref(), place)),
            };
            let asked = connection.map(|connection| {
                let answer = connection?.ask(messages::METADATA, messages::metadata(topic))?;
                judge(messages::read_metadata(&answer, topic)?)
            });
            match asked {
                None => {}
                Some(Err(error @ KafkaError::Away(_))) => last = error,
                Some(outcome) => return outcome,
            }
        }
        Err(last)
    }

    fn learn(&self, found: messages::Metadata, topic: &str, number: i32) -> Result<i32, KafkaError> {
        let leader = found.partitions.iter().find(|(n, leader)| *n == number && *leader >= 0);
        let mut known = lock(&self.known);
        for Broker { node, host, port } in found.brokers {
            known.brokers.insert(node, (host, port));
        }
        KafkaError::check(found.error)?;
        match leader {
            Some((_, leader)) => {
                // The bootstrap address may be another road to the same broker: it is not kept.
                known.leaders.insert((topic.to_owned(), number), *leader);
                Ok(*leader)
            }
            None if found.partitions.iter().all(|(n, _)| *n != number) => {
                Err(KafkaError::Answered(Code::UNKNOWN_TOPIC_OR_PARTITION))
            }
            None => Err(KafkaError::Away(format!("{topic}-{number} has no leader"))),
        }
    }

    /// Where the partition's log begins and where what may be read of it ends.
    pub fn watermarks(&self, topic: &str, number: i32) -> Result<(i64, i64), KafkaError> {
        let (leader, mut connection) = self.connect(topic, number)?;
        let committed_only = self.settings.committed_only;
        let mut ends = [0, 0];
        for (end, time) in ends.iter_mut().zip([messages::EARLIEST, messages::LATEST]) {
            let request = messages::list_offsets(topic, number, committed_only, time);
            let asked = connection.ask(messages::LIST_OFFSETS, request);
            let (error, offset) =
                messages::read_list_offsets(&asked.inspect_err(|_| self.forget(topic, number))?)?;
            KafkaError::check(error).inspect_err(|_| self.forget(topic, number))?;
            *end = offset;
        }
        self.give_back(leader, connection);
        Ok((ends[0], ends[1]))
    }
}
