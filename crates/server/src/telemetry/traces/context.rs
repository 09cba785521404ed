//! The context of a trace, as W3C's `traceparent` carries it.

use axum::http::HeaderMap;

const HEADER: &str = "traceparent";
const SAMPLED: u8 = 1;

/// Which trace a request is part of, and below which span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) is_sampled: bool,
}

impl TraceContext {
    /// One that is not as it should be is none: no request fails for it.
    pub(crate) fn of(headers: &HeaderMap) -> Option<TraceContext> {
        TraceContext::parse(headers.get(HEADER)?.to_str().ok()?)
    }

    /// `00-TRACE-SPAN-FLAGS`; later versions may have more behind it.
    pub(crate) fn parse(text: &str) -> Option<TraceContext> {
        let mut parts = text.split('-');
        let mut hex = |len: usize| {
            let part = parts.next()?;
            let is_hex = part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            (part.len() == len && is_hex).then_some(part)
        };
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let context = TraceContext {
            trace: u128::from_str_radix(trace, 16).ok()?,
            span: u64::from_str_radix(span, 16).ok()?,
            is_sampled: u8::from_str_radix(flags, 16).ok()? & SAMPLED != 0,
        };
        (context.trace != 0 && context.span != 0).then_some(context)
    }

    /// Another span of the same trace.
    pub(super) fn child(self, span: u64) -> TraceContext {
        TraceContext { span: span.max(1), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_read_as_w3c_says() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(text).unwrap();
        assert_eq!(
            (context.trace >> 64, context.span),
            (0x4bf9_2f35_77b3_4da6, 0x00f0_67aa_0ba9_02b7)
        );
        assert!(context.is_sampled);
        let later = text.replace("00-4b", "01-4b").replace("-01", "-00-more");
        assert!(!TraceContext::parse(&later).unwrap().is_sampled);
    }

    #[test]
    fn what_is_wrong_is_none() {
        for text in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }
}
