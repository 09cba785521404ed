//! A large answer, as it comes in.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::error::{Error, Result};
use crate::http::{Answered, Ask, Http};
use crate::machine::Failure;

/// Longest time until the server has put the whole answer together.
const START_MAX: Duration = Duration::from_secs(30 * 60);
/// Longest time between two pieces.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// A refusal is shorter than that.
const REFUSAL_BYTES_MAX: usize = 1 << 20;

/// An answer that is read piece by piece.
#[derive(Debug)]
pub struct Download {
    body: Incoming,
    byte_len: Option<u64>,
}

impl Download {
    pub(crate) async fn start(http: &Http, ask: &Ask) -> Result<Download> {
        let answer = tokio::time::timeout(START_MAX, http.start(ask, None)).await;
        let answer = match answer.map_err(|_| Error::unanswered("no answer in time"))? {
            Ok(answer) => answer,
            Err((Failure::Unsent, said)) => return Err(Error::unsent(said)),
            Err((Failure::Unknown, said)) => return Err(Error::unanswered(said)),
        };
        let (head, body) = answer.into_parts();
        if head.status.is_success() {
            let byte_len = body.size_hint().exact();
            return Ok(Download { body, byte_len });
        }
        let body = http_body_util::Limited::new(body, REFUSAL_BYTES_MAX).collect();
        let body = match tokio::time::timeout(SILENCE_MAX, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) | Err(_) => Bytes::new(),
        };
        Err(Answered { status: head.status, body }.refusal())
    }

    /// Its size in bytes, if the server said so.
    pub fn byte_len(&self) -> Option<u64> {
        self.byte_len
    }

    /// The next piece; `None` after the last. An answer that breaks off ends with an error.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            let frame = match tokio::time::timeout(SILENCE_MAX, self.body.frame()).await {
                Ok(frame) => frame?,
                Err(_) => return Some(Err(Error::unanswered("the answer does not go on"))),
            };
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(piece)) => return Some(Ok(piece)),
                // Trailers.
                Ok(Err(_)) => {}
                Err(error) => {
                    return Some(Err(Error::unanswered(format!("the answer broke off: {error}"))));
                }
            }
        }
    }
}
