//! Compiles the C++ shim in `csrc/` against an installed torch and links it into this crate's extension.
//!
//! torch has no stable C++ interface, so the extension only works with the torch version that it was built against:
//! the one in `TORCHTPU_TORCH_DIR`, else the one that the Python of `PYO3_PYTHON` (or of `.venv`) imports.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let csrc = root.join("csrc");
    let python = python(&root);
    let torch = torch_directory(&python);

    println!("cargo:rerun-if-env-changed=TORCHTPU_TORCH_DIR");
    println!("cargo:rerun-if-env-changed=PYO3_PYTHON");
    println!("cargo:rerun-if-env-changed=CLIPPY_ARGS");
    println!("cargo:rerun-if-changed={}", csrc.display());
    println!("cargo:rerun-if-changed={}", torch.join("version.py").display());
    println!("cargo:rustc-env=TORCHTPU_TORCH_VERSION={}", torch_version(&torch));

    // Clippy, which sets this variable, only checks Rust and links nothing. Compiling the C++ would take longer than
    // Clippy itself.
    if env::var_os("CLIPPY_ARGS").is_some() {
        return;
    }

    let units = [("device", csrc.clone()), ("distributed", csrc.join("distributed"))]
        .map(|(name, folder)| translation_unit(name, &folder));

    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .include(&csrc)
        .files(&units)
        .warnings(true)
        .extra_warnings(true)
        .opt_level(if env::var("PROFILE").as_deref() == Ok("release") { 2 } else { 1 })
        // torch's headers generate gigabytes of debug information, which is not needed.
        .debug(false)
        .flag("-fvisibility=hidden")
        .flag("-ffunction-sections")
        .flag("-fdata-sections")
        .define("_GLIBCXX_USE_CXX11_ABI", "1");
    // Include torch's headers as system headers, to suppress their warnings.
    let include = torch.join("include");
    for directory in [include.join("torch/csrc/api/include"), include.join("kineto"), include, python_include(&python)]
    {
        build.flag("-isystem").flag(directory.display().to_string());
    }
    build.compile("torchtpu_csrc");

    // No rpath: the Python package imports torch first, and the loader then finds these libraries by name.
    println!("cargo:rustc-link-search=native={}", torch.join("lib").display());
    for library in ["torch_python", "torch_cpu", "c10"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    println!("cargo:rustc-link-arg-cdylib=-Wl,--gc-sections");
}

/// A file that includes the C++ files of a folder. The compiler reads torch's headers once for each unit, which takes
/// longer than all that follows them.
fn translation_unit(name: &str, folder: &Path) -> PathBuf {
    let mut sources: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()))
        .map(|entry| entry.expect("a directory entry of csrc/").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cpp"))
        .collect();
    sources.sort();
    let text: String = sources.iter().map(|path| format!("#include \"{}\"\n", path.display())).collect();
    let unit = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(format!("{name}.cpp"));
    fs::write(&unit, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", unit.display()));
    unit
}

fn python(root: &Path) -> PathBuf {
    if let Some(chosen) = env::var_os("PYO3_PYTHON") {
        return PathBuf::from(chosen);
    }
    let environment = root.join(".venv/bin/python");
    if environment.exists() { environment } else { PathBuf::from("python3") }
}

/// The output of one line of Python.
fn ask(python: &Path, program: &str) -> Option<String> {
    let output = Command::new(python).args(["-c", program]).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !answer.is_empty()).then_some(answer)
}

/// The directory with torch's `include` and `lib`, found without importing torch.
fn torch_directory(python: &Path) -> PathBuf {
    const FIND: &str = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
    let found = match env::var_os("TORCHTPU_TORCH_DIR") {
        Some(chosen) => PathBuf::from(chosen),
        None => ask(python, FIND).map(PathBuf::from).unwrap_or_else(|| {
            panic!("no torch found by {}: install it there, or set TORCHTPU_TORCH_DIR", python.display())
        }),
    };
    assert!(found.join("include/c10").is_dir(), "{} is not an installed torch: it has no include/c10", found.display());
    found
}

fn python_include(python: &Path) -> PathBuf {
    const FIND: &str = "import sysconfig; print(sysconfig.get_path('include'))";
    PathBuf::from(ask(python, FIND).unwrap_or_else(|| panic!("{} does not run", python.display())))
}

fn torch_version(torch: &Path) -> String {
    let path = torch.join("version.py");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    text.lines()
        .find_map(|line| line.strip_prefix("__version__ = '")?.split('\'').next())
        .unwrap_or_else(|| panic!("{} names no version", path.display()))
        .to_owned()
}
