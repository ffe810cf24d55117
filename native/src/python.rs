//! The face towards Python. Errors become exceptions, panics too (PyO3 sees to that); data goes over as
//! Arrow's C interface has it, without a copy.

use crate::decoder::Decoder;
use crate::kafka::client::Client;
use crate::kafka::library;
use crate::kafka::reader::{Limits, Reader};
use crate::kafka::rows::{Origin, Rows};
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Fields, Schema};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};
use std::collections::HashMap;
use std::time::Duration;

/// Columns of equal length, to be taken over by `pyarrow.record_batch`.
#[pyclass(frozen)]
pub struct Batch {
    data: ArrayData,
}

impl Batch {
    pub fn new(fields: Fields, columns: Vec<ArrayData>, rows: usize) -> Self {
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

pub fn value_error(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub fn schema_of(schema: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let capsule = schema.call_method0("__arrow_c_schema__")?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name holds an ArrowSchema, and lives until the end of this function.
    Schema::try_from(unsafe { pointer.as_ref() }).map_err(value_error)
}

/// The decoding contract: values in, a batch of the good and a list of the bad out.
#[pyclass(name = "Decoder")]
pub struct PyDecoder {
    decoder: Decoder,
    fields: Fields,
}

/// (index, kind, message)
type BadValue = (usize, &'static str, String);
type Decoded = (Batch, Vec<usize>, Vec<BadValue>, Vec<usize>);

#[pymethods]
impl PyDecoder {
    #[new]
    fn new(format: &str, schema: &Bound<'_, PyAny>, options: HashMap<String, String>) -> PyResult<Self> {
        let schema = schema_of(schema)?;
        let decoder = Decoder::new(format, &schema, &options).map_err(value_error)?;
        Ok(PyDecoder { decoder, fields: schema.fields().clone() })
    }

    fn decode(&mut self, py: Python<'_>, values: Vec<Option<Bound<'_, PyBytes>>>) -> (Batch, Vec<BadValue>) {
        let (batch, _, bad, _) = self.decode_rows(py, values);
        (batch, bad)
    }

    /// All that `formats/contract.py` calls `Decoded`: the batch, the payload of each row, the bad, the skipped.
    fn decode_rows(&mut self, py: Python<'_>, values: Vec<Option<Bound<'_, PyBytes>>>) -> Decoded {
        let values: Vec<Option<&[u8]>> =
            values.iter().map(|value| value.as_ref().map(|v| v.as_bytes())).collect();
        let decoder = &mut self.decoder;
        let (columns, rows, good, bad, skipped) = py.detach(|| {
            let (mut good, mut bad, mut skipped) = (Vec::with_capacity(values.len()), Vec::new(), Vec::new());
            for (index, value) in values.iter().enumerate() {
                match decoder.decode(*value) {
                    Ok(0) => skipped.push(index),
                    Ok(rows) => good.extend(std::iter::repeat_n(index, rows)),
                    Err(refusal) => bad.push((index, refusal.kind.name(), refusal.message())),
                }
            }
            let rows = decoder.rows();
            let columns = decoder.columns.iter_mut().map(|column| column.finish()).collect();
            decoder.clear();
            (columns, rows, good, bad, skipped)
        });
        (Batch::new(self.fields.clone(), columns, rows), good, bad, skipped)
    }
}

fn runtime_error(error: impl ToString) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// (range, offset, kind, message, value)
type BadRecord<'py> = (usize, i64, &'static str, String, Option<Bound<'py, PyBytes>>);
/// (range, code, text)
type Told = (usize, i32, String);

/// Ranges of offsets, read into batches. Used by one thread at a time.
#[pyclass(name = "Reader")]
pub struct PyReader {
    reader: Reader,
}

#[pymethods]
impl PyReader {
    /// `values` is (format, schema, options) of the value, or None; `schema` and `origins` are the batch's.
    #[new]
    fn new(
        library: &str,
        settings: Vec<(String, String)>,
        values: Option<(String, Bound<'_, PyAny>, HashMap<String, String>)>,
        schema: &Bound<'_, PyAny>,
        origins: Vec<String>,
        limits: (usize, usize),
    ) -> PyResult<Self> {
        let decoder = match values {
            Some((format, schema, options)) => {
                Some(Decoder::new(&format, &schema_of(&schema)?, &options).map_err(value_error)?)
            }
            None => None,
        };
        let origins = origins.iter().map(|name| origin(name)).collect::<PyResult<Vec<_>>>()?;
        let rows = Rows::new(decoder, &schema_of(schema)?, origins).map_err(value_error)?;
        let library = library::open(library).map_err(runtime_error)?;
        let client = Client::get(library, settings).map_err(runtime_error)?;
        let limits = Limits { rows: limits.0, bytes: limits.1 };
        Ok(PyReader { reader: Reader::new(client, rows, limits) })
    }

    fn add(&mut self, py: Python<'_>, topic: String, partition: i32, start: i64, end: i64) -> PyResult<()> {
        py.detach(|| self.reader.add(topic, partition, start, end)).map_err(runtime_error)
    }

    /// What came within the time: a batch or None, rejected records, events.
    fn read<'py>(
        &mut self,
        py: Python<'py>,
        timeout_ms: u64,
    ) -> PyResult<(Option<Batch>, Vec<BadRecord<'py>>, Vec<Told>)> {
        let (columns, count) = py
            .detach(|| {
                self.reader.fill(Duration::from_millis(timeout_ms))?;
                Ok(if self.reader.rows.count() > 0 { self.reader.rows.finish() } else { (Vec::new(), 0) })
            })
            .map_err(|error: String| runtime_error(error))?;
        let batch = (count > 0).then(|| Batch::new(self.reader.rows.fields.clone(), columns, count));
        let rejected = self.reader.rows.rejected.drain(..).map(|bad| {
            let value = bad.value.map(|value| PyBytes::new(py, &value));
            (bad.range, bad.offset, bad.refusal.kind.name(), bad.refusal.message(), value)
        });
        let rejected = rejected.collect();
        let events =
            self.reader.events.drain(..).map(|event| (event.range, event.code, event.text)).collect();
        Ok((batch, rejected, events))
    }

    #[getter]
    fn done(&self) -> bool {
        self.reader.done()
    }

    /// (range, next offset) of the ranges that are not read to their end.
    #[getter]
    fn open(&self) -> Vec<(usize, i64)> {
        let open = self.reader.ranges.iter().enumerate().filter(|(_, range)| range.partition.is_some());
        open.map(|(index, range)| (index, range.next)).collect()
    }

    fn seek(&mut self, py: Python<'_>, range: usize, offset: i64) -> PyResult<()> {
        py.detach(|| self.reader.seek(range, offset)).map_err(runtime_error)
    }

    fn give_up(&mut self, py: Python<'_>, range: usize) {
        py.detach(|| self.reader.give_up(range));
    }

    /// The low and the high watermark of a range's partition; an error is (0, code).
    fn watermarks(&self, py: Python<'_>, range: usize, timeout_ms: i32) -> Result<(i64, i64), PyErr> {
        let range = &self.reader.ranges[range];
        let client = &self.reader.client;
        py.detach(|| client.watermarks(&range.topic, range.number, timeout_ms))
            .map_err(|code| PyRuntimeError::new_err((code, client.library.error(code))))
    }

    /// Stop what is not read to its end. What is read goes on fetching for a moment.
    fn close(&mut self, py: Python<'_>) {
        py.detach(|| self.reader.ranges.clear());
    }
}

fn origin(name: &str) -> PyResult<Origin> {
    Ok(match name {
        "key" => Origin::Key,
        "partition" => Origin::Partition,
        "offset" => Origin::Offset,
        "timestamp" => Origin::Timestamp,
        "headers" => Origin::Headers,
        number => Origin::Value(number.parse().map_err(|_| value_error(format!("no origin: {number}")))?),
    })
}

/// The version of the librdkafka at this path.
#[pyfunction]
fn librdkafka_version(path: &str) -> PyResult<String> {
    Ok(library::open(path).map_err(runtime_error)?.version())
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Batch>()?;
    module.add_class::<PyDecoder>()?;
    module.add_class::<PyReader>()?;
    module.add_function(wrap_pyfunction!(librdkafka_version, module)?)
}
