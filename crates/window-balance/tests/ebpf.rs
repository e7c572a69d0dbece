//! The header is fit for eBPF: clang compiles it, with no call and nothing but integers.

use std::process::Command;

const PROGRAM: &str = r#"
#include "ekiden/window_balance.h"

struct ekb_settings settings;
struct ekb_group group;
struct ekb_stream streams[64];
struct ekb_packet packet;

__attribute__((section("tc"), used)) int balance(void)
{
	ekb_u32 index = packet.seq & 63;

	return (int)ekb_observe(&settings, &group, &streams[index], index, &packet);
}
"#;

#[test]
fn clang_compiles_it_for_ebpf() {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    if Command::new(&clang).arg("--version").output().is_err() {
        println!("skipped: {clang} cannot be run");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("balance.bpf.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let output = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c", "-o"])
        .arg(folder.path().join("balance.bpf.o"))
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg(&source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
