"""Rows of crates/aten/src/ops/fft.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "fft.fft",
    "fft.fft2",
    "fft.fftn",
    "fft.fftshift",
    "fft.hfft",
    "fft.hfft2",
    "fft.hfftn",
    "fft.ifft",
    "fft.ifft2",
    "fft.ifftn",
    "fft.ifftshift",
    "fft.ihfft",
    "fft.ihfft2",
    "fft.ihfftn",
    "fft.irfft",
    "fft.irfft2",
    "fft.irfftn",
    "fft.rfft",
    "fft.rfft2",
    "fft.rfftn",
    "istft",
    "stft",
)
