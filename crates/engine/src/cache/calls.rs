//! The custom calls in a program's text: whether its executable works in another process.

/// Custom calls that the plugin's compiler implements, or that carry their code in the program's text. Any other
/// custom call may be an address in this process, which no other process can use.
const COMPILER_CALLS: [&str; 4] = ["Eigh", "Qr", "ProductOfElementaryHouseholderReflectors", "tpu_custom_call"];

/// The attribute with the target of a custom call in MLIR's generic form.
const TARGET: &str = "call_target_name";

/// Whether the compiler implements all custom calls of a StableHLO text.
pub(super) fn is_self_contained(text: &str) -> bool {
    let mut tokens = Tokens(text);
    while let Some(token) = tokens.next() {
        match token {
            // stablehlo.custom_call @Qr(%a)
            Token::Word(word) if is_custom_call(word) => match tokens.next() {
                Some(Token::Symbol(target)) if COMPILER_CALLS.contains(&target) => {}
                _ => return false,
            },
            // "stablehlo.custom_call"(%a) <{call_target_name = "Qr", ...
            Token::Text(name) if is_custom_call(name) => match target_attribute(&mut tokens) {
                Some(target) if COMPILER_CALLS.contains(&target) => {}
                _ => return false,
            },
            _ => {}
        }
    }
    true
}

/// Whether a name is that of the operation, in any dialect.
fn is_custom_call(name: &str) -> bool {
    name.ends_with(".custom_call") && !name.contains(char::is_whitespace)
}

/// The target of a custom call in generic form, after its name was read.
fn target_attribute<'t>(tokens: &mut Tokens<'t>) -> Option<&'t str> {
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(TARGET) => match tokens.next() {
                Some(Token::Text(target)) => return Some(target),
                _ => return None,
            },
            Token::Word(name) | Token::Text(name) if is_custom_call(name) => return None,
            _ => {}
        }
    }
    None
}

/// A part of a text that can be the name of an operation or of a target.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Token<'t> {
    /// The text inside quotes. Escapes are not resolved.
    Text(&'t str),
    /// `@name` or `@"name"`, without `@` and quotes.
    Symbol(&'t str),
    Word(&'t str),
}

/// The tokens of a text, without punctuation, comments and names of values.
struct Tokens<'t>(&'t str);

impl<'t> Iterator for Tokens<'t> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        loop {
            let start = self.0.find(|c: char| is_of_word(c) || matches!(c, '"' | '@' | '%' | '/'))?;
            self.0 = &self.0[start..];
            match self.0.as_bytes()[0] {
                b'"' => return Some(Token::Text(self.quoted())),
                b'@' => {
                    self.0 = &self.0[1..];
                    let name = if self.0.starts_with('"') { self.quoted() } else { self.word() };
                    return Some(Token::Symbol(name));
                }
                b'%' => {
                    self.0 = &self.0[1..];
                    self.word();
                }
                b'/' => {
                    let end = if self.0.starts_with("//") { self.0.find('\n') } else { Some(1) };
                    self.0 = &self.0[end.unwrap_or(self.0.len())..];
                }
                _ => return Some(Token::Word(self.word())),
            }
        }
    }
}

impl<'t> Tokens<'t> {
    fn word(&mut self) -> &'t str {
        let end = self.0.find(|c: char| !is_of_word(c)).unwrap_or(self.0.len());
        self.take(end)
    }

    /// The text from the next quote to the one that ends it.
    fn quoted(&mut self) -> &'t str {
        self.0 = &self.0[1..];
        let mut is_escaped = false;
        let end = self.0.find(|c: char| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let text = self.take(end.unwrap_or(self.0.len()));
        self.0 = self.0.get(1..).unwrap_or_default();
        text
    }

    fn take(&mut self, end: usize) -> &'t str {
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_calls_of_the_compiler_are_self_contained() {
        assert!(is_self_contained("%0 = stablehlo.add %a, %a"));
        assert!(is_self_contained("%0 = \"stablehlo.custom_call\"(%a) <{call_target_name = \"Qr\", x = 1}> : ()"));
        assert!(is_self_contained("%0 = stablehlo.custom_call @Qr(%a)"));
        assert!(is_self_contained("%0 = stablehlo.custom_call @\"Qr\"(%a)"));
        for other in ["@xla_ffi_python_cpu_callback(%a)", "@QrOfMine(%a)", "", "(%a) <{x}>", "@\"Qr.2\"(%a)"] {
            assert!(!is_self_contained(&format!("%0 = stablehlo.custom_call {other}\n")), "{other}");
        }
        assert!(!is_self_contained("stablehlo.custom_call @Qr(%a)\nstablehlo.custom_call @other(%a)"));
    }

    #[test]
    fn a_kernel_of_mosaic_is_self_contained() {
        let pretty = r#"%0 = stablehlo.custom_call @tpu_custom_call(%arg0) {api_version = 1 : i32, backend_config = "{\"custom_call_config\": {\"body\": \"TUzvUjMLAQ==\", \"serialization_format\": 1}}", kernel_name = "relu"} : (tensor<8xf32>) -> tensor<8xf32>"#;
        assert!(is_self_contained(pretty));
        assert!(!is_self_contained(&pretty.replace("@tpu_custom_call", "@Sharding")));
        let generic = r#""stablehlo.custom_call"(%a) <{backend_config = "{\"custom_call_config\": \"call_target_name = \\\"x\\\"\"}", call_target_name = "tpu_custom_call"}> : () -> ()"#;
        assert!(is_self_contained(generic));
        assert!(!is_self_contained(&generic.replace("\"tpu_custom_call\"", "\"Callback\"")));
    }

    #[test]
    fn names_are_not_calls() {
        assert!(is_self_contained("func.call @custom_call(%custom_call) // stablehlo.custom_call @other"));
        assert!(is_self_contained("func.call @\"a.custom_call\"() {name = \"a custom_call\"}"));
        // A call without a target, before one with a target.
        assert!(!is_self_contained(
            "\"stablehlo.custom_call\"() \"stablehlo.custom_call\"() {call_target_name = \"Qr\"}"
        ));
        assert!(!is_self_contained("\"stablehlo.custom_call\"() {call_target_name = \"Q"));
    }
}
