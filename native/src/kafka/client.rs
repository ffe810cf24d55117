//! Clients kept between tasks, one a process and configuration, each with the partitions it has read.
//!
//! A partition stays started for a moment after its range is read: where the same worker gets the next
//! range of it, the records are here already. If nobody comes, it is stopped and forgotten, so that
//! nothing is fetched in vain for long.

use crate::kafka::library::{AUTHENTICATION, Handle, Rdkafka, SSL, c_text, text};
use crate::kafka::partition::Partition;
use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a partition goes on fetching for a task that may come.
const LINGER: Duration = Duration::from_millis(1000);
/// How long a client keeps its connections; below the minute after which Spark ends an idle worker.
const KEEP: Duration = Duration::from_secs(30);

pub struct Client {
    pub library: &'static Rdkafka,
    pub handle: Handle,
    fault: Box<Fault>,
    idle: Mutex<HashMap<(String, i32), (Partition, Instant)>>,
}

// SAFETY: librdkafka's handles may be used from any thread.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

/// Why the broker will not have us: the library's code and its words.
type Fault = Mutex<Option<(c_int, String)>>;
type Settings = Vec<(String, String)>;
type Clients = HashMap<(u32, Settings), (Arc<Client>, Instant)>;

/// By process as well: a client does not survive a fork, its threads stay behind.
static CLIENTS: LazyLock<Mutex<Clients>> = LazyLock::new(Mutex::default);
static REAPER: Mutex<u32> = Mutex::new(0);

/// A lock that a panic left behind is as good as any: what it guards is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// The client of these settings in this process.
    pub fn get(library: &'static Rdkafka, settings: Settings) -> Result<Arc<Client>, String> {
        let key = (std::process::id(), settings);
        let mut clients = lock(&CLIENTS);
        // One that was refused is not asked again: the next may be let in.
        let refused = match clients.get_mut(&key) {
            Some((client, used)) if lock(&client.fault).is_none() => {
                *used = Instant::now();
                return Ok(client.clone());
            }
            _ => clients.remove(&key),
        };
        let fault = Box::new(Fault::default());
        let opaque = (&raw const *fault).cast_mut().cast();
        // SAFETY: `on_error` takes a Fault, and the client keeps this one until its handle is gone.
        let handle = unsafe { library.consumer(&key.1, on_error, opaque) }?;
        let client = Arc::new(Client { library, handle, fault, idle: Mutex::default() });
        clients.insert(key, (client.clone(), Instant::now()));
        drop(clients);
        drop(refused); // outside of the lock: destroying waits for the library's threads
        start_reaper();
        Ok(client)
    }

    /// A partition about to read from `start`: the one that stands there already, or a new one.
    pub fn take(self: &Arc<Self>, topic: &str, number: i32, start: i64) -> Result<Partition, String> {
        let kept = lock(&self.idle).remove(&(topic.to_owned(), number));
        match kept {
            Some((partition, _)) if partition.stands_at(start) => Ok(partition),
            other => {
                drop(other);
                Partition::start(self.clone(), topic, number, start)
            }
        }
    }

    pub fn give_back(&self, partition: Partition) {
        let key = (partition.topic.clone(), partition.number);
        lock(&self.idle).insert(key, (partition, Instant::now()));
    }

    /// An error that no waiting mends. Also lets the library tell about it.
    pub fn fault(&self) -> Option<(c_int, String)> {
        // SAFETY: serves callbacks, which are ours.
        unsafe { (self.library.poll)(self.handle, 0) };
        lock(&self.fault).clone()
    }

    /// The first and the last offset but one that the broker has.
    pub fn watermarks(&self, topic: &str, number: i32, timeout_ms: c_int) -> Result<(i64, i64), c_int> {
        let (mut low, mut high) = (0, 0);
        let Ok(topic) = c_text(topic) else { return Err(-1) };
        // SAFETY: the text and both numbers outlive the call.
        let error = unsafe {
            (self.library.query_watermark_offsets)(
                self.handle,
                topic.as_ptr(),
                number,
                &mut low,
                &mut high,
                timeout_ms,
            )
        };
        if error == 0 { Ok((low, high)) } else { Err(error) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        lock(&self.idle).clear();
        // SAFETY: partitions hold an Arc of the client, so none is left.
        unsafe { (self.library.destroy)(self.handle) };
    }
}

unsafe extern "C" fn on_error(_: Handle, code: c_int, reason: *const c_char, fault: Handle) {
    if code == AUTHENTICATION || code == SSL {
        // SAFETY: `fault` is the client's own, which outlives its handle; the reason is a text.
        unsafe { *lock(&*fault.cast::<Fault>()) = Some((code, text(reason))) };
    }
}

fn start_reaper() {
    let mut owner = lock(&REAPER);
    if *owner != std::process::id() {
        *owner = std::process::id();
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(LINGER / 4);
                reap();
            }
        });
    }
}

/// Stop what lingered long enough; let go of clients that nobody used for a while.
fn reap() {
    let process = std::process::id();
    let mut clients = lock(&CLIENTS);
    let mut stopped = Vec::new();
    for ((owner, _), (client, _)) in clients.iter() {
        if *owner == process {
            stopped.extend(lock(&client.idle).extract_if(|_, (_, since)| since.elapsed() > LINGER));
        }
    }
    let unused: Vec<_> = clients
        .extract_if(|(owner, _), (client, used)| {
            *owner == process && used.elapsed() > KEEP && Arc::strong_count(client) == 1
        })
        .collect();
    drop(clients);
    drop(stopped); // outside of the locks: stopping waits for the library's threads
    drop(unused);
}
