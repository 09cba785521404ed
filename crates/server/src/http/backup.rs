//! A backup of the store, as a file that comes in pieces.

use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, HeaderValue};
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;

use super::encode::{Answered, with_type};
use super::openapi::Problems;
use crate::service::app::App;
use crate::service::backup::Copied;
use crate::service::caller::Caller;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
const PIECE_BYTES: usize = 256 * 1024;
/// Pieces that are read ahead of a client that takes its time.
const PIECES_AHEAD: usize = 2;

/// Back up the store
///
/// A SQLite database as `leasehold backup` makes it: everything as it is at one moment, while the server goes on, every checksum compared before the first byte is sent. Whoever has it has all lease ids.
/// For `leasehold restore`. One at a time; without authentication only for callers on the server's machine.
#[utoipa::path(
    get, path = "/v1/backup", operation_id = "get_backup", tag = "service",
    responses((status = 200, description = "The database; Content-Length tells its size", content((Vec<u8> = "application/octet-stream"))), Problems)
)]
pub(crate) async fn get(State(app): State<Arc<App>>, caller: Caller) -> Answered {
    let copied = app.backup(&caller).await?;
    let mut response = with_type(StatusCode::OK, CONTENT_TYPE, Body::new(Pieces::of(copied)));
    let attachment = HeaderValue::from_static("attachment; filename=\"leasehold-backup.db\"");
    response.headers_mut().insert(CONTENT_DISPOSITION, attachment);
    Ok(response)
}

/// The body: what a thread reads while there is room for it.
struct Pieces {
    coming: mpsc::Receiver<io::Result<Bytes>>,
    left: u64,
}

impl Pieces {
    fn of(copied: Copied) -> Pieces {
        let (pieces, coming) = mpsc::channel(PIECES_AHEAD);
        let left = copied.byte_len;
        tokio::task::spawn_blocking(move || read(copied, &pieces));
        Pieces { coming, left }
    }
}

/// Until all of it is taken, or nobody takes it any more.
fn read(mut copied: Copied, pieces: &mpsc::Sender<io::Result<Bytes>>) {
    loop {
        match next_piece(&mut copied.file) {
            Ok(Some(piece)) => {
                if pieces.blocking_send(Ok(piece)).is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                let _ = pieces.blocking_send(Err(error));
                return;
            }
        }
    }
}

fn next_piece(file: &mut File) -> io::Result<Option<Bytes>> {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
    Ok((!piece.is_empty()).then(|| piece.into()))
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.coming.poll_recv(cx).map(|piece| {
            let piece = piece?;
            if let Ok(piece) = &piece {
                self.left = self.left.saturating_sub(piece.len() as u64);
            }
            Some(piece.map(Frame::data))
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
