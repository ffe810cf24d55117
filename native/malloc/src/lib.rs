//! jemalloc under libc's names, to be preloaded into Spark's Python workers.
//!
//! librdkafka allocates each record in one thread and frees it in another. glibc's allocator takes a lock
//! for that and the threads wait for each other: half of all CPU time of a reading task goes there.

use std::ffi::{c_int, c_void};
use tikv_jemalloc_sys as je;

macro_rules! names {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)? = $inner:path;)*) => {$(
        /// # Safety
        /// As libc's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            // SAFETY: the same function with the same promise.
            unsafe { $inner($($argument),*) }
        }
    )*};
}

/// Whole pages. Nobody asks for them by these names any more; but who did must not get libc's.
unsafe fn on_pages(size: usize) -> *mut c_void {
    const PAGE: usize = 4096;
    // SAFETY: a power of two, and any size.
    unsafe { je::aligned_alloc(PAGE, size.div_ceil(PAGE) * PAGE) }
}

names! {
    malloc(size: usize) -> *mut c_void = je::malloc;
    calloc(count: usize, size: usize) -> *mut c_void = je::calloc;
    realloc(pointer: *mut c_void, size: usize) -> *mut c_void = je::realloc;
    free(pointer: *mut c_void) = je::free;
    posix_memalign(pointer: *mut *mut c_void, align: usize, size: usize) -> c_int = je::posix_memalign;
    aligned_alloc(align: usize, size: usize) -> *mut c_void = je::aligned_alloc;
    memalign(align: usize, size: usize) -> *mut c_void = je::aligned_alloc;
    valloc(size: usize) -> *mut c_void = on_pages;
    pvalloc(size: usize) -> *mut c_void = on_pages;
    malloc_usable_size(pointer: *const c_void) -> usize = je::malloc_usable_size;
}
