//! One connection to one broker: requests go out, answers come back in their order.

use crate::kafka::error::KafkaError;
use crate::kafka::messages::{self, API_VERSIONS, Api, Offered};
use crate::kafka::sasl;
use crate::kafka::settings::{Login, Settings};
use crate::kafka::tls;
use crate::kafka::wire::Writer;
use rustls::ClientConfig;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECT: Duration = Duration::from_secs(5);
/// Up to here an announced answer gets its room at once; beyond, as its bytes arrive.
const PREPARED: usize = 16 << 20;

enum Stream {
    Plain(TcpStream),
    Tls(Box<tls::Stream>),
}

pub struct Connection {
    stream: Stream,
    client_id: String,
    timeout: Duration,
    offered: Vec<Offered>,
    sent: i32,
    answered: i32,
    incoming: Vec<u8>, // an answer that is not whole yet, with its size and number in front
}

/// Of an answer: its size, its number.
pub const HEAD: usize = 8;

impl Connection {
    pub fn open(
        settings: &Settings,
        tls: Option<&Arc<ClientConfig>>,
        place: &(String, u16),
    ) -> Result<Self, KafkaError> {
        let (host, port) = place;
        let mut last = KafkaError::Away(format!("{host}:{port}: no address"));
        for address in (host.as_str(), *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(tcp) => return Connection::start(settings, tls, host, tcp),
                Err(error) => last = KafkaError::Away(format!("{host}:{port}: {error}")),
            }
        }
        Err(last)
    }

    fn start(
        settings: &Settings,
        tls: Option<&Arc<ClientConfig>>,
        host: &str,
        tcp: TcpStream,
    ) -> Result<Self, KafkaError> {
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(settings.timeout))?;
        tcp.set_write_timeout(Some(settings.timeout))?;
        let stream = match tls {
            Some(config) => Stream::Tls(Box::new(tls::connect(config, host, tcp)?)),
            None => Stream::Plain(tcp),
        };
        let mut connection = Connection {
            stream,
            client_id: settings.client_id.clone(),
            timeout: settings.timeout,
            offered: Vec::new(),
            sent: 0,
            answered: 0,
            incoming: Vec::new(),
        };
        connection.ask_versions()?;
        if let Some(login) = &settings.login {
            connection.log_in(login)?;
        }
        Ok(connection)
    }

    /// Before the login, because the login too is a request that has versions.
    fn ask_versions(&mut self) -> Result<(), KafkaError> {
        let (error, offered) = messages::read_api_versions(&self.ask(API_VERSIONS, Writer::default())?)?;
        self.offered = offered;
        KafkaError::check(error)
    }

    /// A broker that is sent a version that it does not know may say nothing at all.
    fn check_offered(&self, api: Api) -> Result<(), KafkaError> {
        let Api { key, version, name } = api;
        match self.offered.iter().find(|(offered, ..)| *offered == key) {
            _ if api == API_VERSIONS => Ok(()),
            Some((_, low, high)) if (*low..=*high).contains(&version) => Ok(()),
            Some((_, low, high)) => Err(KafkaError::Unsupported(format!(
                "the broker answers {name} from version {low} up to version {high}, and not in version {version}"
            ))),
            None => Err(KafkaError::Unsupported(format!("the broker does not answer {name}"))),
        }
    }

    fn log_in(&mut self, login: &Login) -> Result<(), KafkaError> {
        let name = login.mechanism.name();
        let answer = self.ask(messages::SASL_HANDSHAKE, messages::sasl_handshake(name))?;
        let (error, known) = messages::read_sasl_handshake(&answer)?;
        KafkaError::check(error).map_err(|error| match error {
            KafkaError::Answered(code) => {
                KafkaError::Authentication(format!("{code}: {name}; it takes {}", known.join(", ")))
            }
            error => error,
        })?;
        sasl::log_in(login, &mut |token| {
            let answer = self.ask(messages::SASL_AUTHENTICATE, messages::sasl_authenticate(token))?;
            let (error, why, token) = messages::read_sasl_authenticate(&answer)?;
            KafkaError::check(error).map(|()| token).map_err(|error| match error {
                KafkaError::Answered(code) if why.is_empty() => KafkaError::Authentication(code.to_string()),
                KafkaError::Answered(code) => KafkaError::Authentication(format!("{code}: {why}")),
                error => error,
            })
        })
    }

    /// Send a request and wait for its answer, which comes without its head.
    pub fn ask(&mut self, api: Api, request: Writer) -> Result<Vec<u8>, KafkaError> {
        self.send(api, request)?;
        let answer = self.receive(Instant::now() + self.timeout)?;
        let mut answer = answer.ok_or_else(|| KafkaError::Away("no answer from the broker".into()))?;
        answer.drain(..HEAD);
        Ok(answer)
    }

    pub fn send(&mut self, api: Api, request: Writer) -> Result<(), KafkaError> {
        self.send_with(api, request, &[])
    }

    /// Send a request that ends with these bytes.
    pub fn send_with(&mut self, api: Api, request: Writer, rest: &[u8]) -> Result<(), KafkaError> {
        self.check_offered(api)?;
        self.sent = self.sent.wrapping_add(1);
        let head =
            Writer::default().i32(0).i16(api.key).i16(api.version).i32(self.sent).text(&self.client_id);
        let mut bytes = head.0;
        bytes.extend(request.0);
        let size = i32::try_from(bytes.len() + rest.len() - 4)
            .map_err(|_| KafkaError::Away("a request too long".into()))?;
        bytes[..4].copy_from_slice(&size.to_be_bytes());
        match &mut self.stream {
            Stream::Plain(stream) => {
                stream.write_all(&bytes)?;
                stream.write_all(rest)?;
            }
            Stream::Tls(stream) => {
                stream.write_all(&bytes)?;
                stream.write_all(rest)?;
                stream.flush()?;
            }
        }
        Ok(())
    }

    /// The next answer, if it comes in time; what has come of it is kept for the next call.
    pub fn receive(&mut self, until: Instant) -> Result<Option<Vec<u8>>, KafkaError> {
        loop {
            let missing = self.missing()?;
            if missing == 0 {
                self.answered = self.answered.wrapping_add(1);
                return Ok(Some(std::mem::take(&mut self.incoming)));
            }
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let incoming = &mut self.incoming;
            let read = match &mut self.stream {
                Stream::Plain(stream) => {
                    stream.set_read_timeout(Some(left))?;
                    stream.take(missing).read_to_end(incoming)
                }
                Stream::Tls(stream) => {
                    stream.sock.set_read_timeout(Some(left))?;
                    stream.take(missing).read_to_end(incoming)
                }
            };
            match read {
                Ok(0) => return Err(KafkaError::Away("the broker closed the connection".into())),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if Instant::now() >= until {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How many bytes are to come until the size is known, or the answer whole.
    fn missing(&mut self) -> Result<u64, KafkaError> {
        let have = self.incoming.len();
        let Some(head) = self.incoming.first_chunk::<HEAD>() else { return Ok((HEAD - have) as u64) };
        let [size, number] =
            [&head[..4], &head[4..]].map(|part| i32::from_be_bytes(part.try_into().unwrap_or_default()));
        let whole = usize::try_from(size).ok().filter(|size| *size >= 4).map(|size| size + 4);
        let Some(whole) = whole else { return Err(KafkaError::Away("this is not Kafka".into())) };
        if have == HEAD {
            if number != self.answered.wrapping_add(1) {
                return Err(KafkaError::Away("an answer to another question".into()));
            }
            self.incoming.reserve_exact((whole - have).min(PREPARED));
        }
        Ok((whole - have) as u64)
    }

    /// Room for the answers to come: one that was read, to be used again.
    pub fn recycle(&mut self, mut answer: Vec<u8>) {
        if self.incoming.is_empty() && answer.capacity() <= PREPARED {
            answer.clear();
            self.incoming = answer;
        }
    }
}
