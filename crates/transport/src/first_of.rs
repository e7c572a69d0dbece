//! The first of several futures that are kept in a list.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// The first of these whose `future` completes, and which it was. It never completes if there is none.
pub async fn first_of<T, F: Future + ?Sized>(
    running: &mut [T],
    future: impl for<'a> Fn(&'a mut T) -> Pin<&'a mut F>,
) -> (usize, F::Output) {
    poll_fn(|cx| {
        for (number, one) in running.iter_mut().enumerate() {
            if let Poll::Ready(done) = future(one).poll(cx) {
                return Poll::Ready((number, done));
            }
        }
        Poll::Pending
    })
    .await
}

/// The same, which is one of them no more.
pub async fn take_first_of<T, F: Future + ?Sized>(
    running: &mut Vec<T>,
    future: impl for<'a> Fn(&'a mut T) -> Pin<&'a mut F>,
) -> (T, F::Output) {
    let (number, done) = first_of(running, future).await;
    (running.remove(number), done)
}
