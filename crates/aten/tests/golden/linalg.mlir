// mm: self = tensor<2x3xf32>, mat2 = tensor<3x4xf32>
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<3x4xf32> ) -> (tensor<2x4xf32>) {
%v2 = "stablehlo.dot_general"(%v0, %v1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
"func.return"(%v2) : (tensor<2x4xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 4] }, dtype: F32, sizes: [2, 4], strides: [4, 1], extents: [] }

// mm: self = tensor<2x3xi64>, mat2 = tensor<3x4xi64>
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xi64> , %v1: tensor<3x4xi64> ) -> (tensor<2x4xi64>) {
%v2 = "stablehlo.dot_general"(%v0, %v1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3xi64>, tensor<3x4xi64>) -> tensor<2x4xi64>
"func.return"(%v2) : (tensor<2x4xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [2, 4] }, dtype: I64, sizes: [2, 4], strides: [4, 1], extents: [] }
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xi64> , %v1: tensor<3x4xi64> ) -> (tensor<2x4xi64>) {
%v2 = "stablehlo.transpose"(%v1) {permutation = array<i64: 1, 0>} : (tensor<3x4xi64>) -> tensor<4x3xi64>
%v3 = "stablehlo.broadcast_in_dim"(%v0) {broadcast_dimensions = array<i64: 0, 2>} : (tensor<2x3xi64>) -> tensor<2x4x3xi64>
%v4 = "stablehlo.broadcast_in_dim"(%v2) {broadcast_dimensions = array<i64: 1, 2>} : (tensor<4x3xi64>) -> tensor<2x4x3xi64>
%v5 = "stablehlo.multiply"(%v3, %v4) {} : (tensor<2x4x3xi64>, tensor<2x4x3xi64>) -> tensor<2x4x3xi64>
%v6 = "stablehlo.constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
%v10 = "stablehlo.reduce"(%v5, %v6) ({
^bb0(%v7: tensor<i64>, %v8: tensor<i64>):
%v9 = "stablehlo.add"(%v7, %v8) {} : (tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%v9) : (tensor<i64>) -> ()
}) {dimensions = array<i64: 2>} : (tensor<2x4x3xi64>, tensor<i64>) -> (tensor<2x4xi64>)
"func.return"(%v10) : (tensor<2x4xi64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: I64, dims: [2, 4] }, dtype: I64, sizes: [2, 4], strides: [4, 1], extents: [] }

// bmm: self = tensor<2x3x4xbf16>, mat2 = tensor<2x4x5xbf16>
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3x4xbf16> , %v1: tensor<2x4x5xbf16> ) -> (tensor<2x3x5xbf16>) {
%v2 = "stablehlo.dot_general"(%v0, %v1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>) -> tensor<2x3x5xf32>
%v3 = "stablehlo.convert"(%v2) {} : (tensor<2x3x5xf32>) -> tensor<2x3x5xbf16>
"func.return"(%v3) : (tensor<2x3x5xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [2, 3, 5] }, dtype: BF16, sizes: [2, 3, 5], strides: [15, 5, 1], extents: [] }
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3x4xbf16> , %v1: tensor<2x4x5xbf16> ) -> (tensor<2x3x5xbf16>) {
%v2 = "stablehlo.dot_general"(%v0, %v1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>) -> tensor<2x3x5xbf16>
"func.return"(%v2) : (tensor<2x3x5xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [2, 3, 5] }, dtype: BF16, sizes: [2, 3, 5], strides: [15, 5, 1], extents: [] }

// addmm: self = tensor<4xf32>, mat1 = tensor<2x3xf32>, mat2 = tensor<3x4xf32>, beta = Int(1), alpha = a number of f64
// parameter 0: Storage(1)
// parameter 1: Storage(2)
// parameter 2: Scalar { index: 0, dtype: F32 }
// parameter 3: Storage(0)
// NumberCheck { index: 0, dtype: F32, fit: Converts }
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<3x4xf32> , %v3: tensor<f32> , %v6: tensor<4xf32> ) -> (tensor<2x4xf32>) {
%v2 = "stablehlo.dot_general"(%v0, %v1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
%v4 = "stablehlo.broadcast_in_dim"(%v3) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x4xf32>
%v5 = "stablehlo.multiply"(%v2, %v4) {} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4xf32>
%v8 = "stablehlo.add"(%v7, %v5) {} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
"func.return"(%v8) : (tensor<2x4xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 4] }, dtype: F32, sizes: [2, 4], strides: [4, 1], extents: [] }

// addmm: self = tensor<5xf32>, mat1 = tensor<2x3xf32> over storage 2 = tensor<5x3xf32>, mat2 = tensor<3x5xf32> in storage 2, strides [1, 3], offset 0, beta = Int(1), alpha = Int(1)
// for Cpu:
// parameter 0: Storage(1)
// parameter 1: Storage(2)
// parameter 2: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<5x3xf32> , %v6: tensor<5xf32> ) -> (tensor<2x5xf32>) {
%v2 = "stablehlo.transpose"(%v1) {permutation = array<i64: 1, 0>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
%v3 = "stablehlo.dot_general"(%v1, %v0) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<5x3xf32>, tensor<2x3xf32>) -> tensor<5x2xf32>
%v4 = "stablehlo.optimization_barrier"(%v3) {} : (tensor<5x2xf32>) -> tensor<5x2xf32>
%v5 = "stablehlo.transpose"(%v4) {permutation = array<i64: 1, 0>} : (tensor<5x2xf32>) -> tensor<2x5xf32>
%v7 = "stablehlo.broadcast_in_dim"(%v6) {broadcast_dimensions = array<i64: 1>} : (tensor<5xf32>) -> tensor<2x5xf32>
%v8 = "stablehlo.add"(%v7, %v5) {} : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<2x5xf32>
"func.return"(%v8) : (tensor<2x5xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 5] }, dtype: F32, sizes: [2, 5], strides: [5, 1], extents: [] }
// for Tpu:
// parameter 0: Storage(1)
// parameter 1: Storage(2)
// parameter 2: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<5x3xf32> , %v4: tensor<5xf32> ) -> (tensor<2x5xf32>) {
%v2 = "stablehlo.transpose"(%v1) {permutation = array<i64: 1, 0>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
%v3 = "stablehlo.dot_general"(%v0, %v2) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>
%v5 = "stablehlo.broadcast_in_dim"(%v4) {broadcast_dimensions = array<i64: 1>} : (tensor<5xf32>) -> tensor<2x5xf32>
%v6 = "stablehlo.add"(%v5, %v3) {} : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<2x5xf32>
"func.return"(%v6) : (tensor<2x5xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 5] }, dtype: F32, sizes: [2, 5], strides: [5, 1], extents: [] }

// bmm: self = tensor<2x1x4xbf16> over storage 1 = tensor<2x3x4xbf16>, mat2 = tensor<2x4x3xbf16> in storage 1, strides [12, 1, 4], offset 0
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x1x4xbf16> , %v1: tensor<2x3x4xbf16> ) -> (tensor<2x1x3xbf16>) {
%v2 = "stablehlo.transpose"(%v1) {permutation = array<i64: 0, 2, 1>} : (tensor<2x3x4xbf16>) -> tensor<2x4x3xbf16>
%v3 = "stablehlo.dot_general"(%v1, %v0) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [2]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x3x4xbf16>, tensor<2x1x4xbf16>) -> tensor<2x3x1xf32>
%v4 = "stablehlo.optimization_barrier"(%v3) {} : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
%v5 = "stablehlo.transpose"(%v4) {permutation = array<i64: 0, 2, 1>} : (tensor<2x3x1xf32>) -> tensor<2x1x3xf32>
%v6 = "stablehlo.convert"(%v5) {} : (tensor<2x1x3xf32>) -> tensor<2x1x3xbf16>
"func.return"(%v6) : (tensor<2x1x3xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [2, 1, 3] }, dtype: BF16, sizes: [2, 1, 3], strides: [3, 3, 1], extents: [] }
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x1x4xbf16> , %v1: tensor<2x3x4xbf16> ) -> (tensor<2x1x3xbf16>) {
%v2 = "stablehlo.transpose"(%v1) {permutation = array<i64: 0, 2, 1>} : (tensor<2x3x4xbf16>) -> tensor<2x4x3xbf16>
%v3 = "stablehlo.dot_general"(%v0, %v2) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x1x4xbf16>, tensor<2x4x3xbf16>) -> tensor<2x1x3xbf16>
"func.return"(%v3) : (tensor<2x1x3xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [2, 1, 3] }, dtype: BF16, sizes: [2, 1, 3], strides: [3, 3, 1], extents: [] }

// mm over storage 0 = tensor<2x3x4xbf16>: self = tensor<4x6xbf16> in storage 0, strides [1, 4], offset 0 over storage 1 = tensor<2x3x5xbf16>, mat2 = tensor<6x5xbf16> in storage 1, strides [5, 1], offset 0
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3x4xbf16> , %v3: tensor<2x3x5xbf16> ) -> (tensor<4x5xbf16>) {
%v1 = "stablehlo.reshape"(%v0) {} : (tensor<2x3x4xbf16>) -> tensor<6x4xbf16>
%v2 = "stablehlo.transpose"(%v1) {permutation = array<i64: 1, 0>} : (tensor<6x4xbf16>) -> tensor<4x6xbf16>
%v4 = "stablehlo.reshape"(%v3) {} : (tensor<2x3x5xbf16>) -> tensor<6x5xbf16>
%v5 = "stablehlo.dot_general"(%v0, %v3) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [0, 1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x3x4xbf16>, tensor<2x3x5xbf16>) -> tensor<4x5xbf16>
"func.return"(%v5) : (tensor<4x5xbf16>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: BF16, dims: [4, 5] }, dtype: BF16, sizes: [4, 5], strides: [5, 1], extents: [] }

// a weight that is transposed twice: x = tensor<2x3xf32>, weight = tensor<3x4xf32>
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x3xf32> , %v1: tensor<3x4xf32> ) -> (tensor<2x4xf32>) {
%v2 = "stablehlo.transpose"(%v1) {permutation = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
%v3 = "stablehlo.dot_general"(%v0, %v1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
"func.return"(%v3) : (tensor<2x4xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 4] }, dtype: F32, sizes: [2, 4], strides: [4, 1], extents: [] }

// a row by matrices whose batch is permuted, too: query = tensor<2x1x4xf32>, keys = tensor<3x2x4xf32>
// for Cpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x1x4xf32> , %v1: tensor<3x2x4xf32> ) -> (tensor<2x1x3xf32>) {
%v2 = "stablehlo.transpose"(%v1) {permutation = array<i64: 1, 0, 2>} : (tensor<3x2x4xf32>) -> tensor<2x3x4xf32>
%v3 = "stablehlo.transpose"(%v2) {permutation = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
%v4 = "stablehlo.dot_general"(%v2, %v0) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [2]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3x4xf32>, tensor<2x1x4xf32>) -> tensor<2x3x1xf32>
%v5 = "stablehlo.optimization_barrier"(%v4) {} : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
%v6 = "stablehlo.transpose"(%v5) {permutation = array<i64: 0, 2, 1>} : (tensor<2x3x1xf32>) -> tensor<2x1x3xf32>
"func.return"(%v6) : (tensor<2x1x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 1, 3] }, dtype: F32, sizes: [2, 1, 3], strides: [3, 3, 1], extents: [] }
// for Tpu:
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<2x1x4xf32> , %v1: tensor<3x2x4xf32> ) -> (tensor<2x1x3xf32>) {
%v2 = "stablehlo.transpose"(%v1) {permutation = array<i64: 1, 0, 2>} : (tensor<3x2x4xf32>) -> tensor<2x3x4xf32>
%v3 = "stablehlo.transpose"(%v2) {permutation = array<i64: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
%v4 = "stablehlo.dot_general"(%v0, %v3) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x1x4xf32>, tensor<2x4x3xf32>) -> tensor<2x1x3xf32>
"func.return"(%v4) : (tensor<2x1x3xf32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [2, 1, 3] }, dtype: F32, sizes: [2, 1, 3], strides: [3, 3, 1], extents: [] }

// linalg_cholesky_ex: self = tensor<3x3xf32>, upper = false, check_errors = false
// parameter 0: Storage(0)
module @torchtpu {
func.func public @main(%v0: tensor<3x3xf32> ) -> (tensor<3x3xf32>, tensor<i32>) {
%v1 = "stablehlo.cholesky"(%v0) {lower = true} : (tensor<3x3xf32>) -> tensor<3x3xf32>
%v2 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<3x3xi32>
%v3 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<3x3xi32>
%v4 = "stablehlo.compare"(%v2, %v3) {comparison_direction = #stablehlo<comparison_direction GE>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3x3xi32>, tensor<3x3xi32>) -> tensor<3x3xi1>
%v5 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v6 = "stablehlo.broadcast_in_dim"(%v5) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3x3xf32>
%v7 = "stablehlo.select"(%v4, %v1, %v6) {} : (tensor<3x3xi1>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
%v8 = "stablehlo.reshape"(%v0) {} : (tensor<3x3xf32>) -> tensor<1x3x3xf32>
%v9 = "stablehlo.reshape"(%v7) {} : (tensor<3x3xf32>) -> tensor<1x3x3xf32>
%v10 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<1x3x3xi32>
%v11 = "stablehlo.iota"() {iota_dimension = 2 : i64} : () -> tensor<1x3x3xi32>
%v12 = "stablehlo.compare"(%v10, %v11) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<1x3x3xi32>, tensor<1x3x3xi32>) -> tensor<1x3x3xi1>
%v13 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v14 = "stablehlo.broadcast_in_dim"(%v13) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<1x3x3xf32>
%v15 = "stablehlo.select"(%v12, %v9, %v14) {} : (tensor<1x3x3xi1>, tensor<1x3x3xf32>, tensor<1x3x3xf32>) -> tensor<1x3x3xf32>
%v16 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v20 = "stablehlo.reduce"(%v15, %v16) ({
^bb0(%v17: tensor<f32>, %v18: tensor<f32>):
%v19 = "stablehlo.add"(%v17, %v18) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v19) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 2>} : (tensor<1x3x3xf32>, tensor<f32>) -> (tensor<1x3xf32>)
%v21 = "stablehlo.compare"(%v20, %v20) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<1x3xf32>, tensor<1x3xf32>) -> tensor<1x3xi1>
%v22 = "stablehlo.convert"(%v21) {} : (tensor<1x3xi1>) -> tensor<1x3xi32>
%v23 = "stablehlo.constant"() {value = dense<-2147483648> : tensor<i32>} : () -> tensor<i32>
%v27 = "stablehlo.reduce"(%v22, %v23) ({
^bb0(%v24: tensor<i32>, %v25: tensor<i32>):
%v26 = "stablehlo.maximum"(%v24, %v25) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v26) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<1x3xi32>, tensor<i32>) -> (tensor<1xi32>)
%v28 = "stablehlo.constant"() {value = dense<0> : tensor<1xi32>} : () -> tensor<1xi32>
%v29 = "stablehlo.constant"() {value = dense<-2147483648> : tensor<i32>} : () -> tensor<i32>
%v33 = "stablehlo.reduce"(%v27, %v29) ({
^bb0(%v30: tensor<i32>, %v31: tensor<i32>):
%v32 = "stablehlo.maximum"(%v30, %v31) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v32) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<1xi32>, tensor<i32>) -> (tensor<i32>)
%v34 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v35 = "stablehlo.compare"(%v33, %v34) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
%v36 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
%v37 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v38 = "stablehlo.select"(%v35, %v36, %v37) {} : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
%v97, %v98, %v99 = "stablehlo.while"(%v38, %v8, %v28) ({
^bb0(%v39: tensor<i32>, %v40: tensor<1x3x3xf32>, %v41: tensor<1xi32>):
%v42 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
%v43 = "stablehlo.compare"(%v39, %v42) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
"stablehlo.return"(%v43) : (tensor<i1>) -> ()
}, {
^bb0(%v44: tensor<i32>, %v45: tensor<1x3x3xf32>, %v46: tensor<1xi32>):
%v47 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<1x3xi32>
%v48 = "stablehlo.iota"() {iota_dimension = 2 : i64} : () -> tensor<1x3x3xi32>
%v49 = "stablehlo.broadcast_in_dim"(%v44) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<1x3x3xi32>
%v50 = "stablehlo.compare"(%v48, %v49) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<1x3x3xi32>, tensor<1x3x3xi32>) -> tensor<1x3x3xi1>
%v51 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v52 = "stablehlo.broadcast_in_dim"(%v51) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<1x3x3xf32>
%v53 = "stablehlo.select"(%v50, %v45, %v52) {} : (tensor<1x3x3xi1>, tensor<1x3x3xf32>, tensor<1x3x3xf32>) -> tensor<1x3x3xf32>
%v54 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v58 = "stablehlo.reduce"(%v53, %v54) ({
^bb0(%v55: tensor<f32>, %v56: tensor<f32>):
%v57 = "stablehlo.add"(%v55, %v56) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v57) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 2>} : (tensor<1x3x3xf32>, tensor<f32>) -> (tensor<1x3xf32>)
%v59 = "stablehlo.broadcast_in_dim"(%v44) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<1x3xi32>
%v60 = "stablehlo.compare"(%v47, %v59) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<1x3xi32>, tensor<1x3xi32>) -> tensor<1x3xi1>
%v61 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v62 = "stablehlo.broadcast_in_dim"(%v61) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<1x3xf32>
%v63 = "stablehlo.select"(%v60, %v58, %v62) {} : (tensor<1x3xi1>, tensor<1x3xf32>, tensor<1x3xf32>) -> tensor<1x3xf32>
%v64 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v68 = "stablehlo.reduce"(%v63, %v64) ({
^bb0(%v65: tensor<f32>, %v66: tensor<f32>):
%v67 = "stablehlo.add"(%v65, %v66) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v67) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<1x3xf32>, tensor<f32>) -> (tensor<1xf32>)
%v69 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v70 = "stablehlo.broadcast_in_dim"(%v69) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<1xf32>
%v71 = "stablehlo.compare"(%v68, %v70) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
%v72 = "stablehlo.not"(%v71) {} : (tensor<1xi1>) -> tensor<1xi1>
%v73 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v74 = "stablehlo.broadcast_in_dim"(%v73) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<1xi32>
%v75 = "stablehlo.compare"(%v46, %v74) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
%v76 = "stablehlo.and"(%v72, %v75) {} : (tensor<1xi1>, tensor<1xi1>) -> tensor<1xi1>
%v77 = "stablehlo.broadcast_in_dim"(%v44) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<1x3xi32>
%v78 = "stablehlo.compare"(%v47, %v77) {comparison_direction = #stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<1x3xi32>, tensor<1x3xi32>) -> tensor<1x3xi1>
%v79 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v80 = "stablehlo.broadcast_in_dim"(%v79) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<1x3xf32>
%v81 = "stablehlo.select"(%v78, %v58, %v80) {} : (tensor<1x3xi1>, tensor<1x3xf32>, tensor<1x3xf32>) -> tensor<1x3xf32>
%v82 = "stablehlo.reshape"(%v68) {} : (tensor<1xf32>) -> tensor<1x1xf32>
%v83 = "stablehlo.broadcast_in_dim"(%v82) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<1x1xf32>) -> tensor<1x3xf32>
%v84 = "stablehlo.divide"(%v81, %v83) {} : (tensor<1x3xf32>, tensor<1x3xf32>) -> tensor<1x3xf32>
%v85 = "stablehlo.reshape"(%v84) {} : (tensor<1x3xf32>) -> tensor<1x1x3xf32>
%v86 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v87 = "stablehlo.add"(%v44, %v86) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
%v88 = "stablehlo.reshape"(%v81) {} : (tensor<1x3xf32>) -> tensor<1x3x1xf32>
%v89 = "stablehlo.broadcast_in_dim"(%v88) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<1x3x1xf32>) -> tensor<1x3x3xf32>
%v90 = "stablehlo.broadcast_in_dim"(%v85) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<1x1x3xf32>) -> tensor<1x3x3xf32>
%v91 = "stablehlo.multiply"(%v89, %v90) {} : (tensor<1x3x3xf32>, tensor<1x3x3xf32>) -> tensor<1x3x3xf32>
%v92 = "stablehlo.subtract"(%v45, %v91) {} : (tensor<1x3x3xf32>, tensor<1x3x3xf32>) -> tensor<1x3x3xf32>
%v93 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v94 = "stablehlo.add"(%v44, %v93) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
%v95 = "stablehlo.broadcast_in_dim"(%v94) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<1xi32>
%v96 = "stablehlo.select"(%v76, %v95, %v46) {} : (tensor<1xi1>, tensor<1xi32>, tensor<1xi32>) -> tensor<1xi32>
"stablehlo.return"(%v87, %v92, %v96) : (tensor<i32>, tensor<1x3x3xf32>, tensor<1xi32>) -> ()
}) {} : (tensor<i32>, tensor<1x3x3xf32>, tensor<1xi32>) -> (tensor<i32>, tensor<1x3x3xf32>, tensor<1xi32>)
%v100 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v101 = "stablehlo.broadcast_in_dim"(%v100) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<1xi32>
%v102 = "stablehlo.compare"(%v99, %v101) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
%v103 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
%v104 = "stablehlo.broadcast_in_dim"(%v103) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<1xi32>
%v105 = "stablehlo.add"(%v28, %v104) {} : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi32>
%v106 = "stablehlo.select"(%v102, %v105, %v99) {} : (tensor<1xi1>, tensor<1xi32>, tensor<1xi32>) -> tensor<1xi32>
%v107 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v108 = "stablehlo.broadcast_in_dim"(%v107) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<1xi32>
%v109 = "stablehlo.compare"(%v27, %v108) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
%v110 = "stablehlo.select"(%v109, %v28, %v106) {} : (tensor<1xi1>, tensor<1xi32>, tensor<1xi32>) -> tensor<1xi32>
%v111 = "stablehlo.reshape"(%v110) {} : (tensor<1xi32>) -> tensor<i32>
"func.return"(%v7, %v111) : (tensor<3x3xf32>, tensor<i32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [3, 3] }, dtype: F32, sizes: [3, 3], strides: [3, 1], extents: [] }
// output 1: Fresh { base: Type { dtype: I32, dims: [] }, dtype: I32, sizes: [], strides: [], extents: [] }

// linalg_solve_triangular: self = tensor<3x3xf64>, B = tensor<3x2xf64>, upper = true, left = true, unitriangular = false
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<3x3xf64> , %v1: tensor<3x2xf64> ) -> (tensor<3x2xf64>) {
%v2 = "stablehlo.constant"() {value = dense<0x0000000000000000> : tensor<f64>} : () -> tensor<f64>
%v3 = "stablehlo.triangular_solve"(%v0, %v1) {left_side = true, lower = false, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : (tensor<3x3xf64>, tensor<3x2xf64>) -> tensor<3x2xf64>
"func.return"(%v3) : (tensor<3x2xf64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F64, dims: [3, 2] }, dtype: F64, sizes: [3, 2], strides: [2, 1], extents: [] }
