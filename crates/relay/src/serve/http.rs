//! The HTTP proxy: requests one after another on a client's connection, each to its own origin, until the client
//! closes or asks for a tunnel.

mod body;
mod exchange;
mod ftp;
mod head;
mod origin;

use std::pin::pin;
use std::sync::Arc;

use ekiden_relay_proto::http::{Body, Chunked, HttpError, Request, parse_request, status_message};
use ekiden_relay_proto::mixup::Spoken;
use ekiden_relay_proto::{Failure, Target};
use ekiden_transport::Connection;
use ekiden_transport::budget::Holding;
use tokio::time::timeout;

use self::exchange::{Exchange, Sent, gone};
use self::origin::{Origin, finish};
use super::caller::Caller;
use super::departure::{ClientEof, unless_client_leaves};
use super::failed::Asked;
use super::login::{self, Login};
use super::secure::Secured;
use super::timeouts::{LINGER, end_first, left};
use super::{Stream, class_of, user_quota};
use crate::access::logins::Crowded;
use crate::access::quota::{ClientKey, QuotaGuard};
use crate::config::{Config, Limits, Listener, ListenerKind, Reply};
use crate::overlay::Arrival;
use crate::peer::Early;
use crate::reach::{self, Destination, Upstream, is_allowed, reach};
use crate::serve::http::body::Reader;
use crate::shared::Current;
use crate::shared::Node;
use crate::stream::{Broken, Expiry, Framing, Output, PumpError, Side};

/// The largest head that is sent along with OPEN: any receive buffer takes it.
const EARLY_HEAD: usize = 2048;

/// What the client is told of a failure.
fn refused(failure: Failure) -> Failed {
    Failed::Tell(failure.code.http_status(), failure.text)
}

/// A client's connection.
struct Client<'a> {
    node: &'a Arc<Node>,
    caller: Caller,
    /// Its listener, as the configuration in force has it ...
    listener: Arc<Listener>,
    /// ... and the channel that tells of changes.
    current: Current,
    /// The number of the configuration under which the last request was read.
    generation: u64,
    limits: Limits,
    stream: Connection,
    secured: Secured,
    reader: Reader,
    /// Counts it among the connections of the user who made the last request.
    user: Option<Box<QuotaGuard<String>>>,
    /// The memory of its last request's head, in the budget.
    heads: Holding,
    /// Whether one of its requests was admitted.
    is_known: bool,
}

/// How a request ended.
enum Outcome {
    /// The client's connection goes on; perhaps the origin's does too.
    Next(Option<Box<Origin>>),
    /// The response is complete and was the last.
    Close,
}

/// Why a request was not completed.
enum Failed {
    /// The client must be told: nothing of a response was sent.
    Tell(u16, String),
    /// The client speaks another protocol.
    Mixup(Spoken),
    /// The kept connection to the origin was closed before a response, and the request may be sent again.
    Again,
    /// The origin's connection broke.
    Lost(PumpError),
    /// The client's connection must be reset: a response was begun, or the client itself is gone.
    Reset(PumpError),
}

/// How a client's connection ends.
enum Last {
    /// All that it asked for was answered.
    Answered,
    /// It is sent an error. The flag tells whether the request was HEAD.
    Refused(u16, String, bool),
    /// It is told in its own protocol that this listener speaks another.
    Mixup(Spoken),
    /// It is reset.
    Broken,
}

/// Serves requests. Returns the stream of a tunnel, if the client asked for one.
pub(super) async fn prepare(
    node: &Arc<Node>,
    listener: Arc<Listener>,
    current: Current,
    (stream, secured): (Connection, Secured),
    caller: Caller,
) -> Option<Stream> {
    let (generation, limits) = (node.generation(), node.config().limits.clone());
    let (reader, heads) = (Reader::new(Framing::Raw), Holding::default());
    let mut client = Client {
        node,
        caller,
        listener,
        current,
        generation,
        limits,
        stream,
        secured,
        reader,
        user: None,
        heads,
        is_known: false,
    };
    let mut origin = None;
    let mut is_first = true;
    let mut busy = None;
    let last = loop {
        let head = match client.head(is_first).await {
            Ok(Some(head)) => head,
            Ok(None) => break Last::Answered,
            Err(Failed::Tell(status, text)) => break Last::Refused(status, text, false),
            Err(Failed::Mixup(spoken)) => break Last::Mixup(spoken),
            Err(_) => break Last::Broken,
        };
        is_first = false;
        client.heads.set(head.capacity());
        let request = match client.admit(&head).await {
            Ok(request) => request,
            Err(HttpError { status, reason }) => break Last::Refused(status, reason.into(), false),
        };
        let is_first = !std::mem::replace(&mut client.is_known, true);
        drop(head);
        client.heads.set(request.head.capacity());
        if request.is_connect {
            finish(node, origin.take());
            let mut stream = client.tunnel(request).await?;
            // Answers to earlier requests may wait for room.
            stream.client.was_sent_little &= is_first;
            return Some(stream);
        }
        busy = Some(node.begin());
        let done = match (&request.ftp, &request.answer) {
            (Some(fetch), _) => {
                finish(node, origin.take());
                Box::pin(client.fetch(&request, fetch)).await
            }
            (None, Some(answer)) => client.answer(&request, answer, origin.take()).await,
            (None, None) => client.forward(&request, origin.take()).await,
        };
        match done {
            Ok(Outcome::Next(kept)) => origin = kept.map(|kept| *kept),
            Ok(Outcome::Close) => {
                end_first(&client.stream).await;
                break Last::Answered;
            }
            Err(Failed::Tell(status, text)) => break Last::Refused(status, text, request.is_head),
            Err(Failed::Reset(error)) => {
                tracing::debug!("http to {}: reset: {error}", request.target);
                break Last::Broken;
            }
            Err(Failed::Again | Failed::Lost(_) | Failed::Mixup(_)) => break Last::Broken,
        }
        busy = None;
    };
    // The origin takes all of the requests that it was sent, whatever became of the client.
    finish(node, origin);
    match last {
        Last::Answered => client.end().await,
        Last::Refused(status, text, is_head) => client.refuse(status, &text, is_head).await,
        Last::Mixup(spoken) => client.turn_away(spoken).await,
        Last::Broken => {}
    }
    drop(busy);
    None
}

impl Client<'_> {
    /// Adopts the configuration in force. False if the listener was removed, or asks its clients for something else than this one showed.
    fn renew(&mut self) -> bool {
        let generation = self.node.generation();
        if generation != self.generation {
            (self.generation, self.limits) = (generation, self.node.config().limits.clone());
        }
        self.listener = self.current.borrow().clone();
        self.current.has_changed().is_ok()
            && matches!(self.listener.kind, ListenerKind::Http { .. } | ListenerKind::Mixed { .. })
            && self.secured.is_taken_by(&self.listener)
    }

    /// Parses the head and checks the user, both by the configuration in force: it may have changed since the last request.
    async fn admit(&mut self, head: &[u8]) -> Result<Request, HttpError> {
        loop {
            self.node.settled().await;
            if !self.renew() {
                let reason = match self.secured.is_taken_by(&self.listener) {
                    true => "this proxy does not listen here any more",
                    false => {
                        "what this proxy asks of its clients by TLS has changed since this connection began: connect again"
                    }
                };
                return Err(HttpError { status: 503, reason });
            }
            let mut request = parse_request(head, self.limits.http_fields as usize)?;
            // Also of an answer that this node makes itself.
            request.keep_alive &= !self.node.is_stopping();
            self.log_in(&request).await?;
            // The configuration may have changed while the login waited.
            if self.generation == self.node.generation() {
                return Ok(request);
            }
        }
    }

    /// Checks the user, if the listener has users.
    async fn log_in(&mut self, request: &Request) -> Result<(), HttpError> {
        if login::users(&self.listener).is_none() {
            return match self.secured.user.clone() {
                Some(user) => self.counts_for(user.as_bytes()),
                None => {
                    self.user = None;
                    Ok(())
                }
            };
        }
        let Some(credentials) = request.credentials.as_deref() else {
            return Err(HttpError { status: 407, reason: "user and password of the proxy are needed" });
        };
        let colon = credentials.iter().position(|&b| b == b':').unwrap_or(credentials.len());
        let (user, password) = (&credentials[..colon], credentials.get(colon + 1..).unwrap_or_default());
        // A client that has ended its side may still wait for the answer.
        let leaves = left(&self.stream, false);
        let login = login::check(self.node, &self.listener, self.caller, (user, password), leaves);
        match timeout(self.limits.handshake, login).await {
            Ok(Login::Right) => {}
            Ok(Login::Wrong | Login::Left) => {
                return Err(HttpError { status: 407, reason: "wrong user or password for the proxy" });
            }
            Ok(Login::Refused(Crowded::Client)) => {
                return Err(HttpError { status: 429, reason: "too many logins from this address wait to be checked" });
            }
            Ok(Login::Refused(Crowded::Node | Crowded::NoThread)) | Err(_) => {
                return Err(HttpError { status: 503, reason: "too many logins wait to be checked, try again later" });
            }
        }
        self.counts_for(user)
    }

    /// Counts the connection for the user who makes the request.
    fn counts_for(&mut self, user: &[u8]) -> Result<(), HttpError> {
        if self.user.as_ref().is_none_or(|place| place.key().as_bytes() != user) {
            self.user = user_quota(self.node, user);
        }
        match self.user {
            Some(_) => Ok(()),
            None => Err(HttpError {
                status: 429,
                reason: "this user has as many connections as limits.user_connections and limits.user_rate allow",
            }),
        }
    }

    /// A destination that the client asks for.
    fn destination<'b>(&'b self, config: &'b Config, target: &'b Target) -> Destination<'b> {
        let user = self.user.as_ref().map(|user| user.key().as_str());
        Destination::asked(target).asked_by(self.caller.asker()).of_class(class_of(config, &self.listener, user))
    }

    async fn tunnel(mut self, request: Request) -> Option<Stream> {
        const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
        let busy = self.node.begin();
        let first = std::mem::take(&mut self.reader.buffer);
        let is_early = self.listener.reply == Reply::Early && is_allowed(self.node, &request.target);
        if is_early {
            Output::raw(&self.stream).write(ESTABLISHED).await.ok()?;
        }
        let early = if is_early && first.is_empty() { Early::Host(&self.stream) } else { Early::Nothing };
        // A tunnel's client that ends its side has closed the tunnel (RFC 9110 §9.3.6), unless it sent something into it.
        let eof = if is_early || !first.is_empty() { ClientEof::HalfClose } else { ClientEof::Leaves };
        let config = self.node.config();
        let asked = Box::new(Asked::new(self.caller.address(), "http tunnel", &request.target));
        let reaching = reach(self.node, self.destination(&config, &request.target), early);
        let reached = unless_client_leaves(&self.stream, eof, pin!(reaching)).await;
        let upstream = match reached {
            Ok(upstream) => upstream,
            Err(failure) => {
                asked.log_failure(self.node, &failure);
                // A client that was told of success already is reset.
                drop(first);
                if !is_early {
                    self.refuse(failure.code.http_status(), &failure.text, false).await;
                }
                return None;
            }
        };
        if !is_early {
            Output::raw(&self.stream).write(ESTABLISHED).await.ok()?;
        }
        Some(Stream::new(busy, self.stream, upstream, first, asked).of(self.user))
    }

    /// Answers a request that goes no further than this node.
    async fn answer(&self, request: &Request, answer: &[u8], kept: Option<Origin>) -> Result<Outcome, Failed> {
        Output::raw(&self.stream).write(answer).await.map_err(Failed::Reset)?;
        if request.keep_alive {
            return Ok(Outcome::Next(kept.map(Box::new)));
        }
        finish(self.node, kept);
        Ok(Outcome::Close)
    }

    /// Forwards one request, and its response.
    async fn forward(&mut self, request: &Request, kept: Option<Origin>) -> Result<Outcome, Failed> {
        if let Some(mut origin) = kept {
            let config = self.node.config();
            let class = reach::class_of(&config, self.destination(&config, &request.target));
            let is_same = origin.target == request.target && origin.upstream.class.as_deref() == class;
            // It may end while the stream waits for its turn.
            if is_same && origin.is_fresh(self.node) {
                let turn = origin.upstream.take_turn(self.node);
                unless_client_leaves(&self.stream, ClientEof::HalfClose, pin!(turn)).await.map_err(refused)?;
            }
            if is_same && origin.is_fresh(self.node) {
                match self.exchange(request, origin, false, true).await {
                    Err(Failed::Again) => {}
                    other => return other,
                }
            } else {
                finish(self.node, Some(origin));
            }
        }
        let generation = self.node.generation();
        // Every node on the way may send early payload twice.
        let may_be_early = request.is_idempotent && request.head.len() <= EARLY_HEAD;
        let early = if may_be_early { Early::Repeatable(&request.head) } else { Early::Nothing };
        let config = self.node.config();
        let reaching = reach(self.node, self.destination(&config, &request.target), early);
        let reached = unless_client_leaves(&self.stream, ClientEof::HalfClose, pin!(reaching)).await;
        let upstream = reached.map_err(|failure| {
            Asked::new(self.caller.address(), "http", &request.target).log_failure(self.node, &failure);
            refused(failure)
        })?;
        let is_sent = upstream.took_early;
        let reader = Reader::new(upstream.side.framing);
        let origin = Origin { target: request.target.clone(), upstream, reader, generation };
        self.exchange(request, origin, is_sent, false).await
    }

    async fn exchange(
        &mut self,
        request: &Request,
        mut origin: Origin,
        is_sent: bool,
        is_kept: bool,
    ) -> Result<Outcome, Failed> {
        let holder = (self.caller.address().ip().into(), self.user.as_ref().map(|user| user.key().as_str()));
        let connections = [&mut self.stream, &mut origin.upstream.side.stream];
        self.node.bandwidth.pace(connections, holder, (&self.limits).into()).await;
        let leg = origin.upstream.leg();
        // The exit's counts are those of the stream, from its first exchange on.
        let arrival = if is_kept { None } else { origin.upstream.arrival(self.node, false) };
        let Origin { upstream: Upstream { side, peer, .. }, reader, .. } = &mut origin;
        reader.came = arrival.as_ref().map(Arrival::came);
        let asked = Asked::new(self.caller.address(), "http", &request.target);
        let lost = |error, has_begun| {
            let broken = Broken { error, is_beyond: true };
            asked.log_broken(self.node, peer.as_deref(), &broken);
            if has_begun { Failed::Reset(broken.error) } else { gone(&broken.error) }
        };
        let watched = leg.map(|leg| self.node.overlay.watch(side.stream.socket(), &leg));
        let can_repeat = is_kept && request.is_idempotent && request.body == Body::Length(0);
        // An origin may end a kept connection when the next request is on its way. A client repeats a request on its own
        // kept connection if that ends without an answer (RFC 9112 §9.3.1); after a 502 it does not.
        let unanswered = |error| {
            let has_its_reason =
                matches!(error, PumpError::Malformed(_) | PumpError::Expired(_) | PumpError::Protocol(_));
            let is_end = matches!(error, PumpError::Truncated);
            let failed = lost(error, false);
            match is_kept && !has_its_reason {
                true => Ok(Outcome::Close),
                false if is_end => {
                    let wrong = "the origin closed the connection without a response";
                    asked.log_answer(self.node, wrong);
                    Err(Failed::Tell(502, wrong.into()))
                }
                false => Err(failed),
            }
        };
        if !is_sent && let Err(error) = side.output().write(&request.head).await {
            return if can_repeat { Err(Failed::Again) } else { unanswered(error) };
        }
        let chunked = Chunked::new(false).without(&request.listed);
        let sending = self.reader.pass_body(request.body, chunked, &self.stream, side.output());
        let exchange = Exchange::new(self.node, request, &self.stream, &self.limits);
        let exchanged = exchange.attended(exchange.both(sending, reader, &side.stream, can_repeat)).await;
        drop((watched, arrival));
        let exchanged = match exchanged {
            // A part of a response, or an interim one, says that the request was heard.
            Err(Failed::Lost(error)) if !exchange.has_begun() && !exchange.is_heard() && reader.buffer.is_empty() => {
                return unanswered(error);
            }
            other => other,
        };
        let (response, sent) = exchanged.map_err(|failed| match failed {
            // This is an error of the request's body: that of a response comes only after the response has begun.
            Failed::Reset(PumpError::Malformed(reason)) if !exchange.has_begun() => Failed::Tell(400, reason.into()),
            Failed::Lost(error) => lost(error, exchange.has_begun()),
            Failed::Tell(502, wrong) => {
                asked.log_answer(self.node, &wrong);
                Failed::Tell(502, wrong)
            }
            other => other,
        })?;
        match sent {
            Sent::All if response.keeps_client => {}
            Sent::All => {
                finish(self.node, Some(origin));
                return Ok(Outcome::Close);
            }
            // The kernel reports an error of a connection only once. The writer has got it, so the reader has seen an end that
            // may be false.
            Sent::Broken if response.body == Body::UntilEnd => return Err(lost(PumpError::Truncated, true)),
            Sent::Part | Sent::Broken => return Ok(Outcome::Close),
        }
        // Others may use the leg while the client has nothing to ask.
        origin.upstream.turn = None;
        let serves_on = response.keeps_origin && origin.reader.is_quiet() && !origin.reader.has_ended();
        let (kept, done) = if serves_on { (Some(origin), None) } else { (None, Some(origin)) };
        finish(self.node, done);
        Ok(Outcome::Next(kept.map(Box::new)))
    }

    /// Ends the connection once the client has received all responses, or the limits pass.
    async fn end(mut self) {
        self.let_go();
        let Self { node, stream, .. } = self;
        if let Err(late) = Side::host(stream).end_if_sent() {
            let _busy = node.begin();
            late.deliver(&mut Expiry::new(&node.config().limits)).await;
        }
    }

    /// Sends the client an error, and ends the connection.
    async fn refuse(self, status: u16, text: &str, is_head: bool) {
        if status == 400 {
            let (from, key) = (self.caller.address(), ClientKey::from(self.caller.address().ip()));
            self.node.lines.info("malformed", key, format_args!("http: {from} is refused: {text}"));
        }
        let mut message = status_message(status, text);
        if is_head {
            message.truncate(message.len() - text.len() - 1);
        }
        self.say_last(&message).await;
    }

    /// Sends the client a last message, and ends the connection. If a request of the client was admitted, it may still have
    /// earlier answers to receive: then this waits for the client, otherwise not.
    async fn say_last(mut self, message: &[u8]) {
        self.let_go();
        if !timeout(self.limits.handshake, Output::raw(&self.stream).write(message))
            .await
            .is_ok_and(|sent| sent.is_ok())
        {
            return;
        }
        end_first(&self.stream).await;
        match self.is_known {
            true => self.end().await,
            false => self.stream.end_cleanly(),
        }
    }

    /// Frees what was read, because the rest of the connection may take long.
    fn let_go(&mut self) {
        self.reader = Reader::new(Framing::Raw);
        self.heads.set(0);
    }
}
