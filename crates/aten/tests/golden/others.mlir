// _fft_c2c: self = tensor<8xcomplex<f32>>, dim = [0], normalization = 0, forward = true
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<8xcomplex<f32>> ) -> (tensor<8xcomplex<f32>>) {
%v1 = "stablehlo.fft"(%v0) {fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 8>} : (tensor<8xcomplex<f32>>) -> tensor<8xcomplex<f32>>
"func.return"(%v1) : (tensor<8xcomplex<f32>>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: C64, dims: [8] }, dtype: C64, sizes: [8], strides: [1], extents: [] }

// _fft_r2c: self = tensor<8xf64>, dim = [0], normalization = 0, onesided = true
// for Cpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<8xf64> ) -> (tensor<5xcomplex<f64>>) {
%v1 = "stablehlo.convert"(%v0) {} : (tensor<8xf64>) -> tensor<8xcomplex<f64>>
%v2 = "stablehlo.fft"(%v0) {fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 8>} : (tensor<8xf64>) -> tensor<5xcomplex<f64>>
"func.return"(%v2) : (tensor<5xcomplex<f64>>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: C128, dims: [5] }, dtype: C128, sizes: [5], strides: [1], extents: [] }
// for Tpu:
// NotImplemented: _fft_r2c: TPUs have no Fourier transforms in double precision

// _fused_sgd_: self = tensor<3xf32>, grads = tensor<3xf32>, momentum_buffer_list = tensor<3xf32>, weight_decay = a number of f64, momentum = a number of f64, lr = a number of f64, dampening = a number of f64, nesterov = false, maximize = false, is_first_step = false; writes self and grads and momentum_buffer_list
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Storage(2)
// parameter 3: Scalar { index: 0, dtype: F32 }
// parameter 4: Scalar { index: 1, dtype: F32 }
// parameter 5: Scalar { index: 3, dtype: F32 }
// parameter 6: Scalar { index: 2, dtype: F32 }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
// NumberCheck { index: 1, dtype: F32, fit: Converts }
// NumberCheck { index: 3, dtype: F32, fit: Converts }
// NumberCheck { index: 2, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<3xf32> , %v1: tensor<3xf32> , %v2: tensor<3xf32> , %v3: tensor<f32> , %v7: tensor<f32> , %v8: tensor<f32> , %v17: tensor<f32> ) -> (tensor<3xf32>, tensor<3xf32>) {
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
%v5 = "stablehlo.multiply"(%v0, %v4) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
%v6 = "stablehlo.add"(%v1, %v5) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
%v9 = "stablehlo.negate"(%v8) {} : (tensor<f32>) -> tensor<f32>
%v10 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v11 = "stablehlo.add"(%v9, %v10) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v12 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
%v13 = "stablehlo.multiply"(%v2, %v12) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
%v14 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
%v15 = "stablehlo.multiply"(%v6, %v14) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
%v16 = "stablehlo.add"(%v13, %v15) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
%v18 = "stablehlo.broadcast_in_dim"(%v17) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
%v19 = "stablehlo.multiply"(%v16, %v18) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
%v20 = "stablehlo.subtract"(%v0, %v19) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
"func.return"(%v20, %v16) : (tensor<3xf32>, tensor<3xf32>) -> ()
}
}
// output 0: Updated { storage: 0, base: Type { dtype: F32, dims: [3] } }
// output 1: Updated { storage: 2, base: Type { dtype: F32, dims: [3] } }

// _foreach_add.Scalar: self = tensor<2xf32> and tensor<3xi32>, scalar = a number of f64
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: F32 }
// parameter 2: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2xf32> , %v1: tensor<f32> , %v4: tensor<3xi32> ) -> (tensor<2xf32>, tensor<3xf32>) {
%v2 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2xf32>
%v3 = "stablehlo.add"(%v0, %v2) {} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
%v5 = "stablehlo.convert"(%v4) {} : (tensor<3xi32>) -> tensor<3xf32>
%v6 = "stablehlo.broadcast_in_dim"(%v1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
%v7 = "stablehlo.add"(%v5, %v6) {} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
"func.return"(%v3, %v7) : (tensor<2xf32>, tensor<3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2] }, dtype: F32, sizes: [2], strides: [1], extents: [] }
// output 1: Fresh { base: Type { dtype: F32, dims: [3] }, dtype: F32, sizes: [3], strides: [1], extents: [] }

// _assert_async.msg: self = tensor<i1>, assert_msg = "x must be positive"
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<i1> ) -> (tensor<i64>) {
%v1 = "stablehlo.not"(%v0) {} : (tensor<i1>) -> tensor<i1>
%v2 = "stablehlo.convert"(%v1) {} : (tensor<i1>) -> tensor<i32>
%v3 = "stablehlo.convert"(%v2) {} : (tensor<i32>) -> tensor<i64>
%v4 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v5 = "stablehlo.compare"(%v3, %v4) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v6 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v7 = "stablehlo.select"(%v5, %v6, %v3) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
"func.return"(%v7) : (tensor<i64>) -> ()
}
}
// output 0: Check(Check { error: Error { kind: Runtime, message: "x must be positive", is_located: false } })
