//! One step of TLS: a state of rustls without buffers of its own.

use rustls::Error;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use super::encrypted::Encrypted;
use super::sink::Sink;

/// What is to be encrypted.
#[derive(Clone, Copy)]
pub enum ToEncrypt<'a> {
    Nothing,
    Data(&'a [u8]),
    /// Nothing follows it.
    CloseNotify,
}

/// The result of one step of a session.
pub enum Step {
    /// There may be more to do.
    Continue,
    /// It needs more records.
    NeedsRecords,
    /// It can encrypt, and has encrypted what it was given.
    Established,
    /// The other side has closed it.
    Closed,
}

/// Lets TLS do one thing with what has come: records are decrypted into `sink`, and what it says is encrypted. Returns how many bytes it has
/// used.
pub fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    sink: &mut Sink<'_>,
    encrypted: &mut Encrypted,
    what: ToEncrypt<'_>,
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    sink.put(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Step::Continue),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => encrypted
            .fill(|room| match data.encode(room) {
                Err(EncodeError::InsufficientSize(size)) => Ok(Err(size)),
                Err(EncodeError::AlreadyEncoded) => Err(Error::EncryptError),
                Ok(n) => Ok(Ok(n)),
            })
            .map(|()| Step::Continue),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // The record waits in `encrypted`, and is sent in its turn.
            data.done();
            Ok(Step::Continue)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let result = |written: Result<usize, EncryptError>| match written {
                Err(EncryptError::InsufficientSize(size)) => Ok(Err(size)),
                Err(EncryptError::EncryptExhausted) => Err(Error::EncryptError),
                Ok(n) => Ok(Ok(n)),
            };
            let filled = match what {
                ToEncrypt::Nothing => Ok(()),
                ToEncrypt::Data(bytes) => encrypted.fill(|room| result(traffic.encrypt(bytes, room))),
                ToEncrypt::CloseNotify => encrypted.fill(|room| result(traffic.queue_close_notify(room))),
            };
            filled.map(|()| Step::Established)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::NeedsRecords),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Closed),
        // Early data is switched off, and there are no other states.
        Ok(_) => Err(Error::General("early data".into())),
    };
    (discard, step)
}
