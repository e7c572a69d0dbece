//! Compiles the programs of congestion controls.

#[path = "build/compile.rs"]
mod compile;

fn main() {
    compile::compile(&["congestion", "far"], &["../congestion/include"]);
}
