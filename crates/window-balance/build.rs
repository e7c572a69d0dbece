//! Compiles the header natively.

fn main() {
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rerun-if-changed=src/native.c");
    cc::Build::new()
        .file("src/native.c")
        .include("include")
        .std("c11")
        .flag("-O2")
        .warnings_into_errors(true)
        .compile("ekiden-window-balance");
}
