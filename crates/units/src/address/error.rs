//! Why a text is no address, and what would be one.

/// Why a text is no host, or no host with a port. A sentence that names the text and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is no host.
    #[error("'{0}': a host is missing, as in 192.0.2.1:7000")]
    NoHost(String),
    /// It is a URL, or what stands in one.
    #[error("'{text}': give HOST:PORT without {more}, as in {rest}")]
    Url {
        /// The text.
        text: String,
        /// What is too much.
        more: String,
        /// The text without it.
        rest: String,
    },
    /// Neither an address nor a possible name.
    #[error("'{0}' is not an address or a host name")]
    Host(String),
    /// It has digits, dots and hyphens alone, and is no IPv4 address.
    #[error(
        "'{0}' is no IPv4 address: write four numbers from 0 to 255, as in 192.0.2.1; no host name has digits alone"
    )]
    Number(String),
    /// A name, where only an address of this host will do.
    #[error("'{0}' is not an address and port, such as 127.0.0.1:7000: where to listen is no name")]
    Name(String),
    /// A port with no address, where to listen.
    #[error(
        "'{text}': write 0.0.0.0:{port} for all IPv4 addresses of this host, [::]:{port} for IPv6, or 127.0.0.1:{port} for this host alone"
    )]
    AnyHost {
        /// The text.
        text: String,
        /// The port in it.
        port: u16,
    },
    /// It has brackets where none belong, or none where they are needed.
    #[error("'{text}': write {right}; only IPv6 addresses are in brackets, and with a port they must be")]
    Brackets {
        /// The text.
        text: String,
        /// As it is to be written.
        right: String,
    },
    /// A zone as it stands in a URL.
    #[error(
        "'{text}': write {right}; %25 stands for % in URLs only (give an interface whose name begins with 25 by its number)"
    )]
    UrlZone {
        /// The text.
        text: String,
        /// As it is to be written.
        right: String,
    },
    /// An address that each link has for itself, without the link.
    #[error("'{text}' counts on one interface only: write {right} with its name, as `ip -brief link` shows it")]
    NoZone {
        /// The text.
        text: String,
        /// As it is to be written.
        right: String,
    },
    /// There is no port, and one is needed.
    #[error("'{0}' needs a port from 1 to 65535, as in {example}:80", example = if .0.is_empty() { "example.org" } else { .0 })]
    NoPort(String),
    /// An IPv6 address without brackets, where a port is needed.
    #[error("'{text}' is an IPv6 address without a port: write [{text}]:PORT{}", also(or.as_deref()))]
    Bare {
        /// The text.
        text: String,
        /// What it would be if its last number were the port.
        or: Option<String>,
    },
    /// An IPv6 address without brackets whose last number may be a port.
    #[error("'{text}' can be read in two ways: write [{text}] for the address without a port, or {or}")]
    Ambiguous {
        /// The text.
        text: String,
        /// With its last number as the port.
        or: String,
    },
    /// The port is no number from 1 to 65535.
    #[error("'{text}': the port must be a number from 1 to 65535, not '{port}'")]
    Port {
        /// The text.
        text: String,
        /// What stands where the port should.
        port: String,
    },
}

fn also(other: Option<&str>) -> String {
    other.map_or(String::new(), |other| format!(", or {other} if that is what the last number is"))
}
