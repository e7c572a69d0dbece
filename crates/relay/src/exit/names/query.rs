//! One query to a name server: by UDP, and by TCP if the answer is truncated. It has one descriptor at a time, and none when it
//! is over or given up: the resolver's own connections would stay open.

use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, ProtocolConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::udp::UdpClientStream;
use hickory_resolver::net::xfer::{DnsHandle, DnsRequestSender, DnsResponseStream, FirstAnswer};
use hickory_resolver::proto::op::{DnsRequest, DnsResponse};
use hickory_resolver::{ConnectionProvider, PoolContext};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::sockets::Sockets;
use super::{lenient, tells_of_descriptors};

/// How many sockets a query by UDP has at the same time: the same one sends it again.
const SOCKETS: u8 = 1;

/// Tells the resolver how a query is made.
#[derive(Clone)]
pub(super) struct Queries(pub(super) Sockets);

/// A name server.
#[derive(Clone)]
pub(super) struct Asked {
    by_tcp_alone: bool,
    /// The timeout of its answer by UDP, and of that by TCP.
    limit: Duration,
    sockets: Sockets,
}

impl ConnectionProvider for Queries {
    type Conn = Asked;
    type FutureConn = Ready<Result<Asked, NetError>>;
    type RuntimeProvider = Sockets;

    fn new_connection(
        &self,
        _: IpAddr,
        config: &ConnectionConfig,
        context: &PoolContext,
    ) -> Result<Self::FutureConn, NetError> {
        Ok(ready(Ok(Asked {
            by_tcp_alone: matches!(config.protocol, ProtocolConfig::Tcp),
            limit: context.options.timeout,
            sockets: self.0.clone(),
        })))
    }

    fn runtime_provider(&self) -> &Sockets {
        &self.0
    }
}

impl DnsHandle for Asked {
    type Response = DnsResponseStream;
    type Runtime = Sockets;

    fn send(&self, request: DnsRequest) -> DnsResponseStream {
        let asked = self.clone();
        Box::pin(async move { asked.ask(request).await }).into()
    }
}

impl Asked {
    async fn ask(&self, request: DnsRequest) -> Result<DnsResponse, NetError> {
        if self.by_tcp_alone {
            return self.by_tcp(&request).await;
        }
        let by_udp = UdpClientStream::builder(self.sockets.server, self.sockets.clone());
        let mut by_udp = by_udp.with_timeout(Some(self.limit)).with_max_retries(SOCKETS).build();
        let answer = by_udp.send_message(request.clone()).first_answer().await?;
        if !answer.truncation {
            return Ok(answer);
        }
        match self.by_tcp(&request).await {
            // The server can be reached, by UDP.
            Err(NetError::Io(error)) if !tells_of_descriptors(&error) => {
                Err(format!("no answer by TCP: {error}").into())
            }
            Err(NetError::Timeout) => Err("no answer by TCP in time".into()),
            other => other,
        }
    }

    async fn by_tcp(&self, request: &DnsRequest) -> Result<DnsResponse, NetError> {
        let query = request.to_vec()?;
        let length = u16::try_from(query.len()).map_err(|_| NetError::from("a query of more than 65535 bytes"))?;
        let exchange = async {
            let mut stream = TcpStream::connect(self.sockets.server).await?;
            // The kernel would keep the port for a minute, and one name server has few of them.
            SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            stream.write_all(&[&length.to_be_bytes(), &query[..]].concat()).await?;
            loop {
                let mut answer = vec![0; stream.read_u16().await?.into()];
                stream.read_exact(&mut answer).await?;
                if answer.starts_with(&request.id.to_be_bytes()) {
                    return io::Result::Ok(answer);
                }
            }
        };
        let answer = timeout(self.limit, exchange).await.map_err(|_| NetError::Timeout)??;
        Ok(DnsResponse::from_buffer(lenient::readable(&answer, lenient::BY_TCP))?)
    }
}
