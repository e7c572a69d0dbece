//! Every quantity is written as it is read.

use ekiden_units::{BitRate, Bytes, Fraction, Time};
use proptest::prelude::*;

#[test]
fn common_spellings_are_read() {
    assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
    assert_eq!("100KB".parse(), Ok(Bytes(100_000)));
    assert_eq!("70Mbit/s".parse(), Ok(BitRate(70_000_000)));
    assert_eq!("2.5 Gbit/s".parse(), Ok(BitRate(2_500_000_000)));
    assert_eq!("12.5ms".parse(), Ok(Time(12_500_000)));
    assert_eq!("0".parse(), Ok(Time(0)));
    assert_eq!("0.1%".parse(), Ok(Fraction(1_000_000)));
    assert_eq!("10ppm".parse(), Ok(Fraction(10_000)));
}

#[test]
fn a_wrong_text_says_what_would_be_right() {
    let message = |text: &str| text.parse::<Bytes>().unwrap_err().to_string();
    for odd in ["1,5GB", "1e9GB", "1GB5", "1h30m"] {
        assert!(message(odd).contains("is not a number with a unit"), "{}", message(odd));
    }
    assert!(message("64").contains("needs one of the units B, KiB"), "{}", message("64"));
    assert!(message("many").contains("such as 64KiB"));
    assert!(message("0.3B").contains("whole number of bytes"));
    assert!("0bit/s".parse::<BitRate>().is_err());
    assert!("101%".parse::<Fraction>().is_err());
    assert!("-5ms".parse::<Time>().is_err());
}

#[test]
fn printing_picks_a_readable_unit() {
    assert_eq!(Bytes(65_536).to_string(), "64KiB");
    assert_eq!(Bytes(100_000).to_string(), "100KB");
    assert_eq!(Time(12_500_000).to_string(), "12.5ms");
    assert_eq!(BitRate(2_048_000).to_string(), "2.048Mbit/s");
    assert_eq!(Fraction(10_000).to_string(), "0.001%");
    assert_eq!(Bytes(0).to_string(), "0B");
}

#[test]
fn the_bandwidth_delay_product_of_the_osaka_path() {
    // S0 chapter 4: 70 Mbit/s × 18 ms is about 160 KB.
    assert_eq!(Bytes::at(BitRate::mbit(70), Time::ms(18)), Bytes(157_500));
    assert_eq!(BitRate::of(Bytes(157_500), Time::ms(18)), Some(BitRate::mbit(70)));
    assert_eq!(BitRate::mbit(70).time_for(Bytes(157_500)), Time::ms(18));
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(n: u64, parts in 0..=1_000_000_000u64) {
        prop_assert_eq!(Bytes(n).to_string().parse(), Ok(Bytes(n)));
        prop_assert_eq!(Time(n).to_string().parse(), Ok(Time(n)));
        prop_assert_eq!(BitRate(n.max(1)).to_string().parse(), Ok(BitRate(n.max(1))));
        prop_assert_eq!(Fraction(parts).to_string().parse(), Ok(Fraction(parts)));
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,40}") {
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<Time>();
        let _ = text.parse::<BitRate>();
        let _ = text.parse::<Fraction>();
    }
}

#[test]
fn rounded_bytes_have_three_digits() {
    let all = [0, 999, 1000, 12_345, 999_499, 999_500, 4_800_000_000, u64::MAX];
    let said = ["0 B", "999 B", "1.00 kB", "12.3 kB", "999 kB", "1.00 MB", "4.80 GB", "18.4 EB"];
    assert_eq!(all.map(|bytes| Bytes(bytes).rounded()), said);
}

#[test]
fn both_letters_that_look_like_mu_are_micro() {
    for text in ["12us", "12\u{b5}s", "12\u{3bc}s"] {
        assert_eq!(text.parse(), Ok(Time(12_000)), "{text}");
    }
}
