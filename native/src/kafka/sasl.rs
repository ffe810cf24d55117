//! Logging in: PLAIN, and SCRAM (RFC 5802), in which the password itself is never sent.

use crate::kafka::error::KafkaError;
use crate::kafka::settings::{Login, Mechanism};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// More rounds than any broker asks for; a false one must not make us count for ever.
const MOST_ROUNDS: u32 = 1_000_000;

impl Mechanism {
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram256 => "SCRAM-SHA-256",
            Mechanism::Scram512 => "SCRAM-SHA-512",
        }
    }
}

fn refused(why: impl Into<String>) -> KafkaError {
    KafkaError::Authentication(why.into())
}

/// Says what to send next, given what the broker said to the message before.
pub type Exchange<'a> = dyn FnMut(&[u8]) -> Result<Vec<u8>, KafkaError> + 'a;

pub fn log_in(login: &Login, exchange: &mut Exchange<'_>) -> Result<(), KafkaError> {
    if login.mechanism == Mechanism::Plain {
        return exchange(format!("\0{}\0{}", login.user, login.password).as_bytes()).map(drop);
    }
    let mut bytes = [0_u8; 24];
    SystemRandom::new().fill(&mut bytes).map_err(|_| refused("no random numbers"))?;
    scram(login, &STANDARD.encode(bytes), exchange)
}

fn scram(login: &Login, nonce: &str, exchange: &mut Exchange<'_>) -> Result<(), KafkaError> {
    let user = login.user.replace('=', "=3D").replace(',', "=2C");
    let first = format!("n={user},r={nonce}");
    let answer = text(exchange(format!("n,,{first}").as_bytes())?)?;
    let (both, salt, rounds) = (part(&answer, "r=")?, part(&answer, "s=")?, part(&answer, "i=")?);
    if !both.starts_with(nonce) || both.len() == nonce.len() {
        return Err(refused("SCRAM: the broker's nonce is not ours"));
    }
    let salt = STANDARD.decode(salt).map_err(|_| refused("SCRAM: the salt is not base64"))?;
    let rounds = rounds.parse().ok().filter(|rounds| *rounds <= MOST_ROUNDS).and_then(NonZeroU32::new);
    let rounds = rounds.ok_or_else(|| refused("SCRAM: an absurd number of rounds"))?;
    let last = format!("c=biws,r={both}");
    let all = format!("{first},{answer},{last}");
    let (proof, expected) = proofs(login, &salt, rounds, all.as_bytes());
    let answer = text(exchange(format!("{last},p={}", STANDARD.encode(proof)).as_bytes())?)?;
    let signature = STANDARD.decode(part(&answer, "v=")?).map_err(|_| refused("SCRAM: no signature"))?;
    // Both are ours to see: it is the broker that proves itself here.
    if signature == expected { Ok(()) } else { Err(refused("SCRAM: the broker does not know the password")) }
}

/// What shows that we know the password, and what shows that the broker does.
fn proofs(login: &Login, salt: &[u8], rounds: NonZeroU32, all: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (derive, mac, hash) = match login.mechanism {
        Mechanism::Scram512 => (pbkdf2::PBKDF2_HMAC_SHA512, hmac::HMAC_SHA512, &digest::SHA512),
        _ => (pbkdf2::PBKDF2_HMAC_SHA256, hmac::HMAC_SHA256, &digest::SHA256),
    };
    let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(mac, key), text);
    let mut salted = vec![0; hash.output_len()];
    pbkdf2::derive(derive, rounds, salt, login.password.as_bytes(), &mut salted);
    let client = sign(&salted, b"Client Key");
    let stored = digest::digest(hash, client.as_ref());
    let signature = sign(stored.as_ref(), all);
    let proof = client.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
    let server = sign(sign(&salted, b"Server Key").as_ref(), all);
    (proof, server.as_ref().to_vec())
}

fn text(bytes: Vec<u8>) -> Result<String, KafkaError> {
    String::from_utf8(bytes).map_err(|_| refused("SCRAM: an answer that is no text"))
}

fn part<'a>(answer: &'a str, name: &str) -> Result<&'a str, KafkaError> {
    if let Some(error) = answer.strip_prefix("e=") {
        return Err(refused(format!("SCRAM: {error}")));
    }
    let found = answer.split(',').find_map(|part| part.strip_prefix(name));
    found.ok_or_else(|| refused(format!("SCRAM: an answer without {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn scram_says_what_the_standard_says() {
        let login = Login { mechanism: Mechanism::Scram256, user: "user".into(), password: "pencil".into() };
        let mut answers = [
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ]
        .into_iter();
        let mut said = Vec::new();
        let mut exchange = |message: &[u8]| {
            said.push(String::from_utf8_lossy(message).into_owned());
            Ok(answers.next().unwrap().as_bytes().to_vec())
        };
        scram(&login, "rOprNGfwEbeRWgbNEkqO", &mut exchange).unwrap();
        assert_eq!(said[0], "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert!(said[1].ends_with(",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="), "{}", said[1]);
    }

    #[test]
    fn a_broker_that_does_not_know_the_password_is_not_believed() {
        let login = Login { mechanism: Mechanism::Scram512, user: "u".into(), password: "p".into() };
        for answer in ["r=n,s=,i=1", "r=other,s=,i=1", "r=nx,s=,i=0", "r=nx,s=,i=999999999", "e=no", ""] {
            assert!(scram(&login, "n", &mut |_| Ok(answer.into())).is_err(), "{answer}");
        }
        let mut answers = ["r=nx,s=AAAA,i=1", "v=AAAA"].into_iter();
        assert!(scram(&login, "n", &mut |_| Ok(answers.next().unwrap().into())).is_err());
    }
}
