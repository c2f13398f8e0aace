// convolution: input = tensor<1x4x8x8xf32>, weight = tensor<6x2x3x3xf32>, bias = tensor<6xf32>, stride = [2, 2], padding = [1, 1], dilation = [1, 1], transposed = false, output_padding = [0, 0], groups = 2
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Storage(2)
module @torchtpu {
func.func public @main(%v0: tensor<1x4x8x8xf32> , %v1: tensor<6x2x3x3xf32> , %v2: tensor<6xf32> ) -> (tensor<1x6x4x4xf32>) {
%v3 = "stablehlo.reshape"(%v1) {} : (tensor<6x2x3x3xf32>) -> tensor<2x3x2x3x3xf32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64: 0, 1, 3, 4, 5>} : (tensor<2x3x2x3x3xf32>) -> tensor<2x3x2x2x3x3xf32>
%v5 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2x3x2x2x3x3xi32>
%v6 = "stablehlo.iota"() {iota_dimension = 2 : i64} : () -> tensor<2x3x2x2x3x3xi32>
%v7 = "stablehlo.compare"(%v5, %v6) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x3x2x2x3x3xi32>, tensor<2x3x2x2x3x3xi32>) -> tensor<2x3x2x2x3x3xi1>
%v8 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v9 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3x2x2x3x3xf32>
%v10 = "stablehlo.select"(%v7, %v4, %v9) {} : (tensor<2x3x2x2x3x3xi1>, tensor<2x3x2x2x3x3xf32>, tensor<2x3x2x2x3x3xf32>) -> tensor<2x3x2x2x3x3xf32>
%v11 = "stablehlo.reshape"(%v10) {} : (tensor<2x3x2x2x3x3xf32>) -> tensor<6x4x3x3xf32>
%v12 = "stablehlo.convolution"(%v0, %v11) {window_strides = array<i64: 2, 2>, padding = dense<[[1, 0], [1, 0]]> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>, dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<1x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<1x6x4x4xf32>
%v13 = "stablehlo.reshape"(%v2) {} : (tensor<6xf32>) -> tensor<1x6x1x1xf32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64: 0, 1, 2, 3>} : (tensor<1x6x1x1xf32>) -> tensor<1x6x4x4xf32>
%v15 = "stablehlo.add"(%v12, %v14) {} : (tensor<1x6x4x4xf32>, tensor<1x6x4x4xf32>) -> tensor<1x6x4x4xf32>
"func.return"(%v15) : (tensor<1x6x4x4xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [1, 6, 4, 4] }, dtype: F32, sizes: [1, 6, 4, 4], strides: [96, 16, 4, 1], extents: [] }

// convolution: input = tensor<1x4x8x8xi64>, weight = tensor<6x2x3x3xi64>, bias = tensor<6xi64>, stride = [2, 2], padding = [1, 1], dilation = [1, 1], transposed = false, output_padding = [0, 0], groups = 2
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Storage(2)
module @torchtpu {
func.func public @main(%v0: tensor<1x4x8x8xi64> , %v1: tensor<6x2x3x3xi64> , %v2: tensor<6xi64> ) -> (tensor<1x6x4x4xi64>) {
%v3 = "stablehlo.reshape"(%v1) {} : (tensor<6x2x3x3xi64>) -> tensor<2x3x2x3x3xi64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64: 0, 1, 3, 4, 5>} : (tensor<2x3x2x3x3xi64>) -> tensor<2x3x2x2x3x3xi64>
%v5 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2x3x2x2x3x3xi32>
%v6 = "stablehlo.iota"() {iota_dimension = 2 : i64} : () -> tensor<2x3x2x2x3x3xi32>
%v7 = "stablehlo.compare"(%v5, %v6) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x3x2x2x3x3xi32>, tensor<2x3x2x2x3x3xi32>) -> tensor<2x3x2x2x3x3xi1>
%v8 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v9 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x3x2x2x3x3xi64>
%v10 = "stablehlo.select"(%v7, %v4, %v9) {} : (tensor<2x3x2x2x3x3xi1>, tensor<2x3x2x2x3x3xi64>, tensor<2x3x2x2x3x3xi64>) -> tensor<2x3x2x2x3x3xi64>
%v11 = "stablehlo.reshape"(%v10) {} : (tensor<2x3x2x2x3x3xi64>) -> tensor<6x4x3x3xi64>
%v12 = "stablehlo.convolution"(%v0, %v11) {window_strides = array<i64: 2, 2>, padding = dense<[[1, 0], [1, 0]]> : tensor<2x2xi64>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>, dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<1x4x8x8xi64>, tensor<6x4x3x3xi64>) -> tensor<1x6x4x4xi64>
%v13 = "stablehlo.reshape"(%v2) {} : (tensor<6xi64>) -> tensor<1x6x1x1xi64>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64: 0, 1, 2, 3>} : (tensor<1x6x1x1xi64>) -> tensor<1x6x4x4xi64>
%v15 = "stablehlo.add"(%v12, %v14) {} : (tensor<1x6x4x4xi64>, tensor<1x6x4x4xi64>) -> tensor<1x6x4x4xi64>
"func.return"(%v15) : (tensor<1x6x4x4xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [1, 6, 4, 4] }, dtype: I64, sizes: [1, 6, 4, 4], strides: [96, 16, 4, 1], extents: [] }
// for Tpu:
// NotImplemented: convolution: TPUs have no convolutions of 64-bit integers

// max_pool2d_with_indices: self = tensor<1x1x4x4xf32>, kernel_size = [2, 2], stride = [2, 2], padding = [0, 0], dilation = [1, 1], ceil_mode = false
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<1x1x4x4xf32> ) -> (tensor<1x1x2x2xf32>, tensor<1x1x2x2xi64>) {
%v1 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<16xi32>
%v2 = "stablehlo.reshape"(%v1) {} : (tensor<16xi32>) -> tensor<4x4xi32>
%v3 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v4 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
%v5 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v6 = "stablehlo.constant"() {value = dense<-1> : tensor<i32>} : () -> tensor<i32>
%v7 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 0, 0, 0>, limit_indices = array<i64: 1, 1, 3, 3>, strides = array<i64: 1, 1, 2, 2>} : (tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32>
%v8 = "stablehlo.slice"(%v2) {start_indices = array<i64: 0, 0>, limit_indices = array<i64: 3, 3>, strides = array<i64: 2, 2>} : (tensor<4x4xi32>) -> tensor<2x2xi32>
%v9 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 0, 0, 1>, limit_indices = array<i64: 1, 1, 3, 4>, strides = array<i64: 1, 1, 2, 2>} : (tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32>
%v10 = "stablehlo.slice"(%v2) {start_indices = array<i64: 0, 1>, limit_indices = array<i64: 3, 4>, strides = array<i64: 2, 2>} : (tensor<4x4xi32>) -> tensor<2x2xi32>
%v11 = "stablehlo.compare"(%v9, %v7) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xi1>
%v12 = "stablehlo.compare"(%v9, %v9) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xi1>
%v13 = "stablehlo.or"(%v11, %v12) {} : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xi1>) -> tensor<1x1x2x2xi1>
%v14 = "stablehlo.select"(%v13, %v9, %v7) {} : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
%v15 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64: 2, 3>} : (tensor<2x2xi32>) -> tensor<1x1x2x2xi32>
%v16 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64: 2, 3>} : (tensor<2x2xi32>) -> tensor<1x1x2x2xi32>
%v17 = "stablehlo.select"(%v13, %v15, %v16) {} : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xi32>, tensor<1x1x2x2xi32>) -> tensor<1x1x2x2xi32>
%v18 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 0, 1, 0>, limit_indices = array<i64: 1, 1, 4, 3>, strides = array<i64: 1, 1, 2, 2>} : (tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32>
%v19 = "stablehlo.slice"(%v2) {start_indices = array<i64: 1, 0>, limit_indices = array<i64: 4, 3>, strides = array<i64: 2, 2>} : (tensor<4x4xi32>) -> tensor<2x2xi32>
%v20 = "stablehlo.compare"(%v18, %v14) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xi1>
%v21 = "stablehlo.compare"(%v18, %v18) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xi1>
%v22 = "stablehlo.or"(%v20, %v21) {} : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xi1>) -> tensor<1x1x2x2xi1>
%v23 = "stablehlo.select"(%v22, %v18, %v14) {} : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
%v24 = "stablehlo.broadcast_in_dim"(%v19) {broadcast_dimensions = array<i64: 2, 3>} : (tensor<2x2xi32>) -> tensor<1x1x2x2xi32>
%v25 = "stablehlo.select"(%v22, %v24, %v17) {} : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xi32>, tensor<1x1x2x2xi32>) -> tensor<1x1x2x2xi32>
%v26 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 0, 1, 1>, limit_indices = array<i64: 1, 1, 4, 4>, strides = array<i64: 1, 1, 2, 2>} : (tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32>
%v27 = "stablehlo.slice"(%v2) {start_indices = array<i64: 1, 1>, limit_indices = array<i64: 4, 4>, strides = array<i64: 2, 2>} : (tensor<4x4xi32>) -> tensor<2x2xi32>
%v28 = "stablehlo.compare"(%v26, %v23) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xi1>
%v29 = "stablehlo.compare"(%v26, %v26) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xi1>
%v30 = "stablehlo.or"(%v28, %v29) {} : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xi1>) -> tensor<1x1x2x2xi1>
%v31 = "stablehlo.select"(%v30, %v26, %v23) {} : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
%v32 = "stablehlo.broadcast_in_dim"(%v27) {broadcast_dimensions = array<i64: 2, 3>} : (tensor<2x2xi32>) -> tensor<1x1x2x2xi32>
%v33 = "stablehlo.select"(%v30, %v32, %v25) {} : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xi32>, tensor<1x1x2x2xi32>) -> tensor<1x1x2x2xi32>
%v34 = "stablehlo.convert"(%v33) {} : (tensor<1x1x2x2xi32>) -> tensor<1x1x2x2xi64>
"func.return"(%v31, %v34) : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [1, 1, 2, 2] }, dtype: F32, sizes: [1, 1, 2, 2], strides: [4, 4, 2, 1], extents: [] }
// output 1: Fresh { base: Type { dtype: I64, dims: [1, 1, 2, 2] }, dtype: I64, sizes: [1, 1, 2, 2], strides: [4, 4, 2, 1], extents: [] }

// native_layer_norm: input = tensor<2x8xbf16>, normalized_shape = [8], weight = tensor<8xbf16>, bias = tensor<8xbf16>, eps = a number of f64
// parameter 0: Storage(0)
// parameter 1: Storage(1)
// parameter 2: Storage(2)
// parameter 3: Scalar { index: 0, dtype: F32 }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2x8xbf16> , %v1: tensor<8xbf16> , %v2: tensor<8xbf16> , %v25: tensor<f32> ) -> (tensor<2x8xbf16>, tensor<2x1xf32>, tensor<2x1xf32>) {
%v3 = "stablehlo.convert"(%v0) {} : (tensor<2x8xbf16>) -> tensor<2x8xf32>
%v4 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v8 = "stablehlo.reduce"(%v3, %v4) ({
^bb0(%v5: tensor<f32>, %v6: tensor<f32>):
%v7 = "stablehlo.add"(%v5, %v6) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v7) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x8xf32>, tensor<f32>) -> (tensor<2xf32>)
%v9 = "stablehlo.constant"() {value = dense<0x41000000> : tensor<f32>} : () -> tensor<f32>
%v10 = "stablehlo.broadcast_in_dim"(%v9) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2xf32>
%v11 = "stablehlo.divide"(%v8, %v10) {} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
%v12 = "stablehlo.reshape"(%v11) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v13 = "stablehlo.broadcast_in_dim"(%v12) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x8xf32>
%v14 = "stablehlo.subtract"(%v3, %v13) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v15 = "stablehlo.multiply"(%v14, %v14) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v16 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v20 = "stablehlo.reduce"(%v15, %v16) ({
^bb0(%v17: tensor<f32>, %v18: tensor<f32>):
%v19 = "stablehlo.add"(%v17, %v18) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v19) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x8xf32>, tensor<f32>) -> (tensor<2xf32>)
%v21 = "stablehlo.reshape"(%v20) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v22 = "stablehlo.constant"() {value = dense<0x41000000> : tensor<f32>} : () -> tensor<f32>
%v23 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x1xf32>
%v24 = "stablehlo.divide"(%v21, %v23) {} : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
%v26 = "stablehlo.broadcast_in_dim"(%v25) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x1xf32>
%v27 = "stablehlo.add"(%v24, %v26) {} : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
%v28 = "stablehlo.rsqrt"(%v27) {} : (tensor<2x1xf32>) -> tensor<2x1xf32>
%v29 = "stablehlo.broadcast_in_dim"(%v12) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x8xf32>
%v30 = "stablehlo.subtract"(%v3, %v29) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v31 = "stablehlo.broadcast_in_dim"(%v28) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x8xf32>
%v32 = "stablehlo.multiply"(%v30, %v31) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v33 = "stablehlo.convert"(%v1) {} : (tensor<8xbf16>) -> tensor<8xf32>
%v34 = "stablehlo.convert"(%v2) {} : (tensor<8xbf16>) -> tensor<8xf32>
%v35 = "stablehlo.broadcast_in_dim"(%v33) {broadcast_dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<2x8xf32>
%v36 = "stablehlo.multiply"(%v32, %v35) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v37 = "stablehlo.broadcast_in_dim"(%v34) {broadcast_dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<2x8xf32>
%v38 = "stablehlo.add"(%v36, %v37) {} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
%v39 = "stablehlo.convert"(%v38) {} : (tensor<2x8xf32>) -> tensor<2x8xbf16>
"func.return"(%v39, %v12, %v28) : (tensor<2x8xbf16>, tensor<2x1xf32>, tensor<2x1xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [2, 8] }, dtype: BF16, sizes: [2, 8], strides: [8, 1], extents: [] }
// output 1: Fresh { base: Type { dtype: F32, dims: [2, 1] }, dtype: F32, sizes: [2, 1], strides: [1, 1], extents: [] }
// output 2: Fresh { base: Type { dtype: F32, dims: [2, 1] }, dtype: F32, sizes: [2, 1], strides: [1, 1], extents: [] }

// _softmax: self = tensor<2x3xf16>, dim = -1, half_to_float = false
// for Cpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf16> ) -> (tensor<2x3xf16>) {
%v1 = "stablehlo.convert"(%v0) {} : (tensor<2x3xf16>) -> tensor<2x3xf32>
%v2 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v9 = "stablehlo.reduce"(%v1, %v2) ({
^bb0(%v3: tensor<f32>, %v4: tensor<f32>):
%v5 = "stablehlo.compare"(%v4, %v3) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v6 = "stablehlo.compare"(%v4, %v4) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v7 = "stablehlo.or"(%v5, %v6) {} : (tensor<i1>, tensor<i1>) -> tensor<i1>
%v8 = "stablehlo.select"(%v7, %v4, %v3) {} : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v8) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v10 = "stablehlo.reshape"(%v9) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v11 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
%v12 = "stablehlo.subtract"(%v1, %v11) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v13 = "stablehlo.exponential"(%v12) {} : (tensor<2x3xf32>) -> tensor<2x3xf32>
%v14 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v18 = "stablehlo.reduce"(%v13, %v14) ({
^bb0(%v15: tensor<f32>, %v16: tensor<f32>):
%v17 = "stablehlo.add"(%v15, %v16) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v17) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v19 = "stablehlo.reshape"(%v18) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v20 = "stablehlo.broadcast_in_dim"(%v19) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
%v21 = "stablehlo.divide"(%v13, %v20) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v22 = "stablehlo.convert"(%v21) {} : (tensor<2x3xf32>) -> tensor<2x3xf16>
"func.return"(%v22) : (tensor<2x3xf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F16, dims: [2, 3] }, dtype: F16, sizes: [2, 3], strides: [3, 1], extents: [] }
// for Tpu:
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf16> ) -> (tensor<2x3xf16>) {
%v1 = "stablehlo.convert"(%v0) {} : (tensor<2x3xf16>) -> tensor<2x3xf32>
%v2 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
%v6 = "stablehlo.reduce"(%v1, %v2) ({
^bb0(%v3: tensor<f32>, %v4: tensor<f32>):
%v5 = "stablehlo.maximum"(%v3, %v4) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v5) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v7 = "stablehlo.reshape"(%v6) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
%v9 = "stablehlo.subtract"(%v1, %v8) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v10 = "stablehlo.exponential"(%v9) {} : (tensor<2x3xf32>) -> tensor<2x3xf32>
%v11 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v15 = "stablehlo.reduce"(%v10, %v11) ({
^bb0(%v12: tensor<f32>, %v13: tensor<f32>):
%v14 = "stablehlo.add"(%v12, %v13) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v14) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
%v16 = "stablehlo.reshape"(%v15) {} : (tensor<2xf32>) -> tensor<2x1xf32>
%v17 = "stablehlo.broadcast_in_dim"(%v16) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
%v18 = "stablehlo.divide"(%v10, %v17) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v19 = "stablehlo.convert"(%v18) {} : (tensor<2x3xf32>) -> tensor<2x3xf16>
"func.return"(%v19) : (tensor<2x3xf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F16, dims: [2, 3] }, dtype: F16, sizes: [2, 3], strides: [3, 1], extents: [] }

// nll_loss_forward: self = tensor<2x3xf32>, target = tensor<2xi64>, weight = tensor<3xf32>, reduction = 1, ignore_index = -100
// parameter 0: Storage(0)
// parameter 1: Storage(2)
// parameter 2: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<3xf32> , %v2: tensor<2xi64> ) -> (tensor<f32>, tensor<f32>, tensor<i64>) {
%v3 = "stablehlo.reshape"(%v2) {} : (tensor<2xi64>) -> tensor<2x1xi64>
%v4 = "stablehlo.constant"() {value = dense<-100> : tensor<i64>} : () -> tensor<i64>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v6 = "stablehlo.compare"(%v3, %v5) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi1>
%v7 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v9 = "stablehlo.select"(%v6, %v3, %v8) {} : (tensor<2x1xi1>, tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi64>
%v10 = "stablehlo.convert"(%v9) {} : (tensor<2x1xi64>) -> tensor<2x1xi32>
%v11 = "stablehlo.gather"(%v1, %v10) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [0], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1>, indices_are_sorted = false} : (tensor<3xf32>, tensor<2x1xi32>) -> tensor<2x1xf32>
%v12 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v13 = "stablehlo.broadcast_in_dim"(%v12) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x1xf32>
%v14 = "stablehlo.select"(%v6, %v11, %v13) {} : (tensor<2x1xi1>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
%v15 = "stablehlo.constant"() {value = dense<3> : tensor<i64>} : () -> tensor<i64>
%v16 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v17 = "stablehlo.broadcast_in_dim"(%v16) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v18 = "stablehlo.compare"(%v9, %v17) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi1>
%v19 = "stablehlo.broadcast_in_dim"(%v15) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x1xi64>
%v20 = "stablehlo.compare"(%v9, %v19) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi1>
%v21 = "stablehlo.or"(%v18, %v20) {} : (tensor<2x1xi1>, tensor<2x1xi1>) -> tensor<2x1xi1>
%v22 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<2x1xi64>} : () -> tensor<2x1xi64>
%v23 = "stablehlo.select"(%v21, %v9, %v22) {} : (tensor<2x1xi1>, tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xi64>
%v24 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v28 = "stablehlo.reduce"(%v23, %v24) ({
^bb0(%v25: tensor<i64>, %v26: tensor<i64>):
%v27 = "stablehlo.maximum"(%v25, %v26) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v27) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<2x1xi64>, tensor<i64>) -> (tensor<i64>)
%v29 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v30 = "stablehlo.compare"(%v28, %v29) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v31 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v32 = "stablehlo.select"(%v30, %v31, %v28) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v33 = "stablehlo.gather"(%v0, %v10) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>, indices_are_sorted = false} : (tensor<2x3xf32>, tensor<2x1xi32>) -> tensor<2x1xf32>
%v34 = "stablehlo.negate"(%v33) {} : (tensor<2x1xf32>) -> tensor<2x1xf32>
%v35 = "stablehlo.multiply"(%v34, %v14) {} : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
%v36 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v37 = "stablehlo.broadcast_in_dim"(%v36) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x1xf32>
%v38 = "stablehlo.select"(%v6, %v35, %v37) {} : (tensor<2x1xi1>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
%v39 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v43 = "stablehlo.reduce"(%v14, %v39) ({
^bb0(%v40: tensor<f32>, %v41: tensor<f32>):
%v42 = "stablehlo.add"(%v40, %v41) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v42) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>, tensor<f32>) -> (tensor<f32>)
%v44 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v48 = "stablehlo.reduce"(%v38, %v44) ({
^bb0(%v45: tensor<f32>, %v46: tensor<f32>):
%v47 = "stablehlo.add"(%v45, %v46) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v47) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<2x1xf32>, tensor<f32>) -> (tensor<f32>)
%v49 = "stablehlo.divide"(%v48, %v43) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"func.return"(%v49, %v43, %v32) : (tensor<f32>, tensor<f32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [] }, dtype: F32, sizes: [], strides: [], extents: [] }
// output 1: Fresh { base: Type { dtype: F32, dims: [] }, dtype: F32, sizes: [], strides: [], extents: [] }
// output 2: Check(Check { error: Error { kind: Index, message: "Target {number} is out of bounds.", is_located: false } })

// mse_loss: self = tensor<2x3xf32>, target = tensor<2x3xf32>, reduction = 1
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<2x3xf32> ) -> (tensor<f32>) {
%v2 = "stablehlo.subtract"(%v0, %v1) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v3 = "stablehlo.multiply"(%v2, %v2) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v4 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v8 = "stablehlo.reduce"(%v3, %v4) ({
^bb0(%v5: tensor<f32>, %v6: tensor<f32>):
%v7 = "stablehlo.add"(%v5, %v6) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v7) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<f32>)
%v9 = "stablehlo.constant"() {value = dense<0x40C00000> : tensor<f32>} : () -> tensor<f32>
%v10 = "stablehlo.divide"(%v8, %v9) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"func.return"(%v10) : (tensor<f32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [] }, dtype: F32, sizes: [], strides: [], extents: [] }

// embedding: weight = tensor<10x4xf32>, indices = tensor<2x3xi64>, padding_idx = -1, scale_grad_by_freq = false, sparse = false
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<10x4xf32> , %v1: tensor<2x3xi64> ) -> (tensor<2x3x4xf32>, tensor<i64>) {
%v2 = "stablehlo.constant"() {value = dense<10> : tensor<i64>} : () -> tensor<i64>
%v3 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x3xi64>
%v5 = "stablehlo.compare"(%v1, %v4) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<2x3xi1>
%v6 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x3xi64>
%v7 = "stablehlo.compare"(%v1, %v6) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<2x3xi1>
%v8 = "stablehlo.or"(%v5, %v7) {} : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
%v9 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<2x3xi64>} : () -> tensor<2x3xi64>
%v10 = "stablehlo.select"(%v8, %v1, %v9) {} : (tensor<2x3xi1>, tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<2x3xi64>
%v11 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v15 = "stablehlo.reduce"(%v10, %v11) ({
^bb0(%v12: tensor<i64>, %v13: tensor<i64>):
%v14 = "stablehlo.maximum"(%v12, %v13) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v14) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 0, 1>} : (tensor<2x3xi64>, tensor<i64>) -> (tensor<i64>)
%v16 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i64>, tensor<i64>) -> tensor<i1>
%v18 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>
%v19 = "stablehlo.select"(%v17, %v18, %v15) {} : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
%v20 = "stablehlo.constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
%v21 = "stablehlo.broadcast_in_dim"(%v20) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x3xi64>
%v22 = "stablehlo.maximum"(%v1, %v21) {} : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<2x3xi64>
%v23 = "stablehlo.constant"() {value = dense<10> : tensor<i64>} : () -> tensor<i64>
%v24 = "stablehlo.broadcast_in_dim"(%v23) {broadcast_dimensions = array<i64>} : (tensor<i64>) -> tensor<2x3xi64>
%v25 = "stablehlo.minimum"(%v22, %v24) {} : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<2x3xi64>
%v26 = "stablehlo.convert"(%v25) {} : (tensor<2x3xi64>) -> tensor<2x3xi32>
%v27 = "stablehlo.gather"(%v0, %v26) {dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 4>, indices_are_sorted = false} : (tensor<10x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
"func.return"(%v27, %v19) : (tensor<2x3x4xf32>, tensor<i64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3, 4] }, dtype: F32, sizes: [2, 3, 4], strides: [12, 4, 1], extents: [] }
// output 1: Check(Check { error: Error { kind: Index, message: "index out of range in self", is_located: false } })

// reflection_pad1d: self = tensor<2x5xf32>, padding = [1, 2]
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x5xf32> ) -> (tensor<2x8xf32>) {
%v1 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 1>, limit_indices = array<i64: 2, 2>, strides = array<i64: 1, 1>} : (tensor<2x5xf32>) -> tensor<2x1xf32>
%v2 = "stablehlo.reverse"(%v1) {dimensions = array<i64: 1>} : (tensor<2x1xf32>) -> tensor<2x1xf32>
%v3 = "stablehlo.slice"(%v0) {start_indices = array<i64: 0, 2>, limit_indices = array<i64: 2, 4>, strides = array<i64: 1, 1>} : (tensor<2x5xf32>) -> tensor<2x2xf32>
%v4 = "stablehlo.reverse"(%v3) {dimensions = array<i64: 1>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
%v5 = "stablehlo.concatenate"(%v2, %v0, %v4) {dimension = 1 : i64} : (tensor<2x1xf32>, tensor<2x5xf32>, tensor<2x2xf32>) -> tensor<2x8xf32>
"func.return"(%v5) : (tensor<2x8xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 8] }, dtype: F32, sizes: [2, 8], strides: [8, 1], extents: [] }
