//! Puts the descriptions of experiments, and the scenarios that they name, into the program.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The folders of the project whose TOML files are taken.
const FOLDERS: [&str; 2] = ["reproduce", "scenarios"];

fn main() {
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../..");
    let root = root.canonicalize().expect("the project's folder");
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    let mut text = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&root).expect("below the project's folder");
        let _ =
            writeln!(text, "    ({:?}, include_str!({:?})),", name.display().to_string(), file.display().to_string());
    }
    text += "]\n";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    fs::write(out.join("embedded.rs"), text).expect("the folder for what is built");
}

/// Every TOML file below `folder`.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push(path);
        }
    }
}
