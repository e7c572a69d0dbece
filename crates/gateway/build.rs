//! Compiles the gateway's programs, and one for measuring them.

#[path = "../bpf/build/compile.rs"]
mod compile;

fn main() {
    compile::compile(&["gateway", "measure"], &["../window-balance/include"]);
}
