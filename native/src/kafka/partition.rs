//! One partition that is being fetched, into a queue of its own.

use crate::kafka::client::Client;
use crate::kafka::library::{ConsumeCallback, Handle, c_text};
use std::ffi::c_int;
use std::sync::Arc;

pub struct Partition {
    client: Arc<Client>,
    pub topic: String,
    pub number: i32,
    handle: Handle,
    queue: Handle,
    /// The offset to come next: all before it has been seen.
    pub next: i64,
    /// Whether the first record was the one asked for, or came twice.
    pub sure: bool,
    /// Whether a record that nobody took has left the queue.
    pub overshot: bool,
}

// SAFETY: librdkafka's handles may be used from any thread.
unsafe impl Send for Partition {}
// SAFETY: as above; what changes it takes it mutably.
unsafe impl Sync for Partition {}

impl Partition {
    pub fn start(client: Arc<Client>, topic: &str, number: i32, start: i64) -> Result<Self, String> {
        let name = c_text(topic)?;
        let library = client.library;
        // SAFETY: the client lives, the name is copied, no topic configuration is given.
        let handle = unsafe { (library.topic_new)(client.handle, name.as_ptr(), std::ptr::null_mut()) };
        if handle.is_null() {
            // SAFETY: takes nothing.
            return Err(library.error(unsafe { (library.last_error)() }));
        }
        let mut partition = Partition {
            client,
            topic: topic.to_owned(),
            number,
            handle,
            queue: std::ptr::null_mut(),
            next: start,
            sure: false,
            overshot: false,
        };
        partition.restart(start)?;
        Ok(partition)
    }

    /// Whether the records from `start` on are what comes next.
    pub fn stands_at(&self, start: i64) -> bool {
        self.next == start && !self.overshot
    }

    /// Fetch from `start` on. The queue is a new one: nothing of before can be in it.
    pub fn restart(&mut self, start: i64) -> Result<(), String> {
        self.stop();
        let library = self.client.library;
        // SAFETY: handles of a client that lives; the queue is destroyed in `stop`.
        let started = unsafe {
            self.queue = (library.queue_new)(self.client.handle);
            (library.consume_start_queue)(self.handle, self.number, start, self.queue)
        };
        self.next = start;
        self.sure = false;
        self.overshot = false;
        if started != 0 {
            // SAFETY: takes nothing.
            return Err(library.error(unsafe { (library.last_error)() }));
        }
        Ok(())
    }

    fn stop(&mut self) {
        if !self.queue.is_null() {
            let library = self.client.library;
            // SAFETY: started in `restart`; the queue is not used after this.
            unsafe {
                (library.consume_stop)(self.handle, self.number);
                (library.queue_destroy)(self.queue);
            }
            self.queue = std::ptr::null_mut();
        }
    }

    /// Call back for what is in the queue, or comes within the time. `opaque` must suit `callback`.
    ///
    /// # Safety
    /// `callback` must take `opaque` for what it is, and not unwind.
    pub unsafe fn serve(&mut self, timeout_ms: c_int, callback: ConsumeCallback, opaque: Handle) -> c_int {
        // SAFETY: by the caller's promise; the queue is there between `restart` and `stop`.
        unsafe { (self.client.library.consume_callback_queue)(self.queue, timeout_ms, callback, opaque) }
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: made in `start`, used nowhere else.
        unsafe { (self.client.library.topic_destroy)(self.handle) };
    }
}
