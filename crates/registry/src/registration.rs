//! What a node has to do about its own record, without I/O.

use ekiden_overlay::member::Member;

use crate::error::RegistryError;
use crate::record::{Load, Record};
use crate::view::View;

/// A change of the load that is worth writing.
const LOAD_STEP: f64 = 0.05;

/// This node, as it registers itself.
pub struct Registration {
    overlay: String,
    name: String,
    member: Member,
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
    /// Write this, if what is there is of that revision; 0 if nothing is there.
    Write(Box<Record>, u64),
    /// Nothing can be done.
    Refused(RegistryError),
}

impl Registration {
    /// Of a process that has not registered yet.
    pub fn new(overlay: String, name: String, member: Member, instance: String) -> Self {
        Self { overlay, name, member, instance, written: None }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's fingerprint.
    pub fn fingerprint(&self) -> &str {
        &self.member.fingerprint
    }

    /// The record was written under this lease.
    pub fn written(&mut self, lease: u64) {
        self.written = Some(lease);
    }

    /// What to do, with this `lease` (if there is one) and this `load`.
    pub fn next(&self, view: &View, lease: Option<u64>, load: Load) -> Step {
        let (name, own) = (self.name.clone(), self.member.fingerprint.clone());
        match view.admitted(&name) {
            None => {
                let overlay = self.overlay.clone();
                return Step::Refused(RegistryError::NotAdmitted { name, overlay, fingerprint: own });
            }
            Some(admitted) if admitted != own => {
                return Step::Refused(RegistryError::AdmittedOtherKey { name, admitted: admitted.into(), own });
            }
            Some(_) => {}
        }
        let fresh = Box::new(Record::new(self.instance.clone(), self.member.clone(), load));
        let Some((revision, there)) = view.node(&name) else { return Step::Write(fresh, 0) };
        let Some(there) = there else { return Step::Write(fresh, revision) };
        let address = there.member.address.clone();
        if there.member.fingerprint != own {
            return Step::Refused(RegistryError::NameTaken { name, address, other: there.member.fingerprint.clone() });
        }
        if there.instance != self.instance {
            // What was there before this process registered is what an earlier one has left.
            return match self.written {
                Some(_) => Step::Refused(RegistryError::Replaced { name, address }),
                None => Step::Write(fresh, revision),
            };
        }
        let is_near = (there.load.share() - load.share()).abs() < LOAD_STEP;
        match lease.is_some() && lease == self.written && is_near {
            true => Step::Nothing,
            false => Step::Write(fresh, revision),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{Event, EventKind, KeyValue};
    use crate::keys::Keys;

    fn key(digit: char) -> String {
        format!("sha256:{}", digit.to_string().repeat(64))
    }

    fn member(digit: char) -> Member {
        serde_json::from_str(&format!(r#"{{"address":"192.0.2.1:7000","fingerprint":"{}"}}"#, key(digit))).unwrap()
    }

    fn put(view: &mut View, key: String, value: Vec<u8>, mod_revision: u64) {
        view.apply(Event { kind: EventKind::Put, kv: KeyValue { key: key.into(), value, mod_revision } });
    }

    fn admitted(digit: char) -> View {
        let mut view = View::new(Keys::of("blue"));
        put(&mut view, Keys::of("blue").admitted("a"), key(digit).into(), 1);
        view
    }

    fn registered(view: &mut View, digit: char, instance: &str, revision: u64) {
        let record = Record::new(instance.into(), member(digit), Load::default());
        put(view, Keys::of("blue").node("a"), record.to_bytes(), revision);
    }

    fn node() -> Registration {
        Registration::new("blue".into(), "a".into(), member('1'), "aa".into())
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
        assert!(matches!(node.next(&view, None, Load::default()), Step::Write(_, 0)));
        registered(&mut view, '1', "bb", 5);
        assert!(matches!(node.next(&view, None, Load::default()), Step::Write(_, 5)));
        node.written(7);
        let step = node.next(&view, Some(7), Load::default());
        assert!(matches!(step, Step::Refused(RegistryError::Replaced { .. })));
        registered(&mut view, '2', "cc", 6);
        assert!(matches!(node.next(&view, Some(7), Load::default()), Step::Refused(RegistryError::NameTaken { .. })));
        put(&mut view, Keys::of("blue").node("a"), b"junk".into(), 8);
        assert!(matches!(node.next(&view, Some(7), Load::default()), Step::Write(_, 8)));
    }

    #[test]
    fn it_is_written_again_under_a_new_lease_and_when_the_load_has_changed() {
        let (mut node, mut view) = (node(), admitted('1'));
        node.written(7);
        registered(&mut view, '1', "aa", 5);
        assert_eq!(node.next(&view, Some(7), Load::new(0.04)), Step::Nothing);
        assert!(matches!(node.next(&view, Some(7), Load::new(0.06)), Step::Write(_, 5)));
        assert!(matches!(node.next(&view, Some(8), Load::default()), Step::Write(_, 5)));
        assert!(matches!(node.next(&view, None, Load::default()), Step::Write(_, 5)));
    }
}
