//! What values look like in a file.

use ekiden_units::{BitRate, Bytes, Fraction, Time};
use indexmap::IndexMap;
use serde_json::{Value, json};
use serde_spanned::Spanned;

/// What a value looks like in the file.
pub trait Shape {
    /// As JSON Schema says it.
    fn shape() -> Value;

    /// Whether its key may be left out.
    const MAY_BE_LEFT_OUT: bool = false;
}

impl Shape for String {
    fn shape() -> Value {
        json!({ "type": "string" })
    }
}

impl Shape for bool {
    fn shape() -> Value {
        json!({ "type": "boolean" })
    }
}

impl Shape for f64 {
    fn shape() -> Value {
        json!({ "type": "number" })
    }
}

macro_rules! quantities {
    ($($kind:ty),+) => {
        $(impl Shape for $kind {
            fn shape() -> Value {
                json!({ "type": "string" })
            }
        })+
    };
}

// With their units.
quantities!(BitRate, Bytes, Fraction, Time);

impl<T: Shape> Shape for Option<T> {
    fn shape() -> Value {
        T::shape()
    }

    const MAY_BE_LEFT_OUT: bool = true;
}

impl<T: Shape> Shape for Spanned<T> {
    fn shape() -> Value {
        T::shape()
    }

    const MAY_BE_LEFT_OUT: bool = T::MAY_BE_LEFT_OUT;
}

impl<T: Shape> Shape for Vec<T> {
    fn shape() -> Value {
        json!({ "type": "array", "items": T::shape() })
    }
}

impl<K, V: Shape> Shape for IndexMap<K, V> {
    fn shape() -> Value {
        json!({ "type": "object", "additionalProperties": V::shape() })
    }
}
