//! What a control that sets a rate is told of each segment.

use ekiden_units::Time;

/// What was so when a segment was sent (draft-cheng-iccrg-delivery-rate-estimation-02, section 3.2: P.delivered, P.delivered_time,
/// P.first_sent_time, P.is_app_limited; draft-ietf-ccwg-bbr-04: P.tx_in_flight, section 4.1.2.1.2; P.lost, section 5.5.10.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub delivered: u64,
    pub delivered_at: Time,
    pub first_sent: Time,
    pub is_app_limited: bool,
    /// In the network, with it.
    pub in_flight: u32,
    /// Segments that had been found lost.
    pub lost: u64,
}

/// Segments found lost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Losses {
    /// Over the whole connection, each as often as it was.
    pub ever: u64,
    /// The marks of the segments that are not reported yet. `None`: no one asks for them.
    news: Option<Vec<Mark>>,
}

impl Losses {
    /// Tells each of them from now on.
    pub fn tell(&mut self) {
        self.news = Some(Vec::new());
    }

    /// Those since the last call.
    pub fn take(&mut self) -> Vec<Mark> {
        self.news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn note(&mut self, mark: Mark) {
        self.ever += 1;
        if let Some(news) = &mut self.news {
            news.push(mark);
        }
    }
}
