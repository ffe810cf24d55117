//! The decoding contract by itself: values in, a batch of the good and a list of the bad out.

use super::{Batch, guarded, schema_of};
use crate::decoder::Decoder;
use crate::refusal::Wanted;
use arrow_schema::Fields;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashMap;

#[pyclass(name = "Decoder")]
pub struct PyDecoder {
    decoder: Decoder,
    fields: Fields,
    wanted: Option<Wanted>,
}

/// What `formats/contract.py` calls `Decoded`: the batch, the payload of each row, the bad, the skipped, those with a
/// case mismatch.
#[pyclass(frozen, get_all)]
pub struct Decoded {
    batch: Py<Batch>,
    good: Vec<usize>,
    bad: Vec<Py<BadValue>>,
    skipped: Vec<usize>,
    case_mismatches: Vec<usize>,
}

#[pyclass(frozen, get_all)]
pub struct BadValue {
    index: usize,
    kind: &'static str,
    message: String,
}

#[pymethods]
impl PyDecoder {
    #[new]
    fn new(format: &str, schema: &Bound<'_, PyAny>, options: HashMap<String, String>) -> PyResult<Self> {
        let schema = schema_of(schema)?;
        let decoder = Decoder::new(format, &schema, &options)?;
        Ok(PyDecoder { decoder, fields: schema.fields().clone(), wanted: None })
    }

    /// The header that the last call of `decode` has to learn; it has kept nothing then.
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
        Ok(self.decoder.learn(header, plan, kind, message)?)
    }

    fn decode(&mut self, py: Python<'_>, values: Vec<Option<Bound<'_, PyBytes>>>) -> PyResult<Decoded> {
        let values: Vec<Option<&[u8]>> =
            values.iter().map(|value| value.as_ref().map(|v| v.as_bytes())).collect();
        let (decoder, wanted) = (&mut self.decoder, &mut self.wanted);
        *wanted = None;
        let (columns, rows, good, bad, skipped, case_mismatches) = py.detach(|| {
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
                        Err(refusal) => {
                            bad.push(BadValue {
                                index,
                                kind: refusal.kind.name(),
                                message: refusal.message(),
                            });
                        }
                    }
                }
                let rows = decoder.rows();
                let columns = decoder.columns.iter_mut().map(|column| column.finish()).collect();
                decoder.clear();
                (columns, rows, good, bad, skipped, mismatched)
            })
        })?;
        let batch = Py::new(py, Batch::new(self.fields.clone(), columns, rows))?;
        let bad = bad.into_iter().map(|bad| Py::new(py, bad)).collect::<PyResult<_>>()?;
        Ok(Decoded { batch, good, bad, skipped, case_mismatches })
    }
}
