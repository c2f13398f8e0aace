//! Generates the bindings from the C header that the PJRT CPU plugin's wheel ships.
//!
//! In addition to bindgen's output, this writes the size for the `struct_size` field of every argument struct, and
//! the name and offset of every function of the table. So all calls of the C API go through one generic function
//! (`src/api.rs`), and no size is written by hand.

use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;

const HEADER_IN_SITE_PACKAGES: &str = "xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TORCHTPU_PJRT_HEADER");
    if let Err(message) = generate() {
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn generate() -> Result<(), String> {
    let header = find_header()?;
    let builder = bindings::builder(&header)?.allowlist_item("PJRT_.*");
    let mut code = bindings::generate(builder, &header)?;
    let text = std::fs::read_to_string(&header).map_err(|error| format!("{}: {error}", header.display()))?;
    code.push_str(&describe_structs(&text));
    bindings::write(&code)
}

/// Implements `Struct` for each struct with a size constant, and `Arguments` for each argument struct of a function.
fn describe_structs(header: &str) -> String {
    let functions: Vec<&str> = invocations(header, "_PJRT_API_STRUCT_FIELD(").collect();
    let mut code = String::new();
    for arguments in invocations(header, "PJRT_DEFINE_STRUCT_TRAITS(") {
        let name = arguments.split(',').next().unwrap_or_default().trim();
        // Skips the macro's own definition, and the two structs without a size.
        if name == "sname" || name.ends_with("CallbackInfo") {
            continue;
        }
        writeln!(
            code,
            "// SAFETY: the size is the header's, and zeroed scalars, pointers and optional functions are valid.\n\
             unsafe impl crate::api::Struct for {name} {{\n\
             const SIZE: usize = {name}_STRUCT_SIZE as usize;\n\
             fn set_struct_size(&mut self) {{ self.struct_size = Self::SIZE; }}\n}}"
        )
        .expect("writing to a String");
        // These two functions return no error, so they are called directly.
        let function = name.trim_end_matches("_Args");
        let returns_error = !matches!(function, "PJRT_Error_Destroy" | "PJRT_Error_Message");
        if functions.contains(&function) && returns_error {
            writeln!(
                code,
                "// SAFETY: the offset is that of the function which takes this struct.\n\
                 unsafe impl crate::api::Arguments for {name} {{\n\
                 const FUNCTION: &'static str = \"{function}\";\n\
                 const OFFSET: usize = ::std::mem::offset_of!(PJRT_Api, {function});\n}}"
            )
            .expect("writing to a String");
        }
    }
    code
}

/// The text in parentheses of each use of a macro.
fn invocations<'a>(text: &'a str, opening: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(opening).skip(1).filter_map(|rest| rest.split(')').next()).map(str::trim)
}

fn find_header() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("TORCHTPU_PJRT_HEADER").map(PathBuf::from) {
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!("TORCHTPU_PJRT_HEADER: no file at {}", path.display()))
        };
    }
    bindings::in_site_packages(HEADER_IN_SITE_PACKAGES).ok_or_else(|| {
        format!(
            "no {HEADER_IN_SITE_PACKAGES} among the packages of {}: `pip install xla_cpu_pjrt` there, \
             or set PYO3_PYTHON to another interpreter, or TORCHTPU_PJRT_HEADER to the header",
            bindings::python().display()
        )
    })
}
