//! The face towards Python. Errors become exceptions, panics too (PyO3 sees to that); data goes over as
//! Arrow's C interface has it, without a copy.

use crate::decoder::Decoder;
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Fields, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};
use std::collections::HashMap;

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

#[pymethods]
impl PyDecoder {
    #[new]
    fn new(format: &str, schema: &Bound<'_, PyAny>, options: HashMap<String, String>) -> PyResult<Self> {
        let schema = schema_of(schema)?;
        let decoder = Decoder::new(format, &schema, &options).map_err(value_error)?;
        Ok(PyDecoder { decoder, fields: schema.fields().clone() })
    }

    fn decode(&mut self, py: Python<'_>, values: Vec<Option<Bound<'_, PyBytes>>>) -> (Batch, Vec<BadValue>) {
        let values: Vec<Option<&[u8]>> =
            values.iter().map(|value| value.as_ref().map(|v| v.as_bytes())).collect();
        let decoder = &mut self.decoder;
        let (columns, rows, bad) = py.detach(|| {
            let mut bad = Vec::new();
            for (index, value) in values.iter().enumerate() {
                if let Err(refusal) = decoder.decode(*value) {
                    bad.push((index, refusal.kind.name(), refusal.message()));
                }
            }
            let rows = decoder.rows();
            let columns = decoder.columns.iter_mut().map(|column| column.finish()).collect();
            decoder.clear();
            (columns, rows, bad)
        });
        (Batch::new(self.fields.clone(), columns, rows), bad)
    }
}

#[pymodule]
fn forebay_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Batch>()?;
    module.add_class::<PyDecoder>()
}
