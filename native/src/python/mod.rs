//! The face towards Python. Errors become exceptions, panics too (PyO3 sees to that); data goes over as
//! Arrow's C interface has it, without a copy. `_native.pyi` says to type checkers what is here.

mod decoder;
mod letters;
mod reader;

use crate::error::NotNative;
use crate::kafka::error::KafkaError;
use crate::kafka::rows;
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Fields, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};
use std::panic::{AssertUnwindSafe, catch_unwind};

// Python's, because a class of fields that is also an exception cannot be made here before Python 3.12's ABI.
pyo3::import_exception!(forebay_native.errors, BrokerError);
pyo3::import_exception!(forebay_native.errors, NotNativeError);

impl From<NotNative> for PyErr {
    fn from(error: NotNative) -> Self {
        NotNativeError::new_err(error.to_string())
    }
}

impl From<KafkaError> for PyErr {
    fn from(error: KafkaError) -> Self {
        let may_pass = matches!(error, KafkaError::Away(_));
        BrokerError::new_err((error.number(), error.to_string(), may_pass))
    }
}

/// A panic is a fault of ours; as an ordinary error it ends a task, and not the process.
fn guarded<T>(work: impl FnOnce() -> T) -> PyResult<T> {
    let fault = |_| KafkaError::Damaged("a fault in the native reader".into()).into();
    catch_unwind(AssertUnwindSafe(work)).map_err(fault)
}

/// Columns of equal length, to be taken over by `pyarrow.record_batch`.
#[pyclass(frozen)]
struct Batch {
    data: ArrayData,
}

impl Batch {
    fn new(fields: Fields, columns: Vec<ArrayData>, rows: usize) -> Self {
        let builder = ArrayData::builder(DataType::Struct(fields)).len(rows).child_data(columns);
        // SAFETY: each column has `rows` values of its field's type; `Column::finish` made them.
        Batch { data: unsafe { builder.build_unchecked() } }
    }
}

#[pymethods]
impl Batch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema;
        let schema = FFI_ArrowSchema::try_from(self.data.data_type()).map_err(value_error)?;
        let array = FFI_ArrowArray::new(&self.data);
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        PyTuple::new(py, [schema, array])
    }
}

fn value_error(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn schema_of(schema: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let capsule = schema.call_method0("__arrow_c_schema__")?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name holds an ArrowSchema, and lives until the end of this function.
    Schema::try_from(unsafe { pointer.as_ref() }).map_err(value_error)
}

/// A record as it is in the log, or as it is to be there.
#[pyclass(frozen, get_all)]
struct Record {
    timestamp_ms: Option<i64>,
    key: Option<Py<PyBytes>>,
    value: Option<Py<PyBytes>>,
    headers: Vec<(String, Option<Py<PyBytes>>)>,
}

impl Record {
    fn new(
        py: Python<'_>,
        timestamp_ms: Option<i64>,
        key: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
        headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ) -> Self {
        let bytes = |bytes: Option<Vec<u8>>| bytes.map(|bytes| PyBytes::new(py, &bytes).unbind());
        // Kafka's protocol has names in UTF-8.
        let name = |name: Vec<u8>| String::from_utf8_lossy(&name).into_owned();
        let headers = headers.into_iter().map(|(key, value)| (name(key), bytes(value))).collect();
        Record { timestamp_ms, key: bytes(key), value: bytes(value), headers }
    }
}

/// A part of a partition's log in which records were refused: so many of those in [start, end).
#[pyclass(frozen, get_all)]
struct Stretch {
    topic: String,
    partition: i32,
    start: i64,
    end: i64,
    bad: usize,
}

impl Stretch {
    fn new(topic: String, partition: i32, part: &rows::Stretch) -> Self {
        Stretch { topic, partition, start: part.start, end: part.end, bad: part.count }
    }
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let number = |error: fn(String) -> KafkaError| error(String::new()).number();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("REFUSALS", (number(KafkaError::Authentication), number(KafkaError::Tls)))?;
    module.add("UNSUPPORTED", number(KafkaError::Unsupported))?;
    module.add_class::<Batch>()?;
    module.add_class::<Record>()?;
    module.add_class::<Stretch>()?;
    module.add_class::<decoder::BadValue>()?;
    module.add_class::<decoder::Decoded>()?;
    module.add_class::<decoder::PyDecoder>()?;
    module.add_class::<letters::PyLetters>()?;
    module.add_class::<reader::Event>()?;
    module.add_class::<reader::Part>()?;
    module.add_class::<reader::PyReader>()?;
    module.add_class::<reader::Rejected>()?;
    module.add_class::<reader::Wanted>()?;
    module.add_class::<reader::Watermarks>()
}
