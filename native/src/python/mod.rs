//! The face towards Python. Errors become exceptions, panics too (PyO3 sees to that); data goes over as
//! Arrow's C interface has it, without a copy.

use crate::decoder::Decoder;
use crate::kafka::client::{Client, lock};
use crate::kafka::letters::{Carried, Form};
use crate::kafka::post::Post;
use crate::kafka::reader::{Limits, Reader};
use crate::kafka::rows::{Keep, Origin, Rejected, Rows, Stretch, Whole};
use crate::kafka::settings::Settings;
use crate::kafka::trouble::{AUTHENTICATION, FAULT, SSL, Trouble, UNSUPPORTED};
use crate::refusal::{Kind, Wanted};
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Fields, Schema};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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
    wanted: Option<Wanted>,
}

/// (index, kind, message)
type BadValue = (usize, &'static str, String);
type Decoded = (Batch, Vec<usize>, Vec<BadValue>, Vec<usize>, Vec<usize>);

#[pymethods]
impl PyDecoder {
    #[new]
    fn new(format: &str, schema: &Bound<'_, PyAny>, options: HashMap<String, String>) -> PyResult<Self> {
        let schema = schema_of(schema)?;
        let decoder = Decoder::new(format, &schema, &options).map_err(value_error)?;
        Ok(PyDecoder { decoder, fields: schema.fields().clone(), wanted: None })
    }

    /// The header that the last call of `decode` must be told about; it has kept nothing then.
    #[getter]
    fn wanted<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.wanted.as_ref().map(|wanted| PyBytes::new(py, &wanted.header))
    }

    /// Refusals need have no words from now on: only their kinds count.
    #[setter]
    fn set_brief(&mut self, brief: bool) {
        self.decoder.brief = brief;
    }

    #[pyo3(signature = (header, plan, kind="", message=""))]
    fn learn(&mut self, header: &[u8], plan: Option<&str>, kind: &str, message: &str) -> PyResult<()> {
        self.decoder.learn(header, plan, kind, message).map_err(value_error)
    }

    fn decode(
        &mut self,
        py: Python<'_>,
        values: Vec<Option<Bound<'_, PyBytes>>>,
    ) -> PyResult<(Batch, Vec<BadValue>)> {
        let (batch, _, bad, _, _) = self.decode_rows(py, values)?;
        Ok((batch, bad))
    }

    /// All that `formats/contract.py` calls `Decoded`: the batch, the payload of each row, the bad, the
    /// skipped, those with a case mismatch.
    fn decode_rows(&mut self, py: Python<'_>, values: Vec<Option<Bound<'_, PyBytes>>>) -> PyResult<Decoded> {
        let values: Vec<Option<&[u8]>> =
            values.iter().map(|value| value.as_ref().map(|v| v.as_bytes())).collect();
        let (decoder, wanted) = (&mut self.decoder, &mut self.wanted);
        *wanted = None;
        let (columns, rows, good, bad, skipped, mismatched) = py.detach(|| {
            guarded(|| {
                let (mut good, mut bad, mut skipped, mut mismatched) =
                    (Vec::with_capacity(values.len()), Vec::new(), Vec::new(), Vec::new());
                for (index, value) in values.iter().enumerate() {
                    match decoder.decode(*value) {
                        Ok(0) => skipped.push(index),
                        Ok(rows) => {
                            good.extend(std::iter::repeat_n(index, rows));
                            mismatched.extend(decoder.case_mismatch.then_some(index));
                        }
                        Err(refusal) if refusal.wants.is_some() => {
                            *wanted = refusal.wants;
                            [&mut good, &mut skipped, &mut mismatched].into_iter().for_each(Vec::clear);
                            bad.clear();
                            decoder.columns.iter_mut().for_each(|column| column.truncate(0));
                            decoder.clear();
                            break;
                        }
                        Err(refusal) => bad.push((index, refusal.kind.name(), refusal.message())),
                    }
                }
                let rows = decoder.rows();
                let columns = decoder.columns.iter_mut().map(|column| column.finish()).collect();
                decoder.clear();
                (columns, rows, good, bad, skipped, mismatched)
            })
        })?;
        Ok((Batch::new(self.fields.clone(), columns, rows), good, bad, skipped, mismatched))
    }
}

type Bytes<'py> = Option<Bound<'py, PyBytes>>;
/// (timestamp, key, value, headers)
type Record<'py> = (Option<i64>, Bytes<'py>, Bytes<'py>, Vec<(String, Bytes<'py>)>);
/// (range, offset, good ones of its range before it, kind, message, path, of the key, record)
type BadRecord<'py> = (usize, i64, usize, &'static str, String, String, bool, Option<Record<'py>>);
/// Those that were only counted: (kind, how many), and (range, from, up to, how many)
type Counted = (Vec<(&'static str, usize)>, Vec<(usize, i64, i64, usize)>);
/// (range, how many of it are not refused)
type Good = Vec<(usize, usize)>;
/// (range, code, text)
type Told = (usize, i32, String);
/// (how many records became rows, how many are skipped, how many of the first have a case mismatch)
type Counts = (usize, usize, usize);
/// What came within the time: a batch or None, counts, rejected records, and events.
type Read<'py> = (Option<Batch>, Counts, (Vec<BadRecord<'py>>, Counted, Good), Vec<Told>);
/// (name, schema, options)
type Format<'py> = (String, Bound<'py, PyAny>, HashMap<String, String>);

/// Ranges of offsets, read into batches. Used by one thread at a time.
#[pyclass(name = "Reader")]
pub struct PyReader {
    reader: Reader,
    /// Where refused records go, if it is not the caller who sees to them.
    post: Option<Arc<Mutex<Post>>>,
}

#[pymethods]
impl PyReader {
    /// `values` and `keys` say how these are decoded, None if they are not; `schema` and `origins` are the
    /// batch's.
    #[new]
    fn new(
        settings: Vec<(String, String)>,
        values: Option<Format<'_>>,
        keys: Option<Format<'_>>,
        schema: &Bound<'_, PyAny>,
        origins: Vec<String>,
        limits: (usize, usize, usize),
    ) -> PyResult<Self> {
        let decoder = |given: Option<Format<'_>>| {
            let made = given.map(|(format, schema, options)| {
                Decoder::new(&format, &schema_of(&schema)?, &options).map_err(value_error)
            });
            made.transpose()
        };
        let (values, keys) = (decoder(values)?, decoder(keys)?);
        let origins = origins.iter().map(|name| origin(name)).collect::<PyResult<Vec<_>>>()?;
        let rows = Rows::new(values, keys, &schema_of(schema)?, origins).map_err(value_error)?;
        let settings = Settings::new(&settings).map_err(value_error)?;
        let client = Client::get(settings).map_err(value_error)?;
        let limits = Limits { rows: limits.0, bytes: limits.1, longest: limits.2 };
        Ok(PyReader { reader: Reader::new(client, rows, limits), post: None })
    }

    fn add(&mut self, topic: String, partition: i32, start: i64, end: i64) {
        self.reader.add(topic, partition, start, end);
    }

    /// How many refused records a read hands over, None for all, and whether with their bytes. Where they become
    /// letters, so many do, and `told` of them, None for all, are handed over besides, without their bytes.
    fn keep(&mut self, most: Option<usize>, whole: bool, told: Option<usize>) {
        let all = |limit: Option<usize>| limit.unwrap_or(usize::MAX);
        self.reader.rows.keep(Keep { most: all(most), whole, told: all(told) });
    }

    /// Make letters of refused records. All ranges have been added by then.
    fn letters(&mut self, letters: &PyLetters) {
        let places = self.reader.ranges.iter().map(|range| (range.topic.as_str(), range.number));
        lock(&letters.post).origins(places);
        self.reader.rows.posted = true;
        self.post = Some(letters.post.clone());
    }

    fn read<'py>(&mut self, py: Python<'py>, timeout_ms: u64) -> PyResult<Read<'py>> {
        let (columns, count) = py.detach(|| {
            guarded(|| {
                // Locked once for all of them, and not for each.
                let mut post = self.post.as_ref().map(|post| lock(post));
                self.reader.fill(Duration::from_millis(timeout_ms), post.as_deref_mut());
                if self.reader.rows.count() > 0 { self.reader.rows.finish() } else { (Vec::new(), 0) }
            })
        })?;
        let batch = (count > 0).then(|| Batch::new(self.reader.rows.fields.clone(), columns, count));
        let rejected = self.reader.rows.take_rejected().into_iter().map(|bad| bad_record(py, bad)).collect();
        let counted = std::mem::take(&mut self.reader.rows.counted);
        let counted = Kind::ALL.into_iter().zip(counted).filter(|(_, count)| *count > 0);
        let counted = counted.map(|(kind, count)| (kind.name(), count)).collect();
        let stretches = self.reader.rows.stretches.drain(..);
        let stretches = stretches.map(|part| (part.range, part.start, part.end, part.count)).collect();
        let good = self.reader.ranges.iter_mut().map(|range| std::mem::take(&mut range.good));
        let good = good.enumerate().filter(|(_, count)| *count > 0).collect();
        let events =
            self.reader.events.drain(..).map(|event| (event.range, event.code, event.text)).collect();
        let rows = &mut self.reader.rows;
        let counts = [&mut rows.taken, &mut rows.skipped, &mut rows.case_mismatches].map(std::mem::take);
        Ok((batch, counts.into(), (rejected, (counted, stretches), good), events))
    }

    /// The header that must be learned before there is more to read, and whether it is a key's.
    #[getter]
    fn wanted<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyBytes>, bool)> {
        self.reader.wanted.as_ref().map(|wanted| (PyBytes::new(py, &wanted.header), wanted.of_key))
    }

    /// Teach what is wanted.
    fn learn(&mut self, plan: Option<&str>, kind: &str, message: &str) -> PyResult<()> {
        let Some(wanted) = self.reader.wanted.take() else { return Err(value_error("nothing is wanted")) };
        let pupil = self.reader.rows.pupil(wanted.of_key).ok_or_else(|| value_error("nothing to teach"))?;
        pupil.learn(&wanted.header, plan, kind, message).map_err(value_error)
    }

    #[getter]
    fn done(&self) -> bool {
        self.reader.done()
    }

    /// (range, next offset) of the ranges that are not read to their end.
    #[getter]
    fn open(&self) -> Vec<(usize, i64)> {
        let open = self.reader.ranges.iter().enumerate().filter(|(_, range)| range.is_open());
        open.map(|(index, range)| (index, range.next)).collect()
    }

    /// What keeps the reader from going on, if anything does.
    #[getter]
    fn trouble(&self) -> String {
        self.reader.trouble.clone()
    }

    fn seek(&mut self, range: usize, offset: i64) {
        self.reader.seek(range, offset);
    }

    fn give_up(&mut self, range: usize) {
        self.reader.give_up(range);
    }

    /// Where the log of a range's partition begins and ends; an error is (code, text).
    fn watermarks(&self, py: Python<'_>, range: usize) -> PyResult<(i64, i64)> {
        let range = &self.reader.ranges[range];
        py.detach(|| self.reader.client.watermarks(&range.topic, range.number)).map_err(trouble)
    }
}

/// Dead letters of one task, from its reader to their topic. Used by one thread at a time.
#[pyclass(name = "Letters", frozen)]
pub struct PyLetters {
    post: Arc<Mutex<Post>>,
}

/// (topic, partition, from, up to, how many)
type KeptOut = (String, i32, i64, i64, usize);

#[pymethods]
impl PyLetters {
    #[new]
    fn new(
        settings: Vec<(String, String)>,
        topic: String,
        source: &str,
        carries_value: bool,
        most: usize,
        patience_ms: u64,
        topic_ids: HashMap<String, String>,
    ) -> PyResult<Self> {
        let client = Client::get(Settings::new(&settings).map_err(value_error)?).map_err(value_error)?;
        let form = Form::new(source, Carried { value: carries_value, most }, topic_ids);
        let post = Post::new(client, topic, form, Duration::from_millis(patience_ms));
        Ok(PyLetters { post: Arc::new(Mutex::new(post)) })
    }

    /// How many letters wait to be granted.
    #[getter]
    fn staged(&self) -> usize {
        lock(&self.post).staged()
    }

    /// Let the first so many go; the others are taken back, and these are where they are. An error is (code, text).
    fn grant(&self, py: Python<'_>, count: usize) -> PyResult<Vec<KeptOut>> {
        let stretches = py.detach(|| guarded(|| lock(&self.post).grant(count)))?.map_err(trouble)?;
        let told =
            |(topic, number, part): (String, i32, Stretch)| (topic, number, part.start, part.end, part.count);
        Ok(stretches.into_iter().map(told).collect())
    }

    /// Send what was granted; how many letters are not durable after so long. An error is (code, text).
    fn flush(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<usize> {
        let until = Instant::now() + Duration::from_millis(timeout_ms);
        py.detach(|| guarded(|| lock(&self.post).flush(until)))?.map_err(trouble)
    }

    /// What is in the way of those that wait.
    #[getter]
    fn trouble(&self) -> String {
        lock(&self.post).trouble.clone()
    }

    /// Letters that somebody else must send: (key, value, headers).
    fn returned<'py>(&self, py: Python<'py>) -> Vec<Returned<'py>> {
        let bytes = |bytes: Option<Vec<u8>>| bytes.map(|bytes| PyBytes::new(py, &bytes));
        let letters = lock(&self.post).returned().into_iter();
        let headers = |headers: Vec<(Vec<u8>, Option<Vec<u8>>)>| {
            headers.into_iter().map(|(name, value)| (text(&name), bytes(value))).collect()
        };
        letters.map(|(key, value, told)| (bytes(key), bytes(value), headers(told))).collect()
    }
}

/// (key, value, headers)
type Returned<'py> = (Bytes<'py>, Bytes<'py>, Vec<(String, Bytes<'py>)>);

/// Kafka's protocol has names in UTF-8.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn bad_record(py: Python<'_>, bad: Rejected) -> BadRecord<'_> {
    let Rejected { range, offset, before, refusal, record } = bad;
    let (kind, message, path) = (refusal.kind.name(), refusal.message(), refusal.path().to_owned());
    (range, offset, before, kind, message, path, refusal.of_key, record.map(|record| whole(py, &record)))
}

fn whole<'py>(py: Python<'py>, record: &Whole) -> Record<'py> {
    let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| PyBytes::new(py, bytes));
    let headers = record.headers.iter().map(|(name, value)| (text(name), bytes(value))).collect();
    (record.timestamp, bytes(&record.key), bytes(&record.value), headers)
}

/// An error of a number and words, for the caller to judge; 0 is one that may pass.
fn trouble(trouble: Trouble) -> PyErr {
    PyRuntimeError::new_err(match trouble {
        Trouble::Away(text) => (0, text),
        Trouble::Refused(code, text) => (code, text),
    })
}

/// A panic is a fault of ours; as an ordinary error it ends a task, and not the process.
fn guarded<T>(work: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| PyRuntimeError::new_err((FAULT, "a fault in the native reader")))
}

fn origin(name: &str) -> PyResult<Origin> {
    Ok(match name {
        "key" => Origin::Key,
        "partition" => Origin::Partition,
        "offset" => Origin::Offset,
        "timestamp" => Origin::Timestamp,
        "headers" => Origin::Headers,
        name if name.starts_with("key:") => {
            Origin::KeyPart(name[4..].parse().map_err(|_| value_error(format!("no origin: {name}")))?)
        }
        number => Origin::Value(number.parse().map_err(|_| value_error(format!("no origin: {number}")))?),
    })
}

/// Nanoseconds that a bad record costs: (to find, to skip, to find words, to make a letter), each over what
/// comes before it; see `costs.rs`.
#[pyfunction]
fn costs(
    py: Python<'_>,
    format: &str,
    schema: &Bound<'_, PyAny>,
    options: HashMap<String, String>,
    values: Vec<Bound<'_, PyBytes>>,
    rounds: usize,
) -> PyResult<(f64, f64, f64, f64)> {
    let schema = schema_of(schema)?;
    let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
    let found = py.detach(|| crate::costs::costs(format, &schema, &options, &values, rounds));
    found.map(|found| (found.find, found.skip, found.words, found.letter)).map_err(value_error)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("REFUSALS", (AUTHENTICATION, SSL))?;
    module.add("UNSUPPORTED", UNSUPPORTED)?;
    module.add_class::<Batch>()?;
    module.add_class::<PyDecoder>()?;
    module.add_class::<PyLetters>()?;
    module.add_function(wrap_pyfunction!(costs, module)?)?;
    module.add_class::<PyReader>()
}
