//! Measures with a plain iperf3 server: `cargo run -p ekiden-measure --example iperf3 -- HOST[:PORT] [send|receive|both] [STREAMS] [SECONDS]`.

use std::time::Duration;

use ekiden_measure::iperf3::{Direction, Settings, Until, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut settings = Settings::new(&arguments.next().ok_or("name a server")?);
    settings.direction = match arguments.next().as_deref() {
        None | Some("send") => Direction::Send,
        Some("receive") => Direction::Receive,
        Some("both") => Direction::Both,
        Some(other) => return Err(format!("no direction: {other}").into()),
    };
    if let Some(streams) = arguments.next() {
        settings.streams = streams.parse()?;
    }
    if let Some(seconds) = arguments.next() {
        settings.until = Until::Time(Duration::from_secs_f64(seconds.parse()?));
    }
    println!("{:#?}", run(&settings, &mut |_| {})?);
    Ok(())
}
