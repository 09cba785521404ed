//! Follows requests in HTTP/1.1 as their bytes come in, however they are cut: where a header ends, and where its body does.
//!
//! hyper takes a header with both a Content-Length and a Transfer-Encoding, and drops one of them before anybody sees it. A
//! proxy in front may have gone by the other one: then what is a body to one is a request to the other. So such a header is
//! found here, also where requests follow each other without waiting for answers.

/// The position in a request of the next byte.
#[derive(Debug, Default)]
pub(super) struct RequestScan {
    part: Part,
    line: Line,
    header: Header,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Part {
    /// Lines of a header, and those after a body in chunks.
    #[default]
    Header,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    Trailer,
    /// It cannot be followed any further: hyper refuses it, or it is HTTP/2, or it is ambiguous.
    Lost,
}

/// The first bytes of a line, in small letters.
#[derive(Debug)]
struct Line {
    text: [u8; Line::LEN_MAX],
    len: usize,
}

/// The facts in the lines of a header so far.
#[derive(Debug, Default)]
struct Header {
    length: Option<u64>,
    is_chunked: bool,
    has_lines: bool,
    is_ambiguous: bool,
}

impl RequestScan {
    /// Whether a header with two lengths was among what was read.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.header.is_ambiguous
    }

    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            match &mut self.part {
                Part::Lost => return,
                Part::Body(left) | Part::Chunk(left) => {
                    let skipped = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= skipped as u64;
                    bytes = &bytes[skipped..];
                    if *left == 0 {
                        let is_chunk = matches!(self.part, Part::Chunk(_));
                        self.part = if is_chunk { Part::ChunkSize } else { Part::Header };
                    }
                }
                Part::Header | Part::ChunkSize | Part::Trailer => {
                    bytes = rest;
                    match byte {
                        b'\n' => self.line_ended(),
                        b'\r' => {}
                        byte => self.line.push(byte),
                    }
                }
            }
        }
    }

    fn line_ended(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.as_bytes();
        match (&self.part, line.is_empty()) {
            (Part::Header, true) if self.header.has_lines => self.header_ended(),
            // Empty lines before a request, and the one after a chunk.
            (Part::Header | Part::ChunkSize, true) => {}
            (Part::Header, false) => {
                self.header.has_lines = true;
                if !self.header.note(line) {
                    self.part = Part::Lost;
                }
            }
            (Part::ChunkSize, false) => {
                self.part = match chunk_size(line) {
                    None => Part::Lost,
                    Some(0) => Part::Trailer,
                    Some(size) => Part::Chunk(size),
                };
            }
            (Part::Trailer, is_empty) => {
                if is_empty {
                    self.part = Part::Header;
                }
            }
            (Part::Body(_) | Part::Chunk(_) | Part::Lost, _) => {}
        }
    }

    fn header_ended(&mut self) {
        let header = std::mem::take(&mut self.header);
        self.part = match (header.is_chunked, header.length) {
            (true, Some(_)) => {
                self.header.is_ambiguous = true;
                Part::Lost
            }
            (true, None) => Part::ChunkSize,
            (false, None | Some(0)) => Part::Header,
            (false, Some(length)) => Part::Body(length),
        };
    }
}

impl Header {
    /// Notes a line; whether what follows can still be made sense of.
    fn note(&mut self, line: &[u8]) -> bool {
        if line.starts_with(b"pri * http/2") {
            return false;
        }
        let name_len = line.iter().position(|byte| matches!(byte, b':' | b' ' | b'\t'));
        let (name, value) = line.split_at(name_len.unwrap_or(line.len()));
        match name {
            // Whatever its value is: with any, the length is not the one that counts.
            b"transfer-encoding" => self.is_chunked = true,
            b"content-length" => {
                let digits: Vec<u8> = value
                    .iter()
                    .copied()
                    .filter(|byte| !matches!(byte, b':' | b' ' | b'\t'))
                    .collect();
                let length = std::str::from_utf8(&digits).ok().and_then(|text| text.parse().ok());
                // hyper refuses it; until it has, both lengths count as said.
                self.length = Some(length.unwrap_or(0));
                return length.is_some() || self.is_chunked;
            }
            _ => {}
        }
        true
    }
}

/// The size of a chunk: hexadecimal digits up to an extension.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

impl Line {
    /// Longer than any name with its value that matters.
    const LEN_MAX: usize = 64;

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.text.get_mut(self.len) {
            *place = byte.to_ascii_lowercase();
            self.len += 1;
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

impl Default for Line {
    fn default() -> Line {
        Line { text: [0; Line::LEN_MAX], len: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ambiguous(text: &str, cut: usize) -> bool {
        let mut scan = RequestScan::default();
        text.as_bytes().chunks(cut).for_each(|part| scan.read(part));
        scan.is_ambiguous()
    }

    const BOTH: &str =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTRANSFER-ENCODING: chunked\r\n\r\n";

    #[test]
    fn two_lengths_in_one_header_are_found_however_they_are_cut() {
        let one = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nX: transfer-encoding: chunked\r\n\r\n";
        let two = "GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for cut in 1..40 {
            assert!(is_ambiguous(BOTH, cut), "{cut}");
            assert!(is_ambiguous(&BOTH.replace("\r\n", "\n"), cut), "{cut}");
            assert!(!is_ambiguous(one, cut), "{cut}");
            assert!(!is_ambiguous(two, cut), "{cut}");
        }
    }

    #[test]
    fn they_are_found_behind_other_requests_and_nowhere_in_bodies() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
        let with_body =
            |body: &str| format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let chunked = |body: &str| {
            let len = body.len();
            format!(
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{len:x};x=y\r\n{body}\r\n1\r\nz\r\n0\r\nTrailer: a\r\n\r\n"
            )
        };
        for cut in 1..60 {
            for before in
                [get.clone(), with_body(BOTH), chunked(BOTH), with_body(""), chunked("\n")]
            {
                assert!(!is_ambiguous(&format!("{before}{before}{get}"), cut), "{before}");
                assert!(is_ambiguous(&format!("{before}{get}{before}{BOTH}"), cut), "{before}");
            }
        }
    }

    #[test]
    fn what_cannot_be_followed_is_let_go() {
        for lost in [
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ] {
            assert!(!is_ambiguous(&format!("{lost}{BOTH}"), 7), "{lost}");
        }
    }
}
