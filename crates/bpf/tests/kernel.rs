use ekiden_bpf::*;
use ekiden_congestion::*;
fn main() {
    let t = std::time::Instant::now();
    let held = match hold(&Algorithm::LOADABLE, &Settings::default()) {
        Ok(h) => h,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(1)
        }
    };
    eprintln!(
        "{:?} {}",
        t.elapsed(),
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
    );
    for h in &held {
        eprintln!("{} {} {:?}", h.algorithm(), h.id(), h.settings().unwrap() == Settings::default());
    }
    let mut tr = Trace::start(&held, Level::Rounds).unwrap();
    let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let a = l.local_addr().unwrap();
    let j = std::thread::spawn(move || {
        let (mut s, _) = l.accept().unwrap();
        std::io::copy(&mut s, &mut std::io::sink()).unwrap()
    });
    let s = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    s.set_tcp_congestion(b"ekiden_ghstcp").unwrap();
    s.connect(&a.into()).unwrap();
    let mut s: std::net::TcpStream = s.into();
    use std::io::Write;
    for _ in 0..1000 {
        s.write_all(&[0; 65536]).unwrap();
    }
    drop(s);
    eprintln!("{}", j.join().unwrap());
    let mut n = 0;
    for _ in 0..3 {
        for e in tr.poll(std::time::Duration::from_millis(200)).unwrap() {
            n += 1;
            if n < 10 {
                eprintln!("{e:?}");
            }
        }
    }
    eprintln!("{n} lost {}", tr.lost().unwrap());
}
