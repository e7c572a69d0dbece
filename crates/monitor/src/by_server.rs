//! Measures a target whose server is `ekiden measure server`.

use std::time::Duration;

use ekiden_diagnosis::outcome::told;
use ekiden_keys::{Fingerprint, Identity};
use ekiden_measure::client::{Server, measure};
use ekiden_measure::{Error, patiently};
use ekiden_measure_proto::message::Trace;
use ekiden_measure_proto::settings::Asked;
use ekiden_record::{LoadSettings, Way};
use ekiden_transport::{Prepared, Security};

use crate::{Direction, Failure, Measured, Target};

/// The number of attempts, and the pause between them, if a server measures for another monitor.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_secs(10);

/// Measures once; `identity` is this monitor's key.
///
/// # Errors
/// Why nothing was measured, as one line.
pub fn by_server(
    target: &Target,
    address: &str,
    fingerprint: Fingerprint,
    identity: &Identity,
) -> Result<Measured, Failure> {
    let known = Some(fingerprint);
    let security = Security::Tls { identity: identity.clone(), known, prepared: Prepared::default() };
    let server = Server { name: address.into(), security: Some(security), via: target.via.clone() };
    let way = match target.direction {
        Direction::Receive => Way::Back,
        Direction::Send => Way::Forth,
    };
    let settings = LoadSettings {
        ways: vec![way],
        streams: target.streams,
        duration_us: Some(target.duration.0 / 1_000),
        bytes: Some(target.bytes.0),
        ..Asked::default().get().clone()
    };
    let failed = |error: Error| Failure(error.to_string());
    let asked = Asked::new(settings).map_err(|why| failed(Error::Settings(why)))?;
    let measured = patiently(TRIES, PAUSE, || measure(&server, &asked, Trace::No, &mut |_| {})).map_err(failed)?;
    let (loads, latency) = told(&asked, &measured).map_err(Error::from).map_err(failed)?;
    let load = loads.into_iter().next().ok_or_else(|| Failure("the server told nothing of the load".into()))?;
    let is_direct = target.via.is_none();
    let us = |us: f64| (us > 0.0).then_some(us as u64);
    Ok(Measured {
        received_bit_s: load.goodput_bit_s,
        received_bytes: load.bytes,
        duration_us: load.duration_us,
        // Probes pass the whole path, through a listener, too.
        rtt_base_us: us(latency.idle.min_us),
        rtt_loaded_us: us(latency.loaded.p50_us),
        retransmits: Some(load.retransmits).filter(|_| is_direct),
        shares: load.shares.filter(|_| is_direct),
    })
}
