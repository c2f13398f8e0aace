//! torchvision's deformable convolution: each tap of the kernel reads the image at an offset of its own (Dai et al.,
//! 2017), and may be scaled by a mask (Zhu et al., 2018). It is a C++ kernel without a decomposition.

use stablehlo::{DType, DotDims, Value};

use crate::common::sampling::{Sampling, Taps, channel_rows};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["torchvision::deform_conv2d"], |cx| {
        let conv = DeformConv::of(cx)?;
        let product = DotDims { lhs_batch: vec![0], rhs_batch: vec![1], lhs_contract: vec![2], rhs_contract: vec![2] };
        let sums = conv.weight.dot_general(conv.columns(conv.scaled()), &product, conv.dtype);
        let sums = sums.transpose(&[2, 0, 1, 3]).reshape(&conv.output);
        let bias = cx.tensor("bias")?.convert(conv.dtype).reshape(&[1, conv.output[1], 1, 1]);
        Ok((sums + bias.broadcast_to(&conv.output)).convert(cx.tensor("input")?.dtype()))
    }),
    many(&["torchvision::_deform_conv2d_backward"], backward),
];

struct DeformConv<'b> {
    dtype: DType,
    /// The rows of the image, and where each tap of each output reads it. The batch is images × groups of offsets, and
    /// the points are taps × outputs.
    rows: Value<'b>,
    sampling: Sampling<'b>,
    /// The samples, [batch, points, channels of a group of offsets], and their scale, [batch, points, 1].
    sampled: Value<'b>,
    mask: Option<Value<'b>>,
    /// Groups × outputs of a group × inputs of a group and taps.
    weight: Value<'b>,
    /// Images, groups of offsets, channels, groups of channels, taps.
    images: i64,
    offset_groups: i64,
    channels: i64,
    groups: i64,
    taps: i64,
    output: Vec<i64>,
}

impl<'b> DeformConv<'b> {
    fn of(cx: &Cx<'b>) -> Result<DeformConv<'b>> {
        let (b, input, weight, offset) = (cx.b(), cx.tensor("input")?, cx.tensor("weight")?, cx.tensor("offset")?);
        let dtype = cx.float_dtype(input.dtype()).opmath();
        let mismatch = || Err(Error::runtime("deform_conv2d: the sizes of its tensors do not fit together"));
        if [input, weight, offset].iter().any(|x| x.rank() != 4) {
            return mismatch();
        }
        let (groups, offset_groups) = (cx.int("groups")?, cx.int("offset_groups")?);
        let (images, channels, kernel) = (input.dim(0), input.dim(1), [weight.dim(2), weight.dim(3)]);
        let (taps, size) = (kernel[0] * kernel[1], [offset.dim(2), offset.dim(3)]);
        let (batch, points) = (images * offset_groups, taps * size[0] * size[1]);
        let fits = groups > 0
            && offset_groups > 0
            && weight.dim(1) * groups == channels
            && weight.dim(0) % groups == 0
            && channels % offset_groups == 0
            && offset.dim(0) == images
            && offset.dim(1) == 2 * offset_groups * taps;
        if !fits {
            return mismatch();
        }
        let offset = offset.convert(dtype).reshape(&[images, offset_groups, kernel[0], kernel[1], 2, size[0], size[1]]);
        let along = |axis: usize, names: [&str; 3]| -> Result<Taps<'b>> {
            let [stride, padding, dilation] = [cx.int(names[0])?, cx.int(names[1])?, cx.int(names[2])?];
            let dims = [images, offset_groups, kernel[0], kernel[1], size[0], size[1]];
            let place = b.iota(dtype, &dims, 4 + axis) * stride + b.iota(dtype, &dims, 2 + axis) * dilation - padding;
            let position = (offset.select_axis(4, axis as i64) + place).reshape(&[batch, points, 1]);
            Ok(Taps::linear(position, position.splat_like(1), b.scalar(input.dim(2 + axis), dtype)))
        };
        let down = along(0, ["stride_h", "pad_h", "dilation_h"])?;
        let across = along(1, ["stride_w", "pad_w", "dilation_w"])?;
        let image = [batch, channels / offset_groups, input.dim(2), input.dim(3)];
        let rows = channel_rows(input.convert(dtype).reshape(&image));
        let sampling = Sampling::new(b, [batch, points], &image[2..], vec![down, across]);
        let mask = match cx.bool("use_mask")? {
            true => {
                let mask = cx.tensor("mask")?;
                if mask.dims() != [images, offset_groups * taps, size[0], size[1]] {
                    return mismatch();
                }
                Some(mask.convert(dtype).reshape(&[batch, points, 1]))
            }
            false => None,
        };
        Ok(DeformConv {
            dtype,
            sampled: sampling.sampled(rows),
            rows,
            sampling,
            mask,
            weight: weight.convert(dtype).reshape(&[groups, weight.dim(0) / groups, channels / groups * taps]),
            images,
            offset_groups,
            channels,
            groups,
            taps,
            output: vec![images, weight.dim(0), size[0], size[1]],
        })
    }

    /// The number of outputs of each channel and image.
    fn places(&self) -> i64 {
        self.output[2] * self.output[3]
    }

    fn masked(&self, samples: Value<'b>) -> Value<'b> {
        self.mask.map_or(samples, |mask| samples * mask)
    }

    fn scaled(&self) -> Value<'b> {
        self.masked(self.sampled)
    }

    /// Samples, in the order of the sampling, as images × groups × channels and taps of a group × outputs.
    fn columns(&self, samples: Value<'b>) -> Value<'b> {
        let channels = self.channels / self.offset_groups;
        let split = samples.reshape(&[self.images, self.offset_groups, self.taps, self.places(), channels]);
        let rows = self.channels / self.groups * self.taps;
        split.transpose(&[0, 1, 4, 2, 3]).reshape(&[self.images, self.groups, rows, self.places()])
    }

    /// The reverse of [`DeformConv::columns`].
    fn samples(&self, columns: Value<'b>) -> Value<'b> {
        let channels = self.channels / self.offset_groups;
        let split = columns.reshape(&[self.images, self.offset_groups, channels, self.taps, self.places()]);
        let points = self.taps * self.places();
        split.transpose(&[0, 1, 3, 4, 2]).reshape(&[self.images * self.offset_groups, points, channels])
    }
}

/// The gradients of the input, weight, offset, mask and bias.
fn backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (input, mask) = (cx.tensor("input")?, cx.tensor("mask")?);
    let conv = DeformConv::of(cx)?;
    let given = cx.tensor("grad")?.convert(conv.dtype);
    let of_group = conv.output[1] / conv.groups;
    let grad = given.reshape(&[conv.images, conv.groups, of_group, conv.places()]);

    let over_outputs = DotDims { lhs_batch: vec![1], rhs_batch: vec![0], lhs_contract: vec![2], rhs_contract: vec![1] };
    let columns = grad.dot_general(conv.weight, &over_outputs, conv.dtype).transpose(&[1, 0, 3, 2]);
    let of_scaled = conv.samples(columns);
    let of_sampled = conv.masked(of_scaled).unsqueeze(2);

    let of_rows = conv.sampling.spread(conv.rows, of_sampled);
    let channels = conv.channels / conv.offset_groups;
    let batch = conv.images * conv.offset_groups;
    let of_input = of_rows.reshape(&[batch, input.dim(2) * input.dim(3), channels]).swap_axes(1, 2);

    let over_images =
        DotDims { lhs_batch: vec![1], rhs_batch: vec![1], lhs_contract: vec![0, 3], rhs_contract: vec![0, 3] };
    let of_weight = grad.dot_general(conv.columns(conv.scaled()), &over_images, conv.dtype);

    let of_offset = [conv.images, conv.offset_groups, conv.taps, 1, conv.places()];
    let slopes = conv.sampling.slopes(conv.rows, of_sampled);
    let slopes: Vec<Value<'b>> = slopes.into_iter().map(|slope| slope.reshape(&of_offset)).collect();
    let of_mask = match conv.mask {
        Some(_) => (of_scaled * conv.sampled).reduce_sum(&[2]).reshape(&mask.dims()),
        None => mask.splat_like(0),
    };
    let gradients = [
        ("input", of_input),
        ("weight", of_weight),
        ("offset", cx.b().concatenate(&slopes, 3)),
        ("mask", of_mask),
        ("bias", given.reduce_sum(&[0, 2, 3])),
    ];
    gradients
        .into_iter()
        .map(|(name, gradient)| {
            let of = cx.tensor(name)?;
            Ok(gradient.reshape(&of.dims()).convert(of.dtype()))
        })
        .collect()
}
