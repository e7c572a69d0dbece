//! Compiles eBPF programs with clang: part of the build scripts of the crates that have some.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Compiles `programs/NAME.bpf.c`, each to an object file of that name in the folder of what is built. `includes` are folders of headers
/// beside libbpf's and the kernel's.
pub fn compile(programs: &[&str], includes: &[&str]) {
    for path in ["programs"].iter().chain(includes) {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let variable = |name: &str| env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let machine = variable("CARGO_CFG_TARGET_ARCH");
    let arguments = match machine.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        "riscv64" => "riscv",
        other => other,
    };
    let big_endian = variable("CARGO_CFG_TARGET_ENDIAN") == "big";
    for program in programs {
        let status = Command::new(&clang)
            .args(["-target", if big_endian { "bpfeb" } else { "bpfel" }])
            // v3: without its 32-bit comparisons the verifier loses bounds that it needs. -g: for the BTF.
            .args(["-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"])
            .args(includes.iter().map(|path| format!("-I{path}")))
            .arg(format!("-D__TARGET_ARCH_{arguments}"))
            // libbpf's own headers, as its crate installs them; the kernel's, where Debian has those of this machine.
            .arg(format!("-I{}", variable("DEP_BPF_INCLUDE")))
            .arg(format!("-I/usr/include/{machine}-linux-gnu"))
            .args(["-c", &format!("programs/{program}.bpf.c"), "-o"])
            .arg(PathBuf::from(variable("OUT_DIR")).join(format!("{program}.bpf.o")))
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("{clang} cannot compile the eBPF program {program}: {status}"),
            Err(error) => panic!("{clang} compiles the eBPF programs, but cannot be run: {error}"),
        }
    }
}
