//! FTP: URLs, commands, replies; arbitrary bytes, split anywhere.

use ekiden_relay_proto::ftp::*;
use ekiden_relay_proto::http::ftp::*;
use ekiden_relay_proto::http::{Body, HttpError, Request, parse_request};
use proptest::prelude::*;

fn request(line: &str, fields: &str) -> Result<Request, HttpError> {
    parse_request(format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n").as_bytes(), 64)
}

fn get(url: &str) -> Result<Request, HttpError> {
    request(&format!("GET {url}"), "")
}

/// User, password and path of a URL.
fn words(url: &str) -> (String, String, Option<String>, Form) {
    let Fetch { user, password, path, form, .. } = *get(url).unwrap().ftp.unwrap();
    let text = |word: &Word| String::from_utf8_lossy(word.as_bytes()).into_owned();
    (text(&user), text(&password), path.as_ref().map(text), form)
}

fn replies(bytes: &[u8]) -> Result<Vec<Reply>, ReplyError> {
    let (mut found, mut replies, mut bytes) = (Vec::new(), Replies::default(), bytes.to_vec());
    while let Some(reply) = replies.take(&mut bytes)? {
        found.push(reply);
    }
    Ok(found)
}

fn reply(text: &str) -> Reply {
    let [reply] = replies(format!("{text}\r\n").as_bytes()).unwrap().try_into().unwrap();
    reply
}

#[test]
fn urls_of_every_form() {
    let anonymous = |path: Option<&str>, form| ("anonymous".into(), "ekiden@".into(), path.map(str::to_owned), form);
    assert_eq!(words("ftp://a/pub/file"), anonymous(Some("pub/file"), Form::Image));
    assert_eq!(words("FTP://a/pub%2Ffi%20le;type=A"), anonymous(Some("pub/fi le"), Form::Ascii));
    assert_eq!(words("ftp://a/x;y;type=i"), anonymous(Some("x;y"), Form::Image));
    assert_eq!(words("ftp://a/x;y"), anonymous(Some("x;y"), Form::Image));
    assert_eq!(words("ftp://a/%2Fetc/motd"), anonymous(Some("/etc/motd"), Form::Image));
    assert_eq!(words("ftp://a//etc/motd"), anonymous(Some("/etc/motd"), Form::Image));
    assert_eq!(words("ftp://a/what?"), anonymous(Some("what?"), Form::Image));
    for root in ["ftp://a", "ftp://a/", "ftp://a;type=i"] {
        if root.contains(';') {
            assert_eq!(get(root).unwrap_err().status, 400);
        } else {
            assert_eq!(words(root), anonymous(None, Form::Listing));
        }
    }
    assert_eq!(words("ftp://a//"), anonymous(Some("/"), Form::Listing));
    assert_eq!(words("ftp://a/b/c//"), anonymous(Some("b/c"), Form::Listing));
    assert_eq!(words("ftp://a/b;type=d"), anonymous(Some("b"), Form::Names));
    assert_eq!(words("ftp://a/b/;type=i"), anonymous(Some("b"), Form::Listing));
    let alice = ("al@ice".into(), "se:cret/".into(), Some("f".into()), Form::Image);
    assert_eq!(words("ftp://al%40ice:se:cret%2f@a/f"), alice);
    assert_eq!(words("ftp://bob@a/f").1, "");
    assert_eq!(get("ftp://Example.org/f").unwrap().target.to_string(), "example.org:21");
    assert_eq!(get("ftp://u:p@[::1]:2121/f").unwrap().target.to_string(), "[::1]:2121");
}

#[test]
fn the_user_may_stand_in_the_request() {
    // al:se:cret
    let request = |url: &str| request(&format!("GET {url}"), "Authorization: Basic YWw6c2U6Y3JldA==\r\n").unwrap();
    let fetch = request("ftp://a/f").ftp.unwrap();
    assert_eq!((fetch.user.as_bytes(), fetch.password.as_bytes()), (&b"al"[..], &b"se:cret"[..]));
    let fetch = request("ftp://bob:x@a/f").ftp.unwrap();
    assert_eq!((fetch.user.as_bytes(), fetch.password.as_bytes()), (&b"bob"[..], &b"x"[..]));
    assert!(!format!("{:?} {:?}", request("ftp://bob:x@a/f"), fetch).contains("bob"));
}

#[test]
fn what_is_not_fetched_is_refused() {
    for method in ["PUT", "POST", "DELETE", "OPTIONS"] {
        assert_eq!(request(&format!("{method} ftp://a/f"), "").unwrap_err().status, 405);
    }
    assert_eq!(request("GET ftp://a/f", "Content-Length: 1\r\n").unwrap_err().status, 400);
    for url in
        ["ftp://", "ftp:///f", "ftp://a:0/", "ftp://a/#f", "ftp://a/%", "ftp://a/%4", "ftp://a/%zz", "ftp://a/f;type=x"]
    {
        assert_eq!(get(url).unwrap_err().status, 400, "{url}");
    }
}

#[test]
fn nothing_in_a_url_becomes_a_second_command() {
    for evil in ["%0d%0aDELE%20x", "%0A", "%0d", "%00", "%ff", "%1b", "%7f"] {
        for url in [
            format!("ftp://a/x{evil}"),
            format!("ftp://a/x{evil}/"),
            format!("ftp://u{evil}:p@a/"),
            format!("ftp://u:p{evil}@a/"),
        ] {
            assert_eq!(get(&url).unwrap_err().status, 400, "{url}");
        }
    }
    // "u\r\nDELE x:p" and "u:p\nDELE x"
    for login in ["dQ0KREVMRSB4OnA=", "dTpwCkRFTEUgeA=="] {
        let fields = format!("Authorization: Basic {login}\r\n");
        assert_eq!(request("GET ftp://a/", &fields).unwrap_err().status, 400);
    }
}

#[test]
fn only_the_rest_of_a_file_is_a_range() {
    let offset = |fields: &str| request("GET ftp://a/f", fields).unwrap().ftp.unwrap().offset;
    assert_eq!(offset("Range: bytes=1000-\r\n"), 1000);
    for fields in [
        "",
        "Range: bytes=0-\r\n",
        "Range: bytes=-5\r\n",
        "Range: bytes=1-2\r\n",
        "Range: bytes=1-,3-\r\n",
        "Range: bytes=+1-\r\n",
        "Range: lines=1-\r\n",
        "Range: bytes=99999999999999999999-\r\n",
        "Range: bytes=5-\r\nRange: bytes=6-\r\n",
        "Range: bytes=5-\r\nIf-Range: x\r\n",
    ] {
        assert_eq!(offset(fields), 0, "{fields}");
    }
}

#[test]
fn replies_of_one_and_of_several_lines() {
    let text =
        "220-Welcome\r\n220 is not the end here\n 220 nor here\r\n220-nor\r\n220 now\x1b it is\r\n331\r\n150 x\r\n";
    // RFC 959 §4.2: the first line with the code and a space ends it.
    let found = replies(text.as_bytes());
    assert_eq!(found, Err(ReplyError::Malformed));
    let text = "220-Welcome\r\n221 another\r\n 220 indented\r\n220-more\r\n220 now\x1b it is\r\n331\r\n150 x\r\n";
    let found = replies(text.as_bytes()).unwrap();
    let found: Vec<_> = found.iter().map(|reply| (reply.code, reply.text.as_str())).collect();
    assert_eq!(found, [(220, "now  it is"), (331, ""), (150, "x")]);
    for wrong in ["\r\n", "22\r\n", "2200 x\r\n", "099 x\r\n", "600 x\r\n", "abc x\r\n", "HTTP/1.1 200 OK\r\n"] {
        assert_eq!(replies(wrong.as_bytes()), Err(ReplyError::Malformed), "{wrong}");
    }
    assert_eq!(replies(&[b'2'; 4096]), Err(ReplyError::TooLong));
    assert_eq!(replies(b"220-x\r\n".repeat(10_000).as_slice()), Err(ReplyError::TooLong));
}

#[test]
fn ports_for_data() {
    assert_eq!(reply("229 Entering Extended Passive Mode (|||6446|)").extended_port(), Some(6446));
    assert_eq!(reply("229 fine (!!!65535!)").extended_port(), Some(65535));
    for wrong in ["229 (|||0|)", "229 (|||65536|)", "229 (|||x|)", "229 |||1|", "229 (|||1", "229 (", "227 (|||6446|)"]
    {
        assert_eq!(reply(wrong).extended_port(), None, "{wrong}");
    }
    assert_eq!(reply("227 Entering Passive Mode (10,0,0,1,19,136).").passive_port(), Some(5000));
    assert_eq!(reply("227 at 8, now 10,0,0,1,255,255").passive_port(), Some(65535));
    assert_eq!(reply("227 Entering Passive Mode (10, 0, 0, 1, 19, 136)").passive_port(), Some(5000));
    assert_eq!(reply("227 Entering Passive Mode ( 10 ,0 ,0 ,1 ,19 ,136 )").passive_port(), Some(5000));
    assert_eq!(reply("229 Extended ( ||| 6446 | )").extended_port(), Some(6446));
    for wrong in
        ["227 (1,2,3,4,256,1)", "227 (1,2,3,4,0,0)", "227 (1,2,3,4,5)", "227 1,2,3,4,5,6,7", "227", "229 (1,2,3,4,5,6)"]
    {
        assert_eq!(reply(wrong).passive_port(), None, "{wrong}");
    }
}

#[test]
fn sizes_and_times() {
    assert_eq!(reply("213 1234").size(), Some(1234));
    assert_eq!(reply("213 18446744073709551615").size(), Some(u64::MAX));
    for wrong in ["213 ", "213 -1", "213 +1", "213 18446744073709551616", "550 12", "213 1 2"] {
        assert_eq!(reply(wrong).size(), None, "{wrong}");
    }
    let modified = |text: &str| reply(text).modified();
    // RFC 9110's example, the days around a leap day, and a leap second.
    assert_eq!(modified("213 19941106084937").unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(modified("213 19700101000000.123").unwrap(), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(modified("213 20000229235960").unwrap(), "Tue, 29 Feb 2000 23:59:60 GMT");
    assert_eq!(modified("213 20240301000000").unwrap(), "Fri, 01 Mar 2024 00:00:00 GMT");
    for wrong in
        ["19000229000000", "20230229000000", "20231301000000", "20230100000000", "20230101240000", "2023010100000", "x"]
    {
        assert_eq!(modified(&format!("213 {wrong}")), None, "{wrong}");
    }
}

#[test]
fn what_was_found_is_told_in_http() {
    let request = get("ftp://a/f").unwrap();
    let mut found = Found { form: Form::Image, size: Some(10), offset: 0, modified: Some("yesterday".into()) };
    let head = |found: &Found, request: &Request| String::from_utf8(found.head(request)).unwrap();
    assert_eq!(
        head(&found, &request),
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nLast-Modified: yesterday\r\nAccept-Ranges: bytes\r\n\
         Content-Length: 10\r\n\r\n"
    );
    found.offset = 4;
    assert_eq!(found.body(&request), Body::Length(6));
    let partial = head(&found, &request);
    assert!(partial.starts_with("HTTP/1.1 206 ") && partial.contains("Content-Range: bytes 4-9/10\r\n"), "{partial}");
    let listing = Found { form: Form::Listing, size: None, offset: 0, modified: None };
    assert_eq!(listing.body(&request), Body::Chunked);
    assert!(head(&listing, &request).contains("Transfer-Encoding: chunked\r\n"));
    let old = parse_request(b"GET ftp://a/ HTTP/1.0\r\n\r\n", 4).unwrap();
    assert_eq!(listing.body(&old), Body::UntilEnd);
    assert!(head(&listing, &old).ends_with("Connection: close\r\n\r\n"));
    // It may keep its connection only behind a body whose end it can see.
    let old = parse_request(b"GET ftp://a/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 4).unwrap();
    assert!(!listing.keeps_client(&old) && head(&listing, &old).ends_with("Connection: close\r\n\r\n"));
    assert!(found.keeps_client(&old) && head(&found, &old).ends_with("Connection: keep-alive\r\n\r\n"));
}

proptest! {
    #[test]
    fn any_request_gives_commands_of_one_line(url in "[ -~]{0,40}", escaped in proptest::collection::vec(any::<u8>(), 0..12)) {
        let escaped: String = escaped.iter().map(|byte| format!("%{byte:02x}")).collect();
        for url in [format!("ftp://a/{url}{escaped}"), format!("ftp://{escaped}:{url}@a/"), format!("ftp://{url}{escaped}")] {
            if let Ok(Request { ftp: Some(fetch), .. }) = get(&url) {
                for word in [Some(&fetch.user), Some(&fetch.password), fetch.path.as_ref()] {
                    let line = command("X", word);
                    let (text, end) = line.split_at(line.len() - 2);
                    prop_assert_eq!(end, b"\r\n");
                    prop_assert!(!text.iter().any(|&byte| byte < 32 || byte == 127 || byte == 255));
                }
            }
        }
    }

    #[test]
    fn replies_are_the_same_however_they_arrive(
        lines in proptest::collection::vec("(1[25]0|2[0-9]{2}|[0-9a-z]{3})[ -][ -~]{0,20}\r?\n", 0..8),
        cuts in proptest::collection::vec(0_usize..200, 0..8),
    ) {
        let all = lines.concat().into_bytes();
        let (mut parser, mut buffer, mut found, mut cuts) = (Replies::default(), Vec::new(), Vec::new(), cuts);
        cuts.retain(|&cut| cut <= all.len());
        cuts.sort_unstable();
        cuts.push(all.len());
        let mut at = 0;
        let split = 'all: {
            for cut in cuts {
                buffer.extend(&all[at..cut]);
                at = cut;
                loop {
                    match parser.take(&mut buffer) {
                        Ok(Some(reply)) => found.push(reply),
                        Ok(None) => break,
                        Err(error) => break 'all Err(error),
                    }
                }
            }
            Ok(found)
        };
        prop_assert_eq!(split, replies(&all));
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), digits in "2(13|2[79])[ -][ -~]{0,40}") {
        for reply in replies(&bytes).into_iter().chain(replies(format!("{digits}\r\n").as_bytes())).flatten() {
            let _ = (reply.extended_port(), reply.passive_port(), reply.size(), reply.modified());
            prop_assert!((100..600).contains(&reply.code));
            prop_assert!(!reply.text.chars().any(char::is_control));
        }
    }
}
