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
%v2 = "stablehlo.dot_general"(%v0, %v1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>) -> tensor<2x3x5xf32>
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
%v2 = "stablehlo.dot_general"(%v0, %v1) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>) -> tensor<2x3x5xbf16>
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
%v8 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<3x3xi32>
%v9 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<3x3xi32>
%v10 = "stablehlo.compare"(%v8, %v9) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<3x3xi32>, tensor<3x3xi32>) -> tensor<3x3xi1>
%v11 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v12 = "stablehlo.broadcast_in_dim"(%v11) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3x3xf32>
%v13 = "stablehlo.select"(%v10, %v7, %v12) {} : (tensor<3x3xi1>, tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
%v14 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<f32>} : () -> tensor<f32>
%v18 = "stablehlo.reduce"(%v13, %v14) ({
^bb0(%v15: tensor<f32>, %v16: tensor<f32>):
%v17 = "stablehlo.add"(%v15, %v16) {} : (tensor<f32>, tensor<f32>) -> tensor<f32>
"stablehlo.return"(%v17) : (tensor<f32>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<3x3xf32>, tensor<f32>) -> (tensor<3xf32>)
%v19 = "stablehlo.compare"(%v18, %v18) {comparison_direction = #stablehlo<comparison_direction NE>, compare_type = #stablehlo<comparison_type FLOAT>} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
%v20 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<3xi32>
%v21 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
%v22 = "stablehlo.broadcast_in_dim"(%v21) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<3xi32>
%v23 = "stablehlo.add"(%v20, %v22) {} : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
%v24 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
%v25 = "stablehlo.broadcast_in_dim"(%v24) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<3xi32>
%v26 = "stablehlo.select"(%v19, %v23, %v25) {} : (tensor<3xi1>, tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
%v27 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
%v31 = "stablehlo.reduce"(%v26, %v27) ({
^bb0(%v28: tensor<i32>, %v29: tensor<i32>):
%v30 = "stablehlo.minimum"(%v28, %v29) {} : (tensor<i32>, tensor<i32>) -> tensor<i32>
"stablehlo.return"(%v30) : (tensor<i32>) -> ()
}) {dimensions = array<i64: 0>} : (tensor<3xi32>, tensor<i32>) -> (tensor<i32>)
%v32 = "stablehlo.constant"() {value = dense<2147483647> : tensor<i32>} : () -> tensor<i32>
%v33 = "stablehlo.compare"(%v31, %v32) {comparison_direction = #stablehlo<comparison_direction EQ>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
%v34 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
%v35 = "stablehlo.select"(%v33, %v34, %v31) {} : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
"func.return"(%v7, %v35) : (tensor<3x3xf32>, tensor<i32>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F32, dims: [3, 3] }, dtype: F32, sizes: [3, 3], strides: [3, 1], extents: [] }
// output 1: Fresh { base: Type { dtype: I32, dims: [] }, dtype: I32, sizes: [], strides: [], extents: [] }

// linalg_solve_triangular: self = tensor<3x3xf64>, B = tensor<3x2xf64>, upper = true, left = true, unitriangular = false
// parameter 0: Storage(0)
// parameter 1: Storage(1)
module @torchtpu {
func.func public @main(%v0: tensor<3x3xf64> , %v1: tensor<3x2xf64> ) -> (tensor<3x2xf64>) {
%v2 = "stablehlo.triangular_solve"(%v0, %v1) {left_side = true, lower = false, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : (tensor<3x3xf64>, tensor<3x2xf64>) -> tensor<3x2xf64>
"func.return"(%v2) : (tensor<3x2xf64>) -> ()
}
}
// output 0: Fresh { base: Type { dtype: F64, dims: [3, 2] }, dtype: F64, sizes: [3, 2], strides: [2, 1], extents: [] }
