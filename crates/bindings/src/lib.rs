//! Shared code of the build scripts that read C headers: finds libclang and the compiler's own headers.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBCLANG_IN_SITE_PACKAGES: &str = "clang/native";

/// A builder for one header. Cargo runs the build script again when the header changes.
///
/// # Errors
/// If there is no libclang.
pub fn builder(header: &Path) -> Result<bindgen::Builder, String> {
    for variable in ["PYO3_PYTHON", "LIBCLANG_PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    println!("cargo:rerun-if-changed={}", header.display());
    set_libclang_path()?;
    let mut builder = bindgen::Builder::default()
        .header(header.display().to_string())
        .prepend_enum_name(false)
        .generate_comments(false)
        .layout_tests(false);
    // The libclang wheel has no compiler headers (such as stddef.h).
    if let Some(include) = compiler_headers() {
        builder = builder.clang_arg(format!("-I{}", include.display()));
    }
    Ok(builder)
}

/// Generates Rust bindings of a header as text.
///
/// # Errors
/// If clang cannot parse the header.
pub fn generate(builder: bindgen::Builder, header: &Path) -> Result<String, String> {
    builder.generate().map(|code| code.to_string()).map_err(|error| format!("bindgen on {}: {error}", header.display()))
}

/// Writes the text to `bindings.rs` in the folder of build outputs.
///
/// # Errors
/// If the file cannot be written.
pub fn write(code: &str) -> Result<(), String> {
    let path = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    std::fs::write(&path, code).map_err(|error| format!("{}: {error}", path.display()))
}

/// A file or folder in the packages of [`python`].
pub fn in_site_packages(relative: &str) -> Option<PathBuf> {
    let output =
        Command::new(python()).args(["-c", "import sys; print('\\n'.join(p for p in sys.path if p))"]).output().ok()?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|folder| Path::new(folder).join(relative))
        .find(|path| path.exists())
}

/// The Python interpreter whose packages are searched.
pub fn python() -> PathBuf {
    if let Some(path) = env::var_os("PYO3_PYTHON") {
        return path.into();
    }
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let local = manifest.join("../../.venv/bin/python");
    if local.exists() { local } else { "python3".into() }
}

fn set_libclang_path() -> Result<(), String> {
    if env::var_os("LIBCLANG_PATH").is_some() {
        return Ok(());
    }
    let folder = in_site_packages(LIBCLANG_IN_SITE_PACKAGES).ok_or_else(|| {
        format!(
            "no {LIBCLANG_IN_SITE_PACKAGES} among the packages of {}: `pip install libclang` there, \
             or set LIBCLANG_PATH to the folder of libclang.so",
            python().display()
        )
    })?;
    // SAFETY: the build script has no other thread that reads the environment.
    unsafe { env::set_var("LIBCLANG_PATH", folder) };
    Ok(())
}

fn compiler_headers() -> Option<PathBuf> {
    let output = Command::new("gcc").arg("-print-file-name=include").output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    path.is_dir().then_some(path)
}
