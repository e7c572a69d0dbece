//! Answers, as glibc reads them: the resolver refuses some from which glibc takes the addresses. Of a long answer only as much is
//! read as counts.

use hickory_resolver::proto::op::{Header, Message, Query};
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use hickory_resolver::proto::serialize::binary::{BinDecodable, BinDecoder, DecodeError};

use super::MOST_ADDRESSES;

/// The longest answer by UDP that is read, in bytes. A longer one is asked for by TCP.
pub(super) const LONGEST: usize = 4096;

/// The longest answers that are read as they are, and that are made of others, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) whole: usize,
    pub(super) rebuilt: usize,
}

/// The record of an address takes 16 bytes in an answer and some hundred in memory.
pub(super) const BY_TCP: Room = Room { whole: LONGEST, rebuilt: u16::MAX as usize };

/// The most aliases that are taken from an answer that is not read as it is.
const MOST_ALIASES: usize = 32;

const HEADER: usize = 12;
const AUTHORITATIVE_OR_TRUNCATED: u8 = 0b110;
const RECURSION_AVAILABLE: u8 = 0x80;
const RESPONSE_CODE: u8 = 0x0f;
const SERVFAIL: u8 = 2;

/// What the resolver gets for `answer`.
///
/// - A server that neither has the zone nor looks further, and gives no answer, cannot say (SERVFAIL).
/// - A message that is too long or has malformed parts becomes one with the addresses in it and the aliases that lead there. If
///   there is none, or they are too long, it becomes a truncated message, so that the resolver asks by TCP.
pub(super) fn readable(answer: &[u8], room: Room) -> Vec<u8> {
    let mut read = match answer.len() <= room.whole && Message::from_vec(answer).is_ok() {
        true => answer.to_vec(),
        false => rebuilt(answer, room.rebuilt).unwrap_or_else(|_| answer[..answer.len().min(room.whole)].to_vec()),
    };
    if let Some([_, _, flags, more, _, _, 0, 0, ..]) = read.first_chunk_mut::<HEADER>() {
        let is_lame = *flags & AUTHORITATIVE_OR_TRUNCATED == 0 && *more & (RECURSION_AVAILABLE | RESPONSE_CODE) == 0;
        if is_lame {
            *more |= SERVFAIL;
        }
    }
    read
}

fn rebuilt(answer: &[u8], room: usize) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = BinDecoder::new(answer);
    let Header { metadata, counts, .. } = Header::read(&mut decoder)?;
    let mut message = Message::new(metadata.id, metadata.message_type, metadata.op_code);
    message.metadata = metadata;
    for _ in 0..counts.queries {
        message.add_query(Query::read(&mut decoder)?);
    }
    let truncated = message.truncate();
    let answers = records(&mut decoder, counts.answers).unwrap_or_default();
    let is_lost = answers.is_empty() && counts.answers > 0;
    message.add_answers(answers);
    let fitting = |message: Message| message.to_vec().ok().filter(|bytes| bytes.len() <= room);
    let whole = if is_lost { None } else { fitting(message) };
    Ok(whole.or_else(|| fitting(truncated)).unwrap_or_default())
}

/// The records that lead to addresses, without malformed ones, and no more than count.
fn records(decoder: &mut BinDecoder<'_>, count: u16) -> Result<Vec<Record>, DecodeError> {
    let mut records = Vec::new();
    let (mut addresses, mut aliases) = (MOST_ADDRESSES, MOST_ALIASES);
    for _ in 0..count {
        let begin = u16::try_from(decoder.index()).map_err(|_| DecodeError::InsufficientBytes)?;
        let mut begin = decoder.clone(begin);
        Name::read(decoder)?;
        let left = match RecordType::from(decoder.read_u16()?.unverified()) {
            RecordType::A | RecordType::AAAA => Some(&mut addresses),
            RecordType::CNAME => Some(&mut aliases).filter(|left| **left > 0),
            _ => None,
        };
        // Class and TTL.
        decoder.read_slice(6)?;
        let length = decoder.read_u16()?.unverified();
        decoder.read_slice(length.into())?;
        if let Some(left) = left
            && let Ok(record) = Record::read(&mut begin)
        {
            records.push(record);
            *left -= 1;
        }
        if addresses == 0 {
            break;
        }
    }
    Ok(records)
}
