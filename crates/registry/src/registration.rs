//! What a node has to do about its own record, without I/O.
//!
//! A node that the operator has not admitted, or with another key, does not register.

use crate::error::RegistryError;
use crate::record::{Load, Record};
use crate::settings::Settings;
use crate::view::View;

/// A change of the load that is worth writing.
const LOAD_STEP: f64 = 0.05;

/// This node, as it registers itself.
pub struct Registration {
    overlay: String,
    name: String,
    address: String,
    fingerprint: String,
    /// A random number of this process.
    instance: String,
    /// The lease with which the record was written last.
    written: Option<u64>,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Nothing: it is registered.
    Nothing,
    /// Write this, if what is there is as it was.
    Write(Box<Record>, Revisions),
    /// Nothing can be done.
    Refused(RegistryError),
}

/// Of what a registration rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revisions {
    /// Of the admission.
    pub admission: u64,
    /// Of the record that is there; 0 if there is none.
    pub record: u64,
}

impl Registration {
    /// Of a process that has not registered yet.
    pub fn new(settings: &Settings, instance: String) -> Self {
        let Settings { overlay, name, address, fingerprint, .. } = settings.clone();
        Self { overlay, name, address, fingerprint, instance, written: None }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The record was written under this lease.
    pub fn written(&mut self, lease: u64) {
        self.written = Some(lease);
    }

    /// What to do, with this `lease` (if there is one) and this `load`.
    pub fn next(&self, view: &View, lease: Option<u64>, load: Load) -> Step {
        let (name, own) = (self.name.clone(), self.fingerprint.clone());
        let admission = match view.admitted(&name) {
            None => {
                let overlay = self.overlay.clone();
                return Step::Refused(RegistryError::NotAdmitted { name, overlay, fingerprint: own });
            }
            Some((_, admitted)) if admitted.fingerprint != own => {
                let admitted = admitted.fingerprint.clone();
                return Step::Refused(RegistryError::AdmittedOtherKey { name, admitted, own });
            }
            Some((revision, _)) => revision,
        };
        let fresh = Box::new(Record::new(self.instance.clone(), self.address.clone(), own.clone(), load));
        let Some((record, there)) = view.node(&name) else {
            return Step::Write(fresh, Revisions { admission, record: 0 });
        };
        let revisions = Revisions { admission, record };
        let Some(there) = there else { return Step::Write(fresh, revisions) };
        let address = there.address.clone();
        if there.fingerprint != own {
            return Step::Refused(RegistryError::NameTaken { name, address, other: there.fingerprint.clone() });
        }
        if there.instance != self.instance {
            // What was there before this process registered is what an earlier one has left.
            return match self.written {
                Some(_) => Step::Refused(RegistryError::Replaced { name, address }),
                None => Step::Write(fresh, revisions),
            };
        }
        let is_near = (there.load.share() - load.share()).abs() < LOAD_STEP;
        match lease.is_some() && lease == self.written && is_near {
            true => Step::Nothing,
            false => Step::Write(fresh, revisions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use crate::gateway::{Event, EventKind, KeyValue};
    use crate::keys::Keys;

    fn key(digit: char) -> String {
        format!("sha256:{}", digit.to_string().repeat(64))
    }

    fn put(view: &mut View, key: String, value: Vec<u8>, mod_revision: u64) {
        view.apply(Event { kind: EventKind::Put, kv: KeyValue { key: key.into(), value, mod_revision, lease: 7 } });
    }

    fn admitted(digit: char) -> View {
        let mut view = View::new(Keys::of("blue"));
        let admission = Admission::of(key(digit).parse().unwrap());
        put(&mut view, Keys::of("blue").admitted("a"), admission.to_bytes(), 1);
        view
    }

    fn registered(view: &mut View, digit: char, instance: &str, revision: u64) {
        let record = Record::new(instance.into(), "192.0.2.1:7000".into(), key(digit), Load::default());
        put(view, Keys::of("blue").node("a"), record.to_bytes(), revision);
    }

    fn node() -> Registration {
        let settings = Settings { fingerprint: key('1'), ..crate::settings::tests::settings() };
        Registration::new(&settings, "aa".into())
    }

    #[test]
    fn who_is_not_admitted_does_not_register() {
        let nobody = View::new(Keys::of("blue"));
        assert!(matches!(
            node().next(&nobody, None, Load::default()),
            Step::Refused(RegistryError::NotAdmitted { .. })
        ));
        let step = node().next(&admitted('2'), None, Load::default());
        assert!(matches!(step, Step::Refused(RegistryError::AdmittedOtherKey { .. })));
    }

    #[test]
    fn a_name_is_taken_over_from_an_earlier_run_and_from_nobody_else() {
        let (mut node, mut view) = (node(), admitted('1'));
        assert!(matches!(
            node.next(&view, None, Load::default()),
            Step::Write(_, Revisions { admission: 1, record: 0 })
        ));
        registered(&mut view, '1', "bb", 5);
        assert!(matches!(
            node.next(&view, None, Load::default()),
            Step::Write(_, Revisions { admission: 1, record: 5 })
        ));
        node.written(7);
        let step = node.next(&view, Some(7), Load::default());
        assert!(matches!(step, Step::Refused(RegistryError::Replaced { .. })));
        registered(&mut view, '2', "cc", 6);
        assert!(matches!(node.next(&view, Some(7), Load::default()), Step::Refused(RegistryError::NameTaken { .. })));
        put(&mut view, Keys::of("blue").node("a"), b"junk".into(), 8);
        assert!(matches!(
            node.next(&view, Some(7), Load::default()),
            Step::Write(_, Revisions { admission: 1, record: 8 })
        ));
    }

    #[test]
    fn it_is_written_again_under_a_new_lease_and_when_the_load_has_changed() {
        let (mut node, mut view) = (node(), admitted('1'));
        node.written(7);
        registered(&mut view, '1', "aa", 5);
        assert_eq!(node.next(&view, Some(7), Load::new(0.04)), Step::Nothing);
        assert!(matches!(
            node.next(&view, Some(7), Load::new(0.06)),
            Step::Write(_, Revisions { admission: 1, record: 5 })
        ));
        assert!(matches!(
            node.next(&view, Some(8), Load::default()),
            Step::Write(_, Revisions { admission: 1, record: 5 })
        ));
        assert!(matches!(
            node.next(&view, None, Load::default()),
            Step::Write(_, Revisions { admission: 1, record: 5 })
        ));
    }
}
