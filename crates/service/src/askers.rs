//! Programs that ask on a local socket: a few are served at a time, and none of them can delay others for long.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;

/// The maximum number served at a time.
const AT_A_TIME: usize = 64;
/// The number that is accepted without a pause: all that fit into the queue of a socket, 4,096, are through in about 0.1 s.
const BURST: u32 = 64;
/// The pause after that number: a program that connects in a loop takes little of a processor.
const PACE: Duration = Duration::from_millis(1);

/// Those that are served now. Dropping this ends all of them.
#[derive(Debug, Default)]
pub struct Askers {
    /// Their users, and their conversations; the oldest first.
    heard: Vec<(u32, AbortHandle)>,
    /// How many were accepted since the last pause.
    accepted: u32,
}

impl Askers {
    /// Serves one more, of this user. If all places are taken, the oldest asker of the user who has most of them is dropped:
    /// so a user takes places from himself before he takes any from others.
    pub fn hear(&mut self, user: u32, conversation: impl Future<Output = ()> + Send + 'static) {
        self.heard.retain(|(_, task)| !task.is_finished());
        if self.heard.len() >= AT_A_TIME {
            let users: Vec<u32> = self.heard.iter().map(|(user, _)| *user).collect();
            let (_, task) = self.heard.remove(oldest_of_most(&users));
            task.abort();
        }
        self.heard.push((user, tokio::spawn(conversation).abort_handle()));
    }

    /// Waits a moment if many came. To be called after each one, also after one that is not served.
    pub async fn pace(&mut self) {
        self.accepted += 1;
        if self.accepted >= BURST {
            self.accepted = 0;
            sleep(PACE).await;
        }
    }
}

impl Drop for Askers {
    fn drop(&mut self) {
        self.heard.iter().for_each(|(_, task)| task.abort());
    }
}

/// The index of the first asker of the user who has most; among such users, of the one who came first.
fn oldest_of_most(users: &[u32]) -> usize {
    let count = |user: u32| users.iter().filter(|other| **other == user).count();
    // `max_by_key` takes the last of equals.
    let most = (0..users.len()).rev().max_by_key(|&at| count(users[at]));
    most.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn the_oldest_of_whoever_has_most_goes() {
        assert_eq!(oldest_of_most(&[7, 8, 8, 7, 8]), 1);
        assert_eq!(oldest_of_most(&[7, 8, 8, 7]), 0);
        assert_eq!(oldest_of_most(&[7]), 0);
    }

    #[test]
    fn many_of_one_user_take_no_place_of_another() {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (mut askers, honest, crowd) = (Askers::default(), Arc::new(()), Arc::new(()));
            let holds = |of: &Arc<()>| {
                let held = of.clone();
                async move {
                    let _held = held;
                    pending().await
                }
            };
            askers.hear(1, holds(&honest));
            for _ in 0..10 * AT_A_TIME {
                askers.hear(2, holds(&crowd));
                askers.pace().await;
            }
            // Those that were dropped end in turns of their own, in whatever order.
            for _ in 0..10 * AT_A_TIME {
                tokio::task::yield_now().await;
            }
            assert_eq!(Arc::strong_count(&honest), 2, "it is heard still");
            assert_eq!(Arc::strong_count(&crowd), AT_A_TIME);
            drop(askers);
            while Arc::strong_count(&honest) + Arc::strong_count(&crowd) > 2 {
                tokio::task::yield_now().await;
            }
        });
    }
}
