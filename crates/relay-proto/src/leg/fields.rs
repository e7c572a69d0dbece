//! Fields behind the fixed part of a message (docs/design/protocol.md §2): two bytes of type, two of length, the value. A receiver skips
//! those that it does not know, so that a message can get further ones.

/// In a field's type: a receiver that does not know the field refuses the message.
const REQUIRED: u16 = 0x8000;

/// In a field's type: it is for the next node alone. Others are passed on by a node that does not know them.
const HOP: u16 = 0x4000;

/// Why fields cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldError {
    /// They are cut off, or a known one has a value that it cannot have, or comes twice.
    Malformed,
    /// This node does not know a field that its sender requires.
    Required(u16),
}

/// Whether a message goes on to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onward {
    /// It does. What is required of its last receiver is passed on.
    Yes,
    /// This node is the last one.
    No,
    /// It is an answer. Whoever asked cannot refuse it.
    Answer,
}

/// Appends a field. `value` has at most 65,535 bytes by its type's bounds.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend(kind.to_be_bytes());
    out.extend((value.len() as u16).to_be_bytes());
    out.extend(value);
}

/// Reads all fields. `take` gets each, and says whether it knows it; `None` if its value cannot be. Returns the unknown ones that are to be
/// passed on, as they are on the wire.
///
/// # Errors
/// See [`FieldError`].
pub fn read<'a>(
    mut rest: &'a [u8],
    onward: Onward,
    mut take: impl FnMut(u16, &'a [u8]) -> Option<bool>,
) -> Result<Vec<u8>, FieldError> {
    let (mut passed, mut known) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (kind, value, after) = first(rest).ok_or(FieldError::Malformed)?;
        if take(kind, value).ok_or(FieldError::Malformed)? {
            if known.contains(&kind) {
                return Err(FieldError::Malformed);
            }
            known.push(kind);
        } else {
            let is_refused = kind & REQUIRED != 0
                && match onward {
                    Onward::Yes => kind & HOP != 0,
                    Onward::No => true,
                    Onward::Answer => false,
                };
            if is_refused {
                return Err(FieldError::Required(kind));
            }
            if kind & HOP == 0 {
                passed.extend(&rest[..rest.len() - after.len()]);
            }
        }
        rest = after;
    }
    Ok(passed)
}

/// The first field, and what follows it.
fn first(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (value, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some((u16::from_be_bytes(*kind), value, rest))
}
