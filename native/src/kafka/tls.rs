//! TLS by rustls: the broker's certificate is always checked, its name too.

use crate::error::NotNative;
use crate::kafka::error::KafkaError;
use crate::kafka::settings::{Tls, setting};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

fn refused(what: &str, why: impl ToString) -> KafkaError {
    KafkaError::Tls(format!("{what}: {}", why.to_string()))
}

/// Costly, because it may read the system's certificates: made once a client.
pub fn config(tls: &Tls) -> Result<Arc<ClientConfig>, NotNative> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(text) => {
            for certificate in certificates(text, "ssl.ca")? {
                roots.add(certificate).map_err(|error| setting(format!("ssl.ca: {error}")))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| setting(error.to_string()))?
        .with_root_certificates(roots);
    let config = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|error| setting(format!("ssl.key: {error}")))?;
            builder
                .with_client_auth_cert(certificates(certificate, "ssl.certificate")?, key)
                .map_err(|error| setting(format!("ssl.certificate: {error}")))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn certificates(text: &str, name: &str) -> Result<Vec<CertificateDer<'static>>, NotNative> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| setting(format!("{name}: {error}")))?;
    if found.is_empty() { Err(setting(format!("{name}: no certificate in it"))) } else { Ok(found) }
}

/// Shake hands now, so that what is wrong is known before anything is sent.
pub fn connect(config: &Arc<ClientConfig>, host: &str, tcp: TcpStream) -> Result<Stream, KafkaError> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| refused(host, error))?;
    let tls = ClientConnection::new(config.clone(), name).map_err(|error| refused(host, error))?;
    let mut stream = StreamOwned::new(tls, tcp);
    while stream.conn.is_handshaking() {
        if let Err(error) = stream.conn.complete_io(&mut stream.sock) {
            // What TLS itself refuses is reported as invalid data; the rest is the network.
            let certificate = error.kind() == io::ErrorKind::InvalidData;
            return Err(if certificate { refused(host, error) } else { error.into() });
        }
    }
    Ok(stream)
}
