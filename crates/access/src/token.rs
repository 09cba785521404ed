//! Bearer tokens: `lk_<id>_<secret><check>`, 65 characters.
//!
//! The id is public: it stands in lists and in the audit log. Of the secret only the SHA-256 is kept. The check is the CRC-32 of
//! all before it, so that a typing error is told from a wrong token, and scanners of leaked secrets have no false alarms.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

const PREFIX: &str = "lk_";
const SECRET_LEN: usize = 43;
const CHECK_LEN: usize = 6;
/// The letters without those that are taken for others.
const ID_DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The public name of a token: 60 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId([u8; TokenId::LEN]);

impl TokenId {
    pub const LEN: usize = 12;

    pub fn parse(text: &str) -> Option<TokenId> {
        let bytes: [u8; TokenId::LEN] = text.as_bytes().try_into().ok()?;
        bytes.iter().all(|byte| ID_DIGITS.contains(byte)).then_some(TokenId(bytes))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("its characters are ASCII")
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenId({self})")
    }
}

/// A token as its bearer has it. `Debug` does not print the secret, and it is wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: TokenId,
    text: Zeroizing<String>,
}

/// The text was not a token: wrong length, form or check. Nothing was hashed to find that out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a token")]
pub struct NotAToken;

impl Token {
    pub const LEN: usize = PREFIX.len() + TokenId::LEN + 1 + SECRET_LEN + CHECK_LEN;
    /// The number of random bytes in a token.
    pub const RANDOM_BYTES: usize = 40;

    /// Makes a token of random bytes.
    pub fn mint(random: &[u8; Token::RANDOM_BYTES]) -> Token {
        let (for_id, for_secret) = random.split_at(8);
        let id = TokenId(std::array::from_fn(|at| {
            let number = for_id.iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
            ID_DIGITS[usize::try_from(number >> (5 * at) & 31).expect("it has five bits")]
        }));
        let mut text = Zeroizing::new(String::with_capacity(Token::LEN));
        text.push_str(PREFIX);
        text.push_str(id.as_str());
        text.push('_');
        push_base62(&mut text, for_secret, SECRET_LEN);
        let check = check_of(&text);
        push_base62(&mut text, &check, CHECK_LEN);
        Token { id, text }
    }

    pub fn id(&self) -> TokenId {
        self.id
    }

    /// The whole token: to be shown once, to whoever asked for it.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    fn secret(&self) -> &str {
        let start = PREFIX.len() + TokenId::LEN + 1;
        &self.text[start..start + SECRET_LEN]
    }

    pub fn hash(&self) -> SecretHash {
        SecretHash::of(self.secret())
    }
}

impl FromStr for Token {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Token, NotAToken> {
        if text.len() != Token::LEN || !text.is_ascii() {
            return Err(NotAToken);
        }
        let (body, check) = text.split_at(Token::LEN - CHECK_LEN);
        let rest = body.strip_prefix(PREFIX).ok_or(NotAToken)?;
        let (id, secret) = rest.split_once('_').ok_or(NotAToken)?;
        let id = TokenId::parse(id).ok_or(NotAToken)?;
        let is_base62 = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_base62(secret) || !is_base62(check) {
            return Err(NotAToken);
        }
        let mut expected = String::with_capacity(CHECK_LEN);
        push_base62(&mut expected, &check_of(body), CHECK_LEN);
        if expected != check {
            return Err(NotAToken);
        }
        Ok(Token { id, text: Zeroizing::new(text.into()) })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, secret)", self.id)
    }
}

/// The stored form of a secret: its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    fn of(secret: &str) -> SecretHash {
        #[cfg(test)]
        tests::HASHES.with(|count| count.set(count.get() + 1));
        SecretHash(Sha256::digest(secret.as_bytes()).into())
    }

    /// One that no secret has: in place of a token that is not known, so that it takes as long to refuse.
    pub(crate) const NOBODY: SecretHash = SecretHash([0; 32]);

    /// Sixty-four hexadecimal digits.
    pub fn parse(text: &str) -> Option<SecretHash> {
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(bytes.chunks(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
        }
        Some(SecretHash(hash))
    }

    /// Compares in a time that does not depend on where the two differ.
    pub fn is_of(&self, token: &Token) -> bool {
        self.0.ct_eq(&token.hash().0).into()
    }
}

impl fmt::Display for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

/// The CRC-32 of the text, most significant byte first.
fn check_of(text: &str) -> [u8; 4] {
    crc32fast::hash(text.as_bytes()).to_be_bytes()
}

/// The bytes as one large number in base 62, with zeros in front.
fn push_base62(text: &mut String, bytes: &[u8], len: usize) {
    let mut number = Zeroizing::new(bytes.to_vec());
    let mut digits = Zeroizing::new(vec![0u8; len]);
    for digit in digits.iter_mut().rev() {
        let mut rest = 0u32;
        for byte in number.iter_mut() {
            let all = rest << 8 | u32::from(*byte);
            *byte = u8::try_from(all / 62).expect("the rest is below 62");
            rest = all % 62;
        }
        *digit = DIGITS[rest as usize];
    }
    text.extend(digits.iter().map(|&digit| char::from(digit)));
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The number of secrets that were hashed.
        pub(crate) static HASHES: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn token(seed: u8) -> Token {
        let mut next = seed.wrapping_mul(31);
        Token::mint(&std::array::from_fn(|_| {
            next = next.wrapping_add(1);
            next
        }))
    }

    #[test]
    fn token_has_the_form_that_scanners_look_for() {
        for seed in 0..=255 {
            let token = token(seed);
            let text = token.reveal();
            assert_eq!(text.len(), 65);
            let (id, rest) = text.strip_prefix("lk_").unwrap().split_once('_').unwrap();
            assert!(id.len() == 12 && !id.contains(['i', 'l', 'o', 'u']));
            assert!(rest.len() == 49 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            assert_eq!(text.parse(), Ok(token));
        }
        assert_eq!(Token::mint(&[0xff; 40]).reveal().len(), 65);
        assert_eq!(Token::mint(&[0; 40]).secret(), "0".repeat(43));
    }

    #[test]
    fn every_random_bit_counts() {
        let first = [7; Token::RANDOM_BYTES];
        let made = Token::mint(&first);
        for bit in 4..Token::RANDOM_BYTES * 8 {
            let mut other = first;
            other[bit / 8] ^= 0x80 >> (bit % 8);
            let other = Token::mint(&other);
            assert_ne!(other.reveal(), made.reveal(), "bit {bit}");
            let is_in_id = bit < 64;
            assert_eq!(other.id() != made.id(), is_in_id, "bit {bit}");
        }
    }

    /// Attack 2: one character of the id, of the secret or of the check is another.
    #[test]
    fn token_with_any_character_changed_is_refused_without_a_hash() {
        let token = token(1);
        let before = HASHES.get();
        for at in 0..Token::LEN {
            for other in ["0", "z", "_", "Z"] {
                let mut text = token.reveal().to_owned();
                text.replace_range(at..=at, other);
                if text != token.reveal() {
                    assert_eq!(text.parse::<Token>(), Err(NotAToken), "{at} {other}");
                }
            }
        }
        assert_eq!(HASHES.get(), before);
    }

    /// Attack 3: what is much too long, or has characters of other kinds.
    #[test]
    fn odd_texts_are_refused_without_a_hash() {
        let good = token(2);
        let good = good.reveal();
        let before = HASHES.get();
        let odd = [
            String::new(),
            "lk_".into(),
            "x".repeat(10 * 1024),
            format!("{good}{}", "x".repeat(10 * 1024)),
            format!("{}\0", &good[..64]),
            format!("{} ", &good[..64]),
            format!("{}é", &good[..63]),
            good.to_uppercase(),
            good.replacen("lk_", "lk-", 1),
        ];
        for text in odd {
            assert_eq!(text.parse::<Token>(), Err(NotAToken), "{text:?}");
        }
        assert_eq!(HASHES.get(), before);
    }

    #[test]
    fn hash_is_of_one_secret() {
        let (one, other) = (token(3), token(4));
        let hash = one.hash();
        assert!(hash.is_of(&one) && !hash.is_of(&other) && !SecretHash::NOBODY.is_of(&one));
        assert_eq!(SecretHash::parse(&hash.to_string()), Some(hash));
        for bad in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(SecretHash::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn no_secret_is_printed() {
        let token = token(5);
        let shown = format!("{token:?} {:?} {:?}", token.hash(), token.id());
        assert!(!shown.contains(token.secret()) && !shown.contains(&token.hash().to_string()));
    }
}
