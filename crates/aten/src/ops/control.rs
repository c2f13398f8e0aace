//! Assertions, and higher-order operators of graphs: `cond`, `while_loop`, `scan` and `map`. Their functions are
//! graphs of rows, which become StableHLO regions.

use stablehlo::{DType, Type, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::row::{Row, many};

pub(crate) const ROWS: &[Row] = &[
    many(&["_assert_async", "_assert_async.msg"], |cx| {
        let holds = cx.tensor("self")?;
        if holds.numel() != 1 {
            let values = if holds.numel() == 0 { "no values" } else { "more than one value" };
            return Err(Error::runtime(format!("Boolean value of Tensor with {values} is ambiguous")));
        }
        let message = match cx.is_none("assert_msg") {
            true => "Expected Tensor with single nonzero value, but got zero".into(),
            false => cx.str("assert_msg")?,
        };
        cx.check_none(!holds.convert(DType::Bool), Error::runtime(message));
        Ok(Vec::new())
    }),
    many(&["higher_order::cond"], |cx| {
        let predicate = cx.tensor("pred")?.convert(DType::Bool).reshape(&[]);
        let operands = cx.tensors("operands")?;
        let functions = [cx.graph("true_fn")?, cx.graph("false_fn")?];
        // Branches can use the values of the enclosing function.
        let mut types = Vec::new();
        let regions = functions.iter().map(|function| {
            region(cx, &[], |_| {
                let results = cx.call(function, &operands)?;
                types = results.iter().map(|value| value.ty()).collect();
                Ok(results)
            })
        });
        let regions = regions.collect::<Result<Vec<String>>>()?;
        Ok(cx.b().op_with_regions("stablehlo.if", &[predicate], &regions, "", types))
    }),
    // A call of another module. The results have the types of the values `like`. Bounded inputs must have their valid
    // elements at the start. Their padding is as it comes, or zeros with `padding="zeros"`.
    many(&["torchtpu::call"], |cx| {
        let types = cx.tensors("like")?.iter().map(|value| value.ty()).collect();
        let zeros = cx.str_or_none("padding").as_deref() == Some("zeros");
        let mut inputs = cx.tensors("inputs")?;
        for input in &mut inputs {
            if zeros {
                *input = input.zero_filled(0..input.rank(), "a call of a module");
            }
            (0..input.rank()).for_each(|axis| input.require_prefix(axis, "a call of a module"));
            *input = input.without_extents();
        }
        Ok(cx.b().call(cx.str("functions")?, &cx.str("entry")?, &inputs, types))
    })
    .bounded(),
    many(&["higher_order::while_loop"], |cx| {
        let (carried, additional) = (cx.tensors("carried_inputs")?, cx.tensors("additional_inputs")?);
        let (condition, body) = (cx.graph("cond_fn")?, cx.graph("body_fn")?);
        repeat(
            cx,
            &carried,
            |state| Ok(cx.call(condition, &[state, &additional].concat())?[0].convert(DType::Bool).reshape(&[])),
            |state| cx.call(body, &[state, &additional].concat()),
        )
    }),
    // `combine_fn` takes a carry and one element of each of `xs`, and returns the next carry and one element of each
    // result.
    many(&["higher_order::scan"], |cx| {
        let (init, xs) = (cx.tensors("init")?, cx.tensors("xs")?);
        each_element(cx, cx.graph("combine_fn")?, init, &xs, &cx.tensors("additional_inputs")?)
    }),
    many(&["higher_order::map_impl"], |cx| {
        each_element(cx, cx.graph("f")?, Vec::new(), &cx.tensors("xs")?, &cx.tensors("pos_args")?)
    }),
];

/// [`stablehlo::Builder::region`] with a function that may fail.
fn region<'b>(
    cx: &Cx<'b>,
    params: &[Type],
    build: impl FnOnce(&[Value<'b>]) -> Result<Vec<Value<'b>>>,
) -> Result<String> {
    let mut error = None;
    let text = cx.b().region(params, |values| {
        build(values).unwrap_or_else(|failed| {
            error = Some(failed);
            Vec::new()
        })
    });
    error.map_or(Ok(text), Err)
}

fn repeat<'b>(
    cx: &Cx<'b>,
    state: &[Value<'b>],
    condition: impl FnOnce(&[Value<'b>]) -> Result<Value<'b>>,
    body: impl FnOnce(&[Value<'b>]) -> Result<Vec<Value<'b>>>,
) -> Result<Vec<Value<'b>>> {
    let types: Vec<Type> = state.iter().map(|value| value.ty()).collect();
    let condition = region(cx, &types, |state| Ok(vec![condition(state)?]))?;
    let body = region(cx, &types, body)?;
    Ok(cx.b().op_with_regions("stablehlo.while", state, &[condition, body], "", types))
}

/// Calls a function with a carry and each element of `xs` in turn. Returns the last carry and the other results,
/// stacked.
fn each_element<'b>(
    cx: &Cx<'b>,
    function: &'b Graph,
    init: Vec<Value<'b>>,
    xs: &[Value<'b>],
    additional: &[Value<'b>],
) -> Result<Vec<Value<'b>>> {
    let b = cx.b();
    let Some(first) = xs.first() else { return Err(Error::not_implemented("a scan over nothing")) };
    let (count, carries) = (first.dim(0), init.len());
    let step = |carry: &[Value<'b>], index: Value<'b>| {
        let elements = xs.iter().map(|x| at(*x, index));
        let operands: Vec<Value<'b>> =
            carry.iter().copied().chain(elements).chain(additional.iter().copied()).collect();
        cx.call(function, &operands)
    };
    // The types of the results are known after the function has been built, so it is first built in a region that is
    // discarded.
    let mut types = Vec::new();
    region(cx, &[], |_| {
        let results = step(&init, b.scalar(0, DType::I64))?;
        types = results.iter().skip(carries).map(|value| value.ty()).collect();
        Ok(Vec::new())
    })?;
    let stacked = types.iter().map(|ty| b.splat(0, ty.dtype, &[&[count], &ty.dims[..]].concat()));
    let state: Vec<Value<'b>> =
        [b.scalar(0, DType::I64)].into_iter().chain(init.iter().copied()).chain(stacked).collect();
    let mut results = repeat(
        cx,
        &state,
        |state| Ok(state[0].lt(count)),
        |state| {
            let results = step(&state[1..=carries], state[0])?;
            let written = results[carries..].iter().zip(&state[1 + carries..]).map(|(result, stack)| {
                let mut starts = vec![b.scalar(0, DType::I64); stack.rank()];
                starts[0] = state[0];
                stack.dynamic_update_slice(result.unsqueeze(0), &starts)
            });
            let next = std::iter::once(state[0] + 1).chain(results[..carries].iter().copied());
            Ok(next.chain(written).collect())
        },
    )?;
    Ok(results.split_off(1))
}

/// `x[index]`.
fn at<'b>(x: Value<'b>, index: Value<'b>) -> Value<'b> {
    let mut starts = vec![x.builder().scalar(0, DType::I64); x.rank()];
    starts[0] = index;
    let mut sizes = x.dims();
    sizes[0] = 1;
    let element = x.dynamic_slice(&starts, &sizes);
    element.reshape(&sizes[1..])
}
