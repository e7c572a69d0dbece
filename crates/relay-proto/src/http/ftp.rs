//! What a proxy that fetches by FTP is asked, and tells its HTTP client: RFC 1738 §3.2 (URLs).

mod found;
mod url;

pub use found::Found;
pub use url::{Fetch, Form};
