//! The whole interface, against the CPU plugin.

mod common;

use std::sync::{Arc, mpsc};

use common::{bytes, client, floats, plugin_path};
use pjrt::{Buffer, Client, Code, CompileOptions, ElementType, HostMemory, LoadedExecutable, Plugin, Value};

const ADD: &str = "func.func @main(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %0 = stablehlo.add %a, %b : tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}";

fn compile(program: &str) -> LoadedExecutable {
    client()
        .compile(program.as_bytes(), &CompileOptions::default())
        .unwrap_or_else(|error| panic!("{error}\n{program}"))
}

fn square(values: [f32; 4], device: usize) -> Buffer {
    client().buffer_from_host(&bytes(&values), ElementType::F32, &[2, 2], device).expect("a buffer")
}

fn run(executable: &LoadedExecutable, device: usize, inputs: &[&Buffer]) -> Vec<Buffer> {
    let mut outputs = Vec::new();
    executable.execute(device, inputs, &[], &mut outputs).expect("a run");
    outputs
}

#[test]
fn everything_is_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Plugin>();
    check::<Client>();
    check::<Buffer>();
    check::<LoadedExecutable>();
    check::<pjrt::Device>();
    check::<pjrt::Executable>();
    check::<pjrt::Topology>();
    check::<pjrt::Error>();
}

#[test]
fn plugin_and_devices_describe_themselves() {
    let plugin = Plugin::load(&plugin_path()).expect("the plugin, once more");
    assert_eq!(plugin.api_version().0, 0);
    let attributes = plugin.attributes();
    let stablehlo = attributes.iter().find(|(name, _)| name == "stablehlo_current_version");
    assert!(matches!(stablehlo, Some((_, Value::Ints(version))) if version.len() == 3), "{attributes:?}");

    let client = client();
    assert_eq!(client.platform_name().unwrap(), "cpu");
    assert!(!client.platform_version().unwrap().is_empty());
    assert_eq!(client.process_index().unwrap(), 0);
    let devices = client.addressable_devices();
    assert_eq!(devices.len(), 2);
    assert_ne!(devices[0].id().unwrap(), devices[1].id().unwrap());
    assert_ne!(devices[0].local_hardware_id().unwrap(), devices[1].local_hardware_id().unwrap());
    assert_eq!(devices[0].kind().unwrap(), "cpu");
    devices[0].attributes().unwrap();
    // Plugins may lack this function; then there is an error.
    if let Err(error) = devices[0].memory_stats() {
        assert_eq!(error.code, Code::Unimplemented, "{error}");
    }
}

#[test]
fn plugins_that_cannot_be_loaded_say_why() {
    let missing = Plugin::load("/no/such/plugin.so".as_ref()).err().expect("an error");
    assert_eq!((missing.function, missing.code), ("dlopen", Code::NotFound));
    assert!(missing.message.contains("/no/such/plugin.so"), "{missing}");
    let other = Plugin::load("libc.so.6".as_ref()).err().expect("an error");
    assert!(other.to_string().contains("not a PJRT plugin"), "{other}");
}

#[test]
fn add() {
    let executable = compile(ADD);
    assert_eq!(executable.num_outputs(), 1);
    let (a, b) = (square([1., 2., 3., 4.], 0), square([10., 20., 30., 40.], 0));
    let outputs = run(&executable, 0, &[&a, &b]);
    assert_eq!(floats(&outputs[0]), [11., 22., 33., 44.]);
    assert!(outputs[0].is_ready().unwrap());
    assert_eq!(outputs[0].dims().unwrap(), [2, 2]);
    assert_eq!(outputs[0].unpadded_dims().unwrap(), [2, 2]);
    assert_eq!(outputs[0].element_type().unwrap(), ElementType::F32);
    assert!(outputs[0].device_bytes().unwrap() >= 16);
    assert_ne!(outputs[0].unsafe_pointer().unwrap(), 0);
    assert_eq!(outputs[0].client().platform_name().unwrap(), "cpu");
}

#[test]
fn portable_programs_run_on_any_device() {
    let executable = compile(ADD);
    for device in [1, 0] {
        let a = square([1., 2., 3., 4.], device);
        assert_eq!(floats(&run(&executable, device, &[&a, &a])[0]), [2., 4., 6., 8.]);
    }
    let a = square([1.; 4], 0);
    let error = executable.execute(2, &[&a, &a], &[], &mut Vec::new()).unwrap_err();
    assert_eq!(error.function, "PJRT_LoadedExecutable_Execute");
}

#[test]
fn buffers_move_between_devices() {
    let a = square([1., 2., 3., 4.], 0);
    let copy = a.copy_to_device(1).expect("a copy");
    assert_eq!(floats(&copy), [1., 2., 3., 4.]);
    assert_eq!(floats(&run(&compile(ADD), 1, &[&copy, &copy])[0]), [2., 4., 6., 8.]);
    assert!(a.copy_to_device(7).is_err());
}

#[test]
fn donation_deletes_the_input_unless_told_otherwise() {
    for attribute in ["jax.buffer_donor = true", "tf.aliasing_output = 0 : i32"] {
        let executable =
            compile(&ADD.replacen("%a: tensor<2x2xf32>", &format!("%a: tensor<2x2xf32> {{{attribute}}}"), 1));
        let (a, b) = (square([1., 2., 3., 4.], 0), square([1.; 4], 0));
        let mut outputs = Vec::new();

        executable.execute(0, &[&a, &b], &[0], &mut outputs).unwrap();
        assert_eq!(floats(&outputs[0]), [2., 3., 4., 5.], "{attribute}");
        assert!(!a.is_deleted(), "{attribute}");
        assert_eq!(floats(&a), [1., 2., 3., 4.], "{attribute}");

        executable.execute(0, &[&a, &b], &[], &mut outputs).unwrap();
        assert_eq!(outputs.len(), 1, "the outputs of the run before are replaced");
        assert_eq!(floats(&outputs[0]), [2., 3., 4., 5.], "{attribute}");
        assert!(a.is_deleted(), "{attribute}");
        assert!(!b.is_deleted(), "{attribute}");
        assert!(a.ready().is_err(), "{attribute}");
        assert!(a.to_host(&mut [0; 16]).is_err(), "{attribute}");
        assert!(executable.execute(0, &[&a, &b], &[], &mut outputs).is_err());
    }
}

#[test]
fn errors_carry_function_code_and_message() {
    let error = client().compile(b"this is no program", &CompileOptions::default()).err().expect("an error");
    assert_eq!(error.function, "PJRT_Client_Compile");
    assert!(error.message.contains("'this' is unknown"), "{error}");
    let rest = format!(" (PJRT_Client_Compile: {})", error.code);
    assert_eq!(error.to_string(), error.message.clone() + &rest);

    let executable = compile(ADD);
    let a = square([1.; 4], 0);
    let error = executable.execute(0, &[&a], &[], &mut Vec::new()).unwrap_err();
    assert_eq!(error.function, "PJRT_LoadedExecutable_Execute");
    let other_shape = client().buffer_from_host(&bytes(&[1.]), ElementType::F32, &[1, 1], 0).unwrap();
    assert!(executable.execute(0, &[&a, &other_shape], &[], &mut Vec::new()).is_err());

    assert_eq!(error.code, Code::InvalidArgument, "{error}");
    assert!(client().deserialize(b"junk").is_err());
}

#[test]
fn buffers_of_another_client_are_refused() {
    let other = Plugin::load(&plugin_path()).unwrap().create_client(&[]).unwrap();
    let foreign = other.buffer_from_host(&bytes(&[1.; 4]), ElementType::F32, &[2, 2], 0).unwrap();
    drop(other);
    assert_eq!(floats(&foreign), [1.; 4], "a buffer keeps its client");
    let own = square([1.; 4], 0);
    let error = compile(ADD).execute(0, &[&own, &foreign], &[], &mut Vec::new()).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
}

#[test]
fn host_data_of_the_wrong_length_is_refused() {
    for (length, dims) in [(15, vec![2, 2]), (16, vec![-1, 4]), (0, vec![i64::MAX, 8])] {
        let error = client().buffer_from_host(&vec![0; length], ElementType::F32, &dims, 0).err().expect("an error");
        assert_eq!(error.code, Code::InvalidArgument);
    }
    let a = square([1.; 4], 0);
    assert!(a.to_host(&mut [0; 15]).is_err());
    assert!(a.to_host(&mut [0; 17]).is_err());
}

#[test]
fn empty_arrays() {
    let client = client();
    for dims in [&[0][..], &[2, 0, 3]] {
        let empty = client.buffer_from_host(&[], ElementType::F32, dims, 0).expect("an empty buffer");
        assert_eq!(empty.host_bytes().unwrap(), 0);
        empty.to_host(&mut []).expect("a copy of nothing");
        assert_eq!(empty.dims().unwrap(), dims);
        assert_eq!(floats(&empty.copy_to_device(1).unwrap()), []);
    }
    let executable = compile(&ADD.replace("2x2", "0x2"));
    let empty = client.buffer_from_host(&[], ElementType::F32, &[0, 2], 0).unwrap();
    assert_eq!(floats(&run(&executable, 0, &[&empty, &empty])[0]), []);
}

#[test]
fn every_element_type_round_trips() {
    for element_type in ElementType::ALL {
        let size = element_type.size_bytes();
        // Ones and zeros are valid in every type.
        let data: Vec<u8> = (0..6 * size).map(|index| (index % 2) as u8).collect();
        for dims in [&[6][..], &[2, 3], &[1, 3, 1, 2]] {
            let buffer = client().buffer_from_host(&data, *element_type, dims, 0).unwrap();
            let mut back = vec![9; data.len()];
            buffer.to_host(&mut back).unwrap();
            assert_eq!(back, data, "{element_type:?}");
            assert_eq!(buffer.element_type().unwrap(), *element_type);
        }
        let scalar = client().buffer_from_host(&data[..size], *element_type, &[], 0).unwrap();
        let mut back = vec![9; size];
        scalar.to_host(&mut back).unwrap();
        assert_eq!(back, data[..size], "{element_type:?}");
    }
}

#[test]
fn bounded_dimensions_have_the_size_that_the_program_gave_them() {
    let program = "func.func @main(%a: tensor<4xf32>, %n: tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>> {
      %0 = stablehlo.set_dimension_size %a, %n, dim = 0
        : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
      return %0 : tensor<?xf32, #stablehlo.bounds<4>>
    }";
    let executable = compile(program);
    let array = client().buffer_from_host(&bytes(&[1., 2., 3., 4.]), ElementType::F32, &[4], 0).unwrap();
    for size in [0i64, 2, 4] {
        let bytes = (size as i32).to_ne_bytes();
        let length = client().buffer_from_host(&bytes, ElementType::S32, &[], 0).unwrap();
        let outputs = run(&executable, 0, &[&array, &length]);
        assert_eq!(outputs[0].unpadded_dims().unwrap(), [size]);
        assert_eq!(outputs[0].dims().unwrap(), [4]);
        assert_eq!(floats(&outputs[0]), [1., 2., 3., 4.][..size as usize]);
    }
}

#[test]
fn executables_survive_serialization() {
    let executable = compile(ADD);
    let serialized = executable.serialize().expect("bytes");
    let loaded = client().deserialize(&serialized).expect("an executable");
    assert_eq!(loaded.num_outputs(), 1);
    for device in [0, 1] {
        let a = square([1., 2., 3., 4.], device);
        assert_eq!(floats(&run(&loaded, device, &[&a, &a])[0]), [2., 4., 6., 8.]);
    }
    let fingerprint = executable.fingerprint().expect("a fingerprint");
    assert_eq!(compile(ADD).fingerprint().unwrap(), fingerprint);
}

#[test]
fn a_client_has_a_topology() {
    let topology = client().topology().expect("a topology");
    assert_eq!(topology.platform_name().unwrap(), "cpu");
    assert_eq!(topology.devices().unwrap().len(), client().addressable_devices().len());
}

#[test]
fn executables_know_their_costs() {
    let executable = compile(ADD);
    let stats = executable.memory_stats().expect("memory statistics");
    assert_eq!((stats.argument, stats.output), (32, 16), "{stats:?}");
    let costs = executable.cost_analysis().expect("costs");
    assert!(costs.contains(&("flops".into(), Value::Float(4.))), "{costs:?}");
}

#[test]
fn compile_option_overrides_reach_the_compiler() {
    let with = |name: &str, value| {
        let options = CompileOptions { overrides: vec![(name.into(), value)], ..CompileOptions::default() };
        client().compile(ADD.as_bytes(), &options)
    };
    with("xla_cpu_enable_fast_math", Value::Bool(true)).expect("an option that exists");
    with("xla_backend_optimization_level", Value::Int(0)).expect("an option that exists");
    let error = with("xla_no_such_option", Value::Bool(true)).err().expect("an error");
    assert!(error.message.contains("xla_no_such_option"), "{error}");
}

#[test]
fn more_inputs_and_outputs_than_fit_inline() {
    const COUNT: usize = 70;
    let list = |item: &dyn Fn(usize) -> String| (0..COUNT).map(item).collect::<Vec<_>>().join(", ");
    let program = format!(
        "func.func @main({}) -> ({}) {{ return {} : {} }}",
        list(&|index| format!("%a{index}: tensor<f32>")),
        list(&|_| "tensor<f32>".into()),
        list(&|index| format!("%a{}", COUNT - 1 - index)),
        list(&|_| "tensor<f32>".into()),
    );
    let inputs: Vec<Buffer> = (0..COUNT)
        .map(|index| client().buffer_from_host(&bytes(&[index as f32]), ElementType::F32, &[], 0).unwrap())
        .collect();
    let outputs = run(&compile(&program), 0, &inputs.iter().collect::<Vec<_>>());
    assert_eq!(outputs.len(), COUNT);
    assert_eq!(floats(&outputs[0]), [(COUNT - 1) as f32]);
    assert_eq!(floats(&outputs[COUNT - 1]), [0.]);
}

#[test]
fn callbacks_run_once() {
    let a = square([1., 2., 3., 4.], 0);
    let done = compile(ADD).execute(0, &[&a, &a], &[], &mut Vec::new()).expect("a run").expect("an event");
    let (sender, receiver) = mpsc::channel();
    Arc::new(done).on_ready(move |result| sender.send(result).unwrap());
    assert_eq!(receiver.recv(), Ok(Ok(())));
    assert!(receiver.recv().is_err(), "the callback is dropped after its call");
}

#[test]
fn owned_host_memory_is_dropped_when_the_plugin_is_done_with_it() {
    struct Owner(Vec<u8>, mpsc::Sender<()>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.send(()).unwrap();
        }
    }
    let (sender, receiver) = mpsc::channel();
    let owner = Box::new(Owner(bytes(&vec![2.; 1 << 20]), sender));
    let data = owner.0.as_ptr();
    // SAFETY: the memory is the owner's, and nobody writes to it.
    let buffer = unsafe { client().buffer_from_host_owned(data, ElementType::F32, &[1 << 20], 0, owner) }.unwrap();
    buffer.ready().unwrap();
    receiver.recv().unwrap();
    assert!(floats(&buffer).iter().all(|value| *value == 2.));
}

#[test]
fn threads_share_everything() {
    let executable = compile(ADD);
    let shared = square([1.; 4], 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let outputs = run(&executable, 0, &[&shared, &shared]);
                    assert_eq!(floats(&outputs[0]), [2.; 4]);
                }
            });
        }
    });
}

#[test]
fn replicas_communicate() {
    let program = "func.func @main(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0 = \"stablehlo.all_reduce\"(%a) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }";
    let executable =
        client().compile(program.as_bytes(), &CompileOptions::replicated(2)).expect("a program of two replicas");
    let executable = &executable;
    let sums = std::thread::scope(|scope| {
        [0, 1]
            .map(|device| {
                scope.spawn(move || {
                    let input = square([1. + device as f32; 4], device);
                    floats(&run(executable, device, &[&input])[0])
                })
            })
            .map(|thread| thread.join().unwrap())
    });
    assert_eq!(sums, [vec![3.; 4], vec![3.; 4]]);
}

#[test]
fn the_host_writes_an_array_that_a_program_then_takes() {
    let filled = client().uninitialized_buffer(ElementType::F32, &[2, 2], 0).expect("a buffer");
    {
        let memory = HostMemory::of(&filled, 16).expect("a complete array").expect("memory of this process");
        // SAFETY: the array is four floats long, and no program reads it.
        unsafe { memory.address().cast::<[f32; 4]>().write_unaligned([1.0, 2.0, 3.0, 4.0]) };
    }
    let outputs = run(&compile(ADD), 0, &[&filled, &square([10.0; 4], 0)]);
    assert_eq!(floats(&outputs[0]), [11.0, 12.0, 13.0, 14.0]);
    assert!(HostMemory::of(&filled, 12).expect("a complete array").is_none(), "another size");
}

#[test]
fn threads_refer_to_the_memory_of_one_array() {
    // A plugin ends the process if an array is destroyed while a reference to it was lost.
    for _ in 0..200 {
        let array = square([1.0, 2.0, 3.0, 4.0], 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let memory = HostMemory::of(&array, 16).expect("a complete array");
                        assert!(memory.is_some(), "memory of this process");
                    }
                });
            }
        });
    }
}
