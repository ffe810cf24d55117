//! The client's settings, by the names that librdkafka has for them.
//!
//! A setting that is not known here, or a value, is an error: then librdkafka itself reads, by way of the
//! plain reader, and nothing that somebody set is ignored.

use crate::error::NotNative;
use std::borrow::Cow;
use std::time::Duration;

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    pub servers: Vec<(String, u16)>,
    pub client_id: String,
    pub tls: Option<Tls>,
    pub login: Option<Login>,
    pub committed_only: bool,
    pub check_crcs: bool,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub partition_bytes: i32,
    pub timeout: Duration,
}

/// PEM texts.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Tls {
    pub ca: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Login {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    Plain,
    Scram256,
    Scram512,
}

/// Of groups, queues and the library's own housekeeping: without a meaning where ranges are read.
const WITHOUT_MEANING: [&str; 15] = [
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "fetch.queue.backoff.ms",
    "group.id",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "metadata.max.age.ms",
    "partition.assignment.strategy",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "session.timeout.ms",
];

impl Settings {
    pub fn new(given: &[(String, String)]) -> Result<Self, NotNative> {
        let mut settings = Settings {
            servers: Vec::new(),
            client_id: "forebay".into(),
            tls: None,
            login: None,
            committed_only: true,
            check_crcs: true,
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 50 << 20,
            partition_bytes: 1 << 20,
            timeout: Duration::from_secs(60),
        };
        let mut tls = Tls::default();
        let (mut mechanism, mut user, mut password) = (None, String::new(), String::new());
        let mut protocol = "plaintext".to_owned();
        for (name, value) in given {
            let unknown = || setting(format!("{name} = {value} is for librdkafka"));
            let number = || value.parse::<i32>().map_err(|_| unknown());
            match name.as_str() {
                "bootstrap.servers" => settings.servers = servers(value)?,
                "client.id" => settings.client_id = value.clone(),
                "security.protocol" => protocol = value.to_lowercase(),
                "sasl.mechanism" | "sasl.mechanisms" => mechanism = Some(mechanism_of(value)?),
                "sasl.username" => user = value.clone(),
                "sasl.password" => password = value.clone(),
                "ssl.ca.location" => tls.ca = Some(file(value)?),
                "ssl.certificate.location" => tls.certificate = Some(file(value)?),
                "ssl.key.location" => tls.key = Some(file(value)?),
                "ssl.ca.pem" => tls.ca = Some(value.clone()),
                "ssl.certificate.pem" => tls.certificate = Some(value.clone()),
                "ssl.key.pem" => tls.key = Some(value.clone()),
                "ssl.endpoint.identification.algorithm" if value == "https" => {}
                "enable.ssl.certificate.verification" if value == "true" => {}
                "isolation.level" => settings.committed_only = value == "read_committed",
                "check.crcs" => settings.check_crcs = value == "true",
                "fetch.wait.max.ms" => settings.max_wait_ms = number()?,
                "fetch.min.bytes" => settings.min_bytes = number()?,
                "fetch.max.bytes" => settings.max_bytes = number()?,
                "max.partition.fetch.bytes" | "fetch.message.max.bytes" => {
                    settings.partition_bytes = number()?;
                }
                "socket.timeout.ms" => {
                    settings.timeout = Duration::from_millis(number()?.max(1).unsigned_abs().into());
                }
                known if WITHOUT_MEANING.contains(&known) => {}
                _ => return Err(setting(format!("{name} is for librdkafka"))),
            }
        }
        let (secure, logs_in) = match protocol.as_str() {
            "plaintext" => (false, false),
            "ssl" => (true, false),
            "sasl_plaintext" => (false, true),
            "sasl_ssl" => (true, true),
            _ => return Err(setting("an unknown security.protocol")),
        };
        if tls.key.as_ref().is_some_and(|key| key.contains("ENCRYPTED")) {
            return Err(setting("a private key with a password is for librdkafka"));
        }
        settings.tls = secure.then_some(tls);
        if logs_in {
            let mechanism = mechanism.ok_or(setting("no sasl.mechanism"))?; // the library's own default is Kerberos
            settings.login = Some(Login { mechanism, user, password });
        }
        Ok(settings)
    }
}

pub fn setting(what: impl Into<Cow<'static, str>>) -> NotNative {
    NotNative::Setting(what.into())
}

fn mechanism_of(name: &str) -> Result<Mechanism, NotNative> {
    match name {
        "PLAIN" => Ok(Mechanism::Plain),
        "SCRAM-SHA-256" => Ok(Mechanism::Scram256),
        "SCRAM-SHA-512" => Ok(Mechanism::Scram512),
        other => Err(setting(format!("{other} is for librdkafka"))),
    }
}

fn file(path: &str) -> Result<String, NotNative> {
    std::fs::read_to_string(path).map_err(|error| setting(format!("{path}: {error}")))
}

fn servers(text: &str) -> Result<Vec<(String, u16)>, NotNative> {
    text.split(',').map(str::trim).filter(|server| !server.is_empty()).map(server).collect()
}

/// `[listener://]host[:port]`, the host in brackets where it is an IPv6 address.
fn server(text: &str) -> Result<(String, u16), NotNative> {
    let place = text.split_once("://").map_or(text, |(_, place)| place);
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| setting(format!("no port: {text}")))?)
        }
        _ => (place, 9092),
    };
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(given: &[(&str, &str)]) -> Result<Settings, NotNative> {
        Settings::new(&given.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect::<Vec<_>>())
    }

    #[test]
    fn servers_are_read_as_librdkafka_does() {
        let found = settings(&[("bootstrap.servers", "a:1, PLAINTEXT://b ,[::1]:9093,[::2]")]).unwrap();
        let expected = [("a", 1), ("b", 9092), ("::1", 9093), ("::2", 9092)];
        assert!(found.servers.iter().map(|(host, port)| (host.as_str(), *port)).eq(expected));
    }

    #[test]
    fn what_is_not_known_is_not_ignored() {
        for (name, value) in [
            ("client.rack", "a"),
            ("ssl.key.password", "x"),
            ("enable.ssl.certificate.verification", "false"),
            ("sasl.mechanism", "GSSAPI"),
            ("security.protocol", "sasl_ssl"),
        ] {
            assert!(settings(&[(name, value)]).is_err(), "{name}");
        }
    }
}
