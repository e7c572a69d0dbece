//! HSTCP's response function and the table that follows from it.

/// The parameters of HSTCP's response function (RFC 3649, section 5). The defaults are the RFC's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResponseFunction {
    /// Low_Window: Reno up to here, in segments.
    pub low_window: u32,
    /// High_Window: the window that is to be held at [`ResponseFunction::high_p`], in segments.
    pub high_window: u32,
    /// High_P: the loss rate at which it is.
    pub high_p: f64,
    /// High_Decrease: the part of High_Window that a loss takes.
    pub high_decrease: f64,
}

impl Default for ResponseFunction {
    fn default() -> Self {
        Self { low_window: 38, high_window: 83_000, high_p: 1e-7, high_decrease: 0.1 }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResponseRow {
    /// Its window, in segments.
    pub window: u32,
    /// a(w): growth in segments per round trip.
    pub increase: f64,
    /// b(w): the part of the window that a loss takes.
    pub decrease: f64,
}

impl ResponseFunction {
    /// b(w): 0.5 at Low_Window, High_Decrease at High_Window, linear in log w.
    pub fn decrease(&self, window: f64) -> f64 {
        let part = (window / f64::from(self.low_window)).ln() / self.decades();
        0.5 + (self.high_decrease - 0.5) * part
    }

    /// p(w): the loss rate at which the mean window is w; linear in log-log, through Low_Window and High_Window.
    ///
    /// With its own parameters the RFC rounds it to 0.078/w^1.2, and to 1/(12.8 w^1.2) in the program that printed
    /// Appendix B; so does this.
    pub fn loss_rate(&self, window: f64) -> f64 {
        if *self == Self::default() {
            return 1.0 / (12.8 * window.powf(1.2));
        }
        let low = f64::from(self.low_window);
        // Reno's response function, w = 1.2 / √p (RFC 3649, section 3).
        let low_p = (1.2 / low).powi(2);
        low_p * (window / low).powf((self.high_p / low_p).ln() / self.decades())
    }

    /// a(w) = w² p(w) 2 b(w) / (2 − b(w)): the growth with which loss and growth balance.
    pub fn increase(&self, window: f64) -> f64 {
        let b = self.decrease(window);
        window * window * self.loss_rate(window) * 2.0 * b / (2.0 - b)
    }

    /// At most `most` rows, at windows that grow by the same factor from one to the next, from Low_Window to a fifth beyond
    /// High_Window. Larger windows keep the last row: further on the formulas would let the growth fall again, and
    /// b(w) fall to 0.
    pub fn table(&self, most: usize) -> Vec<ResponseRow> {
        let (low, last) = (f64::from(self.low_window), f64::from(self.high_window) * 1.2);
        let factor = (last / low).powf(1.0 / (most.max(2) - 1) as f64);
        let mut windows: Vec<u32> = (0..most).map(|row| (low * factor.powf(row as f64)).round() as u32).collect();
        windows.dedup();
        let mut increase = 0.0;
        let row = |&window: &u32| {
            let w = f64::from(window);
            // It may have its peak within the last fifth.
            increase = self.increase(w).max(increase);
            ResponseRow { window, increase, decrease: self.decrease(w) }
        };
        windows.iter().map(row).collect()
    }

    /// Whether a(w) rises up to High_Window. It is w^c · 2b/(2 − b) with b falling in log w, so it has one peak.
    pub fn is_rising(&self) -> bool {
        let high = f64::from(self.high_window);
        self.increase(high) > self.increase(high * 0.99)
    }

    fn decades(&self) -> f64 {
        (f64::from(self.high_window) / f64::from(self.low_window)).ln()
    }
}
