//! Operators: their registration, their keys and their calls.

use std::ffi::{c_char, c_void};

use ::abi::Status as AbiStatus;
use aten::layouts::{self, Layout, Owner};
use engine::call::{self, Arg, Generator, Meta, Out, Tag};
use engine::{Defined, Prepared, SchemaArg, Status};
use stablehlo::{Number, Precision};

use super::{guarded, list, list_mut, placement, remember, status, text};
use crate::location;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_register_operator(
    name: *const c_char,
    functional: *const c_char,
    args: *mut ::abi::SchemaArg,
    n_args: usize,
    row: *mut ::abi::RowFacts,
) -> i32 {
    let registered = guarded(|| {
        // SAFETY: the ABI promises live C strings and `n_args` arguments.
        let (name, functional, given) = unsafe { (text(name), text(functional), list(args, n_args)) };
        let described: Vec<SchemaArg> = given.iter().map(schema_arg).collect();
        let mut engine = engine::lock()?;
        let registered = engine.register(&name, &functional, &described);
        for &position in registered.mutated {
            // SAFETY: the position is that of one of the arguments, which the ABI lets us change.
            unsafe { (*args.add(position)).is_mutated = 1 };
        }
        let facts = ::abi::RowFacts {
            exists: u8::from(registered.row.is_some()),
            raises_at_call: u8::from(registered.row.is_some_and(|row| row.raises_at_call)),
        };
        Ok((registered.id, facts))
    });
    let Ok((id, facts)) = registered else { return -1 };
    // SAFETY: the ABI provides a valid pointer for the result.
    unsafe { *row = facts };
    id as i32
}

fn schema_arg(arg: &::abi::SchemaArg) -> SchemaArg {
    let default = (arg.has_default != 0).then_some(arg.default_tag).and_then(|tag| match tag {
        Tag::Int => Some(Number::Int(arg.default_value as i64)),
        Tag::Float => Some(Number::Float(arg.default_value)),
        Tag::Bool => Some(Number::Bool(arg.default_value != 0.0)),
        _ => None,
    });
    // SAFETY: the ABI promises live C strings.
    let (name, ty) = unsafe { (text(arg.name).into_owned(), text(arg.type_).into_owned()) };
    SchemaArg { name, ty, is_mutated: arg.is_mutated != 0, is_out: arg.is_out != 0, default }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_call(
    op: i32,
    args: *const ::abi::Arg,
    n_args: usize,
    device: i32,
    default_generator: *mut Generator,
    outs: *mut ::abi::Out,
    n_outs: *mut usize,
) -> AbiStatus {
    let called = guarded(|| {
        // SAFETY: the ABI promises these; the generator is locked by the caller or null.
        let (args, outs, generator) = unsafe {
            (list(args.cast::<Arg>(), n_args), list_mut(outs.cast::<Out>(), *n_outs), default_generator.as_mut())
        };
        engine::lock()?.call(op as u32, args, placement(device)?, generator, outs)
    });
    let Ok(called) = called else { return AbiStatus::Error };
    let (status, count) = match called {
        Status::Done(count) => (AbiStatus::Ok, count),
        Status::NeedsRoom(count) => (AbiStatus::NeedsRoom, count),
        Status::NewKey => (AbiStatus::NewKey, 0),
        Status::OtherSizes => (AbiStatus::OtherSizes, 0),
        Status::Refused(error) => {
            remember(&error);
            (AbiStatus::Refused, 0)
        }
    };
    // SAFETY: the ABI promises a place for the count.
    unsafe { *n_outs = count };
    status
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_prepare(
    op: i32,
    args: *const ::abi::Arg,
    n_args: usize,
    device: i32,
    prepared: *mut c_void,
) -> AbiStatus {
    status(|| {
        // SAFETY: the ABI promises the arguments, and `CompiledGraph::prepare` gives the place.
        let (args, place) = unsafe { (list(args.cast::<Arg>(), n_args), &mut *prepared.cast::<Option<Prepared>>()) };
        *place = Some(engine::lock()?.prepare(op as u32, args, placement(device)?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_wants_scope() -> u8 {
    u8::from(engine::scopes::is_open())
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_note_scope(scope: u64) {
    engine::scopes::set_caller(scope);
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_wants_line() -> u8 {
    u8::from(engine::lines::wanted())
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_note_line() {
    let _ = guarded(|| {
        location::note();
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_locate_last_call(device: i32) {
    let _ = guarded(|| {
        location::note();
        engine::lock()?.locate_last_call(placement(device)?);
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_result_metas(
    op: i32,
    args: *const ::abi::Arg,
    n_args: usize,
    metas: *mut Meta,
    n_metas: *mut usize,
) -> AbiStatus {
    let found = guarded(|| {
        // SAFETY: the ABI promises `n_args` arguments.
        Ok(engine::lock()?.result_sizes(op as u32, unsafe { list(args.cast::<Arg>(), n_args) }))
    });
    let Ok(found) = found else { return AbiStatus::Error };
    // SAFETY: the ABI promises room for `*n_metas` and a place for the count.
    unsafe {
        for (place, meta) in list_mut(metas, *n_metas).iter_mut().zip(&found) {
            *place = *meta;
        }
        *n_metas = found.len();
    }
    AbiStatus::Ok
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_define(
    op: i32,
    args: *const ::abi::Arg,
    n_args: usize,
    metas: *const Meta,
    n_metas: usize,
    graph: u64,
    device: i32,
    follows_precision: *mut u8,
) -> AbiStatus {
    let defined = guarded(|| {
        // SAFETY: the ABI promises `n_args` arguments, and `n_metas` results unless `metas` is null.
        let (args, metas) =
            unsafe { (list(args.cast::<Arg>(), n_args), (!metas.is_null()).then(|| list(metas, n_metas))) };
        if engine::growth::is_on() {
            location::note();
        }
        let mut engine = engine::lock()?;
        call::check_results(placement(device)?, metas.unwrap_or_default())?;
        let status = engine.define(op as u32, args, metas, graph)?;
        // SAFETY: the ABI provides a valid pointer for the result.
        unsafe { *follows_precision = u8::from(engine.follows_precision(op as u32)) };
        Ok(status)
    });
    match defined {
        Ok(Defined::NoRow) => AbiStatus::NoRow,
        Ok(Defined::Lowered) => AbiStatus::Ok,
        Err(()) => AbiStatus::Error,
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_set_matmul_precision(precision: ::abi::Precision) {
    let _ = guarded(|| {
        engine::lock()?.set_precision(match precision {
            ::abi::Precision::Default => Precision::Default,
            ::abi::Precision::High => Precision::High,
            ::abi::Precision::Highest => Precision::Highest,
        });
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_set_default_dtype(scalar_type: i8) {
    let _ = guarded(|| {
        engine::lock()?.set_default_dtype(call::tensor_dtype(scalar_type)?);
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_check_dtype(scalar_type: i8) -> AbiStatus {
    status(|| call::tensor_dtype(scalar_type).map(|_| ()))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_shapes_like(name: *const c_char, length: *mut usize) -> *const c_char {
    // SAFETY: the ABI promises a live C string.
    let found = guarded(|| Ok(aten::table::shapes_like(&unsafe { text(name) })));
    let Ok(Some(like)) = found else { return std::ptr::null() };
    // SAFETY: the ABI promises a place for the length.
    unsafe { *length = like.len() };
    like.as_ptr().cast()
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_owner_of_kernel(layout: Layout, name: *const c_char) -> Owner {
    // SAFETY: the ABI promises a live C string.
    guarded(|| Ok(layouts::owner(layout, &unsafe { text(name) }))).unwrap_or(Owner::Other)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tt_fall_back(
    op: i32,
    args: *const ::abi::Arg,
    n_args: usize,
    device: i32,
    is_first: *mut u8,
) -> AbiStatus {
    status(|| {
        // SAFETY: the ABI promises `n_args` arguments.
        let args = unsafe { list(args.cast::<Arg>(), n_args) };
        let first = engine::lock()?.fall_back(op as u32, args, placement(device)?)?;
        // SAFETY: the ABI provides a valid pointer for the result.
        unsafe { *is_first = u8::from(first) };
        Ok(())
    })
}
