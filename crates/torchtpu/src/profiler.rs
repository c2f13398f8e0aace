//! The functions of `csrc/abi.h` for PyTorch's profiler.

use std::ffi::c_void;

use engine::profile;

use crate::abi::status;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_profile_begin() -> ::abi::Status {
    status(|| {
        engine::lock()?.begin_profile();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_profile_end(
    context: *mut c_void,
    receive: Option<unsafe extern "C" fn(*mut c_void, *const ::abi::DeviceRun)>,
) -> ::abi::Status {
    status(|| {
        let Some(profile) = engine::lock()?.end_profile() else { return Ok(()) };
        let Some(receive) = receive else { return Ok(()) };
        for run in profile.finish() {
            let (name, operators) = (&run.program.name, &run.program.operators);
            let described = ::abi::DeviceRun {
                name: name.as_ptr().cast(),
                name_length: name.len(),
                operators: operators.as_ptr().cast(),
                operators_length: operators.len(),
                begin: run.begin as i64,
                end: run.end as i64,
                caller: run.operator,
                flops: run.program.flops.unwrap_or(-1.0),
                bytes: run.program.bytes.unwrap_or(-1.0),
                device: run.placement.number() as i32,
            };
            // SAFETY: the ABI promises a function that takes its context and a run that lives as long as the call.
            unsafe { receive(context, &described) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_profile_enter(number: u64) {
    profile::enter_operator(number);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_profile_leave() {
    profile::leave_operator();
}
