//! The same words in JSON and in gRPC. What has to be fast never comes this way.

mod locks;
mod views;
mod problem;

use std::time::Duration;

use prost_types::value::Kind;
use prost_types::{Struct, Timestamp, Value};

use crate::Metadata;
use crate::grpc::{length, millis};

/// A length in milliseconds, as it is sent.
pub fn ms(millis: u64) -> prost_types::Duration {
    length(Duration::from_millis(millis))
}

/// A moment for people; the text comes from the server's own clock and always is one.
fn at(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

fn text_of(at: Option<&Timestamp>) -> String {
    at.map(Timestamp::to_string).unwrap_or_default()
}

/// Milliseconds of a length that may be missing.
fn ms_of(length: Option<&prost_types::Duration>) -> u64 {
    length.and_then(|length| millis(*length)).unwrap_or(0)
}

/// Metadata as it is sent; none if it is empty.
pub fn metadata(map: &Metadata) -> Option<Struct> {
    let fields = || map.iter().map(|(key, value)| (key.clone(), value_of(value))).collect();
    (!map.is_empty()).then(|| Struct { fields: fields() })
}

fn value_of(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(bool) => Kind::BoolValue(*bool),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(values) => Kind::ListValue(prost_types::ListValue {
            values: values.iter().map(value_of).collect(),
        }),
        Json::Object(map) => Kind::StructValue(metadata(map).unwrap_or_default()),
    };
    Value { kind: Some(kind) }
}

/// Metadata as it was received; `None` if it has a number that JSON does not know.
pub fn metadata_of(fields: &Struct) -> Option<Metadata> {
    fields.fields.iter().map(|(key, value)| Some((key.clone(), json_of(value)?))).collect()
}

fn json_of(value: &Value) -> Option<serde_json::Value> {
    use serde_json::Value as Json;
    Some(match value.kind.as_ref()? {
        Kind::NullValue(_) => Json::Null,
        Kind::NumberValue(number) => whole(*number)
            .map(Json::from)
            .or_else(|| serde_json::Number::from_f64(*number).map(Json::Number))?,
        Kind::StringValue(text) => Json::String(text.clone()),
        Kind::BoolValue(bool) => Json::Bool(*bool),
        Kind::StructValue(fields) => Json::Object(metadata_of(fields)?),
        Kind::ListValue(list) => {
            Json::Array(list.values.iter().map(json_of).collect::<Option<_>>()?)
        }
    })
}

/// A whole number is written as one: `1`, not `1.0`.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
fn whole(number: f64) -> Option<i64> {
    let exact = 9_007_199_254_740_992.0; // 2^53
    (number.fract() == 0.0 && number.abs() <= exact).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::grpc as wire;

    #[test]
    fn metadata_comes_back_as_it_went() {
        let map: Metadata =
            serde_json::from_str(r#"{"a":1,"b":[true,null,"x",1.5],"c":{"d":-3}}"#).unwrap();
        let sent = metadata(&map).unwrap();
        assert_eq!(metadata_of(&sent), Some(map));
        let odd = Value { kind: Some(Kind::NumberValue(f64::NAN)) };
        assert_eq!(metadata_of(&Struct { fields: [("x".into(), odd)].into() }), None);
    }

    #[test]
    fn problem_comes_back_as_it_went() {
        let holder = crate::Holder {
            lock: "job/x".into(),
            owner_id: "a".into(),
            mode: crate::Mode::Permits,
            permits: Some(3),
            state: crate::LockState::Recovering,
            fencing_token: 7,
            acquired_at: "2026-01-02T03:04:05.678Z".into(),
            expires_at: "2026-01-02T03:04:35.678Z".into(),
            ttl_ms: 30_000,
            expires_in_ms: 12_345,
            session: Some(4),
            metadata: Metadata::default(),
            principal: Some("billing".into()),
            hidden: false,
        };
        let mut problem = crate::Problem::new(Code::LockHeld, "job/x is held by a");
        problem.current_owner_id = Some("a".into());
        problem.recommended_retry_ms = Some(120);
        problem.holders = Some(vec![holder]);
        problem.waiters = Some(2);
        problem.waited_ms = Some(50);
        problem.ticket = Some("9".into());
        problem.queue_position = Some(1);
        problem.request_id = "r".into();
        problem.reason = Some(crate::Gone::OtherScope);
        let back = crate::Problem::from(&wire::Problem::from(&problem));
        assert_eq!(serde_json::to_value(&back).unwrap(), serde_json::to_value(&problem).unwrap());
    }
}
