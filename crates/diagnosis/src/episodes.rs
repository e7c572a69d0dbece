//! Episodes of losses: segments that a sender sent again, with no pause of two round trips between them.

use ekiden_measure_proto::row::Row;

/// An episode of losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Episode {
    /// The sample before the first segment was sent again; the first one if there is none before.
    pub before: usize,
    /// The sample in which the first was.
    pub first: usize,
    /// Segments sent again.
    pub lost: u32,
}

/// The episodes in a sender's samples, which are up to `look_us` apart.
pub fn episodes<'a>(rows: impl IntoIterator<Item = &'a Row>, look_us: u64) -> Vec<Episode> {
    let (mut episodes, mut last_us): (Vec<Episode>, Option<u64>) = (Vec::new(), None);
    let mut retransmits = 0;
    for (at, row) in rows.into_iter().enumerate() {
        if row.retransmits > retransmits {
            let lost = row.retransmits - retransmits;
            retransmits = row.retransmits;
            let pause_us = 2 * (u64::from(row.rtt_us) + look_us);
            let continues = last_us.is_some_and(|last_us| row.at_us <= u64::saturating_add(last_us, pause_us));
            last_us = Some(row.at_us);
            match episodes.last_mut().filter(|_| continues) {
                Some(episode) => episode.lost += lost,
                None => episodes.push(Episode { before: at.saturating_sub(1), first: at, lost }),
            }
        }
    }
    episodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_two_round_trips_ends_an_episode() {
        let row = |at_ms: u64, retransmits| Row { at_us: at_ms * 1_000, retransmits, rtt_us: 10_000, ..Row::default() };
        let rows = [row(0, 0), row(50, 3), row(60, 3), row(69, 5), row(90, 6), row(91, 7)];
        let first = Episode { before: 0, first: 1, lost: 5 };
        assert_eq!(episodes(&rows, 0), [first, Episode { before: 3, first: 4, lost: 2 }]);
        // With samples this far apart the length of the pause is unknown.
        assert_eq!(episodes(&rows, 20_000), [Episode { lost: 7, ..first }]);
        assert_eq!(episodes(&rows[1..2], 0), [Episode { before: 0, first: 0, lost: 3 }]);
    }
}
