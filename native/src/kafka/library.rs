//! The few functions of librdkafka that are needed, looked up at run time in confluent-kafka's own copy:
//! one librdkafka in the process, and nothing in C to compile.

use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

pub type Handle = *mut c_void;

/// `rd_kafka_message_t`, whose layout is part of librdkafka's ABI.
#[repr(C)]
pub struct Message {
    pub err: c_int,
    pub topic: Handle,
    pub partition: i32,
    pub payload: *const u8,
    pub len: usize,
    pub key: *const u8,
    pub key_len: usize,
    pub offset: i64,
    private: Handle,
}

pub const PARTITION_EOF: c_int = -191;
pub const AUTHENTICATION: c_int = -169;
pub const SSL: c_int = -181;
const CONSUMER: c_int = 1;

pub type ConsumeCallback = unsafe extern "C" fn(*mut Message, Handle);
pub type ErrorCallback = unsafe extern "C" fn(Handle, c_int, *const c_char, Handle);
type LogCallback = unsafe extern "C" fn(Handle, c_int, *const c_char, *const c_char);

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        pub struct Rdkafka {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Rdkafka {
            /// SAFETY: `library` must be a librdkafka of version 1.x or 2.x, whose functions have these types.
            unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Rdkafka {
                    // SAFETY: by the caller's promise.
                    $($name: *unsafe { library.get(concat!("rd_kafka_", stringify!($name)).replace("r#", "").as_bytes())? },)*
                })
            }
        }
    };
}

functions! {
    version_str: fn() -> *const c_char;
    err2str: fn(c_int) -> *const c_char;
    last_error: fn() -> c_int;
    conf_new: fn() -> Handle;
    conf_destroy: fn(Handle);
    conf_set: fn(Handle, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    conf_set_opaque: fn(Handle, Handle);
    conf_set_log_cb: fn(Handle, LogCallback);
    conf_set_error_cb: fn(Handle, ErrorCallback);
    new: fn(c_int, Handle, *mut c_char, usize) -> Handle;
    destroy: fn(Handle);
    poll: fn(Handle, c_int) -> c_int;
    topic_new: fn(Handle, *const c_char, Handle) -> Handle;
    topic_destroy: fn(Handle);
    queue_new: fn(Handle) -> Handle;
    queue_destroy: fn(Handle);
    consume_start_queue: fn(Handle, i32, i64, Handle) -> c_int;
    consume_stop: fn(Handle, i32) -> c_int;
    consume_callback_queue: fn(Handle, c_int, ConsumeCallback, Handle) -> c_int;
    r#yield: fn(Handle);
    message_timestamp: fn(*const Message, *mut c_int) -> i64;
    message_headers: fn(*const Message, *mut Handle) -> c_int;
    header_get_all: fn(Handle, usize, *mut *const c_char, *mut *const u8, *mut usize) -> c_int;
    query_watermark_offsets: fn(Handle, *const c_char, i32, *mut i64, *mut i64, c_int) -> c_int;
}

static LIBRARY: OnceLock<Result<Rdkafka, String>> = OnceLock::new();

/// The library at this path. It stays open: the process has one, whoever asks.
pub fn open(path: &str) -> Result<&'static Rdkafka, String> {
    let opened = LIBRARY.get_or_init(|| {
        // SAFETY: the path is that of confluent-kafka's librdkafka, which runs no surprising initialisers
        // and which the Python client has usually opened already.
        let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
        let library = Box::leak(Box::new(library));
        // SAFETY: it is a librdkafka 2.x.
        unsafe { Rdkafka::of(library) }.map_err(|error| error.to_string())
    });
    opened.as_ref().map_err(Clone::clone)
}

impl Rdkafka {
    pub fn version(&self) -> String {
        // SAFETY: takes nothing, returns a static text.
        unsafe { text((self.version_str)()) }
    }

    pub fn error(&self, code: c_int) -> String {
        // SAFETY: takes any number, returns a static text.
        unsafe { text((self.err2str)(code)) }
    }

    /// A consumer with these settings.
    ///
    /// # Safety
    /// `on_error` must take `opaque` for what it is, and `opaque` must outlive the consumer.
    pub unsafe fn consumer(
        &self,
        settings: &[(String, String)],
        on_error: ErrorCallback,
        opaque: Handle,
    ) -> Result<Handle, String> {
        let mut reason = [0 as c_char; 512];
        // SAFETY: a configuration is made, filled and given to `new`, which takes it over unless it fails;
        // texts end in NUL and are copied; `reason` is as long as it is said to be.
        unsafe {
            let conf = (self.conf_new)();
            for (name, value) in settings {
                let (Ok(name), Ok(value)) = (c_text(name), c_text(value)) else {
                    (self.conf_destroy)(conf);
                    return Err(format!("the setting '{name}' holds a NUL"));
                };
                let set =
                    (self.conf_set)(conf, name.as_ptr(), value.as_ptr(), reason.as_mut_ptr(), reason.len());
                if set != 0 {
                    (self.conf_destroy)(conf);
                    return Err(text(reason.as_ptr()));
                }
            }
            (self.conf_set_log_cb)(conf, be_quiet);
            (self.conf_set_error_cb)(conf, on_error);
            (self.conf_set_opaque)(conf, opaque);
            let client = (self.new)(CONSUMER, conf, reason.as_mut_ptr(), reason.len());
            if client.is_null() {
                (self.conf_destroy)(conf);
                return Err(text(reason.as_ptr()));
            }
            Ok(client)
        }
    }
}

/// What the library says on its own would go to standard error; what matters comes as an error.
unsafe extern "C" fn be_quiet(_: Handle, _: c_int, _: *const c_char, _: *const c_char) {}

pub fn c_text(text: &str) -> Result<std::ffi::CString, String> {
    std::ffi::CString::new(text).map_err(|_| format!("{text:?} holds a NUL"))
}

/// A text of the library.
///
/// # Safety
/// It must be null, or end in NUL.
pub unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
