// uniform: self = tensor<2x3xf32>, from = a number of f64, to = a number of f64
// parameter 0: RandomState
// parameter 1: Scalar { index: 0, dtype: F32 }
// parameter 2: Scalar { index: 1, dtype: F32 }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
// NumberCheck { index: 1, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2xui64> , %v11: tensor<f32> , %v12: tensor<f32> ) -> (tensor<2x3xf32>) {
%v1, %v2 = "stablehlo.rng_bit_generator"(%v0) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x3xui32>)
%v3 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v5 = "stablehlo.shift_right_logical"(%v2, %v4) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<2x3xui32>) -> tensor<2x3xi32>
%v7 = "stablehlo.convert"(%v6) {} : (tensor<2x3xi32>) -> tensor<2x3xf32>
%v8 = "stablehlo.constant"() {value = dense<0x33800000> : tensor<f32>} : () -> tensor<f32>
%v9 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v10 = "stablehlo.multiply"(%v7, %v9) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v13 = "stablehlo.subtract"(%v12, %v11) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v15 = "stablehlo.multiply"(%v10, %v14) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v16 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v17 = "stablehlo.add"(%v15, %v16) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v18 = "stablehlo.broadcast_in_dim"(%v12) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v19 = "stablehlo.compare"(%v17, %v18) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v20 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v21 = "stablehlo.select"(%v19, %v20, %v17) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"func.return"(%v21) : (tensor<2x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }
// draws 2 blocks of random bits

// normal_functional: self = tensor<5xbf16>, mean = a number of f64, std = a number of f64
// parameter 0: RandomState
// parameter 1: Scalar { index: 1, dtype: F32 }
// parameter 2: Scalar { index: 0, dtype: F32 }
// NumberCheck { index: 1, dtype: F32, fit: Converts }
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2xui64> , %v24: tensor<f32> , %v27: tensor<f32> ) -> (tensor<5xbf16>) {
%v1, %v2 = "stablehlo.rng_bit_generator"(%v0) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5xui32>)
%v3 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<5xui32>
%v5 = "stablehlo.shift_right_logical"(%v2, %v4) {} : (tensor<5xui32>, tensor<5xui32>) -> tensor<5xui32>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<5xui32>) -> tensor<5xi32>
%v7 = "stablehlo.constant"() {value = dense<2> : tensor<i32>} : () -> tensor<i32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<5xi32>
%v9 = "stablehlo.multiply"(%v6, %v8) {} : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
%v10 = "stablehlo.constant"() {value = dense<-16777215> : tensor<i32>} : () -> tensor<i32>
%v11 = "stablehlo.broadcast_in_dim"(%v10) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<5xi32>
%v12 = "stablehlo.add"(%v9, %v11) {} : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
%v13 = "stablehlo.convert"(%v12) {} : (tensor<5xi32>) -> tensor<5xf32>
%v14 = "stablehlo.constant"() {value = dense<0x33800000> : tensor<f32>} : () -> tensor<f32>
%v15 = "stablehlo.broadcast_in_dim"(%v14) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v16 = "stablehlo.multiply"(%v13, %v15) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v17 = "chlo.erf_inv"(%v16) {} : (tensor<5xf32>) -> tensor<5xf32>
%v18 = "stablehlo.constant"() {value = dense<0x3FB504F3> : tensor<f32>} : () -> tensor<f32>
%v19 = "stablehlo.broadcast_in_dim"(%v18) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v20 = "stablehlo.multiply"(%v17, %v19) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v21 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v22 = "stablehlo.broadcast_in_dim"(%v21) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v23 = "stablehlo.multiply"(%v20, %v22) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v25 = "stablehlo.broadcast_in_dim"(%v24) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v26 = "stablehlo.multiply"(%v23, %v25) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v28 = "stablehlo.broadcast_in_dim"(%v27) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
%v29 = "stablehlo.add"(%v26, %v28) {} : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
%v30 = "stablehlo.convert"(%v29) {} : (tensor<5xf32>) -> tensor<5xbf16>
"func.return"(%v30) : (tensor<5xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [5] }, dtype: BF16, sizes: [5], strides: [1], extents: [] }
// draws 2 blocks of random bits

// native_dropout: input = tensor<2x3xf32>, p = a number of f64, train = true
// parameter 0: Storage(0)
// parameter 1: Scalar { index: 0, dtype: F32 }
// parameter 2: RandomState
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<f32> , %v5: tensor<2xui64> ) -> (tensor<2x3xf32>, tensor<2x3xi1>) {
%v2 = "stablehlo.negate"(%v1) {} : (tensor<f32>) -> tensor<f32>
%v3 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v4 = "stablehlo.add"(%v2, %v3) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v6, %v7 = "stablehlo.rng_bit_generator"(%v5) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x3xui32>)
%v8 = "stablehlo.constant"() {value = dense<8> : tensor<ui32>} : () -> tensor<ui32>
%v9 = "stablehlo.broadcast_in_dim"(%v8) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
%v10 = "stablehlo.shift_right_logical"(%v7, %v9) {} : (tensor<2x3xui32>, tensor<2x3xui32>) -> tensor<2x3xui32>
%v11 = "stablehlo.convert"(%v10) {} : (tensor<2x3xui32>) -> tensor<2x3xi32>
%v12 = "stablehlo.convert"(%v11) {} : (tensor<2x3xi32>) -> tensor<2x3xf32>
%v13 = "stablehlo.constant"() {value = dense<0x33800000> : tensor<f32>} : () -> tensor<f32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v15 = "stablehlo.multiply"(%v12, %v14) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v16 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v17 = "stablehlo.compare"(%v15, %v16) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
%v18 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v19 = "stablehlo.compare"(%v4, %v18) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v20 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<f32>} : () -> tensor<f32>
%v21 = "stablehlo.divide"(%v20, %v4) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
%v22 = "stablehlo.select"(%v19, %v4, %v21) {} : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
%v23 = "stablehlo.constant"() {value = dense<0x3F800000> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
%v24 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
%v25 = "stablehlo.select"(%v17, %v23, %v24) {} : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v26 = "stablehlo.multiply"(%v0, %v25) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
%v27 = "stablehlo.broadcast_in_dim"(%v22) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
%v28 = "stablehlo.multiply"(%v26, %v27) {} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
"func.return"(%v28, %v17) : (tensor<2x3xf32>, tensor<2x3xi1>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 3] }, dtype: F32, sizes: [2, 3], strides: [3, 1], extents: [] }
// output 1: Fresh { base: Type { dtype: Bool, dims: [2, 3] }, dtype: Bool, sizes: [2, 3], strides: [3, 1], extents: [] }
// draws 2 blocks of random bits

// random.to: self = tensor<4xi64>, to = 10
// parameter 0: RandomState
module @torchtpu {
func.func public @main(%v0: tensor<2xui64> ) -> (tensor<4xi64>) {
%v1, %v2 = "stablehlo.rng_bit_generator"(%v0) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)
%v3 = "stablehlo.constant"() {value = dense<10> : tensor<ui32>} : () -> tensor<ui32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<4xui32>
%v5 = "stablehlo.remainder"(%v2, %v4) {} : (tensor<4xui32>, tensor<4xui32>) -> tensor<4xui32>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<4xui32>) -> tensor<4xi32>
%v7 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v8 = "stablehlo.broadcast_in_dim"(%v7) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<4xi32>
%v9 = "stablehlo.add"(%v6, %v8) {} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
%v10 = "stablehlo.convert"(%v9) {} : (tensor<4xi32>) -> tensor<4xi64>
"func.return"(%v10) : (tensor<4xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [4] }, dtype: I64, sizes: [4], strides: [1], extents: [] }
// draws 1 blocks of random bits
