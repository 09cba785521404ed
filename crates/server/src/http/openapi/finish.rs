//! Adds to the description what the derive has no word for, so that generators of clients can use all of it.

use serde_json::{Map, Value, json};

pub(super) fn finish(whole: &mut Value) {
    let Some(schemas) = whole["components"]["schemas"].as_object_mut() else { return };
    spell_out_events(schemas);
    for schema in schemas.values_mut() {
        mark_moments(schema);
    }
    // The text of one event of a stream.
    whole["components"]["schemas"]["EventFrame"]["properties"]["data"]["contentSchema"] =
        json!({"$ref": "#/components/schemas/Event"});
}

/// An event is what all events have, flattened together with what its type has. Generators take neither `allOf` with a
/// choice in it nor nameless alternatives: each type gets a schema of its own, and `Event` is one of them.
fn spell_out_events(schemas: &mut Map<String, Value>) {
    let Some(all) = schemas.get("Event").and_then(|event| common_part(event).cloned()) else {
        return;
    };
    let Some(news) = schemas.remove("News") else { return };
    let (mut choices, mut mapping) = (Vec::new(), Map::new());
    for one in news["oneOf"].as_array().into_iter().flatten() {
        let kind = &one["properties"]["type"];
        let Some(kind) = kind["enum"][0].as_str().or_else(|| kind["const"].as_str()) else {
            continue;
        };
        let name = format!("{}Event", camel_case(kind));
        let reference = format!("#/components/schemas/{name}");
        choices.push(json!({"$ref": reference}));
        mapping.insert(kind.into(), reference.into());
        schemas.insert(name, with_common_part(one, kind, &all));
    }
    let description = schemas["Event"]["description"].clone();
    let discriminator = json!({"propertyName": "type", "mapping": mapping});
    let event =
        json!({"description": description, "oneOf": choices, "discriminator": discriminator});
    schemas.insert("Event".into(), event);
}

/// The alternative of `allOf` that is a plain object.
fn common_part(event: &Value) -> Option<&Value> {
    event["allOf"].as_array()?.iter().find(|part| part["properties"].is_object())
}

/// One type of event in full.
fn with_common_part(one: &Value, kind: &str, all: &Value) -> Value {
    let mut whole = one.clone();
    let common = all["properties"].as_object().into_iter().flatten();
    for (name, schema) in common {
        whole["properties"][name] = schema.clone();
    }
    whole["properties"]["type"] = json!({"type": "string", "const": kind});
    let required = |schema: &Value| schema["required"].as_array().cloned().unwrap_or_default();
    let mut needed = required(all);
    needed.extend(required(one));
    whole["required"] = needed.into();
    whole
}

/// `grant_ended` as `GrantEnded`.
fn camel_case(text: &str) -> String {
    let part = |part: &str| {
        let (first, rest) = part.split_at_checked(1).unwrap_or((part, ""));
        first.to_ascii_uppercase() + rest
    };
    text.split('_').map(part).collect()
}

/// Marks texts that are moments: `at`, and all that ends in `_at` or `_until`.
fn mark_moments(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let properties = map.get_mut("properties").and_then(Value::as_object_mut);
            for (name, property) in properties.into_iter().flatten() {
                let is_moment = name == "at" || name.ends_with("_at") || name.ends_with("_until");
                if is_moment && property["type"].to_string().contains("\"string\"") {
                    property["format"] = "date-time".into();
                }
            }
            map.values_mut().for_each(mark_moments);
        }
        Value::Array(values) => values.iter_mut().for_each(mark_moments),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schemas() -> Value {
        let whole: Value = serde_json::from_str(super::super::document()).unwrap();
        whole["components"]["schemas"].clone()
    }

    #[test]
    fn every_type_of_event_is_spelled_out() {
        let schemas = schemas();
        let choices = schemas["Event"]["oneOf"].as_array().unwrap();
        assert_eq!(choices.len(), 14, "{choices:?}");
        let granted = &schemas["GrantedEvent"];
        assert_eq!(granted["properties"]["type"]["const"], "granted");
        for field in ["revision", "at", "namespace", "type", "lock", "owner_id", "fencing_token"] {
            assert!(granted["properties"][field].is_object(), "{field}: {granted}");
            assert!(granted["required"].as_array().unwrap().contains(&field.into()), "{field}");
        }
        assert!(schemas["News"].is_null());
    }

    #[test]
    fn moments_are_marked() {
        let schemas = schemas();
        assert_eq!(schemas["Grant"]["properties"]["expires_at"]["format"], "date-time");
        assert_eq!(schemas["GrantedEvent"]["properties"]["at"]["format"], "date-time");
        assert_eq!(schemas["Grant"]["properties"]["lock"]["format"], Value::Null);
    }
}
