//! `ekiden keygen`: keys for nodes.

use std::path::PathBuf;

use ekiden_keys::{Identity, generate_shared};
use serde_json::json;

use crate::out;

/// No line is longer than a narrow terminal: what is wrapped cannot be copied.
const EXAMPLES: &str = "Examples:
    # prints sha256:...
    ekiden keygen node.key
    # prints it again
    ekiden keygen --show node.key
    # for legs without encryption: the same file on
    # both nodes, as plain_key_file
    ekiden keygen --shared line.key";

/// Make a node's own key, and print the fingerprint by which other nodes know it.
///
/// The key goes into FILE, which only its owner can read and which must not be there yet; the node's configuration names it:
/// key_file = "FILE". The fingerprint is no secret: it goes into the configurations of other nodes (`ekiden peer`). Compare it
/// there with what is printed here, by a way that nobody can change unnoticed.
///
/// docs/design/security.md says what the keys protect.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The key's file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Make nothing: print the fingerprint of the key in FILE.
    #[arg(long)]
    show: bool,
    /// Make a key for nodes to share instead, for legs without encryption. Prints nothing but with --json.
    #[arg(long, conflicts_with = "show")]
    shared: bool,
    /// Print the file and the fingerprint as JSON.
    #[arg(long)]
    json: bool,
}

/// Makes or shows a key. In JSON the file has the name of the configuration's key for it.
pub fn run(args: Args) -> anyhow::Result<()> {
    let file = args.file.display().to_string();
    if args.shared {
        generate_shared(&args.file)?;
        return match args.json {
            true => out::line(serde_json::to_string_pretty(&json!({ "plain_key_file": file }))?),
            false => Ok(()),
        };
    }
    let identity = if args.show { Identity::load(&args.file)? } else { Identity::generate(&args.file)? };
    let fingerprint = identity.fingerprint();
    match args.json {
        true => {
            let shown = json!({ "key_file": file, "fingerprint": fingerprint.to_string() });
            out::line(serde_json::to_string_pretty(&shown)?)
        }
        false => out::line(fingerprint),
    }
}
