//! Generates Rust bindings of `csrc/abi.h`, and the list of functions that the core defines.

use std::path::Path;

use bindgen::callbacks::{EnumVariantValue, ItemInfo, ItemKind, ParseCallbacks};

/// The line of the header that precedes the functions of the C++ side.
const DEFINED_IN_CSRC: &str = "// ---- csrc, called from Rust";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Err(message) = generate() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn generate() -> Result<(), String> {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../csrc/abi.h");
    let builder = bindings::builder(&header)?
        .clang_args(["-x", "c++", "-std=c++20"])
        .allowlist_item("(Tt|tt_).*")
        .rustified_enum("Tt.*")
        .anon_fields_prefix("payload")
        .layout_tests(true)
        .parse_callbacks(Box::new(RustNames));
    // bindgen numbers anonymous members and types. There is one of each.
    let mut code =
        bindings::generate(builder, &header)?.replace("payload1", "payload").replace("__bindgen_ty_1", "Payload");
    let text = std::fs::read_to_string(&header).map_err(|error| format!("{}: {error}", header.display()))?;
    let (_, csrc) = text
        .split_once(DEFINED_IN_CSRC)
        .ok_or_else(|| format!("{} has no line `{DEFINED_IN_CSRC}`", header.display()))?;
    code.push_str(&list_of_exports(&code, csrc));
    bindings::write(&code)
}

/// `TtErrorKind::TT_OUT_OF_MEMORY` becomes `ErrorKind::OutOfMemory`.
#[derive(Debug)]
struct RustNames;

impl ParseCallbacks for RustNames {
    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        matches!(item.kind, ItemKind::Type).then(|| item.name.strip_prefix("Tt").map(str::to_owned)).flatten()
    }

    fn enum_variant_name(&self, _: Option<&str>, name: &str, _: EnumVariantValue) -> Option<String> {
        let words = name.strip_prefix("TT_")?;
        let words = words.strip_suffix("_ERROR").unwrap_or(words);
        Some(words.split('_').map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase())).collect())
    }
}

/// A macro that calls another macro with the names of all functions that `csrc` does not define.
fn list_of_exports(code: &str, csrc: &str) -> String {
    let names: Vec<&str> = code
        .split("pub fn ")
        .skip(1)
        .filter_map(|rest| rest.split('(').next())
        .filter(|name| !csrc.contains(&format!("{name}(")))
        .collect();
    let names = names.join(", ");
    format!("#[macro_export]\nmacro_rules! for_each_export {{ ($with:ident) => {{ $with!({names}); }}; }}\n")
}
