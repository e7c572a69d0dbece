//! JSON Schema (draft 2020-12) of a file, for editors.

use serde_json::{Value, json};

use crate::keys::Section;

/// The schema of a file with these tables, the one for the keys at the top first.
pub fn schema(title: &str, sections: &[Section]) -> Value {
    let mut whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": {},
        "additionalProperties": false,
    });
    for section in sections {
        put(&mut whole, &path(&section.name), section);
    }
    whole
}

/// A step into a file: a table's name; any name; or each of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step<'a> {
    Key(&'a str),
    AnyName,
    EachOf,
}

/// `[listen.NAME]`, `[[route]]`, `[[peer.NAME.class]]`.
fn path(name: &str) -> Vec<Step<'_>> {
    let is_list = name.starts_with("[[");
    let inner = name.trim_matches(|letter| matches!(letter, '[' | ']'));
    let keys = inner.split('.').filter(|key| !key.is_empty());
    let mut steps: Vec<Step<'_>> = keys.map(|key| if key == "NAME" { Step::AnyName } else { Step::Key(key) }).collect();
    if is_list {
        steps.push(Step::EachOf);
    }
    steps
}

fn put(node: &mut Value, steps: &[Step<'_>], section: &Section) {
    let Some((step, rest)) = steps.split_first() else { return section.describe(node) };
    let table = || json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let next = match step {
        Step::Key(key) => {
            let next = &mut node["properties"][*key];
            if next.is_null() {
                *next = match rest.first() {
                    Some(Step::AnyName) => json!({ "type": "object", "additionalProperties": table() }),
                    Some(Step::EachOf) => json!({ "type": "array", "items": table() }),
                    _ => table(),
                };
            }
            next
        }
        Step::AnyName => &mut node["additionalProperties"],
        Step::EachOf => &mut node["items"],
    };
    put(next, rest, section);
}

#[cfg(test)]
mod tests {
    use ekiden_units::Time;

    use super::*;
    use crate::keys::{Count, Key, range};
    use crate::shape::Shape;

    #[test]
    fn tables_and_lists_stand_where_the_file_has_them() {
        let key = |name, is_required| Key {
            name,
            values: "a word".into(),
            default: String::new(),
            meaning: "What it is.",
            shape: String::shape(),
            is_required,
        };
        let section = |name: &str, key| Section { name: name.into(), keys: vec![key] };
        let sections = [
            section("", key("name", false)),
            section("[listen.NAME]", key("kind", true)),
            section("[[route]]", key("to", true)),
            section("[overlay.etcd]", key("user", false)),
            section("[[peer.NAME.class]]", key("ports", false)),
        ];
        let schema = schema("a node", &sections);
        assert_eq!(schema["properties"]["name"]["type"], "string");
        let listener = &schema["properties"]["listen"]["additionalProperties"];
        assert_eq!(listener["properties"]["kind"]["description"], "What it is. (a word)");
        assert_eq!(listener["required"], json!(["kind"]));
        assert_eq!(schema["properties"]["route"]["items"]["required"], json!(["to"]));
        assert_eq!(schema["properties"]["overlay"]["properties"]["etcd"]["properties"]["user"]["type"], "string");
        let class = &schema["properties"]["peer"]["additionalProperties"]["properties"]["class"];
        assert_eq!(class["items"]["properties"]["ports"]["type"], "string");
        assert!(schema.get("required").is_none());
    }

    #[test]
    fn a_count_has_its_range_and_a_time_which_is_text_has_none() {
        let key = |name, values, shape| Key {
            name,
            values,
            default: String::new(),
            meaning: "What it is.",
            shape,
            is_required: false,
        };
        let keys = vec![
            key("count", range(&(Count(2)..=Count(8))), Count::shape()),
            key("time", range(&(Time::ms(1)..=Time::ms(2))), Time::shape()),
        ];
        let schema = schema("a node", &[Section { name: String::new(), keys }]);
        let count = &schema["properties"]["count"];
        assert_eq!((&count["type"], &count["minimum"], &count["maximum"]), (&json!("integer"), &json!(2), &json!(8)));
        assert_eq!(count["description"], "What it is. (2 to 8)");
        assert_eq!(schema["properties"]["time"].get("minimum"), None);
    }
}
