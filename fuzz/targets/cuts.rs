//! Input that arrives in pieces.

/// The ends of the pieces in which `bytes` arrive: each as long as the next of `lengths` says, and then in one.
pub fn cuts(bytes: &[u8], lengths: &[u8]) -> Vec<usize> {
    let mut end = 0;
    let ends = lengths.iter().map(|length| {
        end += usize::from(*length) + 1;
        end
    });
    ends.take_while(|end| *end < bytes.len()).chain([bytes.len()]).collect()
}

/// The first bytes say how the others are cut.
pub fn split(data: &[u8]) -> Option<(&[u8], Vec<usize>)> {
    let (count, rest) = data.split_first()?;
    let (lengths, bytes) = rest.split_at_checked(usize::from(count % 16))?;
    Some((bytes, cuts(bytes, lengths)))
}
