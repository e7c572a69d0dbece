//! `ekiden congestion status`.

use ekiden_bpf::{is_pinned, registered};
use ekiden_congestion::{Algorithm, CongestionParameters, Parameter};
use serde_json::{Map, Value, json};

use super::kernel;
use crate::out;

/// Shows what is in the kernel.
pub fn run(json: bool) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for algorithm in Algorithm::LOADABLE {
        all.push(KernelStatus::read(algorithm)?);
    }
    match json {
        true => out::line(serde_json::to_string_pretty(&all.iter().map(KernelStatus::json).collect::<Vec<_>>())?),
        false => out::text(all.iter().map(KernelStatus::text).collect::<String>()),
    }
}

struct KernelStatus {
    algorithm: Algorithm,
    pinned: bool,
    /// The kernel's number of it, if it is registered.
    id: Option<u32>,
    /// Why the parameters cannot be read, if they cannot.
    settings: Option<Result<CongestionParameters, String>>,
    holders: Vec<String>,
}

impl KernelStatus {
    fn read(algorithm: Algorithm) -> anyhow::Result<Self> {
        let held = registered(algorithm)?;
        let id = held.as_ref().map(ekiden_bpf::Registration::id);
        let settings = held.map(|held| held.parameters().map_err(|error| error.to_string()));
        let holders = id.map(kernel::holders).unwrap_or_default();
        Ok(Self { algorithm, pinned: is_pinned(algorithm), id, settings, holders })
    }

    fn text(&self) -> String {
        let Some(id) = self.id else { return format!("{}: not in the kernel\n", self.algorithm) };
        let mut keepers = self.holders.clone();
        if self.pinned {
            keepers.insert(0, "'ekiden congestion load'".into());
        }
        let kept: String = keepers.iter().map(|keeper| format!("    kept by {keeper}\n")).collect();
        let mut text = format!("{}: in the kernel (number {id})\n{kept}", self.algorithm);
        match &self.settings {
            Some(Ok(settings)) => {
                for (key, value) in settings.iter().filter(|(key, _)| self.algorithm.reads(key.name)) {
                    text += &match value == key.default {
                        true => format!("    {:<22} {}\n", key.name, Parameter::written(value)),
                        false => format!(
                            "  * {:<22} {}  (default {})\n",
                            key.name,
                            Parameter::written(value),
                            Parameter::written(key.default)
                        ),
                    };
                }
            }
            Some(Err(why)) => text += &format!("    {why}\n"),
            None => {}
        }
        text
    }

    fn json(&self) -> Value {
        let mut parameters = Map::new();
        if let Some(Ok(settings)) = &self.settings {
            for (key, value) in settings.iter().filter(|(key, _)| self.algorithm.reads(key.name)) {
                parameters.insert(key.name.into(), json!({ "value": value, "default": key.default }));
            }
        }
        json!({
            "name": self.algorithm.name(),
            "registered": self.id.is_some(),
            "pinned": self.pinned,
            "id": self.id,
            "holders": self.holders,
            "parameters": parameters,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_that_keeps_it_has_a_line() {
        let holders = vec!["process 1234567 (ekiden)".into(), "process 7654321 (ekiden)".into()];
        let status =
            KernelStatus { algorithm: Algorithm::Ghstcp, pinned: true, id: Some(1698), settings: None, holders };
        assert_eq!(
            status.text(),
            "ekiden_ghstcp: in the kernel (number 1698)\n    kept by 'ekiden congestion load'\n    \
             kept by process 1234567 (ekiden)\n    kept by process 7654321 (ekiden)\n"
        );
    }
}
