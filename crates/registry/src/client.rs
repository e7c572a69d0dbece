//! One request to etcd at a time, to the member that is in use.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::CertificateError;
use rustls::crypto::ring;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::error::RegistryError;
use crate::gateway::{Failure, Line, PERMISSION_DENIED, Token};
use crate::record::brief;
use crate::settings::{Access, Login};

/// The longest answer that is read, in bytes.
pub const ANSWER_MOST: usize = 8 << 20;

/// How long a connection that rests is kept; longer than a third of most leases.
const REST: Duration = Duration::from_secs(120);

/// Speaks with one cluster of etcd.
pub struct Client {
    endpoints: Vec<String>,
    /// Which of them is in use.
    at: usize,
    login: Option<Login>,
    token: Option<String>,
    tls: TlsConfig,
    timeout: Duration,
    agent: Agent,
}

impl Client {
    /// Reads the password and the authorities' certificates. Sends nothing.
    ///
    /// # Errors
    /// If the settings are wrong or a file cannot be used.
    pub fn new(access: &Access) -> Result<Self, RegistryError> {
        access.check()?;
        let login = access.login()?;
        let authorities = access.authorities()?;
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(authorities)))
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .build();
        let agent = agent(&tls, access.timeout, Some(access.timeout));
        Ok(Self { endpoints: access.endpoints.clone(), at: 0, login, token: None, tls, timeout: access.timeout, agent })
    }

    /// The member in use.
    pub fn endpoint(&self) -> &str {
        &self.endpoints[self.at]
    }

    /// How many members there are to try.
    pub fn endpoints(&self) -> usize {
        self.endpoints.len()
    }

    /// etcd's user; empty for none.
    pub fn user(&self) -> &str {
        self.login.as_ref().map_or("", |login| &login.user)
    }

    /// Uses the next member from now on, over new connections.
    pub fn next_endpoint(&mut self) {
        self.at = (self.at + 1) % self.endpoints.len();
        self.agent = agent(&self.tls, self.timeout, Some(self.timeout));
    }

    /// The answer to `request` at `path` below `/v3/`. `what` names it in errors.
    ///
    /// # Errors
    /// If there is none, or none that is one.
    pub fn call<T: DeserializeOwned>(
        &mut self,
        path: &str,
        what: &'static str,
        request: &Value,
    ) -> Result<T, RegistryError> {
        let mut renewed = self.token.is_none();
        loop {
            self.authenticate()?;
            match self.send(path, what, request)? {
                Ok(body) => {
                    return serde_json::from_slice(&body).map_err(|error| self.malformed(what, &error.to_string()));
                }
                Err(failure) if failure.is_of_token() && self.login.is_some() && !renewed => {
                    renewed = true;
                    self.token = None;
                }
                Err(failure) => return Err(self.failed(what, failure)),
            }
        }
    }

    /// The one line of an answer that comes in lines.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_line<T: DeserializeOwned>(
        &mut self,
        path: &str,
        what: &'static str,
        request: &Value,
    ) -> Result<T, RegistryError> {
        match self.call::<Line<T>>(path, what, request)? {
            Line { result: Some(result), .. } => Ok(result),
            Line { error: Some(failure), .. } => Err(self.failed(what, failure)),
            _ => Err(self.malformed(what, "neither a result nor an error")),
        }
    }

    /// Begins an answer that goes on: the agent that ends it, and the answer, of which nothing has been read.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn begin(&mut self, path: &str, what: &'static str, request: &Value) -> Result<(Agent, Body), RegistryError> {
        self.authenticate()?;
        let agent = agent(&self.tls, self.timeout, None);
        let response = self.post(&agent, path, request).map_err(|error| self.unreachable(error))?;
        match response.status().as_u16() {
            200 => Ok((agent, response.into_body())),
            _ => {
                let failure = self.read(response, what).map(|body| Failure::parse(&body))?;
                if failure.is_of_token() {
                    self.token = None;
                }
                Err(self.failed(what, failure))
            }
        }
    }

    /// The error that a failure is, said by this member.
    pub fn failed(&self, what: &'static str, failure: Failure) -> RegistryError {
        let (endpoint, user) = (self.endpoint().to_owned(), self.user().to_owned());
        match failure {
            failure if failure.is_no_user() => RegistryError::NoUser { endpoint },
            failure if failure.code == PERMISSION_DENIED => RegistryError::Denied { endpoint, user, what },
            failure if failure.message.contains("database space exceeded") => RegistryError::NoSpace { endpoint },
            failure => RegistryError::Refused { endpoint, what, message: brief(&failure.message) },
        }
    }

    /// An answer that is none.
    pub fn malformed(&self, what: &'static str, reason: &str) -> RegistryError {
        RegistryError::Malformed { endpoint: self.endpoint().into(), what, reason: brief(reason) }
    }

    /// A new token is asked for before the next request.
    pub fn forget_token(&mut self) {
        self.token = None;
    }

    /// Sees to a token, if there is a user.
    fn authenticate(&mut self) -> Result<(), RegistryError> {
        let (Some(login), None) = (&self.login, &self.token) else { return Ok(()) };
        let request = json!({ "name": login.user, "password": login.password });
        let user = login.user.clone();
        match self.send("auth/authenticate", "a login", &request)? {
            Ok(body) => {
                let token: Token =
                    serde_json::from_slice(&body).map_err(|error| self.malformed("a login", &error.to_string()))?;
                self.token = Some(token.token);
                Ok(())
            }
            Err(failure) if failure.message.contains("authentication is not enabled") => {
                Err(RegistryError::UsersOff { endpoint: self.endpoint().into() })
            }
            Err(failure) if failure.message.contains("authentication failed") => {
                Err(RegistryError::Login { endpoint: self.endpoint().into(), user })
            }
            Err(failure) => Err(self.failed("a login", failure)),
        }
    }

    /// The bytes of an answer, or etcd's reason why there is none.
    fn send(&self, path: &str, what: &'static str, request: &Value) -> Result<Result<Vec<u8>, Failure>, RegistryError> {
        let response = self.post(&self.agent, path, request).map_err(|error| self.unreachable(error))?;
        let is_ok = response.status() == 200;
        let body = self.read(response, what)?;
        Ok(if is_ok { Ok(body) } else { Err(Failure::parse(&body)) })
    }

    fn post(&self, agent: &Agent, path: &str, request: &Value) -> Result<Response<Body>, ureq::Error> {
        let mut post = agent.post(format!("{}/v3/{path}", self.endpoint()));
        if let Some(token) = &self.token {
            post = post.header("Authorization", token);
        }
        post.send(request.to_string())
    }

    fn read(&self, response: Response<Body>, what: &'static str) -> Result<Vec<u8>, RegistryError> {
        let body = response.into_body().into_with_config().limit(ANSWER_MOST as u64).read_to_vec();
        body.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => {
                RegistryError::TooLong { endpoint: self.endpoint().into(), what, most: ANSWER_MOST }
            }
            error => self.unreachable(error),
        })
    }

    /// An error that says that etcd was not reached, or not the etcd that was meant.
    pub fn unreachable(&self, error: ureq::Error) -> RegistryError {
        let endpoint = self.endpoint().to_owned();
        let tls = match &error {
            ureq::Error::Rustls(tls) => Some(tls),
            ureq::Error::Io(error) => tls_error(error),
            _ => None,
        };
        use CertificateError as C;
        match tls {
            Some(rustls::Error::InvalidCertificate(C::Expired | C::ExpiredContext { .. })) => {
                RegistryError::CertificateDate { endpoint, fault: "expired" }
            }
            Some(rustls::Error::InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. })) => {
                RegistryError::CertificateDate { endpoint, fault: "not valid yet" }
            }
            Some(tls @ rustls::Error::InvalidCertificate(_)) => {
                RegistryError::Certificate { endpoint, reason: brief(&tls.to_string()) }
            }
            _ => {
                let reason = match &error {
                    ureq::Error::Timeout(_) => format!("no answer within {} s", self.timeout.as_secs_f64()),
                    ureq::Error::Io(error) => error.to_string(),
                    ureq::Error::HostNotFound => "its name is not known".into(),
                    error => error.to_string(),
                };
                RegistryError::Unreachable { endpoint, reason: brief(&reason) }
            }
        }
    }
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// For requests that are answered within `whole`, or for ever if that is none, once the answer has begun within `timeout`.
fn agent(tls: &TlsConfig, timeout: Duration, whole: Option<Duration>) -> Agent {
    Agent::config_builder()
        .tls_config(tls.clone())
        .timeout_global(whole)
        .timeout_resolve(Some(timeout))
        .timeout_connect(Some(timeout))
        .timeout_send_request(Some(timeout))
        .timeout_send_body(Some(timeout))
        .timeout_recv_response(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // Environment variables do not decide where passwords go.
        .proxy(None)
        .user_agent("")
        .accept("")
        .accept_encoding("")
        .max_response_header_size(16 << 10)
        .input_buffer_size(16 << 10)
        .output_buffer_size(16 << 10)
        .max_idle_connections(1)
        .max_idle_age(REST)
        .build()
        .new_agent()
}
