//! A filter's tokens as a tree. The grammar is in docs/reference/filters.md, a rule for each function.

use super::{
    decimal::Decimal,
    error::FilterError,
    glob::Glob,
    tokens::{Token, Tokens},
    tree::{Check, Field, Literal, Relation, Tree},
};
use crate::limits::{FILTER_DEPTH_MAX, FILTER_GLOB_BYTES_MAX, FILTER_TESTS_MAX};

const TEST: &str = "key, header.NAME, exists, not or (";
const OPERATOR: &str = "= != < <= > >= prefix or glob";
const VALUE: &str = "a text in quotes, a number, true or false";

/// # Errors
/// What is wrong first.
pub(super) fn parse(text: &str) -> Result<Tree, FilterError> {
    let mut tokens = Tokens { text, position: 0 };
    let ahead = tokens.next()?;
    let mut parser = Parser { tokens, ahead, depth: 0, tests: 0 };
    let tree = parser.any()?;
    match &parser.ahead {
        (_, Token::End) => Ok(tree),
        _ => Err(parser.wrong("and, or, or the end")),
    }
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    /// The token that is looked at, and where it stands.
    ahead: (usize, Token<'a>),
    /// How many `not` and parentheses are open.
    depth: usize,
    tests: usize,
}

impl<'a> Parser<'a> {
    fn wrong(&self, wanted: &str) -> FilterError {
        FilterError::new(self.ahead.0, self.ahead.1.described(), wanted)
    }

    fn advance(&mut self) -> Result<Token<'a>, FilterError> {
        let next = self.tokens.next()?;
        Ok(std::mem::replace(&mut self.ahead, next).1)
    }

    /// Passes a keyword, in capitals or not, if it stands here.
    fn word(&mut self, word: &str) -> Result<bool, FilterError> {
        let is = matches!(&self.ahead.1, Token::Word(held) if held.eq_ignore_ascii_case(word));
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn any(&mut self) -> Result<Tree, FilterError> {
        let mut trees = vec![self.all()?];
        while self.word("or")? {
            trees.push(self.all()?);
        }
        Ok(Tree::Any(trees))
    }

    fn all(&mut self) -> Result<Tree, FilterError> {
        let mut trees = vec![self.unary()?];
        while self.word("and")? {
            trees.push(self.unary()?);
        }
        Ok(Tree::All(trees))
    }

    fn unary(&mut self) -> Result<Tree, FilterError> {
        let at = self.ahead.0;
        if self.word("not")? {
            let tree = self.deeper(at, Self::unary)?;
            return Ok(Tree::Not(Box::new(tree)));
        }
        if self.ahead.1 == Token::Sign("(") {
            self.advance()?;
            let tree = self.deeper(at, Self::any)?;
            if self.ahead.1 != Token::Sign(")") {
                return Err(self.wrong("and, or, or )"));
            }
            self.advance()?;
            return Ok(tree);
        }
        self.test()
    }

    fn deeper(
        &mut self,
        at: usize,
        rule: impl Fn(&mut Self) -> Result<Tree, FilterError>,
    ) -> Result<Tree, FilterError> {
        if self.depth == FILTER_DEPTH_MAX {
            let wanted = format!("at most {FILTER_DEPTH_MAX} within each other (FILTER_DEPTH_MAX)");
            return Err(FilterError::new(at, "one more `not` or parenthesis", wanted));
        }
        self.depth += 1;
        let tree = rule(self);
        self.depth -= 1;
        tree
    }

    fn test(&mut self) -> Result<Tree, FilterError> {
        let at = self.ahead.0;
        if self.tests == FILTER_TESTS_MAX {
            let wanted = format!("at most {FILTER_TESTS_MAX} (FILTER_TESTS_MAX)");
            return Err(FilterError::new(at, "one more test", wanted));
        }
        self.tests += 1;
        if self.word("exists")? {
            return Ok(Tree::Test(self.field("key or header.NAME")?, Check::Exists));
        }
        let field = self.field(TEST)?;
        let check = self.check()?;
        Ok(Tree::Test(field, check))
    }

    fn field(&mut self, wanted: &str) -> Result<Field, FilterError> {
        let (at, Token::Word(word)) = self.ahead else { return Err(self.wrong(wanted)) };
        if word == "key" {
            self.advance()?;
            return Ok(Field::Key);
        }
        let Some(name) = word.strip_prefix("header.") else { return Err(self.wrong(wanted)) };
        let quote = self.tokens.text.as_bytes().get(at + word.len());
        let name = if name.is_empty() && matches!(quote, Some(b'"' | b'\'')) {
            // A name that is no word stands in quotes.
            match self.advance().and_then(|_| self.advance())? {
                Token::Text(name) => name,
                _ => Vec::new(),
            }
        } else {
            self.advance()?;
            name.as_bytes().to_vec()
        };
        match String::from_utf8(name) {
            Ok(name) if (1..=255).contains(&name.len()) => Ok(Field::Header(name.into())),
            _ => {
                let wanted = r#"header.NAME or header."NAME", 1 to 255 bytes of UTF-8"#;
                Err(FilterError::new(at, "a name that no header has", wanted))
            }
        }
    }

    fn check(&mut self) -> Result<Check, FilterError> {
        if self.word("prefix")? {
            return Ok(Check::Prefix(self.text("prefix")?.into()));
        }
        let at = self.ahead.0;
        if self.word("glob")? || self.sign("~")? {
            let pattern = self.text("glob")?;
            if pattern.len() > FILTER_GLOB_BYTES_MAX {
                let found = format!("a pattern of {} bytes", pattern.len());
                let wanted = format!("at most {FILTER_GLOB_BYTES_MAX} (FILTER_GLOB_BYTES_MAX)");
                return Err(FilterError::new(at, found, wanted));
            }
            return Ok(Check::Glob(Glob::of(&pattern)));
        }
        let relation = match self.ahead.1 {
            Token::Sign("=") => Relation::Equal,
            Token::Sign("!=") => Relation::NotEqual,
            Token::Sign("<") => Relation::Less,
            Token::Sign("<=") => Relation::LessOrEqual,
            Token::Sign(">") => Relation::Greater,
            Token::Sign(">=") => Relation::GreaterOrEqual,
            _ => return Err(self.wrong(OPERATOR)),
        };
        self.advance()?;
        Ok(Check::Compare(relation, self.value()?))
    }

    fn sign(&mut self, sign: &str) -> Result<bool, FilterError> {
        let is = self.ahead.1 == Token::Sign(sign);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn text(&mut self, operator: &str) -> Result<Vec<u8>, FilterError> {
        if !matches!(self.ahead.1, Token::Text(_)) {
            return Err(self.wrong(&format!("a text in quotes after {operator}")));
        }
        match self.advance()? {
            Token::Text(text) => Ok(text),
            _ => Ok(Vec::new()),
        }
    }

    fn value(&mut self) -> Result<Literal, FilterError> {
        let literal = match &self.ahead.1 {
            Token::Text(text) => Literal::Text(text.as_slice().into()),
            Token::Word(word @ ("true" | "false")) => Literal::Text(word.as_bytes().into()),
            Token::Number(number) => match Decimal::parse(number.as_bytes()) {
                Some(number) => Literal::Number(number.into_owned()),
                None => return Err(self.wrong("a number such as 42, -1.5 or 2e9")),
            },
            _ => return Err(self.wrong(VALUE)),
        };
        self.advance()?;
        Ok(literal)
    }
}
