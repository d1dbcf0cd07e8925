//! Looks at a condition's text before it is compiled.
//!
//! SECURITY: the CEL compiler recurses over its input and an overflowing stack aborts the process, which nothing can
//! catch. So texts that would make it recurse deeply are refused here, by a pass that does not recurse itself.

use crate::limits;

/// One level of brackets: how deep its expressions nest, as far as it was read.
#[derive(Default)]
struct Level {
    /// Operators of the running operand of `&&` or `||`, which the compiler nests on the left.
    chain: usize,
    /// The deepest brackets inside that operand.
    inner: usize,
    /// The deepest operand of the running element.
    deepest: usize,
    /// Conditionals of the running element, which nest on the right.
    conditionals: usize,
    /// The deepest element of the level.
    elements: usize,
}

impl Level {
    fn end_operand(&mut self) {
        self.deepest = self.deepest.max(self.chain + self.inner);
        self.chain = 0;
        self.inner = 0;
    }

    fn end_element(&mut self) {
        self.end_operand();
        self.elements = self.elements.max(self.conditionals + self.deepest);
        self.deepest = 0;
        self.conditionals = 0;
    }

    fn depth(&self) -> usize {
        let operand = self.deepest.max(self.chain + self.inner);
        self.elements.max(self.conditionals + operand)
    }
}

/// Refuses a condition that is too long or nests too deep to be compiled safely.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if text.len() > limits::CONDITION_BYTES {
        return Err(format!("condition of {} bytes is over the limit of {}", text.len(), limits::CONDITION_BYTES));
    }
    if text.trim().is_empty() {
        return Err("condition is blank".to_owned());
    }
    let mut levels = vec![Level::default()];
    let mut scan = Scan { bytes: text.as_bytes(), at: 0 };
    while let Some(token) = scan.next()? {
        step(&mut levels, token)?;
        let depth: usize = levels.iter().map(Level::depth).sum::<usize>() + levels.len();
        if levels.len() > limits::CONDITION_DEPTH || depth > limits::CONDITION_CHAIN {
            return Err(format!(
                "condition nests deeper than {} brackets or {} operators",
                limits::CONDITION_DEPTH,
                limits::CONDITION_CHAIN
            ));
        }
    }
    if levels.len() == 1 { Ok(()) } else { Err("condition leaves a bracket open".to_owned()) }
}

fn step(levels: &mut Vec<Level>, token: Token) -> Result<(), String> {
    if token == Token::Open {
        // An index, call or list also continues the chain it stands in.
        if let Some(level) = levels.last_mut() {
            level.chain += 1;
        }
        levels.push(Level::default());
        return Ok(());
    }
    if token == Token::Close {
        let closed = levels.pop().map(|level| level.depth() + 1).unwrap_or_default();
        let Some(level) = levels.last_mut() else {
            return Err("condition closes a bracket it never opened".to_owned());
        };
        level.inner = level.inner.max(closed);
        return Ok(());
    }
    let Some(level) = levels.last_mut() else { return Ok(()) };
    match token {
        Token::Operator => level.chain += 1,
        Token::Logical => level.end_operand(),
        Token::Conditional => {
            level.end_operand();
            level.conditionals += 1;
        }
        Token::Comma => level.end_element(),
        Token::Open | Token::Close | Token::Other => {}
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Operator,
    Logical,
    Conditional,
    Comma,
    Other,
}

/// Splits the text as far as nesting needs, skipping strings and comments.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or_default()
    }

    fn next(&mut self) -> Result<Option<Token>, String> {
        let Some(byte) = self.bytes.get(self.at).copied() else { return Ok(None) };
        if self.peek(0) == b'/' && self.peek(1) == b'/' {
            while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                self.at += 1;
            }
            return Ok(Some(Token::Other));
        }
        if let b'"' | b'\'' | b'`' = byte {
            self.string(byte)?;
            return Ok(Some(Token::Other));
        }
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            return Ok(Some(self.word()));
        }
        let doubled = self.peek(1) == byte && (byte == b'&' || byte == b'|');
        self.at += if doubled { 2 } else { 1 };
        Ok(Some(match byte {
            b'(' | b'[' | b'{' => Token::Open,
            b')' | b']' | b'}' => Token::Close,
            b'&' | b'|' => Token::Logical,
            b'?' => Token::Conditional,
            b',' => Token::Comma,
            b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'.' | b':' => Token::Operator,
            _ => Token::Other,
        }))
    }

    /// A name or number. `in` is an operator; a prefix of a string (`r"…"`, `b'…'`) belongs to the string.
    fn word(&mut self) -> Token {
        let start = self.at;
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'_' {
            self.at += 1;
        }
        match self.bytes.get(start..self.at) {
            Some(b"in") => Token::Operator,
            _ => Token::Other,
        }
    }

    /// Skips a string. A raw one has no escapes: its prefix stands right before the quote.
    fn string(&mut self, quote: u8) -> Result<(), String> {
        let raw = quote == b'`' || self.is_raw();
        let triple = quote != b'`' && self.peek(1) == quote && self.peek(2) == quote;
        self.at += if triple { 3 } else { 1 };
        while self.at < self.bytes.len() {
            let byte = self.peek(0);
            if byte == b'\\' && !raw {
                self.at += 2;
            } else if byte == quote && !triple {
                self.at += 1;
                return Ok(());
            } else if byte == quote && self.peek(1) == quote && self.peek(2) == quote {
                self.at += 3;
                return Ok(());
            } else if !triple && (byte == b'\n' || byte == b'\r') {
                break;
            } else {
                self.at += 1;
            }
        }
        Err("condition leaves a string open".to_owned())
    }

    fn is_raw(&self) -> bool {
        let before = |back: usize| self.at.checked_sub(back).and_then(|at| self.bytes.get(at)).copied().unwrap_or(b' ');
        let letters: Vec<u8> =
            (1..=3).map(before).take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').collect();
        match letters.as_slice() {
            [b'r' | b'R'] => true,
            [one, two] => {
                [*one, *two].iter().all(|byte| b"rRbB".contains(byte)) && letters.iter().any(|b| b"rR".contains(b))
            }
            _ => false,
        }
    }
}
