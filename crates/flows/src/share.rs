//! How streams share legs: max-min fairly, as competing TCP connections do in the long run and about.

/// What streams share: each leg, and the line of each site that has one.
#[derive(Debug, Clone)]
pub struct Shared {
    /// What each carries, in bit/s.
    pub carries: Vec<f64>,
}

/// What one stream asks for.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// What it takes at most, in bit/s.
    pub most: f64,
    /// What it needs of [`Shared::carries`], each once.
    pub over: Vec<usize>,
}

/// What one stream gets.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Got {
    /// In bit/s.
    pub rate: f64,
    /// Which of what it shares limits it; `None` if its own limit does.
    pub limit: Option<usize>,
}

impl Shared {
    /// What each stream gets: none can get more without another that has no more than it getting less.
    pub fn fairly(&self, asks: &[Ask]) -> Vec<Got> {
        let mut left = self.carries.clone();
        let mut open = vec![0_usize; left.len()];
        asks.iter().flat_map(|ask| &ask.over).for_each(|&of| open[of] += 1);
        let used: Vec<usize> = (0..open.len()).filter(|&of| open[of] > 0).collect();
        let mut got = vec![Got::default(); asks.len()];
        // Those that want least first: they get it all if the tightest share is no less.
        let mut waiting: Vec<usize> = (0..asks.len()).collect();
        waiting.sort_by(|&a, &b| asks[a].most.total_cmp(&asks[b].most));
        while let Some(&first) = waiting.first() {
            let share = |&of: &usize| (left[of].max(0.0) / open[of] as f64, of);
            let tight = used.iter().filter(|&&of| open[of] > 0).map(share).min_by(|a, b| a.0.total_cmp(&b.0));
            let (level, tight) = tight.map_or((f64::INFINITY, None), |(level, of)| (level, Some(of)));
            let by_itself = asks[first].most <= level;
            let (done, rest): (Vec<usize>, Vec<usize>) = waiting.into_iter().partition(|&of| match by_itself {
                true => asks[of].most <= level,
                false => tight.is_some_and(|tight| asks[of].over.contains(&tight)),
            });
            for of in done {
                let rate = if by_itself { asks[of].most } else { level };
                got[of] = Got { rate, limit: tight.filter(|_| !by_itself) };
                asks[of]
                    .over
                    .iter()
                    .for_each(|&shared| (left[shared], open[shared]) = (left[shared] - rate, open[shared] - 1));
            }
            waiting = rest;
        }
        got
    }

    /// What one stream more would get of each, by what the streams there have now.
    pub fn offers(&self, asks: &[Ask], got: &[Got]) -> Vec<f64> {
        let mut rates = vec![Vec::new(); self.carries.len()];
        for (ask, got) in asks.iter().zip(got) {
            ask.over.iter().for_each(|&of| rates[of].push(got.rate));
        }
        let offer = |(carries, mut rates): (&f64, Vec<f64>)| {
            rates.sort_by(f64::total_cmp);
            // Streams that have less than an equal share keep what they have; the others give way.
            let (mut left, mut sharing) = (*carries, rates.len() as f64 + 1.0);
            for rate in rates {
                if rate >= left / sharing {
                    break;
                }
                (left, sharing) = (left - rate, sharing - 1.0);
            }
            left / sharing
        };
        self.carries.iter().zip(rates).map(offer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(most: f64, over: &[usize]) -> Ask {
        Ask { most, over: over.to_vec() }
    }

    #[test]
    fn streams_share_evenly_what_the_slower_leave() {
        let shared = Shared { carries: vec![100.0, 30.0, 1_000.0] };
        let asks = [ask(500.0, &[0]), ask(500.0, &[0, 1]), ask(500.0, &[1, 2]), ask(7.0, &[1])];
        let got = shared.fairly(&asks);
        assert_eq!(got.iter().map(|got| got.rate).collect::<Vec<_>>(), [88.5, 11.5, 11.5, 7.0]);
        assert_eq!(got.iter().map(|got| got.limit).collect::<Vec<_>>(), [Some(0), Some(1), Some(1), None]);
        // The next stream of the second gets a third of what the slowest leaves; of the third, all that is left.
        let offers = shared.offers(&asks, &got);
        assert_eq!(offers, [44.25, 23.0 / 3.0, 988.5]);
    }

    #[test]
    fn nothing_comes_over_what_is_cut() {
        let shared = Shared { carries: vec![0.0, 50.0] };
        let got = shared.fairly(&[ask(10.0, &[0, 1]), ask(10.0, &[1])]);
        assert_eq!([got[0].rate, got[1].rate], [0.0, 10.0]);
        assert_eq!(shared.fairly(&[]), []);
    }
}
