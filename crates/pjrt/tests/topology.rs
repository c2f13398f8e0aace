//! Compiles for TPUs that are not present.
//!
//! Skipped unless `TORCHTPU_LIBTPU` names a `libtpu.so` (`pip install libtpu`). Away from Google's
//! cloud, set `TPU_SKIP_MDS_QUERY=1`: without it, libtpu waits minutes for a metadata server.

use pjrt::{Code, CompileOptions, PhaseCompiler, Plugin, Topology, Value};

const ADD: &str = "func.func @main(%a: tensor<256x256xf32>, %b: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %0 = stablehlo.add %a, %b : tensor<256x256xf32>
  return %0 : tensor<256x256xf32>
}";

const ALL_REDUCE: &str = "func.func @main(%a: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %0 = \"stablehlo.all_reduce\"(%a) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<256x256xf32>) -> tensor<256x256xf32>
  return %0 : tensor<256x256xf32>
}";

#[test]
fn tpu_programs_compile_ahead_of_time() {
    let Some(path) = std::env::var_os("TORCHTPU_LIBTPU") else {
        eprintln!("skipped: TORCHTPU_LIBTPU does not name a libtpu.so");
        return;
    };
    let plugin = Plugin::load(path.as_ref()).expect("libtpu");
    for (name, kind, devices) in [
        ("v5e:1x1", "TPU v5 lite", 1),
        ("v5e:2x2", "TPU v5 lite", 4),
        ("v6e:2x2", "TPU v6 lite", 4),
        ("v4:2x2x1", "TPU v4", 8),
        ("v5p:2x2x1", "TPU v5", 4),
        ("tpu7x:2x2x1", "TPU7x", 8),
    ] {
        let topology = plugin.topology(name, &[]).expect(name);
        assert_eq!(topology.platform_name().unwrap(), "tpu");
        let described = topology.devices().unwrap();
        assert_eq!((described.len(), &*described[0].kind), (devices, kind), "{name}");
        compile_add(name, &topology);
    }

    let topology = plugin.topology("v5e:2x2", &[]).expect("a topology");
    let assigned = CompileOptions { device_assignment: vec![3, 2, 1, 0], ..CompileOptions::replicated(4) };
    for options in [CompileOptions::replicated(4), assigned] {
        let executable = topology.compile(ALL_REDUCE.as_bytes(), &options).expect("an all_reduce");
        assert!(!executable.serialize().unwrap().is_empty());
    }

    run_first_phase(&plugin);
    let error = topology.compile(b"junk", &CompileOptions::default()).err().expect("an error");
    assert_eq!(error.function, "PJRT_Compile");
    let error = plugin.topology("v5e", &[]).err().expect("an error");
    assert_eq!(error.function, "PJRT_TopologyDescription_Create");
}

/// The first phase writes down how memory is assigned, and refuses what does not fit.
fn run_first_phase(plugin: &Plugin) {
    const FIRST: &str = "phase1_hlo_opts";
    let compiler = PhaseCompiler::new(plugin).expect("no error").expect("the extension");
    assert!(compiler.phases().unwrap().iter().any(|name| name == FIRST));
    let topology = plugin.topology("v5e:1x1", &[]).expect("a topology");
    let folder = std::env::temp_dir().join(format!("torchtpu-phases-{}", std::process::id()));
    let options = CompileOptions {
        overrides: vec![
            ("xla_dump_to".into(), Value::Str(folder.to_str().unwrap().into())),
            ("xla_dump_hlo_as_text".into(), Value::Bool(true)),
        ],
        ..CompileOptions::default()
    };
    compiler.run(FIRST, ADD, &topology, &options).expect("a plan");
    let written = std::fs::read_dir(&folder).expect("a folder").map(|file| file.unwrap().file_name());
    assert!(written.into_iter().any(|name| name.to_string_lossy().ends_with("buffer-assignment.txt")));
    std::fs::remove_dir_all(&folder).unwrap();

    let large = ADD.replace("256x256", "65536x65536");
    let error = compiler.run(FIRST, &large, &topology, &CompileOptions::default()).expect_err("48 GiB");
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
    assert!(compiler.run("phase9", ADD, &topology, &CompileOptions::default()).is_err());
}

fn compile_add(name: &str, topology: &Topology) {
    let compile = || topology.compile(ADD.as_bytes(), &CompileOptions::default()).expect(name);
    let executable = compile();
    assert_eq!(executable.num_outputs().unwrap(), 1);
    assert!(!executable.serialize().unwrap().is_empty());
    assert_eq!(executable.fingerprint(), compile().fingerprint());
    let stats = executable.memory_stats().unwrap();
    assert_eq!((stats.argument, stats.output), (2 << 18, 1 << 18), "{name}");
    assert!(stats.peak >= 3 << 18, "{name}: {stats:?}");
    let costs = executable.cost_analysis().unwrap();
    assert!(costs.contains(&("flops".into(), Value::Float(65536.))), "{name}: {costs:?}");
}
