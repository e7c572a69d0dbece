//! The settings as the header has them.

use crate::{BalanceSettings, ObservedFlow, Policy, native};

impl BalanceSettings {
    /// `struct ekb_settings`. Values out of their range are clamped to it.
    pub(crate) fn native(&self) -> native::Settings {
        let choice = |is_made: bool, choice: u32| if is_made { choice } else { 0 };
        let part = |part: f64| (part.clamp(0.0, 1.0) * 65_536.0).round() as u32;
        native::Settings {
            repeats: self.repeats.max(1),
            part: part(self.part),
            hold_us: u32::try_from(self.hold.as_micros()).unwrap_or(u32::MAX),
            choices: choice(self.observes == ObservedFlow::Sent, native::OF_SENT)
                | choice(self.keeps_edge, native::KEEPS_EDGE)
                | choice(self.policy == Policy::Delivered, native::DELIVERED)
                | choice(self.watches, native::WATCHES),
            missing: self.missing.max(1),
            step: part(self.step),
            slack: part(self.slack),
            shortest_us: u32::try_from(self.shortest_rtt.as_micros()).unwrap_or(u32::MAX),
        }
    }

    /// The words of `struct ekb_settings`, for the program in the kernel. Values out of their range are clamped to it.
    pub fn words(&self) -> [u32; 8] {
        let settings = self.native();
        let native::Settings { repeats, part, hold_us, choices, missing, step, slack, shortest_us } = settings;
        [repeats, part, hold_us, choices, missing, step, slack, shortest_us]
    }
}
