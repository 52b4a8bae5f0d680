//! Parses a filter's tokens into a tree. The grammar is in docs/reference/filters.md; each rule is a function.

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
/// The first error in the text.
pub(super) fn parse(text: &str) -> Result<Tree, FilterError> {
    let mut tokens = Tokens { text, position: 0 };
    let next_token = tokens.next()?;
    let mut parser = Parser { tokens, next_token, depth: 0, tests: 0 };
    let tree = parser.parse_or()?;
    match &parser.next_token {
        (_, Token::End) => Ok(tree),
        _ => Err(parser.error("and, or, or the end")),
    }
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    /// The next token and its position.
    next_token: (usize, Token<'a>),
    /// The number of open `not` and parentheses.
    depth: usize,
    tests: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, wanted: &str) -> FilterError {
        FilterError::new(self.next_token.0, self.next_token.1.describe(), wanted)
    }

    fn advance(&mut self) -> Result<Token<'a>, FilterError> {
        let next = self.tokens.next()?;
        Ok(std::mem::replace(&mut self.next_token, next).1)
    }

    /// Skips a keyword if it comes next, in capitals or not.
    fn take_keyword(&mut self, word: &str) -> Result<bool, FilterError> {
        let is = matches!(&self.next_token.1, Token::Word(held) if held.eq_ignore_ascii_case(word));
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn parse_or(&mut self) -> Result<Tree, FilterError> {
        let mut trees = vec![self.parse_and()?];
        while self.take_keyword("or")? {
            trees.push(self.parse_and()?);
        }
        Ok(Tree::Any(trees))
    }

    fn parse_and(&mut self) -> Result<Tree, FilterError> {
        let mut trees = vec![self.parse_not()?];
        while self.take_keyword("and")? {
            trees.push(self.parse_not()?);
        }
        Ok(Tree::All(trees))
    }

    fn parse_not(&mut self) -> Result<Tree, FilterError> {
        let at = self.next_token.0;
        if self.take_keyword("not")? {
            let tree = self.nested(at, Self::parse_not)?;
            return Ok(Tree::Not(Box::new(tree)));
        }
        if self.next_token.1 == Token::Symbol("(") {
            self.advance()?;
            let tree = self.nested(at, Self::parse_or)?;
            if self.next_token.1 != Token::Symbol(")") {
                return Err(self.error("and, or, or )"));
            }
            self.advance()?;
            return Ok(tree);
        }
        self.parse_test()
    }

    fn nested(
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

    fn parse_test(&mut self) -> Result<Tree, FilterError> {
        let at = self.next_token.0;
        if self.tests == FILTER_TESTS_MAX {
            let wanted = format!("at most {FILTER_TESTS_MAX} (FILTER_TESTS_MAX)");
            return Err(FilterError::new(at, "one more test", wanted));
        }
        self.tests += 1;
        if self.take_keyword("exists")? {
            return Ok(Tree::Test(self.parse_field("key or header.NAME")?, Check::Exists));
        }
        let field = self.parse_field(TEST)?;
        let check = self.parse_check()?;
        Ok(Tree::Test(field, check))
    }

    fn parse_field(&mut self, wanted: &str) -> Result<Field, FilterError> {
        let (at, Token::Word(word)) = self.next_token else { return Err(self.error(wanted)) };
        if word == "key" {
            self.advance()?;
            return Ok(Field::Key);
        }
        let Some(name) = word.strip_prefix("header.") else { return Err(self.error(wanted)) };
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

    fn parse_check(&mut self) -> Result<Check, FilterError> {
        if self.take_keyword("prefix")? {
            return Ok(Check::Prefix(self.parse_text("prefix")?.into()));
        }
        let at = self.next_token.0;
        if self.take_keyword("glob")? || self.take_symbol("~")? {
            let pattern = self.parse_text("glob")?;
            if pattern.len() > FILTER_GLOB_BYTES_MAX {
                let found = format!("a pattern of {} bytes", pattern.len());
                let wanted = format!("at most {FILTER_GLOB_BYTES_MAX} (FILTER_GLOB_BYTES_MAX)");
                return Err(FilterError::new(at, found, wanted));
            }
            return Ok(Check::Glob(Glob::of(&pattern)));
        }
        let relation = match self.next_token.1 {
            Token::Symbol("=") => Relation::Equal,
            Token::Symbol("!=") => Relation::NotEqual,
            Token::Symbol("<") => Relation::Less,
            Token::Symbol("<=") => Relation::LessOrEqual,
            Token::Symbol(">") => Relation::Greater,
            Token::Symbol(">=") => Relation::GreaterOrEqual,
            _ => return Err(self.error(OPERATOR)),
        };
        self.advance()?;
        Ok(Check::Compare(relation, self.parse_literal()?))
    }

    fn take_symbol(&mut self, sign: &str) -> Result<bool, FilterError> {
        let is = self.next_token.1 == Token::Symbol(sign);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    fn parse_text(&mut self, operator: &str) -> Result<Vec<u8>, FilterError> {
        if !matches!(self.next_token.1, Token::Text(_)) {
            return Err(self.error(&format!("a text in quotes after {operator}")));
        }
        match self.advance()? {
            Token::Text(text) => Ok(text),
            _ => Ok(Vec::new()),
        }
    }

    fn parse_literal(&mut self) -> Result<Literal, FilterError> {
        let literal = match &self.next_token.1 {
            Token::Text(text) => Literal::Text(text.as_slice().into()),
            Token::Word(word @ ("true" | "false")) => Literal::Text(word.as_bytes().into()),
            Token::Number(number) => match Decimal::parse(number.as_bytes()) {
                Some(number) => Literal::Number(number.into_owned()),
                None => return Err(self.error("a number such as 42, -1.5 or 2e9")),
            },
            _ => return Err(self.error(VALUE)),
        };
        self.advance()?;
        Ok(literal)
    }
}
