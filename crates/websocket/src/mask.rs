//! The mask over what clients send (RFC 6455, section 5.3).

/// Masks `bytes`, or takes the mask off. `position` is where they lie in the frame's payload.
pub(crate) fn apply(mask: [u8; 4], position: usize, bytes: &mut [u8]) {
    let [a, b, c, d] = match position % 4 {
        1 => [mask[1], mask[2], mask[3], mask[0]],
        2 => [mask[2], mask[3], mask[0], mask[1]],
        3 => [mask[3], mask[0], mask[1], mask[2]],
        _ => mask,
    };
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip([a, b, c, d].into_iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::apply;

    #[test]
    fn a_mask_by_words_is_the_mask_by_bytes_wherever_it_begins() {
        let mask = [0x11, 0x22, 0x44, 0x88];
        let plain: Vec<u8> = (0..=255).collect();
        for (from, to) in (0..20).flat_map(|from| (from..60).map(move |to| (from, to))) {
            let mut masked = plain[from..to].to_vec();
            apply(mask, from, &mut masked);
            let expected: Vec<_> = (from..to).map(|i| plain[i] ^ mask[i % 4]).collect();
            assert_eq!(masked, expected, "{from}..{to}");
        }
    }
}
