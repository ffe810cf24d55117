//! Dead letters of one task, from its reader to their topic.

use super::{Record, Stretch, guarded};
use crate::kafka::client::{Client, lock};
use crate::kafka::letters::{Carried, Form};
use crate::kafka::post::Post;
use crate::kafka::settings::Settings;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Used by one thread at a time.
#[pyclass(name = "Letters", frozen)]
pub struct PyLetters {
    pub post: Arc<Mutex<Post>>,
}

#[pymethods]
impl PyLetters {
    /// `most` is how many bytes of a record's value a letter carries, where it carries it.
    #[new]
    #[pyo3(signature = (settings, topic, source, *, carries_value, most, patience_ms, topic_ids))]
    fn new(
        settings: Vec<(String, String)>,
        topic: String,
        source: &str,
        carries_value: bool,
        most: usize,
        patience_ms: u64,
        topic_ids: HashMap<String, String>,
    ) -> PyResult<Self> {
        let client = Client::get(Settings::new(&settings)?)?;
        let form = Form::new(source, Carried { value: carries_value, most }, topic_ids);
        let post = Post::new(client, topic, form, Duration::from_millis(patience_ms));
        Ok(PyLetters { post: Arc::new(Mutex::new(post)) })
    }

    /// How many letters wait to be granted.
    #[getter]
    fn staged(&self) -> usize {
        lock(&self.post).staged()
    }

    /// Let the first so many go; the others are taken back, and these are where they are.
    fn grant(&self, py: Python<'_>, count: usize) -> PyResult<Vec<Stretch>> {
        let kept_out = py.detach(|| guarded(|| lock(&self.post).grant(count)))??;
        Ok(kept_out.into_iter().map(|(topic, number, part)| Stretch::new(topic, number, &part)).collect())
    }

    /// Send what was granted; how many letters are not durable after so long.
    fn flush(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<usize> {
        let until = Instant::now() + Duration::from_millis(timeout_ms);
        Ok(py.detach(|| guarded(|| lock(&self.post).flush(until)))??)
    }

    /// What is in the way of those that wait.
    #[getter]
    fn trouble(&self) -> String {
        lock(&self.post).trouble.clone()
    }

    /// Letters that somebody else must send.
    fn returned(&self, py: Python<'_>) -> Vec<Record> {
        let letters = lock(&self.post).returned().into_iter();
        letters.map(|(key, value, headers)| Record::new(py, None, key, value, headers)).collect()
    }
}
