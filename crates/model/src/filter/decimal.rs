//! Decimal numbers of any size. Comparison is exact and never rounds, as for large identifiers and amounts of
//! money.

use std::{borrow::Cow, cmp::Ordering};

/// Most digits of an exponent. No meaningful number has more.
const EXPONENT_DIGITS_MAX: usize = 9;

/// A number: `0.d1 d2 d3 ... * 10^exponent`, where d1 is not 0.
#[derive(Clone, Debug)]
pub(super) struct Decimal<'a> {
    negative: bool,
    /// From the first digit to the last digit that is not 0, with a point between if there is one;
    /// empty for zero.
    digits: Cow<'a, [u8]>,
    exponent: i64,
}

/// The number of ASCII digits at the start of `bytes`.
fn digit_count(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

impl<'a> Decimal<'a> {
    /// Reads `-12.50e3`: a sign if there is one, digits, then perhaps a point and digits, then perhaps
    /// an exponent. `None` for anything else.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (negative, rest) = match bytes {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let whole = digit_count(rest);
        if whole == 0 {
            return None;
        }
        let mut length = whole;
        if let Some(b'.') = rest.get(whole) {
            let fraction = digit_count(&rest[whole + 1..]);
            if fraction == 0 {
                return None;
            }
            length += 1 + fraction;
        }
        let power = match &rest[length..] {
            [] => 0,
            [b'e' | b'E', power @ ..] => exponent(power)?,
            _ => return None,
        };
        let is_zero = |byte: &u8| matches!(byte, b'0' | b'.');
        let number = &rest[..length];
        let Some(first) = number.iter().position(|byte| !is_zero(byte)) else {
            return Some(Self { negative: false, digits: Cow::Borrowed(&[]), exponent: 0 });
        };
        // Zeros at the end of the whole part count for nothing but the place of the point.
        let last = number.iter().rposition(|byte| !is_zero(byte))?;
        let places =
            if first < whole { (whole - first) as i64 } else { -((first - whole - 1) as i64) };
        let digits = Cow::Borrowed(&number[first..=last]);
        Some(Self { negative, digits, exponent: places + power })
    }

    pub(super) fn into_owned(self) -> Decimal<'static> {
        let digits = Cow::Owned(self.digits.into_owned());
        Decimal { negative: self.negative, digits, exponent: self.exponent }
    }

    pub(super) fn compare(&self, other: &Decimal<'_>) -> Ordering {
        let signed = |number: &Decimal<'_>| match (number.digits.is_empty(), number.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let sign = signed(self);
        sign.cmp(&signed(other)).then_with(|| {
            let size = self.compare_magnitude(other);
            if sign < 0 { size.reverse() } else { size }
        })
    }

    fn compare_magnitude(&self, other: &Decimal<'_>) -> Ordering {
        let bare = |byte: &&u8| **byte != b'.';
        self.exponent
            .cmp(&other.exponent)
            .then_with(|| self.digits.iter().filter(bare).cmp(other.digits.iter().filter(bare)))
    }
}

fn exponent(bytes: &[u8]) -> Option<i64> {
    let (sign, digits) = match bytes {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    let count = digit_count(digits);
    if count == 0 || count != digits.len() || count > EXPONENT_DIGITS_MAX {
        return None;
    }
    let value = digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    Some(sign * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Option<Decimal<'_>> {
        Decimal::parse(text.as_bytes())
    }

    #[test]
    fn numbers_compare_exactly_however_they_are_written() {
        let ascending = [
            "-1e999999999",
            "-100.5",
            "-100",
            "-0.001",
            "0",
            "1e-999999999",
            "0.00099",
            "0.001",
            "1",
            "9",
            "10",
            "10.01",
            "10.1",
            "9007199254740992",
            "9007199254740993",
            "1e17",
            "1.00000000000000000000001e30",
            "1e31",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(number(a).unwrap().compare(&number(b).unwrap()), i.cmp(&j), "{a} {b}");
            }
        }
    }

    #[test]
    fn the_same_number_is_equal_in_each_of_its_forms() {
        for (a, b) in [
            ("0", "-0"),
            ("0", "0.000e5"),
            ("007", "7"),
            ("+1.50", "15e-1"),
            ("1e3", "1000"),
            ("1000.000", "0.001E+6"),
            ("-12.5", "-0.125e2"),
        ] {
            assert_eq!(number(a).unwrap().compare(&number(b).unwrap()), Ordering::Equal, "{a} {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in [
            "",
            "-",
            ".5",
            "5.",
            "1e",
            "1e+",
            "1e5x",
            "1e5.",
            "0x10",
            " 1",
            "1 ",
            "1_000",
            "NaN",
            "1e1234567890",
            "--1",
        ] {
            assert!(number(text).is_none(), "{text:?}");
        }
    }
}
