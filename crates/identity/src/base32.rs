//! Bytes as text of 32 characters that nobody mistakes for each other: digits and lower-case letters without i, l, o and u
//! (Crockford's base 32). A double click takes such a text whole.

/// The 32 characters, by their value.
const CHARACTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Appends `bytes` as text. Their number is a multiple of five, or the last bits would be filled up with zeros.
pub(crate) fn encode(bytes: &[u8], text: &mut String) {
    for chunk in bytes.chunks(5) {
        let mut block = [0; 8];
        block[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(block);
        let characters = (chunk.len() * 8).div_ceil(5);
        for index in 0..characters {
            let value = bits >> (35 - 5 * index) & 31;
            text.push(char::from(CHARACTERS[usize::try_from(value).unwrap_or_default()]));
        }
    }
}

/// Reads `text` into `bytes`, which are five for each eight characters; `None` when the length differs or a character
/// is none of the 32.
pub(crate) fn decode(text: &str, bytes: &mut [u8]) -> Option<()> {
    if !text.len().is_multiple_of(8) || text.len() / 8 * 5 != bytes.len() {
        return None;
    }
    for (characters, chunk) in text.as_bytes().chunks(8).zip(bytes.chunks_mut(5)) {
        let mut bits = 0_u64;
        for character in characters {
            bits = bits << 5 | u64::from(value(*character)?);
        }
        chunk.copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    Some(())
}

/// Whether each character of `text` is one of the 32.
pub(crate) fn is_base32(text: &str) -> bool {
    text.bytes().all(|character| value(character).is_some())
}

fn value(character: u8) -> Option<u8> {
    let value = CHARACTERS.iter().position(|known| *known == character)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text_of(bytes: &[u8]) -> String {
        let mut text = String::new();
        encode(bytes, &mut text);
        text
    }

    #[test]
    fn five_bytes_are_eight_characters() {
        assert_eq!(text_of(&[0; 5]), "00000000");
        assert_eq!(text_of(&[0xff; 5]), "zzzzzzzz");
        assert_eq!(text_of(b"hello"), "d1jprv3f");
        assert_eq!(decode("d1jprv3f", &mut [0; 4]), None, "a wrong length");
        for other in ["d1jprv3F", "d1jprv3i", "d1jprv3-", "d1jprv3ö", "d1jprv3"] {
            assert_eq!(decode(other, &mut [0; 5]), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<[u8; 5]>(), 0..9)) {
            let bytes = bytes.concat();
            let text = text_of(&bytes);
            prop_assert!(is_base32(&text));
            let mut back = vec![0; bytes.len()];
            prop_assert_eq!(decode(&text, &mut back), Some(()));
            prop_assert_eq!(back, bytes);
        }
    }
}
