//! Operators of PyTorch's neural network modules: convolution, pooling, normalization, losses and their gradients.

pub(crate) mod batch_norm;
pub(crate) mod conv;
pub(crate) mod ctc;
pub(crate) mod deform_conv;
pub(crate) mod detection;
pub(crate) mod distance;
pub(crate) mod embedding;
pub(crate) mod forced_align;
pub(crate) mod grid_sample;
pub(crate) mod loss;
pub(crate) mod margin_loss;
pub(crate) mod nll;
pub(crate) mod norm;
pub(crate) mod pad;
pub(crate) mod paged_attention;
pub(crate) mod pool;
pub(crate) mod pool_adaptive;
pub(crate) mod pool_fractional;
pub(crate) mod recurrence;
pub(crate) mod regions;
pub(crate) mod rnn;
mod sampled_regions;
pub(crate) mod softmax;
pub(crate) mod transducer;
pub(crate) mod unfold;
pub(crate) mod upsample;
