//! Ranges of offsets, read into batches.

use super::letters::PyLetters;
use super::{Batch, Record, Stretch, guarded, schema_of, value_error};
use crate::decoder::Decoder;
use crate::kafka::client::{Client, lock};
use crate::kafka::post::Post;
use crate::kafka::reader::{Limits, Reader};
use crate::kafka::rows::{self, Keep, Origin, Rows};
use crate::kafka::settings::Settings;
use crate::kafka::traces::{Traced, Traces};
use crate::refusal::Kind;
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A format, its columns and its options, as `kafka/rows.py` has them.
#[derive(FromPyObject)]
struct Format<'py> {
    name: String,
    schema: Bound<'py, PyAny>,
    options: HashMap<String, String>,
}

impl Format<'_> {
    fn decoder(self) -> PyResult<Decoder> {
        Ok(Decoder::new(&self.name, &schema_of(&self.schema)?, &self.options)?)
    }
}

/// What one call of `read` has brought. A range is named by its place among those that were added.
#[pyclass(frozen, get_all)]
pub struct Part {
    batch: Option<Py<Batch>>,
    /// Records that became rows; a change log has some that are two rows.
    taken: usize,
    skipped: usize,
    /// Of the keys and values of all these records, as they were fetched.
    bytes: usize,
    /// Of those that became rows.
    case_mismatches: usize,
    rejected: Vec<Py<Rejected>>,
    /// Those that are not among the rejected: how many of each kind, and where.
    counted: Py<PyDict>,
    stretches: Vec<Py<Stretch>>,
    /// By range: how many are not refused.
    good: BTreeMap<usize, usize>,
    events: Vec<Py<Event>>,
    /// Records that carry a trace: range, offset, `traceparent`, and the kind of refusal, if it was refused.
    traced: Vec<Traced>,
}

#[pyclass(frozen, get_all)]
pub struct Rejected {
    range: usize,
    offset: i64,
    /// Records of its range that are not refused, in this part and before it.
    before: usize,
    kind: &'static str,
    message: String,
    path: String,
    of_key: bool,
    record: Option<Py<Record>>,
}

impl Rejected {
    fn new(py: Python<'_>, bad: rows::Rejected) -> PyResult<Self> {
        let rows::Rejected { range, offset, before, refusal, record } = bad;
        let whole = |r: rows::Whole| Py::new(py, Record::new(py, r.timestamp, r.key, r.value, r.headers));
        Ok(Rejected {
            range,
            offset,
            before,
            kind: refusal.kind.name(),
            message: refusal.message(),
            path: refusal.path().to_owned(),
            of_key: refusal.of_key,
            record: record.map(whole).transpose()?,
        })
    }
}

/// What is to be said of a range that is not a record: a `BrokerError`.
#[pyclass(frozen, get_all)]
pub struct Event {
    range: usize,
    error: Py<PyBaseException>,
}

/// A schema that must be learned before there is more to read, by the header that names it.
#[pyclass(frozen, get_all)]
pub struct Wanted {
    header: Py<PyBytes>,
    of_key: bool,
}

/// Where a partition's log begins, and where what may be read of it ends.
#[pyclass(frozen, get_all)]
pub struct Watermarks {
    low: i64,
    high: i64,
}

/// Used by one thread at a time.
#[pyclass(name = "Reader")]
pub struct PyReader {
    reader: Reader,
    /// Where refused records go, if it is not the caller who sees to them.
    post: Option<Arc<Mutex<Post>>>,
}

#[pymethods]
impl PyReader {
    /// `values` and `keys` say how these are decoded, None if they are not; `schema` and `origins` are the
    /// batch's. A batch ends with so many rows or bytes; a record longer than `longest` is refused.
    #[new]
    #[pyo3(signature = (settings, values, keys, schema, origins, *, max_rows, max_bytes, longest))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        settings: Vec<(String, String)>,
        values: Option<Format<'_>>,
        keys: Option<Format<'_>>,
        schema: &Bound<'_, PyAny>,
        origins: Vec<String>,
        max_rows: usize,
        max_bytes: usize,
        longest: usize,
    ) -> PyResult<Self> {
        let (values, keys) =
            (values.map(Format::decoder).transpose()?, keys.map(Format::decoder).transpose()?);
        let origins = origins.iter().map(|name| origin(name)).collect::<PyResult<Vec<_>>>()?;
        let rows = Rows::new(values, keys, &schema_of(schema)?, origins)?;
        let client = Client::get(Settings::new(&settings)?)?;
        let limits = Limits { rows: max_rows, bytes: max_bytes, longest };
        Ok(PyReader { reader: Reader::new(client, rows, limits), post: None })
    }

    fn add(&mut self, topic: String, partition: i32, start: i64, end: i64) {
        self.reader.add(topic, partition, start, end);
    }

    /// How many refused records a read hands over, None for all, and whether with their bytes. Where they become
    /// letters, so many do, and `reported` of them, None for all, are handed over besides, without their bytes.
    fn keep(&mut self, most: Option<usize>, whole: bool, reported: Option<usize>) {
        let all = |limit: Option<usize>| limit.unwrap_or(usize::MAX);
        self.reader.rows.keep(Keep { most: all(most), whole, reported: all(reported) });
    }

    /// Make letters of refused records. All ranges have been added by then.
    fn letters(&mut self, letters: &PyLetters) {
        let places = self.reader.ranges.iter().map(|range| (range.topic.as_str(), range.number));
        lock(&letters.post).origins(places);
        self.reader.rows.posted = true;
        self.post = Some(letters.post.clone());
    }

    /// Say which records carry a trace that somebody keeps: the first so many good ones, and as many refused ones.
    fn trace(&mut self, most: usize) {
        self.reader.rows.traces = Some(Traces::new(most));
    }

    fn read(&mut self, py: Python<'_>, timeout_ms: u64) -> PyResult<Part> {
        let (columns, count) = py.detach(|| {
            guarded(|| {
                // Locked once for all of them, and not for each.
                let mut post = self.post.as_ref().map(|post| lock(post));
                self.reader.fill(Duration::from_millis(timeout_ms), post.as_deref_mut());
                if self.reader.rows.count() > 0 { self.reader.rows.finish() } else { (Vec::new(), 0) }
            })
        })?;
        let Reader { rows, ranges, events, .. } = &mut self.reader;
        let batch = (count > 0).then(|| Py::new(py, Batch::new(rows.fields.clone(), columns, count)));
        let rejected = rows.take_rejected().into_iter().map(|bad| Py::new(py, Rejected::new(py, bad)?));
        let counted = Kind::ALL.into_iter().zip(std::mem::take(&mut rows.counted));
        let counted = counted.filter(|(_, count)| *count > 0).map(|(kind, count)| (kind.name(), count));
        let stretches = rows.stretches.drain(..).map(|part| {
            let range = &ranges[part.range];
            Py::new(py, Stretch::new(range.topic.clone(), range.number, &part))
        });
        let event = |range, error: PyErr| Py::new(py, Event { range, error: error.into_value(py) });
        Ok(Part {
            batch: batch.transpose()?,
            taken: std::mem::take(&mut rows.taken),
            skipped: std::mem::take(&mut rows.skipped),
            bytes: std::mem::take(&mut rows.fetched),
            case_mismatches: std::mem::take(&mut rows.case_mismatches),
            rejected: rejected.collect::<PyResult<_>>()?,
            counted: counted.into_py_dict(py)?.unbind(),
            stretches: stretches.collect::<PyResult<_>>()?,
            good: (ranges.iter_mut().map(|range| std::mem::take(&mut range.good)).enumerate())
                .filter(|(_, count)| *count > 0)
                .collect(),
            events: events.drain(..).map(|e| event(e.range, e.error.into())).collect::<PyResult<_>>()?,
            traced: rows.traces.as_mut().map(|traces| std::mem::take(&mut traces.found)).unwrap_or_default(),
        })
    }

    #[getter]
    fn wanted(&self, py: Python<'_>) -> Option<Wanted> {
        let wanted = self.reader.wanted.as_ref()?;
        Some(Wanted { header: PyBytes::new(py, &wanted.header).unbind(), of_key: wanted.of_key })
    }

    /// Teach what is wanted.
    fn learn(&mut self, plan: Option<&str>, kind: &str, message: &str) -> PyResult<()> {
        let Some(wanted) = self.reader.wanted.take() else { return Err(value_error("nothing is wanted")) };
        let pupil = self.reader.rows.pupil(wanted.of_key).ok_or_else(|| value_error("nothing to teach"))?;
        Ok(pupil.learn(&wanted.header, plan, kind, message)?)
    }

    #[getter]
    fn done(&self) -> bool {
        self.reader.done()
    }

    /// The next offset of each range that is not read to its end.
    #[getter]
    fn open(&self) -> BTreeMap<usize, i64> {
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

    /// Of a range's partition.
    fn watermarks(&self, py: Python<'_>, range: usize) -> PyResult<Watermarks> {
        let range = &self.reader.ranges[range];
        let (low, high) = py.detach(|| self.reader.client.watermarks(&range.topic, range.number))?;
        Ok(Watermarks { low, high })
    }
}

fn origin(name: &str) -> PyResult<Origin> {
    let index = |text: &str| text.parse().map_err(|_| value_error(format!("no origin: {name}")));
    Ok(match name {
        "key" => Origin::Key,
        "partition" => Origin::Partition,
        "offset" => Origin::Offset,
        "timestamp" => Origin::Timestamp,
        "headers" => Origin::Headers,
        _ => match name.strip_prefix("key:") {
            Some(number) => Origin::KeyPart(index(number)?),
            None => Origin::Value(index(name)?),
        },
    })
}
